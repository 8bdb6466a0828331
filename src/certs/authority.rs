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
    body: Body,
    key: PrivateKey,
}

impl Authority {
    /// Combines a certificate and its key. Fails if the certificate is not a CA certificate, is not valid at the time `now`, or
    /// does not match the key.
    pub fn new(certificate: Certificate, key: PrivateKey, now: OffsetDateTime) -> Result<Self, ReissueError> {
        let body = Body::of(&certificate.der)?;
        let subject = certificate.subject.clone();
        let may_sign =
            certificate.usages.is_empty() || certificate.usages.iter().any(|usage| usage == "keyCertSign");
        if !certificate.is_ca || !may_sign {
            return Err(ReissueError::NoAuthority(subject));
        }
        if certificate.left(now).is_negative() || certificate.not_before > now {
            return Err(ReissueError::NotValid {
                subject,
                from: certificate.not_before,
                until: certificate.not_after,
            });
        }
        if key.public() != body.key {
            return Err(ReissueError::OtherKey(subject));
        }
        Ok(Self { certificate, body, key })
    }

    /// Returns whether this authority is the issuer in a certificate (RFC 5280, section 4.1.2.4).
    pub(super) fn is_issuer_of(&self, body: &Body) -> bool {
        body.issuer == self.body.subject
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
