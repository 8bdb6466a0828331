//! What observers are told while an operation is carried out: the screen, the log, metrics.

use std::time::Duration;

use super::{Action, Effect, Manual, OperationError, Stage, Step, StepId, WaitKind as _};

/// A step as observers are told of it, whatever kind of operation it is of.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// Its name.
    pub id: &'a StepId,
    /// What it is about; empty for a step that the whole operation needs.
    pub about: &'a str,
    /// What it waits for, if it waits ([`WaitKind::name`]).
    pub wait: Option<&'static str>,
    /// What a person has to do, if that is what it is.
    pub manual: Option<&'a Manual>,
    /// Whether it matters on the way back only.
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
        Self { id: &step.id, about: &step.about, wait, manual, is_for_the_way_back }
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
        step: Told<'a>,
        /// How long it takes, if it lets time pass.
        left: Option<Duration>,
    },
    /// A step was carried out, or undone.
    StepDone {
        /// The step.
        step: Told<'a>,
    },
    /// A step had been carried out before.
    StepSkipped {
        /// The step.
        step: Told<'a>,
    },
    /// Whether the operation may continue is asked, between two batches.
    CheckpointAsked {
        /// The stage that comes next.
        stage: &'a Stage,
    },
    /// It was answered, or not waited for any longer.
    CheckpointAnswered,
    /// A step could not be carried out, or undone; or the operation pauses at it.
    StepFailed {
        /// The step.
        step: Told<'a>,
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
