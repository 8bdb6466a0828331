//! Between two batches: whether the operation may go on ([`Checkpoint`]).

use super::Failure;
use super::crew::Crew;
use crate::operation::OperationError;
use crate::operation::journal::State;
use crate::operation::plan::{Stage, Work};
use crate::operation::ports::{Checkpoint, Closed};

/// Whether one batch ends, or another begins, where this stage does.
pub(super) fn is_between(previous: Option<&Stage>, next: &Stage) -> bool {
    previous.and_then(|previous| previous.batch) != next.batch
}

/// Asks whether what comes next may begin: the first of these stages and those of the same batch. Not before the
/// first batch, unless that is to be done anew; and what has begun already is not asked about again, so that a
/// resumed operation first finishes its batch.
pub(super) async fn pass(
    checkpoint: &dyn Checkpoint,
    crew: &Crew<'_>,
    work: &dyn Work,
    (previous, stages): (Option<&Stage>, &[Stage]),
) -> Result<(), Failure> {
    let Some(next) = stages.first() else { return Ok(()) };
    let after = previous.and_then(|previous| previous.batch);
    let (mut first, mut is_anew) = (None, false);
    for stage in stages.iter().take_while(|stage| stage.batch == next.batch) {
        for step in work.steps(stage) {
            // What was left alone in a batch that was rolled back is still said to have failed.
            if !matches!(crew.carrier.state(&step.id), None | Some(State::Failed)) {
                return Ok(());
            }
            is_anew |= crew.carrier.was_reset(&step.id);
            first.get_or_insert(step.id);
        }
    }
    let Some(step) = first.filter(|_| after.is_some() || is_anew) else { return Ok(()) };
    let after = after.filter(|_| !is_anew);
    tokio::select! {
        biased;
        () = crew.carrier.stop.asked() => Err(Failure { step, source: OperationError::Stopped }),
        answer = checkpoint.pass(next) => answer.map_err(|Closed { gate, reason }| {
            Failure { step, source: OperationError::GateClosed { gate, reason, after } }
        }),
    }
}
