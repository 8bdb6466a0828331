//! Compares what the nodes and the Pods of two clusters can do in AWS, and returns the changes that give the mirror what the source has.
//!
//! ```text
//! Nodes, ServiceAccounts, Pods ─► cluster ─► side (instances) ─► comparison ─► change
//!                                     metadata_service, node_role, security_group, pod_role, public_address
//! ```
//!
//! What only the mirror can do is no difference, except a permissions boundary. What could not be read is a change with the verdict
//! [`Verdict::NotChecked`](change::Verdict::NotChecked), never equality. Nothing is written.

pub mod change;
pub mod cluster;
pub mod comparison;
mod group_rule;
mod metadata_service;
mod names;
pub mod node_group;
mod node_role;
mod pod_role;
mod policy;
mod public_address;
mod security_group;
mod side;
mod trust;

use crate::aws::AwsError;

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum ParityError {
    /// A request failed for a reason that concerns all requests.
    #[error(transparent)]
    Aws(#[from] AwsError),
    /// No node has the id of an instance.
    #[error("no node of the {0} is an instance of AWS: `spec.providerID` does not start with `aws://`")]
    NoInstances(&'static str),
    /// `--pair` names a group that no node has.
    #[error("no node is in group `{0}`")]
    UnknownGroup(String),
    /// None of the instances was found.
    #[error("no instance of the nodes of the {word} is in {region} in the account of these credentials")]
    OtherAccount {
        /// `source` or `mirror`.
        word: &'static str,
        /// The region of the nodes.
        region: String,
    },
}
