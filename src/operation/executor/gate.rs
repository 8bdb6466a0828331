//! Between two batches: whether the operation may go on ([`Checkpoint`]).

use super::Failure;
use super::crew::Crew;
use crate::operation::OperationError;
use crate::operation::environment::{Checkpoint, Closed};
use crate::operation::journal::State;
use crate::operation::observer::Event;
use crate::operation::plan::{Stage, Work};
use crate::operation::step::{Effect, Step};

/// Where an operation has come to, among its stages.
#[derive(Default)]
pub(super) struct Place {
    /// The last stage.
    last: Option<Stage>,
    /// Whether a batch lies behind.
    is_after_one: bool,
}

impl Place {
    /// Whether one batch ends, or another begins, where this stage does.
    pub(super) fn is_between(&self, next: &Stage) -> bool {
        self.batch() != next.batch
    }

    /// The batch of the last stage.
    fn batch(&self) -> Option<usize> {
        self.last.as_ref().and_then(|last| last.batch)
    }

    /// Whether a step was carried out while the batch before was still waited for, when no gates were asked.
    fn was_made_ready<E: Effect>(
        &self,
        crew: &Crew<'_, E>,
        work: &dyn Work<Effect = E>,
        (stage, step): (&Stage, &Step<E>),
    ) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| work.may_be_beside(last, stage)) else {
            return false;
        };
        let over = work.steps(last).iter().filter_map(|wait| crew.carrier.done_at(&wait.id)).max();
        crew.carrier.changed_at(&step.id) < over
    }

    /// Takes note of a stage that is done.
    pub(super) fn pass(&mut self, stage: &Stage) {
        self.last = Some(stage.clone());
        self.is_after_one |= stage.batch.is_some();
    }
}

/// Asks whether what comes next may begin: the first of these stages and those of the same batch. Not before the
/// first batch, unless that is to be done anew; and what has begun already is not asked about again, so that a
/// resumed operation first finishes its batch.
pub(super) async fn ask<E: Effect>(
    checkpoint: &dyn Checkpoint,
    crew: &Crew<'_, E>,
    work: &dyn Work<Effect = E>,
    (place, stages): (&Place, &[Stage]),
) -> Result<(), Failure> {
    let Some(next) = stages.first() else { return Ok(()) };
    let (mut first, mut is_anew) = (None, false);
    for stage in stages.iter().take_while(|stage| stage.batch == next.batch) {
        for step in work.steps(stage) {
            // What was left alone in a batch that was rolled back is still said to have failed.
            let is_begun = !matches!(crew.carrier.state(&step.id), None | Some(State::Failed));
            if is_begun && !place.was_made_ready(crew, work, (stage, &step)) {
                return Ok(());
            }
            is_anew |= crew.carrier.was_reset(&step.id);
            first.get_or_insert(step.id);
        }
    }
    let Some(step) = first.filter(|_| place.is_after_one || is_anew) else { return Ok(()) };
    let after = place.batch().filter(|_| !is_anew);
    crew.carrier.tell(Event::CheckpointAsked { stage: next });
    let outcome = tokio::select! {
        biased;
        () = crew.carrier.stop.asked() => Err(Failure { step, source: OperationError::Stopped }),
        answer = checkpoint.pass(next) => answer.map_err(|Closed { gate, reason }| {
            Failure { step, source: OperationError::GateClosed { gate, reason, after } }
        }),
    };
    crew.carrier.tell(Event::CheckpointAnswered);
    outcome
}
