//! What an operation needs from outside, as traits: other rooms implement them, `cli` hands them in.

use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use super::{ApiChange, External, OperationError, Stage, Step, StepId, Swap, Wait};
use crate::store::Revision;

/// A failure outside the store, in words for the operator, and what it means for the operation.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// What the step is about cannot be done: its namespace is deleted, a policy or a webhook refuses it, another client has
    /// changed it. The others can.
    #[error("{0}")]
    Skip(String),
    /// Nothing sensible can continue.
    #[error("{0}")]
    Halt(String),
}

/// What a port finds when it is asked about a step whose outcome is not in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// The change is in force.
    Done,
    /// It is not.
    NotDone,
    /// Neither: someone else has been there.
    Changed(String),
}

/// How an external step stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is done, and seen to be.
    Confirmed,
    /// Nobody can know (a rehearsal): take it as done, and carry out what it is assumed to do.
    Assumed,
    /// It is this change of the store, as things stand now.
    Changes(Box<Swap>),
    /// It is not done, or nobody says that it is: the operation pauses here, and asks again when it is
    /// resumed.
    Open,
}

/// Everything outside the store that steps act on.
#[async_trait]
pub trait World: Send + Sync {
    /// Carries out a change through the API.
    async fn api(&self, change: &ApiChange) -> Result<(), Fault>;

    /// Tells whether a change through the API is in force.
    async fn observe(&self, change: &ApiChange) -> Result<Observed, Fault>;

    /// Takes back what this process has made by [`Self::api`] when somebody else had come to the end of that step before,
    /// at revision `ended` of the store (`None`: to the end of the whole operation): a process that stood still between
    /// looking at the lock and its request is not kept from the request. Tells whether there was something.
    async fn take_back(&self, _change: &ApiChange, _ended: Option<Revision>) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Waits until something is true, with a deadline of its own.
    async fn wait(&self, wait: &Wait) -> Result<(), Fault>;

    /// Waits until someone has done something (or, on the way back, undone it), or says that it can only be
    /// assumed.
    async fn external(&self, external: &External, back: bool) -> Result<Answer, Fault>;
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

/// The world of operations that have steps in the store alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWorld;

#[async_trait]
impl World for NoWorld {
    async fn api(&self, change: &ApiChange) -> Result<(), Fault> {
        Err(Fault::Halt(format!("there is no API to {change}")))
    }

    async fn observe(&self, change: &ApiChange) -> Result<Observed, Fault> {
        Err(Fault::Halt(format!("there is no API to {change}")))
    }

    async fn wait(&self, wait: &Wait) -> Result<(), Fault> {
        Err(Fault::Halt(format!("there is nothing to wait for: {}", wait.until)))
    }

    async fn external(&self, external: &External, _back: bool) -> Result<Answer, Fault> {
        Err(Fault::Halt(format!("there is nobody to ask: {}", external.what)))
    }
}

/// Time and randomness.
pub trait Ambient: Send + Sync {
    /// Seconds since 1970.
    fn now(&self) -> i64;

    /// A new uid.
    fn uid(&self) -> String;
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
}

/// What happens while a plan is carried out, for progress and logs.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A stage begins.
    StageStarted {
        /// The stage.
        stage: &'a Stage,
        /// Its number of steps.
        steps: usize,
        /// Whether it is being undone.
        back: bool,
    },
    /// A step that is not done yet is about to be carried out, or undone.
    StepStarted {
        /// The step.
        step: &'a Step,
    },
    /// A step was carried out, or undone.
    StepDone {
        /// The step.
        step: &'a Step,
    },
    /// A step had been carried out before.
    StepSkipped {
        /// The step.
        step: &'a Step,
    },
    /// Whether the operation may continue is asked, between two batches.
    CheckpointAsked {
        /// The stage that comes next.
        stage: &'a Stage,
    },
    /// It was answered, or not waited for any longer.
    CheckpointAnswered,
    /// An external step was taken as done.
    Assumed {
        /// What.
        external: &'a External,
    },
    /// A step could not be carried out, or undone; or the operation pauses at it.
    StepFailed {
        /// The step.
        step: &'a Step,
        /// Why.
        error: &'a OperationError,
    },
    /// A step could not be carried out, or undone, and was left alone.
    LeftAlone {
        /// The step.
        step: &'a StepId,
        /// Why.
        reason: &'a str,
    },
}

/// Is told what happens.
pub trait Observer: Send {
    /// Takes note of an event.
    fn event(&mut self, event: Event<'_>);
}

/// An observer that takes no notice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _event: Event<'_>) {}
}
