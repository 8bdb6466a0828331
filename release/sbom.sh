#!/usr/bin/env bash
# Writes the bill of materials of the program: `release/sbom.sh FILE`, CycloneDX as JSON, for both targets.
set -euo pipefail
cd "$(dirname "$0")/.."
