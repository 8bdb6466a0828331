//! Going on, and what is done at a gate that is closed: pause, roll the last batch back, or everything.

use super::Way;
use crate::cli::failure::{Failure, Kind};
use crate::cli::gates::{Gatekeeper, OnFailure};
use crate::cli::output::counted;
use crate::operation::{self, Closed, Executor, OperationError, Report, Returning};
use crate::renumber::without_api::MovesBack;
use crate::renumber::{Effect, Renumbering};

/// Where it came to.
pub(super) enum Arrival {
    /// To where it was going.
    There(Report),
    /// To a gate because of which everything is to be rolled back.
    Gate(Closed),
}

/// Goes there, unless a gate on the way is closed.
pub(super) async fn go(
    executor: &mut Executor<'_, Effect>,
    work: &Renumbering,
    way: Way,
    keeper: &Gatekeeper<'_>,
) -> Result<Arrival, operation::Failure> {
    let until = match way {
        Way::Forward => work.soak_stage(),
        Way::Retire => None,
        Way::Back => return executor.unwind(work).await.map(Arrival::There),
        Way::MovesBack => return executor.unwind(&MovesBack(work)).await.map(Arrival::There),
    };
    let failure = match executor.run(work, until).await {
        Err(failure) => failure,
        Ok(report) => return Ok(Arrival::There(report)),
    };
    let OperationError::GateClosed { gate, reason, after } = &failure.source else { return Err(failure) };
    let (gate, reason) = (gate.clone(), reason.clone());
    match (keeper.on_failure(&gate), *after) {
        (OnFailure::RollbackAll, _) => {
            keeper.warn("rolling everything back");
            Ok(Arrival::Gate(Closed { gate, reason }))
        }
        (OnFailure::Rollback, Some(batch)) => {
            keeper.warn(&format!("rolling batch {} back", batch.saturating_add(1)));
            let returning = Returning { batch, gate: gate.clone(), reason: reason.clone() };
            let source = OperationError::BatchRolledBack { batch, gate, reason };
            executor.unwind_batch(work, &returning).await?;
            Err(operation::Failure { source, ..failure })
        }
        (OnFailure::Pause, _) | (OnFailure::Rollback, None) => Err(failure),
    }
}

/// Words that everything was rolled back at a gate, or what of it was not.
pub(super) fn rolled_back(closed: &Closed, report: &Report, operation: &str) -> Failure {
    let Closed { gate, reason } = closed;
    let because = format!("the gate `{gate}` was closed: {reason}");
    let Some(first) = report.stuck.first() else {
        let text = format!("{because}; everything was rolled back: every Service has its old address");
        return Failure::new(Kind::RolledBack, anyhow::Error::msg(text));
    };
    let text = format!(
        "{because}; everything was rolled back but {}; the first is `{}`: {}",
        counted(report.stuck.len(), "step", "steps"),
        first.step,
        first.reason
    );
    Failure::new(Kind::Stuck, anyhow::Error::msg(text))
        .hint(format!("bring those objects in order, then `netsurgeon operation rollback {operation}`"))
}
