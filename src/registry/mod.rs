//! Asks image registries whether they have an image, with the protocol of the OCI distribution specification
//! (`opencontainers/distribution-spec`, `spec.md`) and its token flow (`distribution/distribution`, `docs/content/spec/auth/token.md`).
//!
//! A credential goes only to the registry that its entry names, and to the token server that this registry names. Both must use
//! HTTPS, except on this machine. No error, log line or `Debug` output contains a credential, or a text that a server sent.

mod challenge;
mod connection;
mod docker_config;
mod image_name;
mod manifest;
mod registries;

pub use docker_config::{DockerConfigFault, Keyring, Login};
pub use image_name::{ImageName, full_name};
pub use registries::{Answer, Registries};
