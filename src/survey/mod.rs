//! All Service addresses of a cluster, read at one revision, and their audit.
//!
//! Only [`Survey::read`] does I/O; everything else here is pure. Planning, checks and verification use the same survey and the
//! same rules ([`audit`]).

pub mod audit;
mod backends;
pub mod era;
pub mod layout;
mod read;
mod records;
mod usage;

pub use audit::{Finding, Ours, Severity};
pub use era::{Era, EraEvidence};
pub use layout::Layout;
pub use records::{
    AddressRecord, BitmapRecord, CidrRecord, KubeadmConfig, NodeRecord, ProxyContainer, Routing,
    ServiceRecord, Survey, Unreadable,
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
        /// Hint about the prefix under which Services were found; empty if there are none.
        hint: String,
    },
}
