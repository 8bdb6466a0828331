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
    library=$(apt-cache depends libstd-rust-web-dev | sed -n 's/^  Depends: \(libstd-rust-web-[0-9.]*\)$/\1/p' | head -n 1)
    (
        cd "$debian.new" || exit
        apt-get download "rustc-web=$version" "libstd-rust-web-dev=$version" "$library=$version" "rust-web-src=$version"
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
