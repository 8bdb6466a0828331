//! Adds the names of the mirror to the certificates of the source, before DNS points to the mirror. The copied Secrets then serve both
//! clusters.
//!
//! ```text
//! host rules, Certificates, issuers ─► reader ─► Sans (plan: references, names, no content)
//! Sans ─► one step for each Certificate ─► AddNames: append names, wait until the certificate is issued, else remove them again
//! ```
//!
//! A step appends names to `spec.dnsNames` of a Certificate of cert-manager, and records exactly which. Each request names the
//! `resourceVersion` of the Certificate. Private keys and certificates are neither printed nor recorded.

mod certificate;
mod decision;
mod environment;
mod issuance;
mod issuer;
mod progress;
pub mod reader;
mod rights;
pub mod run;
mod work;

pub use work::{AddNames, KIND, Sans, SansAction, SansEntry};

/// API group and version of Certificates and issuers.
const CERT_MANAGER: &str = "cert-manager.io/v1";
/// API group and version of Orders.
const ACME: &str = "acme.cert-manager.io/v1";
