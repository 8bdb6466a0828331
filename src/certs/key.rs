//! Reads private keys in every common file format. Never prints them.

use std::fmt;

use rcgen::{KeyPair, PublicKeyData as _, RsaKeySize, SignatureAlgorithm, SigningKey as _};
use rustls_pki_types::PrivateKeyDer;
use x509_cert::der::asn1::{AnyRef, BitString, ObjectIdentifier, Uint};
use x509_cert::der::{Decode, Encode, Result as DerResult, Tag};
use x509_cert::spki::AlgorithmIdentifier;
use zeroize::{Zeroize as _, Zeroizing};

use super::body::{constructed, context, pieces};
use super::error::KeyError;
use super::key_encryption::{decrypt, traditional};
use super::key_kind::of;
use super::pem::{block, blocks, ignored};
use super::read::PublicKey;

/// Label of an encrypted PKCS#8 key (RFC 7468, section 11).
pub(super) const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// Tag of the named curve in an `ECPrivateKey` (RFC 5915, section 3). In PKCS#8 the curve is outside of the `ECPrivateKey`.
const CURVE: Tag = context(0);

/// The file format of a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// PKCS#1 (RFC 8017, appendix A.1.2), with the label `RSA PRIVATE KEY`.
    Pkcs1,
    /// SEC1 (RFC 5915), with the label `EC PRIVATE KEY`.
    Sec1,
    /// PKCS#8 (RFC 5958), with the label `PRIVATE KEY`.
    Pkcs8,
}

impl Form {
    fn of(label: &str) -> Option<Self> {
        match label {
            "RSA PRIVATE KEY" => Some(Self::Pkcs1),
            "EC PRIVATE KEY" => Some(Self::Sec1),
            "PRIVATE KEY" | ENCRYPTED => Some(Self::Pkcs8),
            _ => None,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Pkcs1 => "RSA PRIVATE KEY",
            Self::Sec1 => "EC PRIVATE KEY",
            Self::Pkcs8 => "PRIVATE KEY",
        }
    }
}

/// A private key.
pub struct PrivateKey {
    pair: KeyPair,
    form: Form,
}

/// Overwrites the key in memory. The cryptographic library overwrites its own copy.
impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.pair.zeroize();
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a private key")
    }
}

impl PrivateKey {
    /// Reads the first private key in a PEM text: PKCS#1, SEC1 or PKCS#8. A PKCS#8 key can be encrypted with a password (PBES2).
    /// The first key is the first block whose label ends with `PRIVATE KEY` (`X509KeyPair` of Go's `crypto/tls`, Go 1.26).
    pub fn from_pem(text: &str, password: Option<&str>) -> Result<Self, KeyError> {
        let blocks = blocks(text);
        let Some(block) = blocks.iter().find(|block| is_key(block.label)) else {
            let first = ignored(text).into_iter().next();
            return Err(
                first.map_or(KeyError::None, |one| KeyError::Ignored { line: one.line, reason: one.reason })
            );
        };
        if let Some(cipher) = traditional(block) {
            return Err(KeyError::Cipher(cipher));
        }
        let Some(form) = Form::of(block.label) else {
            return Err(KeyError::Unsupported(format!("a key of the format `{}`", block.label)));
        };
        let decrypted;
        let der = if block.label == ENCRYPTED {
            decrypted = decrypt(&block.der, password)?;
            decrypted.as_slice()
        } else {
            block.der.as_slice()
        };
        let key = match form {
            Form::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
            Form::Sec1 => PrivateKeyDer::Sec1(der.into()),
            Form::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
        };
        let pair = KeyPair::try_from(&key).map_err(|error| of(&key).why_not(&error))?;
        Ok(Self { pair, form })
    }

    /// Generates a key with the algorithm and the file format of this key.
    pub fn another(&self, kind: &PublicKey) -> Result<Self, KeyError> {
        let algorithm = self.pair.algorithm();
        let made = match kind {
            PublicKey::Rsa(bits) => {
                let size = match bits {
                    ..=2048 => RsaKeySize::_2048,
                    2049..=3072 => RsaKeySize::_3072,
                    _ => RsaKeySize::_4096,
                };
                KeyPair::generate_rsa_for(algorithm, size)
            }
            _ => KeyPair::generate_for(algorithm),
        };
        let pair = made.map_err(|error| KeyError::Failed(error.to_string()))?;
        Ok(Self { pair, form: self.form })
    }

