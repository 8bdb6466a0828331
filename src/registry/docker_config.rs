//! Credentials of pull secrets, and which of them the kubelet uses for an image (`pkg/credentialprovider`: `keyring.go`, `config.go` and
//! `secrets/secrets.go`, Kubernetes v1.37.2).

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::image_name::{ImageName, split_port};

/// The entry of Docker Hub (`defaultRegistryHost`).
const DOCKER_HUB: &str = "index.docker.io";

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    name: Zeroizing<String>,
    password: Zeroizing<String>,
}

impl Login {
    fn new(name: String, password: String) -> Self {
        Self { name: Zeroizing::new(name), password: Zeroizing::new(password) }
    }

    /// Returns the credentials as `Basic` authentication encodes them.
    pub(super) fn basic(&self) -> Zeroizing<String> {
        let both = Zeroizing::new(format!("{}:{}", self.name.as_str(), self.password.as_str()));
        Zeroizing::new(format!("Basic {}", STANDARD.encode(both.as_bytes())))
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

impl PartialOrd for Login {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// So that an image is asked once for equal credentials.
impl Ord for Login {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_name = self.name.as_str().cmp(other.name.as_str());
        by_name.then_with(|| self.password.as_str().cmp(other.password.as_str()))
    }
}

/// The content of a pull secret is not valid. With it, the kubelet pulls no image of the Pod. No part of the content is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its credentials cannot be parsed")]
pub struct DockerConfigFault;

/// An entry of a file with credentials.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
}

/// The file `config.json` of Docker.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: Option<BTreeMap<String, Entry>>,
}

/// The credentials of all pull secrets of a Pod.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    /// By host and path.
    logins: BTreeMap<String, Vec<Login>>,
}

impl Keyring {
    /// Adds the content of `.dockerconfigjson`.
    pub fn add_config(&mut self, content: &[u8]) -> Result<(), DockerConfigFault> {
        let config: Config = serde_json::from_slice(content).map_err(|_| DockerConfigFault)?;
        self.add(config.auths.unwrap_or_default())
    }

    /// Adds the content of `.dockercfg`, the older format.
    pub fn add_former_config(&mut self, content: &[u8]) -> Result<(), DockerConfigFault> {
        self.add(serde_json::from_slice(content).map_err(|_| DockerConfigFault)?)
    }

    fn add(&mut self, entries: BTreeMap<String, Entry>) -> Result<(), DockerConfigFault> {
        for (place, entry) in entries {
            let login = login(entry)?;
            self.logins.entry(key(&place)).or_default().push(login);
        }
        Ok(())
    }

    /// Adds all credentials of another keyring.
    pub fn add_all(&mut self, other: &Self) {
        for (key, logins) in &other.logins {
            self.logins.entry(key.clone()).or_default().extend(logins.iter().cloned());
        }
    }

    /// Returns the credentials for an image, in the order in which the kubelet tries them.
    pub fn of(&self, image: &ImageName) -> Vec<Login> {
        let repository = image.repository();
        // Reverse: of two paths, the longer comes first.
        let matched = self.logins.iter().rev().filter(|(key, _)| is_match(key, &repository));
        let found: Vec<Login> = matched.flat_map(|(_, logins)| logins.clone()).collect();
        if !found.is_empty() || image.host() != "docker.io" {
            return found;
        }
        self.logins.get(DOCKER_HUB).cloned().unwrap_or_default()
    }
}

fn login(entry: Entry) -> Result<Login, DockerConfigFault> {
    let Entry { username, password, auth } = entry;
    let (of_fields, auth) = (Login::new(username, password), Zeroizing::new(auth));
    if auth.is_empty() {
        return Ok(of_fields);
    }
    let engine = if auth.trim_end().ends_with('=') { STANDARD } else { STANDARD_NO_PAD };
    // Go's decoder ignores line breaks.
    let text: Zeroizing<String> =
        Zeroizing::new(auth.chars().filter(|c| !matches!(c, '\r' | '\n')).collect());
    let decoded = Zeroizing::new(engine.decode(text.as_bytes()).map_err(|_| DockerConfigFault)?);
    let decoded = std::str::from_utf8(&decoded).map_err(|_| DockerConfigFault)?;
    let (name, password) = decoded.split_once(':').ok_or(DockerConfigFault)?;
    Ok(Login::new(name.to_string(), password.to_string()))
}

/// Returns the host and the path of an entry, without its scheme, and without the version of the protocol.
fn key(place: &str) -> String {
    let place = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let path = if path.starts_with("/v1/") || path.starts_with("/v2/") {
        path.get(3..).unwrap_or_default()
    } else {
        path
    };
    if path == "/" { host.to_string() } else { format!("{host}{path}") }
}

