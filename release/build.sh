#!/usr/bin/env bash
# Builds the static program for one target, stripped, with its debug information in a file beside it.
#
#   release/build.sh TARGET FOLDER     TARGET is x86_64-unknown-linux-musl or aarch64-unknown-linux-musl
#
# The program depends only on the sources, on the commit and on the versions of the tools: not on the folder, the user or the time.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD target=$1 out=$2 binutils=${1%%-*}-linux-gnu

export NETSURGEON_COMMIT NETSURGEON_DATE CARGO_INCREMENTAL=0
NETSURGEON_COMMIT=$(release/facts.sh commit)
NETSURGEON_DATE=$(release/facts.sh date)
# mimalloc records when it was compiled, and neither Cargo nor the cache of zig compiles it again for another date: always the same one.
export SOURCE_DATE_EPOCH=0 ZIG_GLOBAL_CACHE_DIR=$root/target/dist-build/zig

tools=$(release/facts.sh tools)
if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
    python3 -m venv "$tools"
    # The program of the last package that pip installs shows that the folder is complete.
    "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement release/requirements.txt
fi
PATH="$root/$tools/bin:$PATH"
# The targets of rustup; where none can be added, Debian's compiler and its sources of the standard library.
cargo=(cargo-zigbuild zigbuild) options=() link=()
if [ "${DIST_TOOLCHAIN:-}" = debian ] || ! rustup target add "$target"; then
    source release/debian-rust.sh
fi

# No folder of this machine in the program. Where rustup has the sources of the standard library, their folder would be in it, too.
library=/rustc/$(rustc --version --verbose | sed -n 's/^commit-hash: //p')
registry=${CARGO_HOME:-$HOME/.cargo}
RUSTFLAGS="--remap-path-prefix=$(rustc --print sysroot)/lib/rustlib/src/rust=$library"
RUSTFLAGS+=" --remap-path-prefix=$registry=/cargo --remap-path-prefix=$root=/netsurgeon"
export RUSTFLAGS TARGET_CFLAGS="-ffile-prefix-map=$registry=/cargo -ffile-prefix-map=$root=/netsurgeon"

"${cargo[@]}" --profile dist --locked --bin netsurgeon --target "$target" --target-dir target/dist-build "${options[@]}" "${link[@]}"

mkdir -p "$out"
built=target/dist-build/$target/dist/netsurgeon
# No link from the program to this file: it would have the sum of the file, in which zig records the folder where it compiled musl.
"$binutils-objcopy" --only-keep-debug --compress-debug-sections "$built" "$out/netsurgeon.debug"
"$binutils-objcopy" --strip-all "$built" "$out/netsurgeon.new"
mv "$out/netsurgeon.new" "$out/netsurgeon"
