//! A certificate authority: the certificate that clients trust, and its private key.

use time::OffsetDateTime;
use x509_cert::der::asn1::{ObjectIdentifier, OctetString};
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::AuthorityKeyIdentifier;

use super::body::Body;
use super::error::ReissueError;
use super::key::PrivateKey;
use super::read::Certificate;

/// Object identifier of `subjectKeyIdentifier` (RFC 5280, section 4.2.1.2).
pub(super) const SUBJECT_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");

/// An authority that can sign.
#[derive(Debug)]
pub struct Authority {
    /// Certificate of the authority.
    pub certificate: Certificate,
    /// All certificates of the authority's file, as DER. While a cluster changes its authority, the file contains the old and the
    /// new authority, and clients trust both.
    pub trusted: Vec<Vec<u8>>,
    body: Body,
    key: PrivateKey,
    /// Subjects of all certificates of the file.
    subjects: Vec<Vec<u8>>,
}

impl Authority {
    /// Combines the certificates of an authority's file with a key. The authority is the certificate that matches the key; if
    /// several match, the one that is valid for the longest time. Fails if it is not a CA certificate, or is not valid at the time
    /// `now`, or if no certificate matches the key.
    ///
    /// A certificate of version 1 has no extension that marks it as a CA certificate. Clients accept it as a trusted authority
    /// (`CheckSignatureFrom` of Go's `crypto/x509`, Go 1.26).
    pub fn new(
        certificates: Vec<Certificate>,
        key: PrivateKey,
        now: OffsetDateTime,
    ) -> Result<Self, ReissueError> {
        let trusted: Vec<Vec<u8>> = certificates.iter().map(|one| one.der.clone()).collect();
        let bodies = trusted.iter().map(|der| Body::of(der)).collect::<Result<Vec<_>, _>>()?;
        let subjects = bodies.iter().map(|body| body.subject.clone()).collect();
        let names = certificates.iter().map(|one| one.subject.clone()).collect::<Vec<_>>().join("`, `");
        let public = key.public();
        let own = certificates.into_iter().zip(bodies).filter(|(_, body)| body.key == public);
        let own = own.max_by_key(|(one, _)| (one.not_before <= now, one.not_after));
        let Some((certificate, body)) = own else { return Err(ReissueError::OtherKey(names)) };
        let subject = certificate.subject.clone();
        let may_sign =
            certificate.usages.is_empty() || certificate.usages.iter().any(|usage| usage == "keyCertSign");
        if !(certificate.is_ca || certificate.version == 1) || !may_sign {
            return Err(ReissueError::NoAuthority(subject));
        }
        if certificate.left(now).is_negative() || certificate.not_before > now {
            return Err(ReissueError::NotValid {
                subject,
                from: certificate.not_before,
                until: certificate.not_after,
            });
        }
        Ok(Self { certificate, trusted, body, key, subjects })
    }

    /// Returns whether this authority, or another authority of its file, is the issuer in a certificate (RFC 5280, section
    /// 4.1.2.4).
    pub(super) fn is_issuer_of(&self, body: &Body) -> bool {
        self.subjects.contains(&body.issuer)
    }

    /// Returns the distinguished name of the authority.
    pub(super) fn name(&self) -> &[u8] {
        &self.body.subject
    }

    /// Returns the `authorityKeyIdentifier` for certificates that this authority signs (RFC 5280, section 4.2.1.1). `None` if the
    /// authority's own certificate has no key identifier.
    pub(super) fn key_identifier(&self) -> Result<Option<Vec<u8>>, ReissueError> {
        let Some(value) = self.body.extension(SUBJECT_KEY)? else { return Ok(None) };
        let key_identifier = Some(OctetString::from_der(&value)?);
        let value = AuthorityKeyIdentifier {
            key_identifier,
            authority_cert_issuer: None,
            authority_cert_serial_number: None,
        };
        Ok(Some(value.to_der()?))
    }

    pub(super) fn key(&self) -> &PrivateKey {
        &self.key
    }
}
