//! Traits for everything that an operation uses in addition to the store: requests to other systems, waits, manual steps, gates
//! and the clock. The module of each kind of operation implements [`Environment`]. The session implements [`Checkpoint`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::Value;
use time::OffsetDateTime;

use super::{Effect, Manual, NoEffect, NoWait, Record, Stage, StepId, Stop, Swap, Wait};
use crate::kube_api::{Clock, ClusterError};
use crate::store::Revision;
use crate::words::brief;

/// A failure of an effect, a wait or a manual step in the [`Environment`]. Each variant has a different consequence for the
/// operation, and contains a message for the operator. A long message is shortened when it is shown or recorded.
#[derive(Debug, thiserror::Error)]
pub enum StepFault {
    /// The step cannot be executed for this subject. For example, its namespace is deleted, a policy or a webhook rejects the
    /// change, or another client changed the subject. The operation skips the subject and continues with other subjects.
    #[error("{}", brief(.0))]
    Skip(String),
    /// The request was certainly not executed and can be retried, for example after throttling or a leader change.
    #[error("{}", brief(.why))]
    Retry {
        /// Why the request was not executed.
        why: String,
        /// The minimum time to wait, if the server gives one.
        after: Option<Duration>,
    },
    /// The answer was lost. Before a retry, check whether the request was executed.
    #[error("{}", brief(.0))]
    InDoubt(String),
    /// The operation cannot continue.
    #[error("{}", brief(.0))]
    Halt(String),
}

impl StepFault {
    /// Converts an error of the Kubernetes API to a fault, and adds the hint on how to fix it. If a policy, a webhook or the API
    /// rejects one object, the operation skips only that object.
    pub fn of(error: &ClusterError) -> Self {
        let words = match error.hint() {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        };
        if error.is_of_one_object() { Self::Skip(words) } else { Self::Halt(words) }
    }
}

impl From<ClusterError> for StepFault {
    fn from(error: ClusterError) -> Self {
        Self::of(&error)
    }
}

/// Whether an effect is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// The effect is done. Contains its result (see [`Applied::Made`]).
    Done(Value),
    /// The effect is not done.
    NotDone,
    /// The object is neither in the state before the effect nor in the state after it, because another client changed the object.
    /// Contains a description.
    Changed(String),
}

/// The outcome of an effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// The effect is done. The journal records this result: small JSON, such as a uid or the id of a change. It never contains
    /// Secret data.
    Made(Value),
    /// The effect is this change to the store, which was computed from the current state. The executor commits the change
    /// together with the step's record.
    Changes(Box<Swap>),
}

impl Applied {
    /// The effect is done, without a result that a rollback needs.
    pub const NOTHING: Self = Self::Made(Value::Null);
}

/// The state of a manual step.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The manual step is done.
    Confirmed,
    /// In a rehearsal, this change to the store completes the manual step.
    Changes(Box<Swap>),
    /// The manual step is not done, or not confirmed. The operation pauses at the step. When the operation is resumed, it checks
    /// the step again.
    Open,
}

/// Checks that this process still holds the operation. An effect that checks something first, such as a probe of the mirror, can
/// take long, and a process can be suspended at any point. Therefore an effect checks the fence directly before each request
/// that changes something.
#[async_trait]
pub trait Fence: Send + Sync {
    /// Fails if another process has taken over the operation, or if this cannot be determined.
    async fn still_ours(&self) -> Result<(), StepFault>;
}

/// An effect that is being executed, undone or observed.
pub struct Doing<'a, E: Effect> {
    /// Id of the step. The id is also the idempotency key.
    pub step: &'a StepId,
    /// The effect.
    pub effect: &'a E,
    /// Whether the effect is being undone.
    pub back: bool,
    /// The state before the effect was executed ([`Environment::before`]).
    pub before: Value,
    /// The result of the executed effect ([`Applied::Made`]), once the effect is done.
    pub made: Value,
    /// Function that returns the record of any step, with the result and times of that step.
    pub records: Records<'a>,
    /// The fence, to check directly before a request.
    pub fence: &'a dyn Fence,
    /// Receives a stop request. An effect that can take longer than a request then ends soon, with [`StepFault::InDoubt`]. The next
    /// run finds out what was done, and continues.
    pub stop: &'a Stop,
}

/// A function that returns the record of a step; `None` if the step never started.
pub type Records<'a> = &'a (dyn Fn(&StepId) -> Option<Record> + Send + Sync);

/// Executes the effects, the waits and the manual steps of one kind of operation.
#[async_trait]
pub trait Environment<E: Effect>: Send + Sync {
    /// Returns the state that a rollback needs, as small JSON for the journal. Called before the effect starts. The JSON must not
    /// contain Secret data.
    async fn before(&self, _doing: &Doing<'_, E>) -> Result<Value, StepFault> {
        Ok(Value::Null)
    }

