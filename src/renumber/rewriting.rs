//! Carrying out the rewrite of a RangeAllocation, with a journal like any other operation.
//!
//! A rewrite is one transaction, so it is in force as a whole or not at all. Where the RangeAllocation has changed since
//! the plan, nothing is written and the operation ends rolled back; anything else that fails leaves it to be resumed or
//! rolled back.

use super::ranges::RangeRewrite;
use crate::operation::{
    Ambient, EtcdLedger, Executor, Failure, Journal, NoEffect, NoEnvironment, OperationError, Report, Silent,
    State, Status, StepId, Work,
};
use crate::store::{Guard, WriteStore};

/// What carries a rewrite out, forward or back.
pub struct Rewriting<'a> {
    /// The store that has the RangeAllocation and the journal.
    pub store: &'a dyn WriteStore,
    /// Time.
    pub ambient: &'a dyn Ambient,
    /// What must hold of every write: on a live cluster the operation lock ([`crate::operation::Lock::guard`]).
    pub guards: Vec<Guard>,
}

/// The step of a rewrite.
fn step_of(work: &RangeRewrite) -> StepId {
    let mut steps = work.stages().into_iter().flat_map(|stage| work.steps(&stage));
    steps.next().map_or_else(|| StepId(super::ranges::KIND.to_string()), |step| step.id)
}

/// Whether the RangeAllocation was written and has not been put back.
pub fn is_written(work: &RangeRewrite, journal: &Journal) -> bool {
    journal.state(&step_of(work)).is_some_and(State::is_in_force)
}

impl Rewriting<'_> {
    /// Writes the RangeAllocation, once. Returns whether that was done now or before.
    pub async fn run(&self, work: &RangeRewrite, journal: &mut Journal) -> Result<Report, Failure> {
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
                    tracing::warn!(error = %unnoted.source, "the journal still has the status of before");
                }
                Err(failure)
            }
        }
    }

    /// Puts the old value back, if the new one was written. What was allocated since stays: the report names the step as
    /// stuck then, and the rewrite stays in force.
    pub async fn roll_back(&self, work: &RangeRewrite, journal: &mut Journal) -> Result<Report, Failure> {
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

    async fn note(&self, work: &RangeRewrite, journal: &Journal, status: Status) -> Result<(), Failure> {
        let noted = journal.set_status(&self.ledger(journal), status, self.ambient.now()).await;
        noted.map_err(|source| Failure { step: step_of(work), source })
    }
}
