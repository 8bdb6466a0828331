//! Finds out which kind of private key a file contains, for the error if netsurgeon does not support the key.

use rustls_pki_types::PrivateKeyDer;
use x509_cert::der::asn1::{AnyRef, ObjectIdentifier, UintRef};
use x509_cert::der::{Decode, Result as DerResult, Tag};

use super::body::{context, pieces};
use super::error::KeyError;
use super::names;

/// RSA keys that netsurgeon can use have at least this many bits, as the cryptographic library requires.
const LEAST_RSA_BITS: usize = 2048;
const CURVES: [&str; 3] = ["P-256", "P-384", "P-521"];

/// The kind of a private key.
pub(super) struct KeyKind {
    /// The kind, as in `an RSA key with 1024 bits`, or the reason why it cannot be decoded.
    text: Result<String, String>,
    /// Whether netsurgeon supports this kind.
    is_supported: bool,
}

impl KeyKind {
    /// Returns the error for a key that the cryptographic library rejects.
    pub(super) fn why_not(self, error: &rcgen::Error) -> KeyError {
        match self.text {
            Err(reason) => KeyError::Damaged(reason),
            Ok(text) if self.is_supported => {
                KeyError::Failed(format!("it is {text}, but the cryptographic library rejects it: {error}"))
            }
            Ok(text) => KeyError::Unsupported(text),
        }
    }
}

/// Returns the kind of a key.
pub(super) fn of(key: &PrivateKeyDer<'_>) -> KeyKind {
    let found = match key {
        PrivateKeyDer::Pkcs1(der) => rsa(der.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(der) => sec1(der.secret_sec1_der()),
        PrivateKeyDer::Pkcs8(der) => pkcs8(der.secret_pkcs8_der()),
        _ => Ok(("a key of an unknown format".to_string(), false)),
    };
    match found {
        Ok((text, is_supported)) => KeyKind { text: Ok(text), is_supported },
        Err(error) => KeyKind { text: Err(error.to_string()), is_supported: false },
    }
}

/// Reads an `RSAPrivateKey` (RFC 8017, appendix A.1.2): a version, the modulus, and other numbers.
fn rsa(der: &[u8]) -> DerResult<(String, bool)> {
    let modulus = pieces(der)?.into_iter().nth(1).unwrap_or_default();
    let modulus = UintRef::from_der(&modulus)?.as_bytes();
    let leading = modulus.first().map_or(0, |first| first.leading_zeros() as usize);
    let bits = modulus.len().saturating_mul(8).saturating_sub(leading);
    Ok((format!("an RSA key with {bits} bits"), bits >= LEAST_RSA_BITS))
}

/// Reads an `ECPrivateKey` (RFC 5915, section 3). Its curve is in the field with the tag 0.
fn sec1(der: &[u8]) -> DerResult<(String, bool)> {
    let parts = pieces(der)?;
    let is_curve =
        |part: &&Vec<u8>| AnyRef::from_der(part).is_ok_and(|part| part.header().tag() == context(0));
    let curve = parts.iter().find(is_curve).map(|part| pieces(part)).transpose()?.unwrap_or_default();
    ecdsa(curve.into_iter().next())
}

fn ecdsa(curve: Option<Vec<u8>>) -> DerResult<(String, bool)> {
    let Some(curve) = curve else {
        return Ok(("an ECDSA key without the name of its curve".to_string(), false));
    };
    if AnyRef::from_der(&curve)?.header().tag() == Tag::Sequence {
        return Ok(("an ECDSA key with explicit curve parameters".to_string(), false));
    }
    let name = names::curve(&ObjectIdentifier::from_der(&curve)?);
    Ok((format!("an ECDSA key on the curve {name}"), CURVES.contains(&name.as_str())))
}

/// Reads a `PrivateKeyInfo` (RFC 5958, section 2): a version, the algorithm, and the key.
fn pkcs8(der: &[u8]) -> DerResult<(String, bool)> {
    let mut parts = pieces(der)?.into_iter().skip(1);
    let (algorithm, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut algorithm = pieces(&algorithm)?.into_iter();
    let id = ObjectIdentifier::from_der(&algorithm.next().unwrap_or_default())?;
    match names::key(&id).as_str() {
        "RSA" => rsa(AnyRef::from_der(&key)?.value()),
        "ECDSA" => ecdsa(algorithm.next()),
        "Ed25519" => Ok(("an Ed25519 key".to_string(), true)),
        name => Ok((format!("a key for {name}"), false)),
    }
}
