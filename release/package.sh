#!/usr/bin/env bash
# Makes everything that a release consists of from the programs: archives, Debian packages, an image, manifests for package managers,
# and SHA256SUMS. It compiles nothing.
#
#   release/package.sh PROGRAMS NOTICES OUT
#
# PROGRAMS has a folder for each target, with `netsurgeon` and `netsurgeon.debug`; the program of this machine's own target is run to
# write the manual. The same input makes the same bytes: every file gets the date of the release, and root as its owner.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
programs=$(realpath "$1") notices=$(realpath "$2")
mkdir -p "$3" && out=$(realpath "$3")
cd "$repository"
umask 022
export LC_ALL=C TZ=UTC0 SOURCE_DATE_EPOCH VERSION URL
SOURCE_DATE_EPOCH=$(release/facts.sh epoch)
VERSION=$(release/facts.sh version)
URL=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
source release/archive.sh

targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The files that are the same for every target.
mkdir -p "$work/share/man" "$work/share/completions"
install -m 644 LICENSE CHANGELOG.md README.md "$work/share"
install -m 644 "$notices" "$work/share/THIRD-PARTY-NOTICES"
program=$programs/$(uname -m)-unknown-linux-musl/netsurgeon
"$program" man --directory "$work/share/man"
"$program" completions bash >"$work/share/completions/netsurgeon.bash"
"$program" completions zsh >"$work/share/completions/_netsurgeon"
"$program" completions fish >"$work/share/completions/netsurgeon.fish"

for target in "${targets[@]}"; do
    name=netsurgeon-$VERSION-$target
    mkdir "$work/$name" "$work/$name-debug"
    cp -r "$work/share/." "$work/$name"
    install -m 755 "$programs/$target/netsurgeon" "$work/$name"
    archive "$work" "$name" | compress >"$out/$name.tar.gz"
    install -m 644 "$programs/$target/netsurgeon.debug" "$work/$name-debug"
    archive "$work" "$name-debug" | compress >"$out/$name-debug.tar.gz"
    release/deb.sh "$work/$name" "$(debian_architecture "$target")" "$out"
done
release/image.sh "$programs" "$work/share/THIRD-PARTY-NOTICES" "$out/netsurgeon-$VERSION-image"
archive "$out" "netsurgeon-$VERSION-image" >"$out/netsurgeon-$VERSION-image.tar"

# Manifests of package managers: templates with the version, the address of the files, and their sums.
sum() { sha256sum "$out/netsurgeon-$VERSION-$1.tar.gz" | cut -d ' ' -f 1; }
for template in release/krew.yaml release/homebrew.rb; do
    text=$(<"$template")
    text=${text//@VERSION@/$VERSION} text=${text//@URL@/$URL}
    for target in "${targets[@]}"; do text=${text//@SUM-$target@/$(sum "$target")}; done
    echo "$text" >"$out/netsurgeon.${template##*.}"
done

cd "$out"
find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
