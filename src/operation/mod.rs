//! Runs the plan of an operation. The operation can be stopped and resumed at any time. It can be rolled back until its point of
//! no return.
//!
//! ```text
//! intention ──► Plan (value, digest) ──► stages of Steps (data) ──► executor ──► store, API, waiting
//!                                                                     │
//!                                                    ledger: one record per step, in that store or in the cluster
//!
//! a step:  (none) ─► Started ─► Done | Failed          back:  UndoStarted ─► UndoDone | UndoFailed
//!              └──────────────► Done                             (a step in the store: directly)
//! undone with its batch, or because its plan changed:  ─► Reset, which counts as (none)
//! ```
//!
//! A step that changes the store writes its record in the same transaction, so the journal always agrees with the store. If a
//! step changes another system, for example through the Kubernetes API, the journal records the intention and the previous state
//! before the step runs, and the outcome and the result afterwards. On resume, the environment checks whether a step that was
//! started is done.
//!
//! Steps with different subjects run concurrently ([`Executor::parallel`]). The operation lease in the store ([`Lock`]) excludes
//! other operations. A process that loses the lease can no longer write.
//!
//! This module works with etcd transactions and with fields of objects. It has no code that is specific to Services. Renumbering,
//! and every other operation with a rollback, compiles to these steps. The module of each operation kind defines the effects of
//! its steps on other systems ([`Effect`]), and executes these effects ([`Environment`]).

mod cluster_lock;
mod environment;
mod executor;
mod journal;
mod lease_holder;
mod lease_renewal;
mod ledger;
mod lock;
mod mark;
mod observer;
mod plan;
mod repair;
mod step;
mod stop;
mod swap;

pub use cluster_lock::{ClusterLock, Silence, Terms};
pub use environment::{
    Ambient, Answer, Applied, Checkpoint, Closed, Doing, Environment, Fence, NoEnvironment, Observed,
    Records, StepFault, SystemAmbient,
};
pub use executor::{Executor, Report, RunFailure, Stuck};
pub use journal::{
    Journal, Listed, Listing, Noted, Record, Returning, Run, RunEnd, State, Status, StepCounts, Summary,
    Waiver,
};
pub use lease_holder::{LeaseHolder, instant, moment, new_id};
pub use ledger::{
    ClusterLedger, ClusterRecord, EtcdLedger, EtcdRecord, Ledger, Part, PartChange, Parts, ReadLedger,
    SeePart,
};
pub use lock::{Held, Lock};
pub use mark::{LedgerKind, Mark};
pub use observer::{Event, Observer, Silent, Told};
pub use plan::{Header, OperationKind, Plan, PlanFileError, Shortcut, Stage, Work};
pub use repair::{Repair, RepairOutcome, repair, replace, settle};
pub use step::{
    Action, Effect, Fill, Generated, KeyChange, KeyCheck, KeyEdit, Manual, NoEffect, NoWait, Step, StepId,
    Swap, Wait, WaitKind,
};
pub use stop::{Stop, StopSwitch};

use crate::kube_api::ClusterError;
use crate::store::{CommitError, Key, StoreError};
use crate::wire::EditError;