    /// Returns this key as PEM text, in the file format of the original key. Only for keys that [`Self::another`] generated.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, KeyError> {
        let pkcs8 = self.pair.serialized_der();
        let der = match self.form {
            Form::Pkcs8 => first_version(pkcs8),
            Form::Pkcs1 => inner(pkcs8).map(|(key, _)| key),
            Form::Sec1 => inner(pkcs8).and_then(|(key, algorithm)| with_curve(&key, &algorithm)),
        };
        let der = Zeroizing::new(der.map_err(|error| KeyError::Failed(error.to_string()))?);
        Ok(Zeroizing::new(block(self.form.label(), &der)))
    }

    /// Returns the public key as a `SubjectPublicKeyInfo` (RFC 5280, section 4.1).
    pub(super) fn public(&self) -> Vec<u8> {
        self.pair.subject_public_key_info()
    }

    /// Signs `what`. Returns `SEQUENCE { what, algorithm, signature }`: a certificate or a certificate request.
    pub(super) fn signed(&self, what: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signature = self.pair.sign(what).map_err(|error| KeyError::Failed(error.to_string()))?;
        let algorithm = self.algorithm()?;
        let whole = BitString::from_bytes(&signature)
            .and_then(|bits| bits.to_der())
            .and_then(|bits| constructed(Tag::Sequence, &[what, &algorithm, &bits]));
        whole.map_err(|error| KeyError::Failed(error.to_string()))
    }

    /// Returns the `AlgorithmIdentifier` of the key's signatures.
    pub(super) fn algorithm(&self) -> Result<Vec<u8>, KeyError> {
        identifier(self.pair.algorithm()).map_err(|error| KeyError::Failed(error.to_string()))
    }
}

fn is_key(label: &str) -> bool {
    label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY")
}

/// Converts a PKCS#8 key to version 1 (RFC 5208), which has fewer fields. OpenSSL 3.0 cannot read version 2.
fn first_version(pkcs8: &[u8]) -> DerResult<Vec<u8>> {
    let (version, parts) = (Uint::new(&[0])?.to_der()?, pieces(pkcs8)?);
    let kept = parts.into_iter().skip(1).take(2);
    constructed(Tag::Sequence, &std::iter::once(version).chain(kept).collect::<Vec<_>>())
}

/// Returns the key inside a `PrivateKeyInfo` (RFC 5958, section 2), and its `AlgorithmIdentifier`.
fn inner(pkcs8: &[u8]) -> DerResult<(Vec<u8>, Vec<u8>)> {
    let mut parts = pieces(pkcs8)?.into_iter().skip(1);
    let (algorithm, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    Ok((AnyRef::from_der(&key)?.value().to_vec(), algorithm))
}

/// Adds the curve to an `ECPrivateKey`, because a SEC1 file has no other place for the curve.
fn with_curve(key: &[u8], algorithm: &[u8]) -> DerResult<Vec<u8>> {
    let mut parts = pieces(key)?;
    if !parts.iter().any(|part| AnyRef::from_der(part).is_ok_and(|part| part.header().tag() == CURVE)) {
        let curve = pieces(algorithm)?.into_iter().nth(1).unwrap_or_default();
        // Version and key come first.
        parts.insert(parts.len().min(2), constructed(CURVE, &[curve])?);
    }
    constructed(Tag::Sequence, &parts)
}

/// Returns the `AlgorithmIdentifier` of a signature algorithm. RSA has NULL parameters (RFC 8017, appendix C). ECDSA (RFC 5758,
/// section 3.2) and Ed25519 (RFC 8410, section 3) have no parameters.
fn identifier(algorithm: &SignatureAlgorithm) -> DerResult<Vec<u8>> {
    let number = match algorithm {
        _ if *algorithm == rcgen::PKCS_RSA_SHA256 => "1.2.840.113549.1.1.11",
        _ if *algorithm == rcgen::PKCS_ECDSA_P256_SHA256 => "1.2.840.10045.4.3.2",
        _ if *algorithm == rcgen::PKCS_ECDSA_P384_SHA384 => "1.2.840.10045.4.3.3",
        _ if *algorithm == rcgen::PKCS_ECDSA_P521_SHA512 => "1.2.840.10045.4.3.4",
        _ => "1.3.101.112",
    };
    let parameters = (*algorithm == rcgen::PKCS_RSA_SHA256).then_some(AnyRef::NULL);
    AlgorithmIdentifier { oid: ObjectIdentifier::new_unwrap(number), parameters }.to_der()
}
