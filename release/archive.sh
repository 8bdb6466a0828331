# shellcheck shell=bash
# Sourced: archives whose bytes depend only on the content of the files.

# archive FOLDER NAME...: a tar archive of these files in the folder, on stdout. Everything has the date of the release and belongs to root.
archive() {
    tar --create --directory "$1" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w -- "${@:2}"
}

# Not zlib, whose versions compress differently.
compress() { gzip --no-name; }

# debian_architecture TARGET: what Debian, OCI, krew and Homebrew call it.
debian_architecture() {
    case "$1" in
        x86_64-*) echo amd64 ;;
        aarch64-*) echo arm64 ;;
    esac
}
