//! Reissues a certificate with other names. Content that does not change is copied byte for byte.

use std::fmt;
use std::net::IpAddr;

use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use x509_cert::attr::Attribute;
use x509_cert::der::asn1::{Any, Ia5String, ObjectIdentifier, OctetString, SetOfVec, Uint};
use x509_cert::der::{Decode, Encode, Tag};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::{Time, Validity};

use super::authority::{Authority, SUBJECT_KEY};
use super::body::{Body, constructed, context};
use super::error::ReissueError;
use super::key::PrivateKey;
use super::read::Certificate;

/// Object identifier of `subjectAltName` (RFC 5280, section 4.2.1.6).
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
/// Object identifier of `authorityKeyIdentifier` (RFC 5280, section 4.2.1.1).
const AUTHORITY_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");
/// Object identifier of `extensionRequest` (RFC 2985, section 5.4.2).
const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
/// Length of a key identifier, in bytes (RFC 7093, section 2, method 1).
const IDENTIFIER: usize = 20;

/// A name that a certificate covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A DNS name.
    Dns(String),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl Name {
    /// Returns whether two names are equal. In DNS names, upper and lower case are equal (RFC 4343).
    fn is(&self, other: &GeneralName) -> bool {
        match (self, other) {
            (Self::Dns(name), GeneralName::DnsName(other)) => name.eq_ignore_ascii_case(other.as_str()),
            (Self::Address(address), other) => GeneralName::from(*address) == *other,
            _ => false,
        }
    }

    fn general(&self) -> Result<GeneralName, ReissueError> {
        match self {
            Self::Dns(name) => Ia5String::new(name)
                .map(GeneralName::DnsName)
                .map_err(|_| ReissueError::BadName(name.clone())),
            Self::Address(address) => Ok(GeneralName::from(*address)),
        }
    }
}

/// Changes to the names and the validity of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Names to add, after the existing names.
    pub add: Vec<Name>,
    /// Names to remove.
    pub drop: Vec<Name>,
    /// Start and end of the new validity; `None` keeps the old validity.
    pub validity: Option<(OffsetDateTime, OffsetDateTime)>,
}

impl Changes {
    /// Drops changes without effect, such as adding a name that the certificate already has.
    #[must_use]
    pub fn against(mut self, certificate: &Certificate) -> Self {
        let has = |name: &Name| match name {
            Name::Dns(name) => certificate.dns_names.iter().any(|other| other.eq_ignore_ascii_case(name)),
            Name::Address(address) => certificate.addresses.contains(address),
        };
        self.add.retain(|name| !has(name) && !self.drop.contains(name));
        self.drop.retain(has);
        self
    }

    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reissues the certificate, signs it with `authority`, and returns the new certificate as DER. `new_key` replaces the key.
/// `serial` has 16 random bytes. A serial number must be positive and have at most 20 bytes (RFC 5280, section 4.1.2.2).
pub fn reissue(
    certificate: &Certificate,
    changes: &Changes,
    authority: &Authority,
    new_key: Option<&PrivateKey>,
    serial: [u8; 16],
) -> Result<Vec<u8>, ReissueError> {
    let mut body = changed(certificate, changes, new_key)?;
    if !authority.is_issuer_of(&body) {
        let (issuer, authority) = (certificate.issuer.clone(), authority.certificate.subject.clone());
        return Err(ReissueError::OtherAuthority { issuer, authority });
    }
    body.serial = Uint::new(&positive(serial))?.to_der()?;
    body.signature = authority.key().algorithm()?;
    body.issuer = authority.name().to_vec();
    if let Some(value) = authority.key_identifier()? {
        body.set_extension(AUTHORITY_KEY, &value)?;
    }
    if let Some((from, until)) = changes.validity {
        let limit = authority.certificate.not_after;
        if until > limit {
            return Err(ReissueError::Validity {
                until,
                reason: format!("but its authority is valid only until {limit}"),
            });
        }
        let [not_before, not_after] = [time(from)?, time(until)?];
        body.validity = Validity::<x509_cert::certificate::Raw>::new(not_before, not_after).to_der()?;
    }
    Ok(authority.key().signed(&body.to_der()?)?)
}

/// Creates a certificate request (PKCS#10, RFC 2986) for an authority whose key is not on this host. `key` is the key of the new
/// certificate. Returns the request as DER.
pub fn request(
    certificate: &Certificate,
    changes: &Changes,
    key: &PrivateKey,
) -> Result<Vec<u8>, ReissueError> {
    let mut body = changed(certificate, changes, Some(key))?;
    // The authority sets both extensions.
    body.remove_extension(AUTHORITY_KEY)?;
    body.remove_extension(SUBJECT_KEY)?;
    let values = SetOfVec::try_from(vec![Any::from_der(&constructed(Tag::Sequence, &body.extensions)?)?])?;
    let attribute = Attribute { oid: EXTENSION_REQUEST, values }.to_der()?;
    let attributes = constructed(context(0), &[attribute])?;
    let version = Uint::new(&[0])?.to_der()?;
    let info = constructed(Tag::Sequence, &[&version, &body.subject, &body.key, &attributes])?;
    Ok(key.signed(&info)?)
}

/// Fails if a private key does not match a certificate.
pub fn belongs(key: &PrivateKey, certificate: &Certificate) -> Result<(), ReissueError> {
    let body = Body::of(&certificate.der)?;
    if key.public() == body.key { Ok(()) } else { Err(ReissueError::OtherKey(certificate.subject.clone())) }
}

/// Returns the content to sign. The fields that the authority sets still have the values of the old certificate.
fn changed(
    certificate: &Certificate,
    changes: &Changes,
    new_key: Option<&PrivateKey>,
) -> Result<Body, ReissueError> {
    let mut body = Body::of(&certificate.der)?;
    if !body.allows_extensions() {
        return Err(ReissueError::Version(certificate.subject.clone()));
    }
    if let Some(key) = new_key.map(PrivateKey::public).filter(|key| *key != body.key) {
        if body.extension(SUBJECT_KEY)?.is_some() {
            let digest = Sha256::digest(&key);
            let identifier = digest.get(..IDENTIFIER).unwrap_or_default();
            body.set_extension(SUBJECT_KEY, &OctetString::new(identifier)?.to_der()?)?;
        }
        body.key = key;
    }
    let names = body.extension(ALTERNATIVE_NAMES)?;
    let mut names = names
        .map(|value| SubjectAltName::from_der(&value))
        .transpose()?
        .map(|names| names.0)
        .unwrap_or_default();
    let before = names.clone();
    names.retain(|name| !changes.drop.iter().any(|dropped| dropped.is(name)));
    for name in &changes.add {
        if !names.iter().any(|other| name.is(other)) {
            names.push(name.general()?);
        }
    }
    if names.is_empty() {
        return Err(ReissueError::Nameless);
    }
    if names != before {
        body.set_extension(ALTERNATIVE_NAMES, &SubjectAltName(names).to_der()?)?;
    }
    Ok(body)
}

/// Makes a serial number positive, with its full length of 16 bytes.
fn positive(mut serial: [u8; 16]) -> [u8; 16] {
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x7f | 0x40;
    }
    serial
}

/// Converts a time to `UTCTime`, or to `GeneralizedTime` if it is after 2049 (RFC 5280, section 4.1.2.5).
fn time(at: OffsetDateTime) -> Result<Time, ReissueError> {
    let whole = at.replace_nanosecond(0).unwrap_or(at);
    Ok(Time::try_from(std::time::SystemTime::from(whole))?)
}
