#!/usr/bin/env bash
# Tries a release as its users do: `release/check.sh RELEASE REGISTRY TOOLS`, as root.
#
# RELEASE is the folder of `make dist`, REGISTRY is the image registry of the rig, TOOLS has crane and krew. Each line of the output is
# something that was seen. Everything runs in a folder below `target` and on loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f "$1/SHA256SUMS" ] || { echo "check: no release in $1: run \`make dist\`" >&2; exit 1; }
release=$(realpath "$1") registry=$(realpath "$2") tools=$(realpath "$3")
version=$(release/facts.sh version)
mkdir -p target
work=$(mktemp -d "$PWD/target/dist-check.XXXXXX")
children=()
cleanup() {
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "check: $*" >&2; exit 1; }
x86=netsurgeon-$version-x86_64-unknown-linux-musl
arm=netsurgeon-$version-aarch64-unknown-linux-musl
move=(rehearse testdata/objects.snapshot.db --to 10.200.0.0/16)

# wait_for WHAT COMMAND...: until the command succeeds, for half a minute.
wait_for() {
    local what=$1
    shift
    for _ in $(seq 150); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
    fail "$what: not within 30 s"
}

sums() {
    (cd "$release" && sha256sum --check --quiet --strict SHA256SUMS) || fail "the sums differ"
    echo "sums: $(wc -l <"$release/SHA256SUMS") files"
}

