//! Rolls one batch back, so that the operation is again in the state before the batch.

use super::{Executor, Report, RunFailure};
use crate::operation::OperationError;
use crate::operation::journal::{Returning, State};
use crate::operation::plan::Work;
use crate::operation::step::{Effect, Step, StepId};

impl<E: Effect> Executor<'_, E> {
    /// Undoes one batch, last step first, and runs the waits of a rollback. The other batches stay unchanged. Afterwards the
    /// steps of the batch count as never started, and [`Executor::run`] executes them again.
    ///
    /// The rollback can be interrupted at any time. The next call of [`Executor::run`] then completes only this rollback. If a
    /// step cannot be undone because another client changed an object, the steps of other subjects are still undone. The call
    /// then fails with [`OperationError::BatchStuck`]. Another call retries the step.
    pub async fn unwind_batch(
        &mut self,
        work: &dyn Work<Effect = E>,
        returning: &Returning,
    ) -> Result<Report, RunFailure> {
        let mut stages = work.way_back();
        self.refuse_past_no_return(work, &stages)?;
        stages.retain(|stage| stage.batch == Some(returning.batch));
        let steps: Vec<Step<E>> = stages.iter().rev().flat_map(|stage| work.steps(stage)).collect();
        let first = steps.first().map_or_else(|| StepId("(none)".into()), |step| step.id.clone());
        let failed = |source| RunFailure { step: first.clone(), source };
        self.journal.set_returning(self.ledger, Some(returning)).await.map_err(failed)?;
        let is_back = |step: &Step<E>| self.journal.state(&step.id).is_some_and(State::is_of_the_way_back);
        let begun = steps.iter().any(is_back);
        let report = self.unwind_stages(work, None, &stages, begun).await?;
        if let Some(stuck) = report.stuck.first() {
            let (batch, step, reason) = (returning.batch, stuck.step.clone(), stuck.reason.clone());
            return Err(RunFailure { step, source: OperationError::BatchStuck { batch, reason } });
        }
        let (last, most): (Vec<Step<E>>, Vec<Step<E>>) =
            steps.into_iter().partition(Step::is_for_the_way_back);
        let now = self.ambient.now();
        for steps in [most, last] {
            let order: Vec<StepId> = steps.into_iter().map(|step| step.id).collect();
            self.journal.reset(self.ledger, &order, now).await.map_err(failed)?;
        }
        self.journal.set_returning(self.ledger, None).await.map_err(failed)?;
        Ok(report)
    }

    /// Completes an interrupted rollback of a batch. Then pauses before that batch, as the interrupted process would have done.
    pub(super) async fn finish_returning(&mut self, work: &dyn Work<Effect = E>) -> Result<(), RunFailure> {
        let Some(returning) = self.journal.returning().cloned() else { return Ok(()) };
        self.unwind_batch(work, &returning).await?;
        let Returning { batch, gate, reason } = returning;
        let step = StepId(format!("(batch {})", batch.saturating_add(1)));
        Err(RunFailure { step, source: OperationError::BatchRolledBack { batch, gate, reason } })
    }
}
