#!/usr/bin/env bash
# Makes a Debian package from the unpacked archive of a target: `release/deb.sh FOLDER ARCHITECTURE OUT`. package.sh sets the environment.
#
# A static program depends on nothing, so the package has no maintainer scripts and installs on every Debian and Ubuntu.
set -euo pipefail
from=$1 architecture=$2 out=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

doc=$root/usr/share/doc/netsurgeon man=$root/usr/share/man/man1
install -D -m 755 "$from/netsurgeon" "$root/usr/bin/netsurgeon"
# As a plug-in of kubectl, with completion.
ln -s netsurgeon "$root/usr/bin/kubectl-netsurgeon"
ln -s netsurgeon "$root/usr/bin/kubectl_complete-netsurgeon"
install -D -m 644 "$from/completions/netsurgeon.bash" "$root/usr/share/bash-completion/completions/netsurgeon"
install -D -m 644 "$from/completions/_netsurgeon" "$root/usr/share/zsh/vendor-completions/_netsurgeon"
install -D -m 644 "$from/completions/netsurgeon.fish" "$root/usr/share/fish/vendor_completions.d/netsurgeon.fish"
install -D -m 644 -t "$man" "$from"/man/*.1
install -D -m 644 "$from/CHANGELOG.md" "$doc/changelog"
install -D -m 644 "$from/THIRD-PARTY-NOTICES" "$doc/THIRD-PARTY-NOTICES"
gzip --no-name --best "$man"/*.1 "$doc/changelog" "$doc/THIRD-PARTY-NOTICES"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n'
    printf 'Files: *\nCopyright: the authors of netsurgeon\nLicense: Apache-2.0\n'
    printf 'Comment: THIRD-PARTY-NOTICES.gz has the licences of the libraries in the program.\n\n'
    printf 'License: Apache-2.0\n'
    sed 's/^$/./; s/^/ /' "$from/LICENSE"
} >"$doc/copyright"
size=$(find "$root" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
mkdir "$root/DEBIAN"
# Debian sorts `~` before everything: 0.3.0~rc.1 is older than 0.3.0.
cat >"$root/DEBIAN/control" <<END
Package: netsurgeon
Version: ${VERSION/-/\~}
Architecture: $architecture
Maintainer: the authors of netsurgeon
Installed-Size: $size
Section: admin
Priority: optional
Homepage: $URL
Description: change the network of a Kubernetes cluster that is serving traffic
 netsurgeon moves all Services of a running cluster to another Service CIDR,
 directly in etcd, while every connection continues. It rehearses the move on
 a copy of an etcd snapshot, and can roll it back.
END
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
# One thread: xz compresses differently with several.
dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$root" "$out/netsurgeon_${VERSION/-/\~}_$architecture.deb" >/dev/null
