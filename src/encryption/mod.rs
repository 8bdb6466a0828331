//! Encryption at rest, compatible with the API server. Decrypts values, and encrypts them again with the first provider that the
//! `EncryptionConfiguration` has for their resource.
//!
//! This module has no side effects. The caller supplies the random bytes for nonces. Keys are wiped from memory when they are
//! dropped, and no message contains any part of a key. netsurgeon does not decrypt a value that is encrypted with a KMS key,
//! because only the KMS plug-in can decrypt it.
//!
//! The rules come from `pkg/server/options/encryptionconfig/config.go` and `pkg/storage/value/transformer.go` in
//! `staging/src/k8s.io/apiserver` of Kubernetes v1.36.3.

mod cipher;
mod config;
mod resource;

pub use config::ConfigError;
pub use resource::Resource;

use crate::store::seal::{Seal, SealError};
use crate::wire::envelope::{CBOR_MAGIC, ENCRYPTION_PREFIX, PROTOBUF_MAGIC};
use cipher::Cipher;

/// Fills a buffer with unpredictable random bytes.
pub type Fill = fn(&mut [u8]);

/// An encryption provider for some resources.
enum Provider {
    /// Encryption with one of these named keys; the first key encrypts new values. A stored value starts with a prefix such as
    /// `k8s:enc:aescbc:v1:`.
    Keys { prefix: &'static str, keys: Vec<(String, Cipher)> },
    /// No encryption.
    Identity,
    /// Encryption by the KMS plug-in with this name. Only the plug-in has the key.
    Kms(String),
}

/// The providers for each resource, in the order of the API server's configuration.
pub struct Keyring {
    providers: Vec<(Resource, Vec<Provider>)>,
    etcd_prefix: String,
    fill: Fill,
}

impl Keyring {
    /// Reads an `EncryptionConfiguration` (YAML or JSON). `etcd_prefix` is the value of the API server's flag `--etcd-prefix`,
    /// without a trailing slash.
    ///
    /// Fails, as the API server does, if the text is not an `EncryptionConfiguration`, or a key has a length that its provider
    /// does not accept.
    pub fn parse(text: &str, etcd_prefix: &str, fill: Fill) -> Result<Self, ConfigError> {
        let providers = config::parse(text)?;
        Ok(Self { providers, etcd_prefix: etcd_prefix.to_string(), fill })
    }

    /// Returns the providers for the resource of an etcd key. Searches the configuration for the resource's name, then for its
    /// whole group, then for the entry for all resources (`transformerFromOverrides`). Returns `None` if the configuration has no
    /// provider for the resource, or if the key has no resource. The key of a RangeAllocation has no resource, because its value
    /// is always stored unencrypted.
    fn of(&self, key: &[u8]) -> Option<&[Provider]> {
        let resource = Resource::of(key, &self.etcd_prefix)?;
        let patterns = [resource.clone(), resource.whole_group(), Resource::everything()];
        let found =
            patterns.iter().find_map(|wanted| self.providers.iter().find(|(named, _)| named == wanted))?;
        Some(&found.1)
    }

    /// Decrypts a value. The value contains the names of its provider and its encryption key. Several keys can have these names,
    /// so this function tries all of these keys, as the API server does.
    fn open_with<'p>(
        candidates: impl Iterator<Item = &'p Provider>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, SealError> {
        let mut tried = None;
        for provider in candidates {
            let Provider::Keys { prefix, keys } = provider else { continue };
            let Some(rest) = value.strip_prefix(prefix.as_bytes()) else { continue };
            for (name, cipher) in keys {
                let Some(sealed) =
                    rest.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b":"))
                else {
                    continue;
                };
                if let Some(plain) = cipher.open(key, sealed).filter(|plain| is_object(plain)) {
                    return Ok(Some(plain));
                }
                tried = Some(name);
            }
        }
        match tried {
            None => Ok(None),
            Some(name) => Err(SealError(format!(
                "the key `{name}` of the configuration does not decrypt the value: the API server uses a different secret for that name"
            ))),
        }
    }
}

/// Returns whether bytes start like a stored object. CBC itself does not detect a wrong key.
fn is_object(plain: &[u8]) -> bool {
    [PROTOBUF_MAGIC, b"{", CBOR_MAGIC].iter().any(|beginning| plain.starts_with(beginning))
}

impl Seal for Keyring {
    fn open(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, SealError> {
        let providers = self.of(key);
        if !value.starts_with(ENCRYPTION_PREFIX) {
            return match providers {
                Some(providers) if !providers.iter().any(|one| matches!(one, Provider::Identity)) => {
                    Err(SealError(
                        "the value is not encrypted, and the encryption configuration has no `identity` provider for its resource: an API server with this configuration cannot read the value"
                            .to_string(),
                    ))
                }
                _ => Ok(None),
            };
        }
        match providers {
            Some(providers) => Self::open_with(providers.iter(), key, value),
            // The resource of the etcd key is unknown, so the providers of all resources are tried. The encryption key that
            // decrypts the value is the right one.
            None => Self::open_with(self.providers.iter().flat_map(|(_, providers)| providers), key, value),
        }
    }

    fn seal(&self, key: &[u8], plain: &[u8]) -> Result<Option<Vec<u8>>, SealError> {
        let Some(first) = self.of(key).and_then(<[Provider]>::first) else { return Ok(None) };
        match first {
            Provider::Identity => Ok(None),
            Provider::Kms(name) => Err(SealError(format!(
                "the API server encrypts the value with the KMS plug-in `{name}`; netsurgeon has no access to the keys of the plug-in (docs/encryption.md, \"A KMS\")"
            ))),
            Provider::Keys { prefix, keys } => {
                let Some((name, cipher)) = keys.first() else { return Ok(None) };
                let mut sealed = format!("{prefix}{name}:").into_bytes();
                let ciphertext = cipher.seal(key, plain, self.fill);
                sealed.extend(
                    ciphertext.ok_or_else(|| SealError("the value is too long to encrypt".to_string()))?,
                );
                Ok(Some(sealed))
            }
        }
    }
}

#[cfg(test)]
mod tests;
