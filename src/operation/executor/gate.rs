//! Decides between two batches whether the operation continues ([`Checkpoint`]).

use super::RunFailure;
use super::stage::StageRunner;
use crate::operation::OperationError;
use crate::operation::environment::{Checkpoint, Closed};
use crate::operation::journal::State;
use crate::operation::observer::Event;
use crate::operation::plan::{Stage, Work};
use crate::operation::step::Effect;
use crate::store::Revision;

/// The progress of an operation through its stages.
#[derive(Default)]
pub(super) struct Place {
    /// The stage that ended last.
    last: Option<Stage>,
    /// Whether a stage of any batch has ended.
    is_after_one: bool,
}

impl Place {
    /// Returns whether a batch ends or starts between the last stage and the next stage.
    pub(super) fn is_between(&self, next: &Stage) -> bool {
        self.batch() != next.batch
    }

    /// Returns the batch of the last stage.
    fn batch(&self) -> Option<usize> {
        self.last.as_ref().and_then(|last| last.batch)
    }

    /// Returns the revision at which the waits of the last stage ended.
    fn over_at<E: Effect>(
        &self,
        runner: &StageRunner<'_, E>,
        work: &dyn Work<Effect = E>,
    ) -> Option<Revision> {
        work.steps(self.last.as_ref()?).iter().filter_map(|step| runner.step_runner.done_at(&step.id)).max()
    }

    /// Records that a stage is done.
    pub(super) fn pass(&mut self, stage: &Stage) {
        self.last = Some(stage.clone());
        self.is_after_one |= stage.batch.is_some();
    }
}

/// Checks the gates before a batch; `stages` starts with the first stage of this batch. Checks no gates before the first batch,
/// unless that batch runs again. Checks no gates if the batch has already started, because a resumed operation first finishes its
/// batch.
pub(super) async fn ask<E: Effect>(
    checkpoint: &dyn Checkpoint,
    runner: &StageRunner<'_, E>,
    work: &dyn Work<Effect = E>,
    (place, stages): (&Place, &[Stage]),
) -> Result<(), RunFailure> {
    let Some(next) = stages.first() else { return Ok(()) };
    let (mut first, mut is_anew) = (None, false);
    let over_at = place.over_at(runner, work);
    for stage in stages.iter().take_while(|stage| stage.batch == next.batch) {
        let may_be_ready = place.last.as_ref().is_some_and(|last| work.may_be_beside(last, stage));
        for step in work.steps(stage) {
            // A step that was skipped in a rolled-back batch is still recorded as failed.
            let is_begun = !matches!(runner.step_runner.state(&step.id), None | Some(State::Failed));
            // Whether an earlier run without gates ran the step during the waits of the previous batch.
            let was_made_ready = may_be_ready && runner.step_runner.changed_at(&step.id) < over_at;
            if is_begun && !was_made_ready {
                return Ok(());
            }
            is_anew |= runner.step_runner.was_reset(&step.id);
            first.get_or_insert(step.id);
        }
    }
    let Some(step) = first.filter(|_| place.is_after_one || is_anew) else { return Ok(()) };
    let after = place.batch().filter(|_| !is_anew);
    runner.step_runner.tell(Event::CheckpointAsked { stage: next });
    let outcome = tokio::select! {
        biased;
        () = runner.step_runner.stop.asked() => Err(RunFailure { step, source: OperationError::Stopped }),
        answer = checkpoint.pass(next) => answer.map_err(|Closed { gate, reason }| {
            RunFailure { step, source: OperationError::GateClosed { gate, reason, after } }
        }),
    };
    runner.step_runner.tell(Event::CheckpointAnswered);
    outcome
}