    /// Executes or undoes an effect. Implementations are idempotent.
    async fn apply(&self, doing: &Doing<'_, E>) -> Result<Applied, StepFault>;

    /// Returns whether an effect is done. In a rollback, returns whether the effect is undone. Called when the journal does not
    /// contain the outcome.
    async fn observe(&self, doing: &Doing<'_, E>) -> Result<Observed, StepFault>;

    /// Reverts the result that this process has just produced ([`Doing::made`]). Called if another process has already completed
    /// the step. This can happen if this process was suspended after it checked the operation lease and before it sent the
    /// request. `ended` is the revision at which the step was completed; `None` means that the whole operation has ended. Returns
    /// whether there was anything to revert.
    async fn take_back(&self, _doing: &Doing<'_, E>, _ended: Option<Revision>) -> Result<bool, StepFault> {
        Ok(false)
    }

    /// Returns the duration of a wait that lasts for a fixed time; `None` for a wait that checks a condition ([`Self::wait`]).
    /// The duration counts from the start time in the journal, so a resumed wait does not start again.
    fn lasts(&self, _wait: &Wait<E::Wait>) -> Option<Duration> {
        None
    }

    /// Waits until the time of a wait with a fixed duration ([`Self::lasts`]) can start to count. Called before the start is
    /// recorded, so a resumed wait does not call it again. By default, the time counts at once.
    async fn ready(&self, _wait: &Wait<E::Wait>, _records: Records<'_>) -> Result<(), StepFault> {
        Ok(())
    }

    /// Waits until the condition holds. Fails with [`StepFault::Skip`] if a rollback can continue although the condition could not be
    /// confirmed; the report of the rollback then contains the reason. Each implementation has its own deadline. `records` returns the record of any step, for a
    /// condition that depends on completed steps. A stop request can cancel the wait at any time.
    async fn wait(&self, wait: &Wait<E::Wait>, records: Records<'_>) -> Result<(), StepFault>;

    /// Returns what a wait found, as small JSON for its record. Called after the wait has ended. Nothing depends on the result,
    /// so this function cannot fail. It needs its own deadline, and a stop request cancels it.
    async fn found(&self, _wait: &Wait<E::Wait>) -> Value {
        Value::Null
    }

    /// Returns whether a manual step is done. In a rollback, returns whether it is undone. Can wait for the answer.
    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault>;
}

/// The environment for operations whose steps change only the store.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEnvironment;

#[async_trait]
impl Environment<NoEffect> for NoEnvironment {
    async fn apply(&self, doing: &Doing<'_, NoEffect>) -> Result<Applied, StepFault> {
        match *doing.effect {}
    }

    async fn observe(&self, doing: &Doing<'_, NoEffect>) -> Result<Observed, StepFault> {
        match *doing.effect {}
    }

    async fn wait(&self, wait: &Wait<NoWait>, _: Records<'_>) -> Result<(), StepFault> {
        match wait.kind {}
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(format!("this operation cannot wait for a manual step: {}", manual.what)))
    }
}

/// Decides, between two batches, whether an operation continues.
#[async_trait]
pub trait Checkpoint: Send + Sync {
    /// Checks whether the operation can continue with `stage`. Called where a batch ends or starts. The check can take a long
    /// time. A stop request cancels the check.
    async fn pass(&self, stage: &Stage) -> Result<(), Closed>;
}

/// A closed gate, which stops the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Name of the gate in the options.
    pub gate: String,
    /// Why the gate is closed.
    pub reason: String,
}

/// A source of time and random values.
pub trait Ambient: Send + Sync {
    /// Returns the current time, in seconds since 1970.
    fn now(&self) -> i64;

    /// Returns a new uid.
    fn uid(&self) -> String;

    /// Returns a number from 0 to 1, for the jitter of pauses.
    fn fraction(&self) -> f64 {
        1.0
    }
}

/// The clock and the random numbers of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemAmbient;

impl Ambient for SystemAmbient {
    fn now(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }

    fn uid(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    fn fraction(&self) -> f64 {
        rand::random()
    }
}

/// The clock of the cluster and the random numbers of this machine. If no answer of the API server contained a time, the clock of
/// this machine.
impl Ambient for Clock {
    fn now(&self) -> i64 {
        Self::now(self).map_or_else(|| SystemAmbient.now(), OffsetDateTime::unix_timestamp)
    }

    fn uid(&self) -> String {
        SystemAmbient.uid()
    }

    fn fraction(&self) -> f64 {
        SystemAmbient.fraction()
    }
}
