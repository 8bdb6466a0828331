//! Names of images.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// Maximum length of a name without its tag (`NameTotalLengthMax`, distribution/reference `reference.go`).
const LONGEST_NAME: usize = 255;
/// Maximum length of a tag (`TagRegexp`, distribution/reference `regexp.go`).
const LONGEST_TAG: usize = 128;

/// Returns the full name of an image, as container runtimes expand it (`splitDockerDomain` and `ParseDockerRef`,
/// distribution/reference `normalize.go`).
pub fn full_name(image: &str) -> Cow<'_, str> {
    let is_host =
        |part: &str| part.contains(['.', ':']) || part == "localhost" || part.to_lowercase() != part;
    match image.split_once('/') {
        Some(("index.docker.io" | "docker.io", rest)) => Cow::Owned(in_docker_hub(rest)),
        Some((host, _)) if !is_host(host) => Cow::Owned(in_docker_hub(image)),
        // The start of a rule can be only a host. An image cannot be.
        None if !is_host(image.split(['@', ':']).next().unwrap_or_default()) => {
            Cow::Owned(in_docker_hub(image))
        }
        _ => Cow::Borrowed(image),
    }
}

fn in_docker_hub(rest: &str) -> String {
    if rest.is_empty() || rest.contains('/') {
        format!("docker.io/{rest}")
    } else {
        format!("docker.io/library/{rest}")
    }
}

/// The name of an image, in its parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName {
    /// Host of the registry, with its port.
    host: String,
    /// Path of the repository.
    repository: String,
    /// The digest if the name has one, otherwise the tag.
    reference: String,
}

impl ImageName {
    /// Parses a name, which can be a short one such as `nginx`. Returns `None` for a name that no container runtime accepts.
    pub fn parse(image: &str) -> Option<Self> {
        let full = full_name(image);
        let (host, rest) = full.split_once('/')?;
        let (rest, digest) = rest.split_once('@').map_or((rest, None), |(rest, digest)| (rest, Some(digest)));
        let (repository, tag) =
            rest.rsplit_once(':').map_or((rest, None), |(repository, tag)| (repository, Some(tag)));
        let is_valid = is_host(host)
            && is_repository(repository)
            && host.len().saturating_add(repository.len()) < LONGEST_NAME
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        is_valid.then(|| Self {
            host: host.to_string(),
            repository: repository.to_string(),
            reference: digest.or(tag).unwrap_or("latest").to_string(),
        })
    }

    /// Returns the host of the registry, with its port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the name of the repository, with the host of its registry.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    /// Returns the URL of the manifest. Docker Hub has another host than its images (`DefaultHost`, containerd
    /// `core/remotes/docker/registry.go`).
    pub(super) fn manifest_url(&self) -> String {
        let host = if self.host == "docker.io" { "registry-1.docker.io" } else { &self.host };
        let scheme = if is_loopback(host) { "http" } else { "https" };
        format!("{scheme}://{host}/v2/{}/manifests/{}", self.repository, self.reference)
    }

    /// Returns the scope of a token that allows to pull the image.
    pub(super) fn scope(&self) -> String {
        format!("repository:{}:pull", self.repository)
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.reference.contains(':') { '@' } else { ':' };
        write!(f, "{}/{}{separator}{}", self.host, self.repository, self.reference)
    }
}

/// Returns whether a host, with or without a port, is this machine. containerd, too, uses plain HTTP only there (`MatchLocalhost`,
/// `core/remotes/docker/registry.go`).
pub(super) fn is_loopback(host: &str) -> bool {
    let (name, _) = split_port(host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Splits the port from a host. The host keeps the brackets of an IPv6 address.
pub(super) fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && (!name.contains(':') || name.ends_with(']')) => {
            (name, Some(port))
        }
        _ => (host, None),
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = split_port(host);
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_name = |name: &str| {
        let is_allowed =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']' | '_');
        !name.is_empty() && name.chars().all(is_allowed)
    };
    is_name(name) && port.is_none_or(is_port)
}

fn is_repository(path: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    let is_part = |part: &str| {
        let ends = [part.chars().next(), part.chars().last()];
        part.chars().all(is_allowed)
            && ends.iter().all(|end| end.is_some_and(|end| end.is_ascii_alphanumeric()))
    };
    path.split('/').all(is_part)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= LONGEST_TAG
        && tag.chars().next().is_some_and(is_word)
        && tag.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hash)) = digest.split_once(':') else { return false };
    let is_algorithm = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-' | '_');
    !algorithm.is_empty()
        && algorithm.chars().all(is_algorithm)
        && hash.len() >= 32
        && hash.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_expanded_and_taken_apart() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (image, expected) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("bitnami/redis:7", "docker.io/bitnami/redis:7"),
            ("index.docker.io/nginx", "docker.io/library/nginx:latest"),
            ("localhost:5000/a/b:1", "localhost:5000/a/b:1"),
            ("quay.io/a/b__c:v1.2-x", "quay.io/a/b__c:v1.2-x"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ] {
            assert_eq!(ImageName::parse(image).map(|name| name.to_string()).as_deref(), Some(expected));
        }
        let both = ImageName::parse(&format!("quay.io/a:1@{digest}")).unwrap();
        assert_eq!(both.to_string(), format!("quay.io/a@{digest}"), "the digest counts");
        for image in [
            "",
            "quay.io/A",
            "quay.io/a:",
            "quay.io/a b",
            "quay.io/a?x=1",
            "quay.io/../a",
            "a:5000",
            "q.io:x/a",
        ] {
            let found = ImageName::parse(image);
            assert!(found.is_none() || image == "a:5000", "{image}: {found:?}");
        }
        assert_eq!(ImageName::parse("a:5000").unwrap().to_string(), "docker.io/library/a:5000");
    }

    #[test]
    fn only_this_machine_is_asked_over_plain_http() {
        let url = |image: &str| ImageName::parse(image).unwrap().manifest_url();
        assert_eq!(url("nginx:1"), "https://registry-1.docker.io/v2/library/nginx/manifests/1");
        assert_eq!(url("localhost:5000/a"), "http://localhost:5000/v2/a/manifests/latest");
        assert_eq!(url("127.0.0.1/a"), "http://127.0.0.1/v2/a/manifests/latest");
        assert_eq!(url("[::1]:5000/a"), "http://[::1]:5000/v2/a/manifests/latest");
        assert_eq!(url("localhost.example.com/a"), "https://localhost.example.com/v2/a/manifests/latest");
        assert_eq!(url("10.0.0.1:5000/a"), "https://10.0.0.1:5000/v2/a/manifests/latest");
    }
}
