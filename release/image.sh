#!/usr/bin/env bash
# Makes an image of the programs as an OCI layout, without a daemon: `release/image.sh PROGRAMS NOTICES OUT`. package.sh sets the environment.
#
# The image has the program and the licences, and nothing else: it needs no shell, no libraries and no files. Its digest depends only on
# these files, on the version, the commit and the date of the release.
set -euo pipefail
programs=$1 notices=$2 out=$3
source release/archive.sh
commit=$(release/facts.sh commit)
created=$(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out" && mkdir -p "$out/blobs/sha256"

digest() { sha256sum "$1" | cut -d ' ' -f 1; }

# descriptor TYPE FILE [MORE]: stores a file under its digest, and prints the JSON that refers to it.
descriptor() {
    local digest size
    digest=$(digest "$2") size=$(stat --format %s "$2")
    install -m 644 "$2" "$out/blobs/sha256/$digest"
    printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s%s}' "$1" "$digest" "$size" "${3:-}"
}

# The manifest of one target.
manifest() {
    local root=$work/root platform layer config
    rm -rf "$root" && mkdir "$root"
    install -m 755 "$programs/$1/netsurgeon" "$root"
    install -m 644 LICENSE "$notices" "$root"
    archive "$root" LICENSE THIRD-PARTY-NOTICES netsurgeon >"$work/layer.tar"
    compress <"$work/layer.tar" >"$work/layer.tar.gz"
    platform="\"architecture\":\"$(debian_architecture "$1")\",\"os\":\"linux\""
    cat >"$work/config.json" <<END
{"created":"$created",$platform,"config":{"User":"65532:65532","Entrypoint":["/netsurgeon"],"Labels":{"org.opencontainers.image.title":"netsurgeon","org.opencontainers.image.version":"$VERSION","org.opencontainers.image.revision":"$commit","org.opencontainers.image.created":"$created","org.opencontainers.image.licenses":"Apache-2.0","org.opencontainers.image.source":"$URL"}},"rootfs":{"type":"layers","diff_ids":["sha256:$(digest "$work/layer.tar")"]},"history":[{"created":"$created","created_by":"release/image.sh"}]}
END
    config=$(descriptor config.v1+json "$work/config.json")
    layer=$(descriptor layer.v1.tar+gzip "$work/layer.tar.gz")
    echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":$config,\"layers\":[$layer]}" >"$work/manifest.json"
    descriptor manifest.v1+json "$work/manifest.json" ",\"platform\":{$platform}"
}

manifests=()
for target in x86_64-unknown-linux-musl aarch64-unknown-linux-musl; do
    manifests+=("$(manifest "$target")")
done
list=$(IFS=,; echo "${manifests[*]}")
echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[$list]}" >"$work/index.json"
index=$(descriptor index.v1+json "$work/index.json" ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"$VERSION\"}")
echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[$index]}" >"$out/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$out/oci-layout"
