//! What an operation needs from outside, as traits: the room of its kind implements [`Environment`], the session
//! provides the others.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::Value;

use super::{Effect, Manual, NoEffect, NoWait, Record, Stage, StepId, Swap, Wait};
use crate::store::Revision;

/// A failure outside the store, with a message for the operator and its consequence for the operation.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The step cannot be done for this subject: its namespace is deleted, a policy or a webhook rejects it, or another
    /// client changed it. The subject is skipped; the others continue.
    #[error("{0}")]
    Skip(String),
    /// It was certainly not done and can be retried: throttling, a change of leader.
    #[error("{why}")]
    Retry {
        /// Why.
        why: String,
        /// The minimum time to wait, if the server gives one.
        after: Option<Duration>,
    },
    /// The answer was lost: observe whether it was done before any retry.
    #[error("{0}")]
    InDoubt(String),
    /// The operation cannot continue.
    #[error("{0}")]
    Halt(String),
}

/// Whether an effect is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// It is; with its result, as in [`Applied::Made`].
    Done(Value),
    /// It is not.
    NotDone,
    /// Neither: another client changed the object.
    Changed(String),
}

/// The outcome of an effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// It is done. The journal records its result, as small JSON: a uid, the id of a change. Never Secret data.
    Made(Value),
    /// It is this change of the store, computed from the current state: committed with the record.
    Changes(Box<Swap>),
}

impl Applied {
    /// No result that a rollback needs.
    pub const NOTHING: Self = Self::Made(Value::Null);
}

/// The state of a manual step.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is done.
    Confirmed,
    /// It is done by this change of the store (in a rehearsal).
    Changes(Box<Swap>),
    /// It is not done, or not confirmed: the operation pauses here, and asks again when it is resumed.
    Open,
}

/// An effect while it is executed, undone or observed.
pub struct Doing<'a, E: Effect> {
    /// Its step: an idempotency key.
    pub step: &'a StepId,
    /// The effect.
    pub effect: &'a E,
    /// Whether it is being undone.
    pub back: bool,
    /// The state found before it started forward ([`Environment::before`]).
    pub before: Value,
    /// Its result forward ([`Applied::Made`]), once that is done.
    pub made: Value,
    /// The records of all steps: the results of earlier steps, with their times.
    pub records: &'a (dyn Fn(&StepId) -> Option<Record> + Send + Sync),
}

/// Everything outside the store that steps of a kind of operation act on.
#[async_trait]
pub trait Environment<E: Effect>: Send + Sync {
    /// Returns the state that a rollback needs, before an effect starts: small JSON for the journal, never Secret data.
    async fn before(&self, _doing: &Doing<'_, E>) -> Result<Value, Fault> {
        Ok(Value::Null)
    }

    /// Executes an effect, or undoes it. Idempotent.
    async fn apply(&self, doing: &Doing<'_, E>) -> Result<Applied, Fault>;

    /// Returns whether an effect is in force, or in a rollback undone, when its outcome is not in the journal.
    async fn observe(&self, doing: &Doing<'_, E>) -> Result<Observed, Fault>;

    /// Reverts the result that this process just produced ([`Doing::made`]) after another process had already completed
    /// that step, at revision `ended` of the store (`None`: the whole operation). Nothing prevents the request of a process
    /// that was frozen between the check of the operation lease and its request. Returns whether there was anything to revert.
    async fn take_back(&self, _doing: &Doing<'_, E>, _ended: Option<Revision>) -> Result<bool, Fault> {
        Ok(false)
    }

    /// How long a wait takes that only lets time pass; `None` if it checks a condition ([`Self::wait`]). The time counts
    /// from the start recorded in the journal: a resumed wait does not start again.
    fn lasts(&self, _wait: &Wait<E::Wait>) -> Option<Duration> {
        None
    }

    /// Waits until the condition holds, with its own deadline. A stop request may drop it at any instant.
    async fn wait(&self, wait: &Wait<E::Wait>) -> Result<(), Fault>;

    /// Waits until a manual step is done, or in a rollback undone.
    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, Fault>;
}

/// The environment of operations whose steps change only the store.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEnvironment;

#[async_trait]
impl Environment<NoEffect> for NoEnvironment {
    async fn apply(&self, doing: &Doing<'_, NoEffect>) -> Result<Applied, Fault> {
        match *doing.effect {}
    }

    async fn observe(&self, doing: &Doing<'_, NoEffect>) -> Result<Observed, Fault> {
        match *doing.effect {}
    }

    async fn wait(&self, wait: &Wait<NoWait>) -> Result<(), Fault> {
        match wait.kind {}
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, Fault> {
        Err(Fault::Halt(format!("a manual step is not possible here: {}", manual.what)))
    }
}

/// Decides, between two batches, whether an operation continues.
#[async_trait]
pub trait Checkpoint: Send + Sync {
    /// Called before this stage, the first one after the end of a batch. It can take long: a stop request drops it.
    async fn pass(&self, stage: &Stage) -> Result<(), Closed>;
}

/// A gate that stops an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Its name in the options.
    pub gate: String,
    /// Why.
    pub reason: String,
}

/// Time and randomness.
pub trait Ambient: Send + Sync {
    /// Seconds since 1970.
    fn now(&self) -> i64;

    /// A new uid.
    fn uid(&self) -> String;

    /// A number from 0 to 1: the jitter of pauses.
    fn fraction(&self) -> f64 {
        1.0
    }
}

/// The machine's own clock and random numbers.
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
