//! The events of a running operation, for observers: the screen, the log, metrics.

use std::time::Duration;

use super::{Action, Effect, Manual, OperationError, Stage, Step, StepId, WaitKind as _};

/// A step as it is reported to observers, for any kind of operation.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// Its name.
    pub id: &'a StepId,
    /// Its subject; empty for a step that the whole operation needs.
    pub subject: &'a str,
    /// What it waits for, if it is a wait ([`WaitKind::name`]).
    pub wait: Option<&'static str>,
    /// What a person has to do, if it is a manual step.
    pub manual: Option<&'a Manual>,
    /// Whether it runs only in a rollback.
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
        /// Its number of steps.
        steps: usize,
        /// Whether it is being undone.
        back: bool,
    },
    /// A step starts, or its undo.
    StepStarted {
        /// The step.
        step: Told<'a>,
        /// How long it still takes, if it only lets time pass.
        left: Option<Duration>,
    },
    /// A step was executed, or undone.
    StepDone {
        /// The step.
        step: Told<'a>,
    },
    /// A step had been executed, or undone, before.
    StepSkipped {
        /// The step.
        step: Told<'a>,
    },
    /// The check whether the operation continues starts, between two batches.
    CheckpointAsked {
        /// The next stage.
        stage: &'a Stage,
    },
    /// The check ended, or was cancelled.
    CheckpointAnswered,
    /// A step could not be executed, or undone; or the operation pauses at it.
    StepFailed {
        /// The step.
        step: Told<'a>,
        /// Why.
        error: &'a OperationError,
    },
    /// A step could not be executed, or undone, and was skipped.
    LeftAlone {
        /// The step.
        step: &'a StepId,
        /// Why.
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
