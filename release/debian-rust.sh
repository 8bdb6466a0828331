# Sourced by build.sh: Debian's newest compiler, with build-std, where rustup cannot add a target. Sets `build` and `extra`.
#
# The packages are unpacked, not installed: they conflict with Debian's own rustc. build-std is an unstable option of Cargo.
version=$(apt-cache policy rustc-web | sed -n 's/^  Candidate: //p')
[ -n "$version" ] || { echo "build: no package rustc-web: run \`apt-get update\` on Debian, or install Rust from https://rustup.rs" >&2; exit 1; }
debian=$root/target/dist-tools/debian-rust-$version
if [ ! -d "$debian" ]; then
    rm -rf "$debian.new" && mkdir -p "$debian.new"
    (
        cd "$debian.new"
        apt-get download "rustc-web=$version" "cargo-web=$version" "rust-web-src=$version" "libstd-rust-web-dev=$version"
        for package in *.deb; do dpkg-deb --extract "$package" .; done
        rm ./*.deb
    )
    mv "$debian.new" "$debian"
fi
