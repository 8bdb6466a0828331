//! Private keys: read in every form in which files have them, never shown.

use std::fmt;

use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::pkcs5::pbes2::Kdf;
use rcgen::{KeyPair, PublicKeyData as _, RsaKeySize, SignatureAlgorithm, SigningKey as _};
use rustls_pki_types::PrivateKeyDer;
use x509_cert::der::asn1::{AnyRef, BitString, ObjectIdentifier, Uint};
use x509_cert::der::{Decode, Encode, Result as DerResult, Tag};
use x509_cert::spki::AlgorithmIdentifier;
use zeroize::{Zeroize as _, Zeroizing};

use super::body::{constructed, context, pieces};
use super::pem::{block, blocks};
use super::read::PublicKey;

const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// The named curve within `ECPrivateKey` (RFC 5915, section 3), which PKCS#8 has outside of it.
const CURVE: Tag = context(0);
/// A password that takes more rounds than this is not tried: RFC 8018, section 4.2, has it for the most critical keys.
const MOST_ROUNDS: u32 = 10_000_000;
/// The memory that scrypt may take, in bytes (128 · N · r; RFC 7914, section 2), each time that it is repeated (p). OpenSSL's own
/// parameters take 16 MiB, once.
const MOST_MEMORY: u64 = 256 << 20;

/// Why a private key is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is none in the text.
    #[error("there is no private key in it")]
    None,
    /// It is encrypted, and nobody has said how to decrypt it.
    #[error("it is encrypted, and there is no password for it")]
    NeedsPassword,
    /// It cannot be decrypted.
    #[error("it cannot be decrypted: the password is wrong, or the encryption is none of PBES2 (RFC 8018)")]
    WrongPassword,
    /// To try a password would take the machine.
    #[error("to try its password takes more than 10,000,000 rounds of PBKDF2, or 256 MiB for scrypt")]
    TooCostly,
    /// It is encrypted as OpenSSL did before version 1.0: weakly, and in a form of its own.
    #[error(
        "it is encrypted in OpenSSL's traditional form; `openssl pkcs8 -topk8` makes one of today's out of it"
    )]
    Traditional,
    /// Neither RSA of 2048 bits and more, ECDSA on P-256, P-384 or P-521, nor Ed25519; or no key at all.
    #[error("it is neither RSA (2048 bits or more), ECDSA (P-256, P-384, P-521) nor Ed25519: {0}")]
    Unsupported(String),
    /// The cryptographic library refused.
    #[error("{0}")]
    Failed(String),
}

/// How a file has a private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `RSA PRIVATE KEY`, RFC 8017, appendix A.1.2.
    Pkcs1,
    /// `EC PRIVATE KEY`, RFC 5915.
    Sec1,
    /// `PRIVATE KEY`, RFC 5958.
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

/// Nothing of it stays in memory; a copy of the cryptographic library's own is overwritten by that.
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
    /// Reads the first private key of a PEM text: PKCS#1, SEC1 or PKCS#8, the last one also encrypted with a password
    /// (PBES2).
    pub fn from_pem(text: &str, password: Option<&str>) -> Result<Self, KeyError> {
        let blocks = blocks(text).map_err(|_| KeyError::None)?;
        let found = blocks.iter().find_map(|block| Form::of(block.label).map(|form| (form, block)));
        let (form, block) = found.ok_or(KeyError::None)?;
        if block.text.contains("Proc-Type: 4,ENCRYPTED") {
            return Err(KeyError::Traditional);
        }
        let mut der = Zeroizing::new(block.der().map_err(KeyError::Unsupported)?);
        if block.label == ENCRYPTED {
            der = decrypt(&der, password.ok_or(KeyError::NeedsPassword)?)?;
        }
        let unsupported = |error: rcgen::Error| KeyError::Unsupported(error.to_string());
        let der = der.as_slice();
        let key = match form {
            Form::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
            Form::Sec1 => PrivateKeyDer::Sec1(der.into()),
            Form::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
        };
        Ok(Self { pair: KeyPair::try_from(&key).map_err(unsupported)?, form })
    }

    /// Makes a new key of the same kind and form as this one.
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

    /// Returns a key that was made here as PEM text, in the form that it was made for.
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

    /// Returns its public half, a `SubjectPublicKeyInfo` (RFC 5280, section 4.1).
    pub(super) fn public(&self) -> Vec<u8> {
        self.pair.subject_public_key_info()
    }

    /// Returns `SEQUENCE { what, algorithm, signature }`: a certificate or a request for one.
    pub(super) fn signed(&self, what: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signature = self.pair.sign(what).map_err(|error| KeyError::Failed(error.to_string()))?;
        let algorithm = self.algorithm()?;
        let whole = BitString::from_bytes(&signature)
            .and_then(|bits| bits.to_der())
            .and_then(|bits| constructed(Tag::Sequence, &[what, &algorithm, &bits]));
        whole.map_err(|error| KeyError::Failed(error.to_string()))
    }

    /// Returns the `AlgorithmIdentifier` of what it signs.
    pub(super) fn algorithm(&self) -> Result<Vec<u8>, KeyError> {
        identifier(self.pair.algorithm()).map_err(|error| KeyError::Failed(error.to_string()))
    }
}

