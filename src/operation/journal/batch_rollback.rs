//! A batch that is rolled back while the other batches of the operation stay unchanged.
//!
//! A field of the operation's summary marks the batch. The journal sets the field before the first step of the batch is undone,
//! and clears it after the last step is undone. While the field is set, undone steps do not mean that the whole operation is
//! being rolled back. A process that resumes the operation first completes the rollback of the batch.
//!
//! Once all steps of the batch are undone, their records are *reset*: they keep their history, and count as never started. The
//! reset takes several transactions. A step that runs only in a rollback is reset after the step that it belongs to. If such a
//! rollback step were reset first, it would count as not yet undone until the other step is reset.

use serde::{Deserialize, Serialize};

use super::summary::{MOST_ATTEMPTS, change_summary, is_to_be_read_again};
use super::{Journal, Noted, Record, State};
use crate::operation::{Ledger, OperationError, PartChange, StepId};
use crate::store::Transaction;

/// Number of records that are changed in one transaction. This is below etcd's limit of 128 operations per transaction
/// (`--max-txn-ops`), so that there is room for preconditions.
const RESET_AT_ONCE: usize = 100;
/// A batch that is being rolled back, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returning {
    /// Number of the batch, from 0.
    pub batch: usize,
    /// Name of the closed gate after the batch.
    pub gate: String,
    /// Why the gate was closed.
    pub reason: String,
}

impl Journal {
    /// Returns the batch that is being rolled back; `None` if no batch is being rolled back.
    pub fn returning(&self) -> Option<&Returning> {
        self.returning.as_ref()
    }

    /// Returns whether a step was reset, and has not started again since then.
    pub fn was_reset(&self, step: &StepId) -> bool {
        self.find(step).is_some_and(|record| record.state == State::Reset)
    }

    /// Records the batch that is being rolled back; `None` once its rollback is complete.
    pub async fn set_returning(
        &mut self,
        ledger: &dyn Ledger,
        returning: Option<&Returning>,
    ) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.returning = returning.cloned()).await?;
        self.returning = returning.cloned();
        Ok(())
    }

    /// Resets those of the given steps that are undone, in order. Also resets steps that could not be undone: the caller has
    /// checked that their subjects are given up. Each transaction resets many steps.
    pub async fn reset(
        &mut self,
        ledger: &dyn Ledger,
        steps: &[StepId],
        now: i64,
    ) -> Result<(), OperationError> {
        for some in steps.chunks(RESET_AT_ONCE) {
            self.reset_some(ledger, some, now).await?;
        }
        Ok(())
    }

    async fn reset_some(
        &mut self,
        ledger: &dyn Ledger,
        steps: &[StepId],
        now: i64,
    ) -> Result<(), OperationError> {
        let mut attempts = 0;
        loop {
            let (mut changes, mut records): (Vec<PartChange>, Vec<(&StepId, Record)>) = Default::default();
            for step in steps.iter().filter(|step| self.state(step).is_some_and(State::is_of_the_way_back)) {
                let (change, record) = self.record(step, State::Reset, now, Noted::default())?;
                changes.push(change);
                records.push((step, record));
            }
            let Some(first) = changes.first().map(|change| change.part.to_string()) else { return Ok(()) };
            match ledger.write(changes, Transaction::default()).await {
                Ok(revision) => {
                    for (step, record) in records {
                        self.recorded(step, record, revision);
                    }
                    return Ok(());
                }
                Err(error) if is_to_be_read_again(&error) && attempts < MOST_ATTEMPTS => {
                    attempts = attempts.saturating_add(1);
                    for (step, _) in records {
                        let found = Self::read_record(ledger, step).await?;
                        self.replace(step, found);
                    }
                }
                Err(error) if is_to_be_read_again(&error) => {
                    return Err(OperationError::Contended { what: first, attempts });
                }
                Err(error) => return Err(error),
            }
        }
    }
}
