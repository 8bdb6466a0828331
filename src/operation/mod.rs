//! Carrying out a plan so that it can be stopped, resumed and undone at any instant.
//!
//! ```text
//! intention ──► Plan (value, digest) ──► stages of Steps (data) ──► executor ──► store, API, waiting
//!                                                                     │
//!                                                    ledger: one record a step, in that store or in the cluster
//!
//! a step:  (none) ─► Started ─► Done | Failed          back:  UndoStarted ─► UndoDone | UndoFailed
//!              └──────────────► Done                             (a step in the store: at once)
//! taken back, with its batch or because its plan is another by now:  ─► Reset, which counts as (none)
//! ```
//!
//! A step in the store changes objects and writes its record in one transaction, so the journal and the
//! cluster never disagree. A step outside writes its intention first, with what was there before, and its outcome
//! afterwards, with what was made; on resume the environment that carried it out is asked what came of it.
//!
//! Steps about different things are carried out side by side ([`Executor::parallel`]); a lock in the store
//! keeps other operations out ([`Lock`]), and whoever loses it can write no more.
//!
//! This room knows what an etcd transaction and a field of an object is, not what a Service is: renumbering
//! compiles to these steps, and so does anything else that must be undone. What a step does outside the store is an
//! [`Effect`] of the room that knows the thing, which that room's [`Environment`] carries out.

mod claim;
mod cluster_lock;
mod environment;
mod executor;
mod journal;
mod keeping;
mod ledger;
mod lock;
mod mend;
mod observer;
mod plan;
mod step;
mod stop;
mod swap;

pub use claim::{Claim, moment, new_id};
pub use cluster_lock::{ClusterLock, Silence, Terms};
pub use environment::{
    Ambient, Answer, Applied, Checkpoint, Closed, Doing, Environment, Fault, NoEnvironment, Observed,
    SystemAmbient,
};
pub use executor::{Executor, Failure, Report, Stuck};
pub use journal::{Journal, Listed, Noted, Progress, Record, Returning, State, Status, Summary};
pub use ledger::{
    ClusterLedger, ClusterRecord, EtcdLedger, EtcdRecord, Ledger, Part, PartChange, Parts, ReadLedger,
    SeePart,
};
pub use lock::{Held, Lock};
pub use mend::{Mend, Mended, mend, replace, settle};
pub use observer::{Event, Observer, Silent, Told};
pub use plan::{Header, Kind, Plan, PlanFileError, Stage, Work};
pub use step::{
    Action, Effect, Fill, Generated, KeyChange, KeyCheck, KeyEdit, Manual, NoEffect, NoWait, Step, StepId,
    Swap, Wait, WaitKind,
};
pub use stop::{Stop, StopSwitch};

use crate::cluster::ClusterError;
use crate::store::{CommitError, Key, StoreError};
use crate::wire::EditError;

/// Why a step, or the journal around it, could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The cluster's API failed.
    #[error(transparent)]
    Cluster(Box<ClusterError>),
    /// A transaction did not go through.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// An object is not what the step was planned for: someone else changed it.
    #[error("`{key}`: {source}")]
    Changed {
        /// The object's key.
        key: Key,
        /// What differs.
        source: EditError,
    },
    /// An object that the step needs is gone.
    #[error("`{key}` does not exist any more")]
    Gone {
        /// The object's key.
        key: Key,
    },
    /// An object that the step would make is there already.
    #[error("`{key}` exists already")]
    Exists {
        /// The object's key.
        key: Key,
    },
    /// Other clients change the same object faster than the step can.
    #[error("{what} was changed by others {attempts} times in a row while this step tried to change it")]
    Contended {
        /// The object.
        what: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The operation stops here until someone has done something.
    #[error("this is to be done first: {what} ({why})")]
    Paused {
        /// What, as a word.
        name: String,
        /// What.
        what: String,
        /// Why it must happen at this place.
        why: String,
    },
    /// A gate between two batches is closed: the operation stops here, to be resumed.
    #[error("the gate `{gate}` is closed: {reason}")]
    GateClosed {
        /// Which one.
        gate: String,
        /// Why.
        reason: String,
        /// The batch, from 0, that has just ended there; `None` where the gate was asked before a batch that is
        /// to be done anew.
        after: Option<usize>,
    },
    /// A batch was rolled back because a gate after it was closed: the operation stops before it, to be resumed.
    #[error("the gate `{gate}` was closed: {reason}; batch {} was rolled back", .batch.saturating_add(1))]
    BatchRolledBack {
        /// Which batch, from 0.
        batch: usize,
        /// Which gate.
        gate: String,
        /// Why it was closed.
        reason: String,
    },
    /// Something of a batch that is being rolled back could not be undone.
    #[error("batch {} could not be rolled back as a whole: {reason}", .batch.saturating_add(1))]
    BatchStuck {
        /// Which batch, from 0.
        batch: usize,
        /// What could not be undone first.
        reason: String,
    },
    /// The environment failed.
    #[error(transparent)]
    Environment(#[from] Fault),
    /// The journal says something that cannot be.
    #[error("the journal record of step `{step}` cannot go from {from} to {to}")]
    IllegalTransition {
        /// The step.
        step: StepId,
        /// State in the journal.
        from: String,
        /// State asked for.
        to: String,
    },
    /// The journal is unreadable or another operation's.
    #[error("the journal at {what} cannot be used: {reason}")]
    Journal {
        /// Where.
        what: String,
        /// Why.
        reason: String,
    },
    /// Somebody else holds the lock of the cluster.
    #[error("{0}")]
    Locked(Box<Held>),
    /// The lock was ours; the write that it guards was refused.
    #[error("the lock was lost to {to}; nothing was written")]
    LockLost {
        /// Who has it now, in words.
        to: String,
    },
    /// It was asked to stop.
    #[error("stopped as asked for, before this step; everything until here is done and in the journal")]
    Stopped,
    /// Undoing the operation has begun, so it cannot go forward again.
    #[error("the operation is being rolled back; only that can go on")]
    BeingUndone,
    /// The operation has passed the step after which there is no way back.
    #[error("the operation has passed its point of no return (step `{step}`)")]
    PointOfNoReturn {
        /// The step.
        step: StepId,
    },
}

impl From<ClusterError> for OperationError {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(Box::new(error))
    }
}

impl OperationError {
    /// Whether the error is about one object that someone else has changed, or refuses, so that other steps may still
    /// be carried out.
    pub fn is_about_one_object(&self) -> bool {
        matches!(
            self,
            Self::Changed { .. }
                | Self::Gone { .. }
                | Self::Exists { .. }
                | Self::Environment(Fault::Skip(_))
        )
    }

    /// Whether nothing went wrong: the operation waits for somebody, and the same call goes on.
    pub fn is_pause(&self) -> bool {
        matches!(
            self,
            Self::Paused { .. } | Self::GateClosed { .. } | Self::BatchRolledBack { .. } | Self::Stopped
        )
    }
}
