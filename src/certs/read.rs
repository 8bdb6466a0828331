//! Reads certificates from PEM text, with their names, purposes and validity.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use data_encoding::HEXLOWER;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use time::serde::rfc3339;
use time::{Duration, OffsetDateTime};
use x509_cert::certificate::{CertificateInner, Raw, TbsCertificateInner, Version};
use x509_cert::der::asn1::{Any, ObjectIdentifier, UintRef};
use x509_cert::der::{Decode, Reader, SliceReader};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::names;
use super::pem::{block, blocks, ignored};

const LABEL: &str = "CERTIFICATE";

/// Why a certificate cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertError {
    /// The text contains no certificate, but a block that Kubernetes ignores, because it is not valid.
    #[error("it contains no certificate: Kubernetes ignores the block at line {line}, because {reason}")]
    Ignored {
        /// The line of the block, counted from 1.
        line: usize,
        /// Why the block is not valid.
        reason: &'static str,
    },
    /// The text contains no certificate, but a block with a label that only other programs read as a certificate.
    #[error("it contains no block `CERTIFICATE`, only a block `{label}`, which Kubernetes ignores")]
    Label {
        /// The label.
        label: String,
    },
    /// The content of the block is not a certificate.
    #[error("certificate {number} cannot be read: {reason}")]
    Broken {
        /// Number of the certificate, counted from 1.
        number: usize,
        /// Why the certificate cannot be read.
        reason: String,
    },
}

/// The public key of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// RSA, with the length of its modulus in bits.
    Rsa(usize),
    /// ECDSA on this elliptic curve.
    Ecdsa(String),
    /// Ed25519.
    Ed25519,
    /// Another algorithm, by its object identifier.
    Other(String),
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA {bits}"),
            Self::Ecdsa(curve) => write!(f, "ECDSA {curve}"),
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::Other(number) => f.write_str(number),
        }
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// Subject, in the form of RFC 4514.
    pub subject: String,
    /// Issuer, in the form of RFC 4514.
    pub issuer: String,
    /// Serial number in hexadecimal digits. Omits the leading zero byte that keeps a large number positive (X.690, section 8.3).
    pub serial: String,
    /// Start of the validity.
    #[serde(serialize_with = "rfc3339::serialize")]
    pub not_before: OffsetDateTime,
    /// End of the validity.
    #[serde(serialize_with = "rfc3339::serialize")]
    pub not_after: OffsetDateTime,
    /// Version of X.509: 1, 2 or 3. Only version 3 has extensions, such as names and usages.
    pub version: u8,
    /// Name of the signature algorithm, for example `RSA with SHA-256`.
    pub signature: String,
    /// Public key.
    pub key: PublicKey,
    /// Whether the certificate is a CA certificate.
    pub is_ca: bool,
    /// Names of the key usages.
    pub usages: Vec<String>,
    /// Names of the extended key usages.
    pub purposes: Vec<String>,
    /// DNS names that the certificate covers.
    pub dns_names: Vec<String>,
    /// Addresses that the certificate covers.
    pub addresses: Vec<IpAddr>,
    /// Other names, with their kinds.
    pub other_names: Vec<String>,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// The certificate as DER.
    #[serde(skip)]
    pub der: Vec<u8>,
}

impl Certificate {
    /// Reads one certificate in DER. The error is the reason why the certificate cannot be read.
    pub fn from_der(der: Vec<u8>) -> Result<Self, String> {
        let certificate = CertificateInner::<Raw>::from_der(&der).map_err(|error| error.to_string())?;
        describe(&certificate, der).map_err(|error| error.to_string())
    }

    /// Returns whether this is a serving certificate of an API server. Such a certificate covers a name of the cluster's API and
    /// is valid for server authentication. A certificate without extended key usages is also valid for servers (RFC 5280, section
    /// 4.2.1.12).
    pub fn is_of_an_api_server(&self) -> bool {
        let of_the_api = |name: &String| {
            matches!(name.as_str(), "kubernetes" | "kubernetes.default" | "kubernetes.default.svc")
        };
        let serves = self.purposes.is_empty() || self.purposes.iter().any(|purpose| purpose == "serverAuth");
        serves && self.dns_names.iter().any(of_the_api)
    }

    /// Returns the remaining validity; negative if the certificate has expired.
    pub fn left(&self, now: OffsetDateTime) -> Duration {
        Duration::seconds(self.not_after.unix_timestamp().saturating_sub(now.unix_timestamp()))
    }

    /// Returns whether the certificate covers an address.
    pub fn covers(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }
}

/// Reads all certificates in a PEM text, in order. Other blocks, and text between blocks, are ignored. Fails if the text has no
/// certificate, but a block that looks like a certificate.
pub fn certificates(text: &str) -> Result<Vec<Certificate>, CertError> {
    let blocks = blocks(text);
    let ours = blocks.iter().filter(|block| block.label == LABEL);
    let read = |(number, der): (usize, &[u8])| {
        Certificate::from_der(der.to_vec()).map_err(|reason| CertError::Broken { number, reason })
    };
    let found: Vec<Certificate> =
        (1..).zip(ours.map(|block| block.der.as_slice())).map(read).collect::<Result<_, _>>()?;
    if !found.is_empty() {
        return Ok(found);
    }
    if let Some(other) = blocks.iter().find(|block| block.label.ends_with(LABEL)) {
        return Err(CertError::Label { label: other.label.to_string() });
    }
    match ignored(text).into_iter().next() {
        Some(block) => Err(CertError::Ignored { line: block.line, reason: block.reason }),
        None => Ok(found),
    }
}

/// Returns whether a text has only certificates, and no other blocks, such as a private key.
pub fn has_only_certificates(text: &str) -> bool {
    blocks(text).iter().all(|block| block.label == LABEL)
}

