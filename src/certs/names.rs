//! Names of key usages, extended key usages and key types.

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
        _ => text,
    }
}
