//! Between two batches: whether the operation may go on ([`Checkpoint`]).

use super::Failure;
use super::crew::Crew;
use crate::operation::OperationError;
use crate::operation::environment::{Checkpoint, Closed};
use crate::operation::journal::State;
use crate::operation::observer::Event;
use crate::operation::plan::{Stage, Work};
use crate::operation::step::Effect;
use crate::store::Revision;

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

    /// When the waits of the last stage were over.
    fn over_at<E: Effect>(&self, crew: &Crew<'_, E>, work: &dyn Work<Effect = E>) -> Option<Revision> {
        work.steps(self.last.as_ref()?).iter().filter_map(|step| crew.carrier.done_at(&step.id)).max()
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
    let over_at = place.over_at(crew, work);
    for stage in stages.iter().take_while(|stage| stage.batch == next.batch) {
        let may_be_ready = place.last.as_ref().is_some_and(|last| work.may_be_beside(last, stage));
        for step in work.steps(stage) {
            // What was left alone in a batch that was rolled back is still said to have failed.
            let is_begun = !matches!(crew.carrier.state(&step.id), None | Some(State::Failed));
            // What was carried out while the batch before was still waited for, when no gates were asked.
            let was_made_ready = may_be_ready && crew.carrier.changed_at(&step.id) < over_at;
            if is_begun && !was_made_ready {
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