/// Returns whether an entry is for a repository: each part of its host is a pattern, and its path is a prefix.
fn is_match(key: &str, repository: &str) -> bool {
    let parts = |text: &'_ str| {
        let (host, path) = text.find('/').map_or((text, ""), |at| text.split_at(at));
        let (name, port) = split_port(host);
        (name.to_string(), port.unwrap_or_default().to_string(), path.to_string())
    };
    let (pattern, port, path) = parts(key);
    let (name, of_port, of_path) = parts(repository);
    let (patterns, names): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), name.split('.').collect());
    let is_each =
        || patterns.iter().zip(&names).all(|(pattern, name)| is_glob(pattern.as_bytes(), name.as_bytes()));
    port == of_port && of_path.starts_with(&path) && patterns.len() == names.len() && is_each()
}

/// Returns whether a text matches a pattern with `*`. A `?` ends the host, because Go reads it as the start of a query.
fn is_glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if is_glob(rest, text) => true,
        (Some((b'*', _)), Some((_, after))) => is_glob(pattern, after),
        (Some((one, rest)), Some((other, after))) => one == other && is_glob(rest, after),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn keyring(auths: &Value) -> Keyring {
        let mut keyring = Keyring::default();
        keyring.add_config(json!({ "auths": auths }).to_string().as_bytes()).unwrap();
        keyring
    }

    fn of(auths: &Value, image: &str) -> Vec<String> {
        let logins = keyring(auths).of(&ImageName::parse(image).unwrap());
        logins.iter().map(|login| format!("{}:{}", login.name.as_str(), login.password.as_str())).collect()
    }

    fn named(name: &str) -> Value {
        json!({"username": name, "password": "p"})
    }

    #[test]
    fn entries_match_as_in_the_kubelet() {
        for (entry, image, is_found) in [
            ("https://index.docker.io/v1/", "nginx", true),
            ("index.docker.io", "nginx", true),
            ("https://index.docker.io/v1", "nginx", false),
            ("docker.io", "nginx", true),
            ("https://index.docker.io/v1/", "quay.io/a", false),
            ("quay.io", "quay.io/a/b:1", true),
            ("https://quay.io/v2/", "quay.io/a", true),
            ("http://quay.io/", "quay.io/a", true),
            ("quay.io/a", "quay.io/a/b", true),
            ("quay.io/a", "quay.io/c/b", false),
            ("quay.io", "quay.io:5000/a", false),
            ("quay.io:5000", "quay.io:5000/a", true),
            ("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu-west-1.amazonaws.com/a", true),
            ("*.example.com", "example.com/a", false),
            ("*.example.com", "a.b.example.com/a", false),
            ("reg-*.example.com", "reg-1.example.com/a", true),
            ("reg-?.example.com", "reg-1.example.com/a", false),
            ("[::1]:5000", "[::1]:5000/a", true),
        ] {
            assert_eq!(
                of(&json!({entry: named("u")}), image).len(),
                usize::from(is_found),
                "{entry} {image}"
            );
        }
    }

    #[test]
    fn longer_path_comes_first() {
        let auths =
            json!({"quay.io": named("host"), "quay.io/a": named("path"), "index.docker.io": named("hub")});
        assert_eq!(of(&auths, "quay.io/a/b"), ["path:p", "host:p"]);
        let auths = json!({"docker.io": named("domain"), "https://index.docker.io/v1/": named("hub")});
        assert_eq!(of(&auths, "nginx"), ["domain:p"], "the entry of Docker Hub is only the last resort");
    }

    #[test]
    fn both_forms_of_credentials_are_read() {
        let of = |entry: Value| of(&json!({"quay.io": entry}), "quay.io/a");
        assert_eq!(of(json!({"username": "u", "password": "p", "email": "e"})), ["u:p"]);
        assert_eq!(of(json!({"auth": STANDARD.encode("u:p:q")})), ["u:p:q"]);
        assert_eq!(of(json!({"auth": STANDARD_NO_PAD.encode("u:pa"), "username": "other"})), ["u:pa"]);
        let mut former = Keyring::default();
        former.add_former_config(json!({"quay.io": named("u")}).to_string().as_bytes()).unwrap();
        assert_eq!(former.of(&ImageName::parse("quay.io/a").unwrap()).len(), 1);
    }

    #[test]
    fn faults_and_debug_output_contain_no_credential() {
        for content in [
            "canary",
            r#"{"auths": {"quay.io": {"auth": "canary!"}}}"#,
            r#"{"auths": {"quay.io": {"auth": "Y2FuYXJ5"}}}"#,
        ] {
            let fault = Keyring::default().add_config(content.as_bytes()).unwrap_err();
            assert!(!format!("{fault} {fault:?}").contains("canary"));
        }
        let keyring = keyring(&json!({"quay.io": {"username": "canary", "password": "canary"}}));
        assert!(!format!("{keyring:?}").contains("canary"), "{keyring:?}");
        assert_eq!(Keyring::default().add_config(b"{}"), Ok(()), "no entry");
    }
}
