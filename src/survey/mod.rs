//! Reads all Service addresses of a cluster at one revision, and audits them.
//!
//! Only the functions in `read.rs` and `renewals.rs` do I/O; all other functions are pure. Planning, checks and verification use the same survey
//! and the same rules ([`audit`]).

pub mod audit;
mod backends;
pub mod era;
pub mod layout;
mod read;
mod records;
mod renewals;
mod usage;

pub use audit::{Finding, Ours, Severity};
pub use era::{Era, EraEvidence};
pub use layout::Layout;
pub use records::{
    AddressRecord, BitmapRecord, CidrRecord, KubeadmConfig, NetworkAgent, NodeRecord, ProxyContainer,
    Routing, ServiceRecord, Survey, Unreadable,
};

pub use usage::Usage;

use crate::store::{Key, StoreError};
use crate::wire::WireError;

/// Reason why a survey failed.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A required object cannot be read.
    #[error("cannot read `{key}`: {source}")]
    Object {
        /// Key of the object.
        key: Key,
        /// Why the object cannot be read.
        source: WireError,
    },
    /// There is no Kubernetes cluster under this prefix.
    #[error("no Kubernetes Services under the prefix `{prefix}`{hint}")]
    NoServices {
        /// Prefix that was read.
        prefix: String,
        /// Hint about another prefix under which Services were found; empty if no Services were found.
        hint: String,
    },
}
