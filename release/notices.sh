#!/usr/bin/env bash
# Adds the licences of what only a static program contains to those of `make notices`: `release/notices.sh NOTICES OUT`, after build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
notices=$1 out=$2
tools=$(release/facts.sh tools)
line=$(printf '=%.0s' {1..80})
{
    cat "$notices"
    printf '\n%s\nThe standard library of Rust (MIT OR Apache-2.0; LICENSE has the text of Apache-2.0)\n' "$line"
    printf '\n%s\nmusl, the C library (MIT)\n%s\n' "$line" "${line//=/-}"
    cat "$tools"/lib/python*/site-packages/ziglang/lib/libc/musl/COPYRIGHT
} >"$out"
