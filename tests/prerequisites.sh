#!/usr/bin/env bash
# Installs the Debian packages that are missing, and checks the two toolchains that Debian's packages are
# too old for.
#
#   tests/prerequisites.sh build    what compiling netsurgeon needs
#   tests/prerequisites.sh rig      the same, and what the tests on real components need
#   tests/prerequisites.sh dist     what `make dist` needs; `dist-check`: what `make dist-check` needs
#
# Nothing is installed that is there already, and no package that starts a service.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "prerequisites: $*" >&2
    exit 1
}

# Fails unless version $1 is at least $2.
at_least() {
    [ "$(printf '%s\n' "$2" "$1" | sort --version-sort | head -n 1)" = "$2" ]
}

check_cargo() {
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    command -v cargo >/dev/null || fail "cargo is missing. A release needs no compiler: docs/install.md. To compile, install Rust $wanted or newer:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal && . ~/.cargo/env"
    found=$(cargo --version | cut -d ' ' -f 2)
    at_least "$found" "$wanted" || fail "cargo is $found, Rust $wanted or newer is needed: rustup update stable"
}

check_go() {
    local wanted found
    # ExternalDNS asks for the newest Go of the rig's programs.
    wanted=$(sed -n 's/^go //p' tests/externaldns/go.mod)
    command -v go >/dev/null || fail "go is missing: install Go $wanted or newer, see https://go.dev/dl"
    # In the module's folder, where a Go since 1.21 fetches the toolchain that go.mod asks for; `auto` as in the Makefile.
    found=$(cd tests/externaldns && GOTOOLCHAIN=auto go env GOVERSION) || fail "go cannot switch to the toolchain $wanted"
    at_least "${found#go}" "$wanted" || fail "go is ${found#go}, $wanted or newer is needed: https://go.dev/dl"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        command -v sudo >/dev/null || fail "this needs root, and there is no sudo: $*"
        sudo "$@"
    fi
}

install_packages() {
    local missing=()
    for package in "$@"; do
        dpkg-query --show --showformat '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "prerequisites: installing ${missing[*]}" >&2
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --quiet --no-install-recommends "${missing[@]}" >&2
}

# Administrators' programs are not on everybody's path.
PATH="$PATH:/usr/sbin:/sbin"
packages=(build-essential ca-certificates curl git libprotobuf-dev protobuf-compiler)
commands=(cc curl git protoc)
case "${1:-}" in
    build) ;;
    rig)
        packages+=(bind9-libs chromium conntrack faketime iproute2 ipset iptables libedit2 nftables openssl time)
        commands+=(chromium conntrack faketime ip ipset iptables nft nsenter openssl python3 setpriv)
        # Not needed beside a newer Python than Debian's.
        python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
        ;;
    dist)
        packages+=(binutils-aarch64-linux-gnu)
        commands+=(aarch64-linux-gnu-objcopy dpkg-deb python3)
        python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
        ;;
    dist-check)
        packages+=(debootstrap python3-minimal qemu-user-static ruby)
        commands+=(debootstrap python3 qemu-aarch64-static ruby unshare)
        ;;
    *) fail "say \`build\`, \`rig\`, \`dist\` or \`dist-check\`" ;;
esac
if command -v apt-get >/dev/null; then
    install_packages "${packages[@]}"
    # `make rig` downloads this one to unpack it; images without package lists are common.
    [ "$1" != rig ] || apt-cache show etcd-server >/dev/null 2>&1 || as_root apt-get update -qq
fi
for command in "${commands[@]}"; do
    command -v "$command" >/dev/null || fail "\`$command\` is missing; on Debian it comes with: ${packages[*]}"
done
[ -e /usr/include/google/protobuf/any.proto ] || [ -n "${PROTOC_INCLUDE:-}" ] ||
    fail "google/protobuf/any.proto is missing; on Debian it comes with libprotobuf-dev"
check_cargo
case "$1" in
    rig | dist-check) check_go ;;
esac
