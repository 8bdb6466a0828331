#!/usr/bin/env bash
# Writes the bill of materials of the program for one target, as CycloneDX: `release/sbom.sh TARGET FILE`.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1 file=$2
SOURCE_DATE_EPOCH=$(release/facts.sh epoch)
export SOURCE_DATE_EPOCH
# The tool writes beside each Cargo.toml of the workspace.
cargo cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --target "$target" --override-filename dist-sbom
rm tests/fuzz/dist-sbom.json
sed "s|path+file://$PWD|path+file:///netsurgeon|g" dist-sbom.json >"$file"
rm dist-sbom.json