archives() {
    local target folder binutils address
    for target in "$x86" "$arm"; do
        tar --extract --gzip --file "$release/$target.tar.gz" --directory "$work"
        tar --extract --gzip --file "$release/$target-debug.tar.gz" --directory "$work"
        ! readelf --program-headers "$work/$target/netsurgeon" | grep -q INTERP || fail "$target is not static"
        for folder in "$PWD" "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}"; do
            ! grep -rqF "$folder" "$work/$target" || fail "$target contains the folder $folder of this machine"
        done
        binutils=${target#"netsurgeon-$version-"} binutils=${binutils%%-*}-linux-gnu
        address=$("$binutils-nm" "$work/$target-debug/netsurgeon.debug" | sed -n '/netsurgeon3cli8dispatch/{s/ .*//p;q}' || true)
        "$binutils-addr2line" --exe="$work/$target-debug/netsurgeon.debug" "$address" | grep -q '^/netsurgeon/src/cli/' ||
            fail "$target: the debug information does not name the source of $address"
        echo "archive: $target: $(stat --format %s "$release/$target.tar.gz") bytes, the program $(stat --format %s "$work/$target/netsurgeon") bytes, static"
    done
    ls "$work/$x86"/man/netsurgeon-rehearse.1 "$work/$x86"/{LICENSE,THIRD-PARTY-NOTICES,completions/_netsurgeon} >/dev/null
}

programs() {
    "$work/$x86/netsurgeon" version -o json >"$work/version"
    for part in "$version" "$(release/facts.sh commit)" "$(release/facts.sh date)"; do
        grep -qF "\"$part\"" "$work/version" || fail "the version lacks $part: $(cat "$work/version")"
    done
    "$work/$x86/netsurgeon" "${move[@]}" >"$work/x86.out" 2>"$work/x86.err"
    qemu-aarch64-static "$work/$arm/netsurgeon" "${move[@]}" >"$work/arm.out" 2>"$work/arm.err"
    grep -q 'forward       ok' "$work/x86.out" || fail "the rehearsal failed: $(cat "$work/x86.out")"
    diff "$work/x86.out" "$work/arm.out" || fail "the architectures print different results"
    diff "$work/x86.err" "$work/arm.err" || fail "the architectures print different messages"
    [ "$("$work/$x86/netsurgeon" version)" = "$(qemu-aarch64-static "$work/$arm/netsurgeon" version)" ] || fail "the versions differ"
    echo "programs: $("$work/$x86/netsurgeon" version): both architectures rehearse, with equal output"
}

debian_package() {
    local root=$work/debian left
    debootstrap --variant=minbase stable "$root" >"$work/debootstrap.log" || fail "$(tail "$work/debootstrap.log")"
    cp "$release/netsurgeon_${version/-/\~}_amd64.deb" testdata/objects.snapshot.db "$root/root"
    find "$root" -path "$root/proc" -prune -o -printf '%P\n' | sort >"$work/before"
    # shellcheck disable=SC2016
    unshare --mount --pid --fork chroot "$root" bash -euc '
        dpkg --install /root/netsurgeon_*.deb
        [ "$(command -v netsurgeon)" = /usr/bin/netsurgeon ] && kubectl-netsurgeon version
        netsurgeon rehearse /root/objects.snapshot.db --to 10.200.0.0/16
        [ "$(dpkg --verify netsurgeon)" = "" ]
        dpkg --purge netsurgeon' >"$work/package.out" 2>&1 || fail "the package: $(cat "$work/package.out")"
    grep -q 'forward       ok' "$work/package.out" || fail "the installed program: $(cat "$work/package.out")"
    find "$root" -path "$root/proc" -prune -o -printf '%P\n' | sort >"$work/after"
    left=$(comm -13 "$work/before" "$work/after" | grep -v '/dpkg/' || true)
    [ -z "$left" ] || fail "the package left $left"
    dpkg-deb --field "$release/netsurgeon_${version/-/\~}_arm64.deb" Architecture | grep -qx arm64 || fail "not arm64"
    echo "package: installed, run and removed in Debian $(cat "$root/etc/debian_version"); no file left"
}

# Pushes the layout to a registry, pulls it, and runs the image as its user, in a root that nobody can write to.
image() {
    local layout=$release/netsurgeon-$version-image port digest root=$work/image
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    printf 'version: 0.1\nstorage: {inmemory: {}}\nhttp: {addr: "127.0.0.1:%s"}\n' "$port" >"$work/registry.yaml"
    OTEL_TRACES_EXPORTER=none "$registry" serve "$work/registry.yaml" >"$work/registry.log" 2>&1 &
    children+=($!)
    wait_for "the registry answers" "$tools/crane" catalog "127.0.0.1:$port"
    "$tools/crane" push "$layout" "127.0.0.1:$port/netsurgeon:$version" >"$work/pushed" 2>"$work/push.log" || fail "$(cat "$work/push.log")"
    digest=$("$tools/crane" digest "127.0.0.1:$port/netsurgeon:$version")
    grep -qF "\"$digest\"" "$layout/index.json" || fail "the registry has $digest, the layout $(cat "$layout/index.json")"
    "$tools/crane" validate --remote "127.0.0.1:$port/netsurgeon@$digest" >"$work/validate" 2>&1 || fail "$(cat "$work/validate")"
    for platform in amd64 arm64; do
        mkdir -p "$root/$platform/data"
        "$tools/crane" export --platform "linux/$platform" "127.0.0.1:$port/netsurgeon@$digest" - | tar --extract --directory "$root/$platform"
    done
    "$tools/crane" config --platform linux/amd64 "127.0.0.1:$port/netsurgeon@$digest" | grep -qF '"User":"65532:65532","Entrypoint":["/netsurgeon"]' || fail "another user"
    cmp "$root/arm64/netsurgeon" "$work/$arm/netsurgeon" || fail "another program for arm64"
    # As a container runtime does: the volume is mounted, the root is read-only.
    # shellcheck disable=SC2016
    unshare --mount --pid --fork bash -euc '
        mount --bind "$1" "$1" && mount --bind testdata "$1/data" && mount -o remount,bind,ro "$1" && mount -o remount,bind,ro "$1/data"
        ! touch "$1/x" 2>/dev/null || exit 9
        exec chroot --userspec=65532:65532 --groups= "$1" /netsurgeon rehearse /data/objects.snapshot.db --to 10.200.0.0/16
    ' - "$root/amd64" >"$work/image.out" 2>"$work/image.err" || fail "the image: $(cat "$work/image.err")"
    diff <(sed 's|testdata/|/data/|' "$work/x86.out") "$work/image.out" || fail "the image rehearses differently"
    echo "image: $digest in the layout and in a registry; runs as 65532 with a read-only root"
}

# krew's validation installs the plug-in for each platform, from the address of the release: here the folder, on loopback.
krew() {
    local url
    mkdir "$work/krew" "$work/bin"
    # What `kubectl krew` does.
    printf '#!/bin/sh\nshift\nexec %s/krew "$@"\n' "$tools" >"$work/bin/kubectl" && chmod +x "$work/bin/kubectl"
    python3 -u -m http.server --bind 127.0.0.1 --directory "$release" 0 >"$work/http.log" 2>&1 &
    children+=($!)
    wait_for "the files are served" grep -q 'http://' "$work/http.log"
    url=$(grep -o 'http://[0-9.:]*' "$work/http.log" | head -n 1)
    sed "s|uri: .*/|uri: $url/|" "$release/netsurgeon.yaml" >"$work/krew/netsurgeon.yaml"
    PATH="$work/bin:$PATH" "$tools/validate-krew-manifest" -manifest "$work/krew/netsurgeon.yaml" >"$work/krew.log" 2>&1 || fail "$(cat "$work/krew.log")"
    grep -q 'all 2 spec.platforms installed fine' "$work/krew.log" || fail "$(cat "$work/krew.log")"
    echo "krew: the manifest is valid, and installs for 2 platforms"
}

formula() {
    ruby -c "$release/netsurgeon.rb" >/dev/null || fail "the formula is not Ruby"
    for target in "$x86" "$arm"; do
        grep -qF "$(sha256sum "$release/$target.tar.gz" | cut -d ' ' -f 1)" "$release/netsurgeon.rb" || fail "the formula lacks the sum of $target"
    done
    echo "homebrew: the formula is Ruby, with both sums"
}

sums
archives
programs
debian_package
image
krew
formula
