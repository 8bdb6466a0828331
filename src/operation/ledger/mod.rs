//! The record of an operation: where it is stored, and which process can write it.
//!
//! A ledger contains the fencing token. If another process takes over the operation, the old process can no longer write through
//! its ledger. In etcd, one transaction contains a step's record and its change ([`EtcdLedger`]). In a cluster's API, the record
//! and the change need separate requests ([`ClusterLedger`]).

mod cluster;
mod etcd;

use std::fmt;

use async_trait::async_trait;

pub use self::cluster::{ClusterLedger, ClusterRecord};
pub use self::etcd::{EtcdLedger, EtcdRecord};
pub(super) use self::etcd::{base_of, key_of};
use super::{OperationError, StepId};
use crate::store::{Action, Expected, ReadStore, Revision, Transaction};

/// A part of the record of an operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The kind and status of the operation ([`super::Summary`]).
    Summary,
    /// A part of the plan, with its number from 0.
    Plan(usize),
    /// An amendment that was added to the plan while the operation ran, with its number from 1.
    Amendment(usize),
    /// The state of a step ([`super::Record`]).
    Step(StepId),
    /// The repairs of a subject after its steps were done.
    Repaired(String),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Summary => f.write_str("the summary"),
            Self::Plan(number) => write!(f, "part {number} of the plan"),
            Self::Amendment(number) => write!(f, "amendment {number}"),
            Self::Step(step) => write!(f, "step `{step}`"),
            Self::Repaired(subject) => write!(f, "the repairs of `{subject}`"),
        }
    }
}

/// A change to one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartChange {
    /// The part.
    pub part: Part,
    /// Expected revision of the part.
    pub expected: Expected,
    /// New value of the part, or its deletion.
    pub action: Action,
}

/// The kinds of parts that can occur several times in one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Every [`Part::Amendment`], in order.
    Amendments,
    /// Every [`Part::Step`].
    Steps,
}

/// Receives a part, its value and the revision of its last change.
pub type SeePart<'s> = &'s mut (dyn FnMut(Part, &[u8], Revision) + Send);

/// The record of one operation, read-only.
#[async_trait]
pub trait ReadLedger: Send + Sync {
    /// Returns the cluster that the operation changes, and the operation's id.
    fn operation(&self) -> (&str, &str);

    /// Returns where a part is stored, for messages.
    fn place(&self, part: &Part) -> String;

    /// Reads the current value of a part, with the revision of its last change; `None` if the part does not exist.
    async fn read(&self, part: &Part) -> Result<Option<(Vec<u8>, Revision)>, OperationError>;

    /// Reads every part of a kind.
    async fn read_all(&self, parts: Parts, see: SeePart<'_>) -> Result<(), OperationError>;

    /// Returns the error for a part that cannot be used.
    fn broken(&self, part: &Part, reason: &str) -> OperationError {
        OperationError::Journal { what: self.place(part), reason: reason.to_string() }
    }
}

/// The record of one operation, for the process that runs the operation.
///
/// Revisions increase with each write, across all parts. If two parts have different revisions, the part with the lower revision
/// was written first.
#[async_trait]
pub trait Ledger: ReadLedger {
    /// Changes parts, and executes the transaction `with` in the store that contains the ledger, all in one atomic write.
    /// [`ClusterLedger`] is an exception: it writes one ConfigMap after the other, and accepts only an empty transaction. Returns
    /// the revision of the write.
    ///
    /// Fails with [`OperationError::LockLost`] if this process can no longer write, because it lost the operation lease. Fails
    /// with [`CommitError`](crate::store::CommitError) on a conflict, or when the answer was lost.
    async fn write(&self, parts: Vec<PartChange>, with: Transaction) -> Result<Revision, OperationError>;

    /// Returns the store that contains the ledger. A step changes this store in the same write as its record.
    fn store(&self) -> &dyn ReadStore;

    /// Sets how many steps run now. A ledger can delay a write for a moment, so that these steps share the write.
    fn set_running(&self, _steps: usize) {}

    /// Fails with [`OperationError::LockLost`] if this process can no longer write, because it lost the operation lease.
    async fn still_ours(&self) -> Result<(), OperationError>;
}
