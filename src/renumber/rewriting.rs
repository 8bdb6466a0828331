//! Executes the rewrite of a RangeAllocation, with a journal like any other operation.
//!
//! A rewrite is one transaction, so it takes effect completely or not at all. If the RangeAllocation changed after planning,
//! nothing is written, and the operation is recorded as rolled back. After any other error, the operation can be resumed or
//! rolled back.

use super::ranges::RangeRewrite;
use crate::operation::{
    Ambient, EtcdLedger, Executor, Journal, NoEffect, NoEnvironment, OperationError, Report, RunFailure,
    Silent, State, Status, StepId, Work,
};
use crate::store::{Guard, WriteStore};

/// Executor of a rewrite and of its rollback.
pub struct Rewriting<'a> {
    /// The store that contains the RangeAllocation and the journal.
    pub store: &'a dyn WriteStore,
    /// The clock.
    pub ambient: &'a dyn Ambient,
    /// The preconditions of every write. On a live cluster, this is the operation lease ([`crate::operation::Lock::guard`]).
    pub guards: Vec<Guard>,
}

/// Returns the step of a rewrite.
fn step_of(work: &RangeRewrite) -> StepId {
    let mut steps = work.stages().into_iter().flat_map(|stage| work.steps(&stage));
    steps.next().map_or_else(|| StepId(super::ranges::KIND.to_string()), |step| step.id)
}

/// Returns whether the RangeAllocation was written and not restored.
pub fn is_written(work: &RangeRewrite, journal: &Journal) -> bool {
    journal.state(&step_of(work)).is_some_and(State::is_in_force)
}

impl Rewriting<'_> {
    /// Writes the RangeAllocation, unless an earlier run has written it. The report shows whether this run or an earlier run
    /// wrote the RangeAllocation.
    pub async fn run(&self, work: &RangeRewrite, journal: &mut Journal) -> Result<Report, RunFailure> {
        let (ledger, mut silent) = (self.ledger(journal), Silent);
        let outcome = self.executor(&ledger, &mut silent, journal).run(work, None).await;
        match outcome {
            Ok(report) => {
                self.note(work, journal, Status::Done).await?;
                Ok(report)
            }
            Err(failure) if failure.source.is_about_one_object() => {
                self.roll_back(work, journal).await?;
                Err(failure)
            }
            Err(failure) => {
                let is_ours =
                    !matches!(failure.source, OperationError::LockLost { .. } | OperationError::BeingUndone);
                if is_ours && let Err(unnoted) = self.note(work, journal, Status::Stopped).await {
                    tracing::warn!(error = %unnoted.source, "cannot write the status to the journal");
                }
                Err(failure)
            }
        }
    }

    /// Restores the old value, if the new value was written. If the RangeAllocation was changed after the rewrite, nothing is
    /// written. Then the report lists the step as stuck, and the rewrite stays in effect.
    pub async fn roll_back(&self, work: &RangeRewrite, journal: &mut Journal) -> Result<Report, RunFailure> {
        let (ledger, mut silent) = (self.ledger(journal), Silent);
        let report = self.executor(&ledger, &mut silent, journal).unwind(work).await?;
        let status = if report.stuck.is_empty() { Status::RolledBack } else { Status::Stuck };
        self.note(work, journal, status).await?;
        Ok(report)
    }

    fn ledger(&self, journal: &Journal) -> EtcdLedger<'_> {
        journal.in_store(self.store, &self.guards)
    }

    fn executor<'e>(
        &'e self,
        ledger: &'e EtcdLedger<'e>,
        silent: &'e mut Silent,
        journal: &'e mut Journal,
    ) -> Executor<'e, NoEffect> {
        Executor::new(ledger, &NoEnvironment, self.ambient, silent, journal)
    }

    async fn note(&self, work: &RangeRewrite, journal: &Journal, status: Status) -> Result<(), RunFailure> {
        let noted = journal.set_status(&self.ledger(journal), status, self.ambient.now()).await;
        noted.map_err(|source| RunFailure { step: step_of(work), source })
    }
}
