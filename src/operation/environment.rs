//! What an operation needs from outside, as traits: the room of its kind implements [`Environment`], the session hands
//! in the others.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::Value;

use super::{Effect, Manual, NoEffect, NoWait, Record, Stage, StepId, Swap, Wait};
use crate::store::Revision;

/// A failure outside the store, in words for the operator, and what it means for the operation.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// What the step is about cannot be done: its namespace is deleted, a policy or a webhook refuses it, another client has
    /// changed it. It is skipped; the others can be done.
    #[error("{0}")]
    Skip(String),
    /// It was certainly not done, and may be tried again: throttling, a change of leader.
    #[error("{why}")]
    Retry {
        /// Why.
        why: String,
        /// How long to wait at least, where the other side says so.
        after: Option<Duration>,
    },
    /// An answer was lost: whether it was done is looked at first, then it is decided.
    #[error("{0}")]
    InDoubt(String),
    /// Nothing sensible can continue.
    #[error("{0}")]
    Halt(String),
}

/// What comes of looking whether an effect is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// It is; with what was made, as [`Applied::Made`] would tell it.
    Done(Value),
    /// It is not.
    NotDone,
    /// Neither: someone else has changed it.
    Changed(String),
}

/// What came of an effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// It is done. What was made, as small JSON, is recorded with that: a uid, the id of a change. Never Secret data.
    Made(Value),
    /// It is this change of the store, as things stand now: committed with the record.
    Changes(Box<Swap>),
}

impl Applied {
    /// Nothing was made that the way back needs to know.
    pub const NOTHING: Self = Self::Made(Value::Null);
}

/// How a manual step stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is done.
    Confirmed,
    /// It is done by this change of the store (in a rehearsal).
    Changes(Box<Swap>),
    /// It is not done, or nobody says that it is: the operation pauses here, and asks again when it is
    /// resumed.
    Open,
}

/// An effect at the moment when it is carried out, undone or looked for.
pub struct Doing<'a, E: Effect> {
    /// The step that it is of: an idempotency key.
    pub step: &'a StepId,
    /// The effect.
    pub effect: &'a E,
    /// Whether it is being undone.
    pub back: bool,
    /// What was found before it was begun on the way forward ([`Environment::before`]).
    pub before: Value,
    /// What was made on the way forward ([`Applied::Made`]), once that is done.
    pub made: Value,
    /// The records of all steps: what earlier ones have made, and when.
    pub records: &'a (dyn Fn(&StepId) -> Option<Record> + Send + Sync),
}

/// Everything outside the store that steps of a kind of operation act on.
#[async_trait]
pub trait Environment<E: Effect>: Send + Sync {
    /// Looks at what the way back needs to know, before an effect is begun: small JSON for the journal, never Secret
    /// data.
    async fn before(&self, _doing: &Doing<'_, E>) -> Result<Value, Fault> {
        Ok(Value::Null)
    }

    /// Carries an effect out, or undoes it. Twice is as once.
    async fn apply(&self, doing: &Doing<'_, E>) -> Result<Applied, Fault>;

    /// Tells whether an effect is in force, or on the way back undone, when its outcome is not in the journal.
    async fn observe(&self, doing: &Doing<'_, E>) -> Result<Observed, Fault>;

    /// Takes back what this process has just made, told in [`Doing::made`], when somebody else had come to the end of that
    /// step before, at revision `ended` of the store (`None`: to the end of the whole operation): a process that stood
    /// still between looking at the lock and its request is not kept from the request. Tells whether there was something.
    async fn take_back(&self, _doing: &Doing<'_, E>, _ended: Option<Revision>) -> Result<bool, Fault> {
        Ok(false)
    }

    /// How long a wait takes that lets time pass and looks at nothing; `None`: it looks at something ([`Self::wait`]). It is
    /// counted from when the journal says that it was begun: whoever resumes it does not begin again.
    fn lasts(&self, _wait: &Wait<E::Wait>) -> Option<Duration> {
        None
    }

    /// Waits until something is true, with a deadline of its own. May be dropped at any instant, by whoever asks to stop.
    async fn wait(&self, wait: &Wait<E::Wait>) -> Result<(), Fault>;

    /// Waits until someone has done something, or on the way back undone it.
    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, Fault>;
}

/// The environment of operations that have steps in the store alone.
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
        Err(Fault::Halt(format!("there is nobody to ask: {}", manual.what)))
    }
}

/// Says, between two batches, whether an operation may go on.
#[async_trait]
pub trait Checkpoint: Send + Sync {
    /// Is asked before this stage, the first one after the end of a batch. It may take its time: it is dropped
    /// when the operation is asked to stop.
    async fn pass(&self, stage: &Stage) -> Result<(), Closed>;
}

/// A gate that does not let an operation go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Which one, as the operator calls it.
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

    /// A number from 0 to 1, by which pauses of several processes differ.
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
