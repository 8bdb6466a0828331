# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by build.sh: Debian's newest compiler, where rustup cannot add a target. Cargo compiles the standard library from Debian's sources.
#
# The packages are unpacked, not installed: they conflict with Debian's own rustc. Compiling the standard library is an unstable feature of
# Cargo, and RUSTC_BOOTSTRAP permits it.
version=$(apt-cache policy rustc-web | sed -n 's/^  Candidate: //p')
[ -n "$version" ] || { echo "build: Debian has no package rustc-web here: run \`apt-get update\`" >&2; exit 1; }
debian=$root/target/dist-tools/rustc-web-$version
if [ ! -d "$debian" ]; then
    rm -rf "$debian.new" && mkdir -p "$debian.new"
    (
        cd "$debian.new" || exit
        # With the libraries of the compiler that are not installed.
        apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
            rustc-web rust-web-src | grep '^[a-z]' | while read -r package; do
            dpkg-query --show --showformat '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
        done | xargs apt-get download
        for package in *.deb; do dpkg-deb --extract "$package" . && rm "$package"; done
    )
    mv "$debian.new" "$debian"
fi
export RUSTC_BOOTSTRAP=1 RUSTC=$debian/usr/bin/rustc LD_LIBRARY_PATH=$debian/usr/lib/x86_64-linux-gnu
PATH=$debian/usr/bin:$PATH
cargo=(cargo-zigbuild rustc)
options=(-Z "build-std=std,panic_abort")
# Debian's compiler has no objects of musl, and zig brings its own.
link=(-- -C link-self-contained=no -C relocation-model=static)
