//! X.509 certificates: bytes in, values out. No files, no sockets, no clock, and never a private key.

mod names;
mod read;

pub use read::{CertError, Certificate, PublicKey, certificates};