/// Writes a certificate as PEM text.
pub fn to_pem(der: &[u8]) -> String {
    block(LABEL, der)
}

/// Writes a certificate request (RFC 7468, section 7) as PEM text.
pub fn request_to_pem(der: &[u8]) -> String {
    block("CERTIFICATE REQUEST", der)
}

/// Replaces the first certificate in a PEM text. The text around the certificate stays the same.
pub fn with_first(text: &str, der: &[u8]) -> String {
    let new = to_pem(der);
    match blocks(text).into_iter().find(|block| block.label == LABEL) {
        Some(first) => text.replacen(first.text, new.trim_end(), 1),
        None => new,
    }
}

fn describe(certificate: &CertificateInner<Raw>, der: Vec<u8>) -> x509_cert::der::Result<Certificate> {
    let body = certificate.tbs_certificate();
    let time = |time: x509_cert::time::Time| OffsetDateTime::from(time.to_system_time());
    let names = body.get_extension::<SubjectAltName>()?.map(|(_, names)| names.0).unwrap_or_default();
    let usages = body.get_extension::<KeyUsage>()?.map(|(_, usages)| usages.0);
    let purposes = body.get_extension::<ExtendedKeyUsage>()?.map(|(_, purposes)| purposes.0);
    let mut described = Certificate {
        subject: body.subject().to_string(),
        issuer: body.issuer().to_string(),
        serial: HEXLOWER.encode(magnitude(body.serial_number().as_bytes())),
        not_before: time(body.validity().not_before),
        not_after: time(body.validity().not_after),
        version: match body.version() {
            Version::V1 => 1,
            Version::V2 => 2,
            Version::V3 => 3,
        },
        signature: names::signature(&certificate.signature_algorithm().oid),
        key: key(body)?,
        is_ca: body.get_extension::<BasicConstraints>()?.is_some_and(|(_, constraints)| constraints.ca),
        usages: usages.into_iter().flatten().map(|bit| names::usage(bit).to_string()).collect(),
        purposes: purposes.into_iter().flatten().map(|id| names::purpose(&id)).collect(),
        dns_names: Vec::new(),
        addresses: Vec::new(),
        other_names: Vec::new(),
        fingerprint: HEXLOWER.encode(&Sha256::digest(&der)),
        der,
    };
    for name in &names {
        described.add(name);
    }
    Ok(described)
}

fn magnitude(integer: &[u8]) -> &[u8] {
    match integer {
        [0, rest @ ..] if !rest.is_empty() => rest,
        other => other,
    }
}

impl Certificate {
    fn add(&mut self, name: &GeneralName) {
        match name {
            GeneralName::DnsName(name) => self.dns_names.push(name.to_string()),
            GeneralName::IpAddress(bytes) => match address(bytes.as_bytes()) {
                Some(address) => self.addresses.push(address),
                None => self.other_names.push(format!("IP of {} bytes", bytes.as_bytes().len())),
            },
            GeneralName::UniformResourceIdentifier(name) => self.other_names.push(format!("URI {name}")),
            GeneralName::Rfc822Name(name) => self.other_names.push(format!("email {name}")),
            GeneralName::DirectoryName(name) => self.other_names.push(format!("directory {name}")),
            GeneralName::RegisteredId(id) => self.other_names.push(format!("id {id}")),
            GeneralName::OtherName(_) | GeneralName::EdiPartyName(_) => {
                self.other_names.push("another".to_string());
            }
        }
    }
}

/// Reads an address of 4 or 16 bytes (RFC 5280, section 4.2.1.6).
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four: Option<[u8; 4]> = bytes.try_into().ok();
    let sixteen: Option<[u8; 16]> = bytes.try_into().ok();
    four.map(|bytes| Ipv4Addr::from(bytes).into())
        .or_else(|| sixteen.map(|bytes| Ipv6Addr::from(bytes).into()))
}

fn key(body: &TbsCertificateInner<Raw>) -> x509_cert::der::Result<PublicKey> {
    let key: &SubjectPublicKeyInfoOwned = body.subject_public_key_info();
    Ok(match key.algorithm.oid.to_string().as_str() {
        "1.2.840.113549.1.1.1" => PublicKey::Rsa(modulus_bits(key.subject_public_key.raw_bytes())?),
        "1.2.840.10045.2.1" => {
            let curve =
                key.algorithm.parameters.as_ref().map(Any::decode_as::<ObjectIdentifier>).transpose()?;
            PublicKey::Ecdsa(curve.as_ref().map(names::curve).unwrap_or_default())
        }
        "1.3.101.112" => PublicKey::Ed25519,
        number => PublicKey::Other(number.to_string()),
    })
}

/// Returns the length of an RSA key's modulus (`RSAPublicKey`, RFC 8017, appendix A.1.1).
fn modulus_bits(key: &[u8]) -> x509_cert::der::Result<usize> {
    let mut reader = SliceReader::new(key)?;
    let bits = reader.sequence(|sequence| {
        let modulus = UintRef::decode(sequence)?.as_bytes();
        UintRef::decode(sequence)?;
        let leading = modulus.first().map_or(0, |first| first.leading_zeros() as usize);
        Ok::<usize, x509_cert::der::Error>(modulus.len().saturating_mul(8).saturating_sub(leading))
    })?;
    reader.finish()?;
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            use base64::Engine as _;
            let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
            let body = base64::engine::general_purpose::STANDARD.encode(&bytes);
            for text in [text.clone(), to_pem(&bytes), format!("{begin}\n{body}\n{end}"), format!("{begin}{text}{end}")] {
                let _ = certificates(&text);
            }
            let _ = modulus_bits(&bytes);
        }
    }
}
