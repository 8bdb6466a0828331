//! Decides between two batches whether the operation continues ([`Checkpoint`]).

use super::Failure;
use super::stage::StageRunner;
use crate::operation::OperationError;
use crate::operation::environment::{Checkpoint, Closed};
use crate::operation::journal::State;
use crate::operation::observer::Event;
use crate::operation::plan::{Stage, Work};
use crate::operation::step::Effect;
use crate::store::Revision;

/// The position of an operation among its stages.
#[derive(Default)]
pub(super) struct Place {
    /// The last stage.
    last: Option<Stage>,
    /// Whether a batch has passed.
    is_after_one: bool,
}

impl Place {
    /// Whether a batch ends, or another one starts, before this stage.
    pub(super) fn is_between(&self, next: &Stage) -> bool {
        self.batch() != next.batch
    }

    /// The batch of the last stage.
    fn batch(&self) -> Option<usize> {
        self.last.as_ref().and_then(|last| last.batch)
    }

    /// The revision at which the waits of the last stage ended.
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

/// Checks the gates before the first of these stages and the other stages of its batch. Gates are not checked before the
/// first batch, unless it runs again, nor for a batch that has started, so that a resumed operation first finishes its
/// batch.
pub(super) async fn ask<E: Effect>(
    checkpoint: &dyn Checkpoint,
    runner: &StageRunner<'_, E>,
    work: &dyn Work<Effect = E>,
    (place, stages): (&Place, &[Stage]),
) -> Result<(), Failure> {
    let Some(next) = stages.first() else { return Ok(()) };
    let (mut first, mut is_anew) = (None, false);
    let over_at = place.over_at(runner, work);
    for stage in stages.iter().take_while(|stage| stage.batch == next.batch) {
        let may_be_ready = place.last.as_ref().is_some_and(|last| work.may_be_beside(last, stage));
        for step in work.steps(stage) {
            // A step that was skipped in a batch that was rolled back is still recorded as failed.
            let is_begun = !matches!(runner.step_runner.state(&step.id), None | Some(State::Failed));
            // Executed during the waits of the previous batch, when no gates were configured.
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
        () = runner.step_runner.stop.asked() => Err(Failure { step, source: OperationError::Stopped }),
        answer = checkpoint.pass(next) => answer.map_err(|Closed { gate, reason }| {
            Failure { step, source: OperationError::GateClosed { gate, reason, after } }
        }),
    };
    runner.step_runner.tell(Event::CheckpointAnswered);
    outcome
}
