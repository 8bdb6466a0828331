//! The Service addresses of a cluster, read at one revision into one value, and their audit.
//!
//! Only [`Survey::read`] reads; everything else here is pure. Planning, checking and
//! verifying use the same value and the same rules ([`audit`]).

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
    AddressRecord, BitmapRecord, CidrRecord, KubeadmConfig, Manager, NodeRecord, PodAddress, ProxyContainer,
    Routing, ServiceRecord, Survey, Unreadable,
};

pub use usage::Usage;

use crate::store::{Key, StoreError};
use crate::wire::WireError;

/// Why a survey failed.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A required object cannot be read.
    #[error("cannot read `{key}`: {source}")]
    Object {
        /// The key.
        key: Key,
        /// Why not.
        source: WireError,
    },
    /// There is no Kubernetes cluster under this prefix.
    #[error("no Kubernetes Services under the prefix `{prefix}`{hint}")]
    NoServices {
        /// The prefix that was read.
        prefix: String,
        /// Where some were found, or empty.
        hint: String,
    },
}