fn decrypt(der: &[u8], password: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let unsupported = |error: x509_cert::der::Error| KeyError::Unsupported(error.to_string());
    let info = EncryptedPrivateKeyInfoRef::from_der(der).map_err(unsupported)?;
    match info.encryption_algorithm.pbes2().map(|scheme| &scheme.kdf) {
        Some(derivation) if is_too_costly(derivation) => return Err(KeyError::TooCostly),
        Some(derivation) if !is_possible(derivation) => {
            return Err(KeyError::Unsupported("no scrypt has such parameters".to_string()));
        }
        _ => {}
    }
    let document = info.decrypt(password).map_err(|_| KeyError::WrongPassword)?;
    Ok(Zeroizing::new(document.as_bytes().to_vec()))
}

/// Whether the file asks for more than a password is worth: its parameters are not ours.
fn is_too_costly(derivation: &Kdf) -> bool {
    match derivation {
        Kdf::Pbkdf2(params) => params.iteration_count > MOST_ROUNDS,
        Kdf::Scrypt(params) => {
            let memory = params.cost_parameter.saturating_mul(128).saturating_mul(params.block_size.into());
            memory.saturating_mul(params.parallelization.into()) > MOST_MEMORY
        }
        _ => false,
    }
}

/// Whether there is such a derivation: scrypt's N is a power of two above 1, r and p are above 0 (RFC 7914, section 2). The
/// decryption takes it for granted.
fn is_possible(derivation: &Kdf) -> bool {
    match derivation {
        Kdf::Scrypt(params) => {
            params.cost_parameter.is_power_of_two()
                && params.cost_parameter > 1
                && params.block_size > 0
                && params.parallelization > 0
        }
        _ => true,
    }
}

/// Leaves out of a key of version 2 what version 1 (RFC 5208) has not: OpenSSL 3.0 reads no other.
fn first_version(pkcs8: &[u8]) -> DerResult<Vec<u8>> {
    let (version, parts) = (Uint::new(&[0])?.to_der()?, pieces(pkcs8)?);
    let kept = parts.into_iter().skip(1).take(2);
    constructed(Tag::Sequence, &std::iter::once(version).chain(kept).collect::<Vec<_>>())
}

/// Returns the key within a `PrivateKeyInfo` (RFC 5958, section 2), and the `AlgorithmIdentifier` beside it.
fn inner(pkcs8: &[u8]) -> DerResult<(Vec<u8>, Vec<u8>)> {
    let mut parts = pieces(pkcs8)?.into_iter().skip(1);
    let (algorithm, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    Ok((AnyRef::from_der(&key)?.value().to_vec(), algorithm))
}

/// Names the curve within an `ECPrivateKey`, where readers look for it that are told nothing else.
fn with_curve(key: &[u8], algorithm: &[u8]) -> DerResult<Vec<u8>> {
    let mut parts = pieces(key)?;
    if !parts.iter().any(|part| AnyRef::from_der(part).is_ok_and(|part| part.header().tag() == CURVE)) {
        let curve = pieces(algorithm)?.into_iter().nth(1).unwrap_or_default();
        // Version and key come first.
        parts.insert(parts.len().min(2), constructed(CURVE, &[curve])?);
    }
    constructed(Tag::Sequence, &parts)
}

/// Returns the `AlgorithmIdentifier` of a signature algorithm: RFC 8017, appendix C, with a NULL; RFC 5758, section 3.2,
/// and RFC 8410, section 3, without parameters.
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

#[cfg(test)]
mod tests {
    use pkcs8::EncryptedPrivateKeyInfoOwned;
    use pkcs8::pkcs5::pbes2::{EncryptionScheme, Parameters, Pbkdf2Params, ScryptParams};
    use x509_cert::der::asn1::OctetString;

    use super::*;

    fn encrypted(kdf: Kdf) -> String {
        let parameters = Parameters { kdf, encryption: EncryptionScheme::Aes256Cbc { iv: [7; 16] } };
        let info = EncryptedPrivateKeyInfoOwned {
            encryption_algorithm: parameters.into(),
            encrypted_data: OctetString::new(vec![1; 64]).unwrap(),
        };
        block(ENCRYPTED, &info.to_der().unwrap())
    }

    #[test]
    fn a_file_does_not_say_how_much_is_spent_on_it() {
        let scrypt_of = |cost_parameter, block_size, parallelization| ScryptParams {
            salt: (&[1; 8][..]).try_into().unwrap(),
            cost_parameter,
            block_size,
            parallelization,
            key_length: None,
        };
        let scrypt = |cost_parameter, parallelization| scrypt_of(cost_parameter, 8, parallelization);
        let rounds = |count| Kdf::from(Pbkdf2Params::hmac_sha256(count, &[1; 8]).unwrap());
        for costly in [rounds(10_000_001), scrypt(1 << 24, 1).into(), scrypt(1 << 14, 1000).into()] {
            let read = PrivateKey::from_pem(&encrypted(costly), Some("x"));
            assert!(matches!(read, Err(KeyError::TooCostly)), "{read:?}");
        }
        let impossible = [(0, 8, 1), (1, 8, 1), (3, 8, 1), (1 << 14, 0, 1), (1 << 14, 8, 0)];
        for (n, r, p) in impossible {
            let read = PrivateKey::from_pem(&encrypted(scrypt_of(n, r, p).into()), Some("x"));
            assert!(matches!(read, Err(KeyError::Unsupported(_))), "{n} {r} {p}: {read:?}");
        }
        for usual in [rounds(2048), scrypt(1 << 14, 1).into()] {
            let read = PrivateKey::from_pem(&encrypted(usual), Some("x"));
            assert!(matches!(read, Err(KeyError::WrongPassword)), "{read:?}");
        }
    }
}
