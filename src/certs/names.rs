//! Names of key usages, extended key usages, key types, and algorithms for signatures and encryption.

use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::KeyUsages;

/// Returns the name of a bit of the key usage extension (RFC 5280, section 4.2.1.3), in the spelling of OpenSSL's configuration.
pub(super) fn usage(bit: KeyUsages) -> &'static str {
    match bit {
        KeyUsages::DigitalSignature => "digitalSignature",
        KeyUsages::NonRepudiation => "nonRepudiation",
        KeyUsages::KeyEncipherment => "keyEncipherment",
        KeyUsages::DataEncipherment => "dataEncipherment",
        KeyUsages::KeyAgreement => "keyAgreement",
        KeyUsages::KeyCertSign => "keyCertSign",
        KeyUsages::CRLSign => "cRLSign",
        KeyUsages::EncipherOnly => "encipherOnly",
        KeyUsages::DecipherOnly => "decipherOnly",
    }
}

/// Returns the name of an extended key usage (RFC 5280, section 4.2.1.12), or its object identifier.
pub(super) fn purpose(id: &ObjectIdentifier) -> String {
    let text = id.to_string();
    match text.as_str() {
        "1.3.6.1.5.5.7.3.1" => "serverAuth".to_string(),
        "1.3.6.1.5.5.7.3.2" => "clientAuth".to_string(),
        _ => text,
    }
}

/// Returns the name of a curve (RFC 5480, section 2.1.1.1), or its object identifier.
pub(super) fn curve(id: &ObjectIdentifier) -> String {
    let text = id.to_string();
    match text.as_str() {
        "1.2.840.10045.3.1.7" => "P-256".to_string(),
        "1.3.132.0.34" => "P-384".to_string(),
        "1.3.132.0.35" => "P-521".to_string(),
        "1.3.132.0.33" => "P-224".to_string(),
        "1.2.840.10045.3.1.1" => "P-192".to_string(),
        "1.3.132.0.10" => "secp256k1".to_string(),
        "1.3.36.3.3.2.8.1.1.7" => "brainpoolP256r1".to_string(),
        "1.3.36.3.3.2.8.1.1.11" => "brainpoolP384r1".to_string(),
        _ => text,
    }
}

/// Returns the name of an algorithm for public keys (RFC 8017, RFC 3279, RFC 8410), or its object identifier.
pub(super) fn key(id: &ObjectIdentifier) -> String {
    let text = id.to_string();
    match text.as_str() {
        "1.2.840.113549.1.1.1" => "RSA".to_string(),
        "1.2.840.113549.1.1.10" => "RSASSA-PSS".to_string(),
        "1.2.840.10045.2.1" => "ECDSA".to_string(),
        "1.2.840.10040.4.1" => "DSA".to_string(),
        "1.3.101.110" => "X25519".to_string(),
        "1.3.101.111" => "X448".to_string(),
        "1.3.101.112" => "Ed25519".to_string(),
        "1.3.101.113" => "Ed448".to_string(),
        _ => format!("`{text}`"),
    }
}

/// Returns the name of a signature algorithm (RFC 8017, RFC 5758, RFC 8410, RFC 3279), or its object identifier.
pub(super) fn signature(id: &ObjectIdentifier) -> String {
    let text = id.to_string();
    match text.as_str() {
        "1.2.840.113549.1.1.4" => "RSA with MD5".to_string(),
        "1.2.840.113549.1.1.5" => "RSA with SHA-1".to_string(),
        "1.2.840.113549.1.1.10" => "RSASSA-PSS".to_string(),
        "1.2.840.113549.1.1.11" => "RSA with SHA-256".to_string(),
        "1.2.840.113549.1.1.12" => "RSA with SHA-384".to_string(),
        "1.2.840.113549.1.1.13" => "RSA with SHA-512".to_string(),
        "1.2.840.113549.1.1.14" => "RSA with SHA-224".to_string(),
        "1.2.840.10045.4.1" => "ECDSA with SHA-1".to_string(),
        "1.2.840.10045.4.3.1" => "ECDSA with SHA-224".to_string(),
        "1.2.840.10045.4.3.2" => "ECDSA with SHA-256".to_string(),
        "1.2.840.10045.4.3.3" => "ECDSA with SHA-384".to_string(),
        "1.2.840.10045.4.3.4" => "ECDSA with SHA-512".to_string(),
        "1.2.840.10040.4.3" => "DSA with SHA-1".to_string(),
        "1.3.101.112" => "Ed25519".to_string(),
        "1.3.101.113" => "Ed448".to_string(),
        _ => text,
    }
}

/// Returns the name of a cipher, a key derivation or its hash in an encrypted private key, in the spelling of OpenSSL (RFC 8018,
/// appendices A and B; RFC 7292, appendix C), or its object identifier.
pub(super) fn encryption(id: &ObjectIdentifier) -> String {
    let text = id.to_string();
    let name = match text.as_str() {
        "1.2.840.113549.1.5.1" => "pbeWithMD2AndDES-CBC",
        "1.2.840.113549.1.5.3" => "pbeWithMD5AndDES-CBC",
        "1.2.840.113549.1.5.4" => "pbeWithMD2AndRC2-CBC",
        "1.2.840.113549.1.5.6" => "pbeWithMD5AndRC2-CBC",
        "1.2.840.113549.1.5.10" => "pbeWithSHA1AndDES-CBC",
        "1.2.840.113549.1.5.11" => "pbeWithSHA1AndRC2-CBC",
        "1.2.840.113549.1.12.1.1" => "pbeWithSHA1And128BitRC4",
        "1.2.840.113549.1.12.1.2" => "pbeWithSHA1And40BitRC4",
        "1.2.840.113549.1.12.1.3" => "pbeWithSHA1And3-KeyTripleDES-CBC",
        "1.2.840.113549.1.12.1.4" => "pbeWithSHA1And2-KeyTripleDES-CBC",
        "1.2.840.113549.1.12.1.5" => "pbeWithSHA1And128BitRC2-CBC",
        "1.2.840.113549.1.12.1.6" => "pbeWithSHA1And40BitRC2-CBC",
        "1.2.840.113549.2.7" => "hmacWithSHA1",
        "1.3.14.3.2.7" => "des-cbc",
        "1.2.840.113549.3.2" => "rc2-cbc",
        "1.2.840.113549.3.7" => "des-ede3-cbc",
        "1.2.392.200011.61.1.1.1.2" => "camellia-128-cbc",
        "1.2.392.200011.61.1.1.1.4" => "camellia-256-cbc",
        "1.2.410.200046.1.1.2" => "aria-128-cbc",
        "1.2.410.200046.1.1.12" => "aria-256-cbc",
        _ => return text,
    };
    name.to_string()
}
