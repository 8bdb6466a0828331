//! Why a certificate cannot be reissued.

use time::OffsetDateTime;

use super::{CertError, KeyError};

/// Why a certificate cannot be reissued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReissueError {
    /// The certificate is not allowed to sign other certificates.
    #[error("`{0}` is not a certificate authority")]
    NoAuthority(String),
    /// The authority is not valid now.
    #[error("the authority `{subject}` is not valid now: it is valid from {from} until {until}")]
    NotValid {
        /// Subject of the authority.
        subject: String,
        /// Start of the authority's validity.
        from: OffsetDateTime,
        /// End of the authority's validity.
        until: OffsetDateTime,
    },
    /// The key does not belong to the certificate.
    #[error("the key does not belong to the certificate of `{0}`")]
    OtherKey(String),
    /// Another authority signed the certificate.
    #[error(
        "the certificate was issued by another authority, `{issuer}`, which clients trust; the authority of this command is `{authority}`"
    )]
    OtherAuthority {
        /// The authority that signed the certificate.
        issuer: String,
        /// The authority that was given.
        authority: String,
    },
    /// The certificate has no extensions, so it cannot contain names.
    #[error(
        "`{0}` is an X.509 version 1 certificate, which cannot contain names and addresses, so clients reject it; only version 3 can"
    )]
    Version(String),
    /// The new certificate would already be expired, or would be valid longer than its authority.
    #[error("the new certificate would be valid until {until}, {reason}")]
    Validity {
        /// End of the new certificate's validity.
        until: OffsetDateTime,
        /// Why this validity is not possible.
        reason: String,
    },
    /// The new certificate would cover no name and no address.
    #[error("the new certificate would cover no name and no address")]
    Nameless,
    /// The name cannot be encoded.
    #[error("`{0}` is not a DNS name")]
    BadName(String),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate cannot be read or written.
    #[error(transparent)]
    Cert(#[from] CertError),
    /// A part of the certificate cannot be decoded or encoded.
    #[error("the certificate cannot be decoded: {0}")]
    Encoding(String),
}

impl From<x509_cert::der::Error> for ReissueError {
    fn from(error: x509_cert::der::Error) -> Self {
        Self::Encoding(error.to_string())
    }
}
