//! Reads the API server's `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`; `pkg/apis/apiserver/types_encryption.go` and
//! `validation/validation_encryption.go` of `k8s.io/apiserver` v0.36.3).

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::cipher::Cipher;
use super::{Provider, Resource};

/// Why a configuration cannot be used. The message never contains any part of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not YAML, or does not have the structure of an EncryptionConfiguration.
    #[error("not an EncryptionConfiguration: {0}")]
    Shape(String),
    /// A key cannot be used.
    #[error("the key `{name}` of the provider `{provider}` {reason}")]
    Key {
        /// Name of the provider, for example `aescbc`.
        provider: &'static str,
        /// The key's name.
        name: String,
        /// Why the key cannot be used.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    kind: String,
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    resources: Vec<String>,
    providers: Vec<Choice>,
}

/// A provider in the configuration. Exactly one field is set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    aescbc: Option<Keys>,
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<Nothing>,
    kms: Option<Plugin>,
}

#[derive(Deserialize)]
struct Nothing {}

#[derive(Deserialize)]
struct Plugin {
    name: String,
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    name: String,
    secret: Secret,
}

/// The text of a key in the configuration. It is wiped from memory when it is dropped.
#[derive(Deserialize)]
#[serde(from = "String")]
struct Secret(Zeroizing<String>);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

/// Reads a configuration. If several entries have the same resource, their providers are joined in the order of the entries.
pub(super) fn parse(text: &str) -> Result<Vec<(Resource, Vec<Provider>)>, ConfigError> {
    let read: Configuration = serde_saphyr::from_str(text).map_err(|error| shape(&error))?;
    // `EncryptionConfig` was the kind before Kubernetes 1.13.
    if !["EncryptionConfiguration", "EncryptionConfig"].contains(&read.kind.as_str()) {
        return Err(ConfigError::Shape(format!("its kind is `{}`", read.kind)));
    }
    let mut all: Vec<(Resource, Vec<Provider>)> = Vec::new();
    for entry in &read.resources {
        if entry.resources.is_empty() || entry.providers.is_empty() {
            return Err(ConfigError::Shape("an entry has no resources, or no providers".to_string()));
        }
        for resource in entry.resources.iter().map(|text| Resource::parse(text)) {
            let providers: Vec<Provider> = entry.providers.iter().map(provider).collect::<Result<_, _>>()?;
            match all.iter_mut().find(|(known, _)| *known == resource) {
                Some((_, known)) => known.extend(providers),
                None => all.push((resource, providers)),
            }
        }
    }
    if all.is_empty() {
        return Err(ConfigError::Shape("it has no resources".to_string()));
    }
    Ok(all)
}

/// Returns an error that contains only the position of the parser's error, because the parser's message can contain a part of a
/// key.
fn shape(error: &serde_saphyr::Error) -> ConfigError {
    let at = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
    ConfigError::Shape(format!("invalid content{}", at.unwrap_or_default()))
}

fn provider(choice: &Choice) -> Result<Provider, ConfigError> {
    let Choice { aescbc, aesgcm, secretbox, identity, kms } = choice;
    match (aescbc, aesgcm, secretbox, identity, kms) {
        (Some(given), None, None, None, None) => keys("aescbc", "k8s:enc:aescbc:v1:", given, Cipher::cbc),
        (None, Some(given), None, None, None) => keys("aesgcm", "k8s:enc:aesgcm:v1:", given, Cipher::gcm),
        (None, None, Some(given), None, None) => {
            keys("secretbox", "k8s:enc:secretbox:v1:", given, Cipher::secretbox)
        }
        (None, None, None, Some(Nothing {}), None) => Ok(Provider::Identity),
        (None, None, None, None, Some(plugin)) => Ok(Provider::Kms(plugin.name.clone())),
        _ => Err(ConfigError::Shape(
            "an entry of `providers` has no known provider, or more than one".to_string(),
        )),
    }
}

/// Decodes a secret as the API server does. Go's `base64.StdEncoding` ignores line breaks, which `secret: |` adds, and unused
/// bits at the end (`encoding/base64`, Go 1.26).
fn decoded(secret: &str) -> Option<Zeroizing<Vec<u8>>> {
    const BASE64: GeneralPurpose =
        GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));
    let text: Zeroizing<Vec<u8>> =
        Zeroizing::new(secret.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect());
    BASE64.decode(text.as_slice()).ok().map(Zeroizing::new)
}

fn keys(
    provider: &'static str,
    prefix: &'static str,
    given: &Keys,
    cipher: fn(&[u8]) -> Option<Cipher>,
) -> Result<Provider, ConfigError> {
    if given.keys.is_empty() {
        return Err(ConfigError::Shape(format!("the provider `{provider}` has no keys")));
    }
    let usable = |key: &Key| {
        let wrong = |reason: String| ConfigError::Key { provider, name: key.name.clone(), reason };
        if key.name.is_empty() {
            return Err(ConfigError::Shape(format!("a key of the provider `{provider}` has no name")));
        }
        let not_base64 = || wrong("has a secret that is not base64".to_string());
        let secret = decoded(&key.secret.0).ok_or_else(not_base64)?;
        let length = secret.len();
        let cipher = cipher(&secret).ok_or_else(|| {
            wrong(format!("has {length} bytes, a length that this provider does not accept"))
        })?;
        Ok((key.name.clone(), cipher))
    };
    Ok(Provider::Keys { prefix, keys: given.keys.iter().map(usable).collect::<Result<_, _>>()? })
}
