//! X.509 certificates. These modules do not use files, sockets or the clock. They need randomness only for new keys and
//! signatures. Private keys are never printed.

mod authority;
mod body;
mod error;
mod key;
mod key_encryption;
mod key_kind;
mod names;
mod pem;
mod read;
mod reissue;
mod trust;

pub use authority::Authority;
pub use error::{KeyError, ReissueError};
pub use key::PrivateKey;
pub use pem::{IgnoredBlock, ignored};
pub use read::{
    CertError, Certificate, PublicKey, certificates, has_only_certificates, request_to_pem, to_pem,
    with_first,
};
pub use reissue::{Changes, Name, belongs, reissue, request};
pub use trust::{Distrust, is_trusted, is_valid_for};
