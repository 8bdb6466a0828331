#!/usr/bin/env bash
# What a release is made from: `release/facts.sh version|commit|epoch|date`; and `tools`, the folder of zig and cargo-zigbuild.
#
# The commit is marked with `-dirty` if files differ from it. SOURCE_COMMIT and SOURCE_DATE_EPOCH replace what git says, for sources without
# a repository.
set -euo pipefail
cd "$(dirname "$0")/.."
epoch() { echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"; }
case "${1:-}" in
    version) sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml ;;
    commit) echo "${SOURCE_COMMIT:-$(git describe --always --abbrev=40 --exclude '*' --dirty)}" ;;
    epoch) epoch ;;
    date) date --utc --date "@$(epoch)" +%Y-%m-%d ;;
    tools) echo "target/dist-tools/zig-$(sed -n 's/^ziglang==\([^ ]*\).*/\1/p' release/requirements.txt)" ;;
    *) echo "say \`version\`, \`commit\`, \`epoch\`, \`date\` or \`tools\`" >&2; exit 2 ;;
esac
