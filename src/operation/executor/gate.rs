//! Between two batches: whether the operation may go on ([`Checkpoint`]).

use super::Failure;
use super::crew::Crew;
use crate::operation::OperationError;
use crate::operation::plan::{Stage, Work};
use crate::operation::ports::{Checkpoint, Closed};

/// Whether a batch has ended where this stage begins.
pub(super) fn is_between(previous: Option<&Stage>, next: &Stage) -> bool {
    previous.is_some_and(|previous| previous.batch.is_some() && previous.batch != next.batch)
}

/// Asks whether what comes next may begin: the first of these stages and those of the same batch. What has begun
/// already is not asked about again, so that a resumed operation first finishes its batch.
pub(super) async fn pass(
    checkpoint: &dyn Checkpoint,
    crew: &Crew<'_>,
    work: &dyn Work,
    stages: &[Stage],
) -> Result<(), Failure> {
    let Some(next) = stages.first() else { return Ok(()) };
    let mut first = None;
    for stage in stages.iter().take_while(|stage| stage.batch == next.batch) {
        for step in work.steps(stage) {
            if crew.carrier.state(&step.id).is_some() {
                return Ok(());
            }
            first.get_or_insert(step.id);
        }
    }
    let Some(step) = first else { return Ok(()) };
    tokio::select! {
        biased;
        () = crew.carrier.stop.asked() => Err(Failure { step, source: OperationError::Stopped }),
        answer = checkpoint.pass(next) => answer.map_err(|Closed { gate, reason }| {
            Failure { step, source: OperationError::GateClosed { gate, reason } }
        }),
    }
}