/// An error in a step, or in the journal of its operation.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The cluster's API failed.
    #[error(transparent)]
    Cluster(Box<ClusterError>),
    /// A transaction failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// An object differs from the plan, because another client changed the object.
    #[error("`{key}`: {source}")]
    Changed {
        /// The object's key.
        key: Key,
        /// What differs.
        source: EditError,
    },
    /// An object that the step needs is missing.
    #[error("`{key}` no longer exists")]
    Gone {
        /// The object's key.
        key: Key,
    },
    /// An object that the step creates already exists.
    #[error("`{key}` already exists")]
    Exists {
        /// The object's key.
        key: Key,
    },
    /// Every attempt to write an object failed, because another client changed the object first or the answer was lost.
    #[error(
        "cannot write {what}: all {attempts} attempts failed, because it was changed meanwhile or an answer was lost"
    )]
    Contended {
        /// The object.
        what: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// The operation waits for a manual step.
    #[error("manual step required: {what} ({why})")]
    Paused {
        /// Name of the manual step.
        name: String,
        /// What the operator has to do.
        what: String,
        /// Why the step must be done at this point.
        why: String,
    },
    /// A gate between two batches is closed. The operation pauses here and can be resumed.
    #[error("the gate `{gate}` is closed: {reason}")]
    GateClosed {
        /// Name of the gate.
        gate: String,
        /// Why the gate is closed.
        reason: String,
        /// Number of the batch before the gate, from 0. `None` if the gate was checked before a batch that runs again, or after a
        /// stage that belongs to no batch.
        after: Option<usize>,
    },
    /// A batch was rolled back because a gate after the batch was closed. The operation pauses before the batch and can be
    /// resumed.
    #[error("the gate `{gate}` was closed: {reason}; batch {} was rolled back", .batch.saturating_add(1))]
    BatchRolledBack {
        /// Number of the batch, from 0.
        batch: usize,
        /// Name of the gate.
        gate: String,
        /// Why the gate was closed.
        reason: String,
    },
    /// A batch could not be rolled back completely, because at least one of its steps could not be undone.
    #[error("batch {} could not be rolled back completely: {reason}", .batch.saturating_add(1))]
    BatchStuck {
        /// Number of the batch, from 0.
        batch: usize,
        /// Why the first of the failed steps could not be undone.
        reason: String,
    },
    /// An effect, a wait or a manual step failed in the environment.
    #[error(transparent)]
    Environment(#[from] StepFault),
    /// A step cannot change from its current state to the requested state.
    #[error("the journal record of step `{step}` cannot change from {from} to {to}")]
    IllegalTransition {
        /// The step.
        step: StepId,
        /// Current state in the journal.
        from: String,
        /// The requested state.
        to: String,
    },
    /// The journal is unreadable or belongs to another operation.
    #[error("the journal at {what} cannot be used: {reason}")]
    Journal {
        /// Where the journal is stored.
        what: String,
        /// Why the journal cannot be used.
        reason: String,
    },
    /// The namespace of the records does not exist, and cannot be created.
    #[error("the namespace `{name}` for the records of operations cannot be created: {reason}")]
    NoNamespace {
        /// The namespace.
        name: &'static str,
        /// The reason.
        reason: String,
    },
    /// Another process holds the operation lease of the cluster.
    #[error("{0}")]
    Locked(Box<Held>),
    /// This process lost the operation lease. Every write that requires the lease is rejected.
    #[error("the operation lease was lost: {to}; the last write was rejected")]
    LockLost {
        /// Text that describes the current holder of the lease.
        to: String,
    },
    /// The operation was stopped on request.
    #[error("stopped on request before this step; all earlier steps are done and recorded in the journal")]
    Stopped,
    /// The rollback of the operation has started, so the operation cannot run forward.
    #[error("the operation is being rolled back: only the rollback can continue")]
    BeingUndone,
    /// The operation has passed the step after which a rollback is impossible.
    #[error("the operation has passed its point of no return (step `{step}`)")]
    PointOfNoReturn {
        /// The step after which a rollback is impossible.
        step: StepId,
    },
}

impl From<ClusterError> for OperationError {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(Box::new(error))
    }
}

impl OperationError {
    /// Returns whether the error concerns only one object, which another client changed or a component rejects. Steps for other
    /// objects can still run.
    pub fn is_about_one_object(&self) -> bool {
        matches!(
            self,
            Self::Changed { .. }
                | Self::Gone { .. }
                | Self::Exists { .. }
                | Self::Environment(StepFault::Skip(_))
        )
    }

    /// Returns whether the error is a pause, not a failure. Running the operation again resumes it.
    pub fn is_pause(&self) -> bool {
        matches!(
            self,
            Self::Paused { .. } | Self::GateClosed { .. } | Self::BatchRolledBack { .. } | Self::Stopped
        )
    }
}
