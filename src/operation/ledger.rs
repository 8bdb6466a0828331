//! Where the record of an operation is kept, and who may write it.
//!
//! A ledger hides the fence: whoever has lost the operation to somebody else writes nothing more through it. In etcd the
//! record and the change that it is about are one transaction ([`EtcdLedger`]); in a cluster's API each is a request of its own
//! ([`ClusterLedger`]).

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
    /// What it is, and how it stands as a whole ([`super::Summary`]).
    Summary,
    /// A piece of the plan, from 0.
    Plan(usize),
    /// What was added to the plan while it was carried out, from 1.
    Amendment(usize),
    /// How a step stands ([`super::Record`]).
    Step(StepId),
    /// What was put right of a subject after it was done.
    Mended(String),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Summary => f.write_str("the summary"),
            Self::Plan(number) => write!(f, "part {number} of the plan"),
            Self::Amendment(number) => write!(f, "amendment {number}"),
            Self::Step(step) => write!(f, "step `{step}`"),
            Self::Mended(subject) => write!(f, "what was mended of `{subject}`"),
        }
    }
}

/// A change of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartChange {
    /// The part.
    pub part: Part,
    /// What it must be before.
    pub expected: Expected,
    /// What becomes of it.
    pub action: Action,
}

/// Parts of which there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Every [`Part::Amendment`], in their order.
    Amendments,
    /// Every [`Part::Step`].
    Steps,
}

/// Sees a part: which, its value and the revision of its last change.
pub type SeePart<'s> = &'s mut (dyn FnMut(Part, &[u8], Revision) + Send);

/// The record of one operation, to be read.
#[async_trait]
pub trait ReadLedger: Send + Sync {
    /// The cluster that the operation changes, and the operation's id.
    fn operation(&self) -> (&str, &str);

    /// Where a part is, for messages.
    fn place(&self, part: &Part) -> String;

    /// Reads a part as it is now, with the revision of its last change; `None` if it is not there.
    async fn read(&self, part: &Part) -> Result<Option<(Vec<u8>, Revision)>, OperationError>;

    /// Reads every part of a sort.
    async fn read_all(&self, parts: Parts, see: SeePart<'_>) -> Result<(), OperationError>;

    /// The failure of whoever cannot use a part.
    fn broken(&self, part: &Part, reason: &str) -> OperationError {
        OperationError::Journal { what: self.place(part), reason: reason.to_string() }
    }
}

/// The record of one operation, for whoever carries it out.
///
/// Revisions grow with each write, over all parts: of two parts the one with the lower revision was written first.
#[async_trait]
pub trait Ledger: ReadLedger {
    /// Changes parts, and with them the store that the ledger is in: all or nothing, and only while the operation is
    /// still ours ([`OperationError::LockLost`]). Returns the revision of the change.
    ///
    /// Fails with [`CommitError`](crate::store::CommitError) when something is not as expected, or when the answer was lost.
    async fn write(&self, parts: Vec<PartChange>, with: Transaction) -> Result<Revision, OperationError>;

    /// The store that it is in, which steps change in the same write.
    fn store(&self) -> &dyn ReadStore;

    /// Fails with [`OperationError::LockLost`] when somebody else has the operation by now.
    async fn still_ours(&self) -> Result<(), OperationError>;
}
