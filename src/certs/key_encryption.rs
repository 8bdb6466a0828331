//! Decrypts private keys that are encrypted with a password, and names the cipher of a key that netsurgeon does not decrypt.

use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::pkcs5::pbes2::Kdf;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Result as DerResult};
use zeroize::Zeroizing;

use super::body::pieces;
use super::error::KeyError;
use super::names;
use super::pem::Block;

/// Maximum number of PBKDF2 rounds. RFC 8018, section 4.2, suggests this number for especially critical keys.
const MOST_ROUNDS: u32 = 10_000_000;
/// Maximum for scrypt, in bytes: the memory (128 · N · r) multiplied by the parallelization parameter (p) (RFC 7914, section 2).
/// OpenSSL's own parameters need 16 MiB.
const MOST_MEMORY: u64 = 256 << 20;
/// Object identifiers of PBES2, PBKDF2 and scrypt (RFC 8018, appendix A; RFC 7914, section 7).
const PBES2: &str = "1.2.840.113549.1.5.13";
const PBKDF2: &str = "1.2.840.113549.1.5.12";
const SCRYPT: &str = "1.3.6.1.4.1.11591.4.11";
/// HMAC with SHA-224, SHA-256, SHA-384 and SHA-512, and AES in the modes CBC (128, 192 and 256 bits) and GCM (128 and 256 bits).
const HASHES: [&str; 4] =
    ["1.2.840.113549.2.8", "1.2.840.113549.2.9", "1.2.840.113549.2.10", "1.2.840.113549.2.11"];
const CIPHERS: [&str; 5] = [
    "2.16.840.1.101.3.4.1.2",
    "2.16.840.1.101.3.4.1.22",
    "2.16.840.1.101.3.4.1.42",
    "2.16.840.1.101.3.4.1.6",
    "2.16.840.1.101.3.4.1.46",
];

/// Returns the cipher of a key that is encrypted in OpenSSL's traditional format, with headers (RFC 1421, section 4.6). This
/// format derives the key with one round of MD5.
pub(super) fn traditional(block: &Block<'_>) -> Option<String> {
    let kind = block.header("Proc-Type").filter(|kind| kind.ends_with("ENCRYPTED"));
    kind?;
    let cipher =
        block.header("DEK-Info").and_then(|info| info.split(',').next()).unwrap_or("an unknown cipher");
    Some(format!("{cipher} in OpenSSL's traditional format"))
}

/// Decrypts an `EncryptedPrivateKeyInfo` (RFC 5958, section 3).
pub(super) fn decrypt(der: &[u8], password: Option<&str>) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let damaged = |error: x509_cert::der::Error| KeyError::Damaged(error.to_string());
    if let Some(cipher) = unsupported(der).map_err(damaged)? {
        return Err(KeyError::Cipher(cipher));
    }
    let password = password.ok_or(KeyError::NeedsPassword)?;
    let info = EncryptedPrivateKeyInfoRef::from_der(der).map_err(damaged)?;
    match info.encryption_algorithm.pbes2().map(|scheme| &scheme.kdf) {
        Some(derivation) if is_too_costly(derivation) => return Err(KeyError::TooCostly),
        Some(derivation) if !is_possible(derivation) => {
            return Err(KeyError::Damaged("scrypt does not allow these parameters".to_string()));
        }
        _ => {}
    }
    let document = info.decrypt(password).map_err(|_| KeyError::WrongPassword)?;
    Ok(Zeroizing::new(document.as_bytes().to_vec()))
}

/// Returns the name of the encryption if netsurgeon does not support it.
fn unsupported(der: &[u8]) -> DerResult<Option<String>> {
    let (scheme, parameters) = algorithm(&pieces(der)?.into_iter().next().unwrap_or_default())?;
    if scheme.to_string() != PBES2 {
        return Ok(Some(names::encryption(&scheme)));
    }
    let parameters = parameters.map(|der| pieces(&der)).transpose()?.unwrap_or_default();
    let [derivation, cipher] = parameters.as_slice() else { return Ok(Some("PBES2".to_string())) };
    let (cipher, _) = algorithm(cipher)?;
    if !CIPHERS.contains(&cipher.to_string().as_str()) {
        return Ok(Some(names::encryption(&cipher)));
    }
    let (derivation, parameters) = algorithm(derivation)?;
    match derivation.to_string().as_str() {
        SCRYPT => Ok(None),
        PBKDF2 => {
            // Salt, rounds, and optionally the length of the key and the hash. Without a hash, it is SHA-1.
            let mut fields = parameters.map(|der| pieces(&der)).transpose()?.unwrap_or_default();
            let hash = fields.pop().and_then(|der| algorithm(&der).ok()).map(|(hash, _)| hash);
            let is_known = hash.is_some_and(|hash| HASHES.contains(&hash.to_string().as_str()));
            let name = hash.map_or_else(|| "hmacWithSHA1".to_string(), |hash| names::encryption(&hash));
            Ok((!is_known).then(|| format!("PBKDF2 with {name}")))
        }
        _ => Ok(Some(names::encryption(&derivation))),
    }
}

/// Reads an `AlgorithmIdentifier` (RFC 5280, section 4.1.1.2): the algorithm and its parameters.
fn algorithm(der: &[u8]) -> DerResult<(ObjectIdentifier, Option<Vec<u8>>)> {
    let mut parts = pieces(der)?.into_iter();
    let id = ObjectIdentifier::from_der(&parts.next().unwrap_or_default())?;
    Ok((id, parts.next()))
}

/// Returns whether the parameters exceed the limits of this module. The parameters come from the key file.
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

/// Returns whether the scrypt parameters are valid: N is a power of two greater than 1, and r and p are greater than 0 (RFC 7914,
/// section 2). The decryption does not check this.
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

#[cfg(test)]
mod tests {
    use pkcs8::EncryptedPrivateKeyInfoOwned;
    use pkcs8::pkcs5::pbes2::{EncryptionScheme, Parameters, Pbkdf2Params, ScryptParams};
    use x509_cert::der::Encode as _;
    use x509_cert::der::asn1::OctetString;

    use super::super::key::{ENCRYPTED, PrivateKey};
    use super::super::pem::block;
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
    fn costly_key_derivation_is_rejected() {
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
            assert!(matches!(read, Err(KeyError::Damaged(_))), "{n} {r} {p}: {read:?}");
        }
        for usual in [rounds(2048), scrypt(1 << 14, 1).into()] {
            let read = PrivateKey::from_pem(&encrypted(usual), Some("x"));
            assert!(matches!(read, Err(KeyError::WrongPassword)), "{read:?}");
        }
    }
}
