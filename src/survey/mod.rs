//! What a cluster holds about Service addresses, read at one revision into one value, and its audit.
//!
//! [`Survey::read`] is the only part that reads; everything else here is pure. Planning, checking and
//! verifying all judge the same value by the same rules ([`audit`]).

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

/// Why a survey could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something that cannot be left out cannot be read.
    #[error("cannot read `{key}`: {source}")]
    Object {
        /// The key.
        key: Key,
        /// What is wrong with its value.
        source: WireError,
    },
    /// There is no Kubernetes cluster under this prefix.
    #[error("there are no Kubernetes Services under the prefix `{prefix}`{hint}")]
    NoServices {
        /// The prefix that was read.
        prefix: String,
        /// Where there seem to be some, or nothing.
        hint: String,
    },
}
