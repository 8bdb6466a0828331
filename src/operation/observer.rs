//! The events of a running operation, for observers such as the screen, the log and the metrics.

use std::time::Duration;

use super::{Action, Effect, Manual, OperationError, Stage, Step, StepId, WaitKind as _};

/// A step as it is reported to observers, for any kind of operation.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// Id of the step.
    pub id: &'a StepId,
    /// Subject of the step; empty for a step that the whole operation needs.
    pub subject: &'a str,
    /// Name of the condition that the step waits for, if the step is a wait ([`WaitKind::name`]).
    pub wait: Option<&'static str>,
    /// What a person has to do, if the step is a manual step.
    pub manual: Option<&'a Manual>,
    /// Whether the step runs only in a rollback.
    pub is_for_the_way_back: bool,
}

impl<'a, E: Effect> From<&'a Step<E>> for Told<'a> {
    fn from(step: &'a Step<E>) -> Self {
        let (wait, manual) = match &step.action {
            Action::Wait(wait) => (Some(wait.kind.name()), None),
            Action::Manual(manual) => (None, Some(manual)),
            _ => (None, None),
        };
        let is_for_the_way_back = step.is_for_the_way_back();
        Self { id: &step.id, subject: &step.subject, wait, manual, is_for_the_way_back }
    }
}

/// An event of a running operation, for progress and logs.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A stage starts.
    StageStarted {
        /// The stage.
        stage: &'a Stage,
        /// Number of steps in the stage.
        steps: usize,
        /// Whether the stage is being undone.
        back: bool,
    },
    /// A step starts, or the undo of a step starts.
    StepStarted {
        /// The step.
        step: Told<'a>,
        /// Remaining time, if the step is a wait that lasts for a fixed time.
        left: Option<Duration>,
    },
    /// A step was executed (or undone).
    StepDone {
        /// The step.
        step: Told<'a>,
    },
    /// A step was executed (or undone) before.
    StepSkipped {
        /// The step.
        step: Told<'a>,
    },
    /// A check between two batches starts. The check decides whether the operation continues.
    CheckpointAsked {
        /// The next stage.
        stage: &'a Stage,
    },
    /// The check between two batches ended, or was cancelled.
    CheckpointAnswered,
    /// A step could not be executed (or undone), or the operation pauses at this step.
    StepFailed {
        /// The step.
        step: Told<'a>,
        /// Why the step failed, or why the operation pauses.
        error: &'a OperationError,
    },
    /// A step could not be executed (or undone) and was skipped.
    LeftAlone {
        /// The step.
        step: &'a StepId,
        /// Why the step was skipped.
        reason: &'a str,
    },
}

/// Receives the events of an operation.
pub trait Observer: Send {
    /// Receives an event.
    fn event(&mut self, event: Event<'_>);
}

/// An observer that ignores every event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _event: Event<'_>) {}
}
