//! Runs stages concurrently with a stage that only waits, so that waits overlap.
//!
//! If any of these stages fails, all of them stop: running steps finish, and waits are cancelled.

use super::stage::{Direction, StageRunner};
use super::{Report, RunFailure};
use crate::operation::observer::Event;
use crate::operation::plan::{Stage, Work};
use crate::operation::step::{Action, Effect, Step};
use crate::operation::stop::StopSwitch;

/// Returns how many of the stages after the first stage can run while the first stage waits.
pub(super) fn count<E: Effect>(work: &dyn Work<Effect = E>, stages: &[Stage]) -> usize {
    let [waiting, rest @ ..] = stages else { return 0 };
    let count = rest.iter().take_while(|next| work.may_be_beside(waiting, next)).count();
    let only_waits = |step: &Step<E>| matches!(step.action, Action::Wait(_));
    if count > 0 && work.steps(waiting).iter().all(only_waits) { count } else { 0 }
}

/// Runs the first stage and, at the same time, the other stages one after the other. If there are other stages, the first stage
/// contains only waits.
pub(super) async fn carry_out<E: Effect>(
    runner: &StageRunner<'_, E>,
    work: &dyn Work<Effect = E>,
    (waiting, others): (&Stage, &[Stage]),
    (direction, halt): (&Direction, &StopSwitch),
    report: &mut Report,
) -> Result<(), RunFailure> {
    let mut of_others = Report::default();
    let waits = async {
        let outcome = carry_out_one(runner, work, waiting, direction, report).await;
        if outcome.is_err() {
            halt.ask();
        }
        outcome
    };
    let beside = async {
        for stage in others {
            if let Err(failure) = carry_out_one(runner, work, stage, direction, &mut of_others).await {
                halt.ask();
                return Err(failure);
            }
        }
        Ok(())
    };
    let outcome = match tokio::join!(waits, beside) {
        // If both futures fail, one of them may have failed only because it was stopped. In this case, the error of the other
        // future is returned.
        (Err(first), Err(second)) => Err(if first.is_stopped() { second } else { first }),
        (first, second) => first.and(second),
    };
    report.add(of_others);
    outcome
}

/// Runs one stage.
async fn carry_out_one<E: Effect>(
    runner: &StageRunner<'_, E>,
    work: &dyn Work<Effect = E>,
    stage: &Stage,
    direction: &Direction,
    report: &mut Report,
) -> Result<(), RunFailure> {
    let steps = work.steps(stage);
    runner.step_runner.tell(Event::StageStarted { stage, steps: steps.len(), back: false });
    runner.carry_out(&steps.iter().collect::<Vec<_>>(), stage.batch, direction, report).await
}
