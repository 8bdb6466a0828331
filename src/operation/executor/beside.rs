//! What may be begun while a stage only waits, so that waits are waited for beside each other.
//!
//! A failure on either side stops the other: steps under way are finished, waits are given up.

use super::crew::{Crew, Way};
use super::{Failure, Report};
use crate::operation::observer::Event;
use crate::operation::plan::{Stage, Work};
use crate::operation::step::{Action, Effect, Step};
use crate::operation::stop::StopSwitch;

/// Returns how many of the stages after the first may be carried out while it waits.
pub(super) fn count<E: Effect>(work: &dyn Work<Effect = E>, stages: &[Stage]) -> usize {
    let [waiting, rest @ ..] = stages else { return 0 };
    let count = rest.iter().take_while(|next| work.may_be_beside(waiting, next)).count();
    let only_waits = |step: &Step<E>| matches!(step.action, Action::Wait(_));
    if count > 0 && work.steps(waiting).iter().all(only_waits) { count } else { 0 }
}

/// Carries out a stage that only waits, and beside it the others one after the other.
pub(super) async fn carry_out<E: Effect>(
    crew: &Crew<'_, E>,
    work: &dyn Work<Effect = E>,
    (waiting, others): (&Stage, &[Stage]),
    (way, halt): (&Way, &StopSwitch),
    report: &mut Report,
) -> Result<(), Failure> {
    let mut of_others = Report::default();
    let waits = async {
        let outcome = carry_out_one(crew, work, waiting, way, report).await;
        if outcome.is_err() {
            halt.ask();
        }
        outcome
    };
    let beside = async {
        for stage in others {
            if let Err(failure) = carry_out_one(crew, work, stage, way, &mut of_others).await {
                halt.ask();
                return Err(failure);
            }
        }
        Ok(())
    };
    let outcome = match tokio::join!(waits, beside) {
        // Whichever was given up for the other's sake.
        (Err(first), Err(second)) => Err(if first.is_stopped() { second } else { first }),
        (first, second) => first.and(second),
    };
    report.add(of_others);
    outcome
}

/// Carries out one stage.
async fn carry_out_one<E: Effect>(
    crew: &Crew<'_, E>,
    work: &dyn Work<Effect = E>,
    stage: &Stage,
    way: &Way,
    report: &mut Report,
) -> Result<(), Failure> {
    let steps = work.steps(stage);
    crew.carrier.tell(Event::StageStarted { stage, steps: steps.len(), back: false });
    crew.carry_out(&steps.iter().collect::<Vec<_>>(), stage.batch, way, report).await
}
