//! Why there is no new certificate.

use time::OffsetDateTime;

use super::{CertError, KeyError};

/// Why there is no new certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReissueError {
    /// The certificate is not one that may sign others.
    #[error("`{0}` is no certificate authority")]
    NoAuthority(String),
    /// The authority is not valid now.
    #[error("the authority `{subject}` is not valid: from {from} until {until}")]
    NotValid {
        /// Its name.
        subject: String,
        /// From when on it is.
        from: OffsetDateTime,
        /// Until when.
        until: OffsetDateTime,
    },
    /// The key does not belong to the certificate.
    #[error("the key does not belong to the certificate of `{0}`")]
    OtherKey(String),
    /// The certificate was signed by another authority than this one.
    #[error("it was signed by `{issuer}`, and this authority is `{authority}`: clients trust the former")]
    OtherAuthority {
        /// Who signed the certificate.
        issuer: String,
        /// Who would.
        authority: String,
    },
    /// The new certificate would not be valid, or for longer than its authority.
    #[error("the new certificate would be valid until {until}, {reason}")]
    Validity {
        /// Until when.
        until: OffsetDateTime,
        /// What is wrong with that.
        reason: String,
    },
    /// It would be valid for no name and no address.
    #[error("the new certificate would be valid for no name and no address")]
    Nameless,
    /// A name that cannot be written.
    #[error("`{0}` is no DNS name")]
    BadName(String),
    /// A key is of no use.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Something cannot be read, or written.
    #[error(transparent)]
    Cert(#[from] CertError),
    /// Something cannot be read, or written, in its own encoding.
    #[error("the certificate cannot be taken apart: {0}")]
    Encoding(String),
}

impl From<x509_cert::der::Error> for ReissueError {
    fn from(error: x509_cert::der::Error) -> Self {
        Self::Encoding(error.to_string())
    }
}
