//! Why a certificate cannot be reissued, and why a private key cannot be used.

use time::OffsetDateTime;

use super::CertError;

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

/// Why a private key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text contains no private key.
    #[error("it contains no private key")]
    None,
    /// The text contains no private key, but a block that is not valid PEM.
    #[error("it contains no private key: the PEM block at line {line} is ignored, because {reason}")]
    Ignored {
        /// The line of the block, counted from 1.
        line: usize,
        /// Why the block is not valid.
        reason: &'static str,
    },
    /// The key is encrypted, and no password was given.
    #[error("it is encrypted, and no password was given")]
    NeedsPassword,
    /// The key cannot be decrypted.
    #[error("it cannot be decrypted: the password is wrong")]
    WrongPassword,
    /// Decryption would need too much CPU time or memory.
    #[error("its decryption needs more than 10,000,000 rounds of PBKDF2, or more than 256 MiB for scrypt")]
    TooCostly,
    /// The key is encrypted in a way that netsurgeon does not decrypt. Supported is PBES2 with AES in mode CBC or GCM, and with
    /// PBKDF2 with SHA-2 or scrypt (RFC 8018).
    #[error("it is encrypted with {0}, which netsurgeon does not decrypt")]
    Cipher(String),
    /// The key has an unsupported algorithm. The supported algorithms are RSA with at least 2048 bits, ECDSA on P-256, P-384 or
    /// P-521, and Ed25519.
    #[error(
        "it is {0}; netsurgeon supports RSA (2048 bits or more), ECDSA (P-256, P-384, P-521) and Ed25519"
    )]
    Unsupported(String),
    /// The content of the block is not a private key.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The cryptographic library failed.
    #[error("{0}")]
    Failed(String),
}
