//! Manifests: their media types, and the platforms of an index (`opencontainers/image-spec`, `image-index.md`).

use std::collections::BTreeSet;

use serde::Deserialize;

/// The media types that container runtimes accept (containerd `core/remotes/docker/resolver.go`).
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// The media types of a list of manifests, one for each platform.
const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

/// Returns whether a media type is that of an index.
pub(super) fn is_index(media_type: &str) -> bool {
    INDEXES.contains(&media_type.split(';').next().unwrap_or_default().trim())
}

/// Returns the platforms of an index, such as `linux/amd64`. Returns `None` if it is no index, or has manifests without a platform:
/// a runtime accepts these on each platform. An attestation has the platform `unknown/unknown`.
pub(super) fn platforms(body: &[u8]) -> Option<BTreeSet<String>> {
    let index: Index = serde_json::from_slice(body).ok()?;
    let all: Option<BTreeSet<String>> = index
        .manifests
        .into_iter()
        .map(|one| one.platform.map(|platform| format!("{}/{}", platform.os, platform.architecture)))
        .collect();
    let is_known = |platform: &String| {
        platform != "unknown/unknown" && platform.chars().all(|c| c.is_ascii_alphanumeric() || c == '/')
    };
    all.map(|all| all.into_iter().filter(is_known).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn platforms_of_an_index_are_read() {
        let of = |manifests: Value| platforms(json!({ "manifests": manifests }).to_string().as_bytes());
        let platform = |os: &str, architecture: &str| json!({"platform": {"os": os, "architecture": architecture, "variant": "v8"}});
        let found = of(json!([
            platform("linux", "arm64"),
            platform("linux", "amd64"),
            platform("unknown", "unknown")
        ]));
        assert_eq!(found.unwrap().into_iter().collect::<Vec<_>>(), ["linux/amd64", "linux/arm64"]);
        assert_eq!(of(json!([platform("linux", "arm64"), {}])), None);
        assert_eq!(platforms(b"<html>"), None);
        assert!(is_index("application/vnd.oci.image.index.v1+json; charset=utf-8"));
        assert!(!is_index("application/vnd.oci.image.manifest.v1+json"));
    }
}
