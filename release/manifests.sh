#!/usr/bin/env bash
# Writes deploy/*.yaml with an image: `release/manifests.sh IMAGE FOLDER`. An image without a digest gets that of the release in target/dist.
set -euo pipefail
cd "$(dirname "$0")/.."
image=$1 folder=$2
fail() { echo "manifests: $*" >&2; exit 1; }
[ -n "$image" ] || fail "give the image, as in: make manifests IMAGE=registry.example.com/netsurgeon"
if [[ ! $image =~ @sha256:[0-9a-f]{64}$ ]]; then
    # The last part of the name; before it, a colon is that of a port.
    [[ ! ${image##*/} =~ [@:] ]] || fail "\`$image\` has a tag, which can be moved: give REGISTRY/NAME or REGISTRY/NAME@sha256:DIGEST"
    layout=target/dist/netsurgeon-$(release/facts.sh version)-image
    [ -f "$layout/index.json" ] || fail "no image in target/dist: run \`make dist\`, or give REGISTRY/NAME@sha256:DIGEST"
    image+=@$(grep -o 'sha256:[0-9a-f]\{64\}' "$layout/index.json")
fi
mkdir -p "$folder"
for manifest in deploy/*.yaml; do
    sed "s|FILL-IN/netsurgeon@sha256:DIGEST|$image|" "$manifest" >"$folder/${manifest##*/}"
done
echo "$folder: $image"
