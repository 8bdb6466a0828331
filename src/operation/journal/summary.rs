//! The summary of an operation: its kind and its status. An operation exists once its summary is stored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Journal, Returning, Run, RunEnd, Status, Waiver, to_json};
use crate::operation::{LeaseHolder, Ledger, OperationError, Part, PartChange};
use crate::store::CommitError;
use crate::store::{Action, Expected, Transaction};

/// Maximum number of attempts to make a change, including retries after conflicts and lost answers.
pub(super) const MOST_ATTEMPTS: u32 = 5;

/// The summary of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The kind of operation.
    pub kind: String,
    /// Digest of the operation's plan.
    pub digest: String,
    /// Digest of the steps that the plan compiled to when the operation started
    /// ([`Plan::compiled`](crate::operation::Plan::compiled)).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiled: String,
    /// Number of parts of the plan.
    pub plan_parts: usize,
    /// Start time of the operation, in seconds since 1970.
    pub started: i64,
    /// The status that was recorded last. [`Self::status_now`] returns the current status.
    pub status: Status,
    /// The open manual step, while the operation waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_step: Option<String>,
    /// The user that started the operation, for example `alice@cp-1`, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Whether the last run of the operation was a rollback of the whole operation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub back: bool,
    /// Time at which the operation reached this status, in seconds since 1970; `None` while the operation runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
    /// The batch that is being rolled back, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returning: Option<Returning>,
    /// The subjects that the operator has given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<Waiver>,
    /// Whether the records of earlier runs are lost, and a rollback started from the plan alone. The outcome of a step without a
    /// record is then unknown, so the rollback checks the objects of every step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_recovered: bool,
    /// Whether the journal is removed after the operation is done (`--forget`). Versions up to 0.2 removed the journal of a
    /// renumbering unless `keeps_journal` was set; this version ignores that field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removes_journal: bool,
    /// The gates between batches, in the format of the session; `null` if there are none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub gates: Value,
    /// The last runs of the operation, oldest first. Journals of older versions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
}

impl Summary {
    /// Returns the summary of an operation that starts now.
    pub fn begun(kind: &str, digest: &str, by: &LeaseHolder) -> Self {
        Self {
            kind: kind.to_string(),
            digest: digest.to_string(),
            started: by.since,
            holder: Some(by.holder.clone()).filter(|holder| !holder.is_empty()),
            ..Self::default()
        }
    }

    /// Records that a process starts to run the operation, and the direction of the run. The direction stays recorded while the
    /// operation is paused.
    pub fn set_out(&mut self, back: bool, now: i64) {
        self.stand(if back { Status::RollingBack } else { Status::Running }, None, now);
        self.back = back;
        self.begin_run(back, now);
    }

    /// Sets the status. If the status changes, sets `ended` to `now`, or to `None` if a process now runs the operation.
    fn stand(&mut self, status: Status, manual_step: Option<&str>, now: i64) {
        if self.status != status {
            self.status = status;
            self.ended = (!status.is_at_work()).then_some(now);
        }
        self.manual_step = manual_step.map(str::to_string);
    }
}

impl Summary {
    /// Returns whether the operation has ended, either completed or rolled back, and cannot be resumed.
    pub fn has_ended(&self) -> bool {
        self.status.has_ended()
    }
}

impl Journal {
    /// Records the status of the operation. `now` is the time of the change.
    pub async fn set_status(
        &self,
        ledger: &dyn Ledger,
        status: Status,
        now: i64,
    ) -> Result<(), OperationError> {
        self.conclude(ledger, status, &RunEnd::default(), now).await
    }

    /// Records the status of the operation at the end of a run, and how the run ended.
    pub async fn conclude(
        &self,
        ledger: &dyn Ledger,
        status: Status,
        end: &RunEnd,
        now: i64,
    ) -> Result<(), OperationError> {
        let change = |summary: &mut Summary| {
            summary.stand(status, end.manual_step.as_deref(), now);
            if !status.is_at_work() {
                summary.end_run(Some(status), end, now);
            }
        };
        change_summary(ledger, change).await
    }

    /// Records how a run ended, without a change of the status. Does nothing if the end is already recorded.
    pub async fn end_run(&self, ledger: &dyn Ledger, end: &RunEnd, now: i64) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.end_run(None, end, now)).await
    }

    /// Records that a process starts to run the operation, and the direction of the run.
    pub async fn set_out(&self, ledger: &dyn Ledger, back: bool, now: i64) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.set_out(back, now)).await
    }

    /// Records that the journal is removed after the operation is done.
    pub async fn set_removed_at_end(&self, ledger: &dyn Ledger) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.removes_journal = true).await
    }

    /// Records the gates for the remaining batches.
    pub async fn set_gates(&self, ledger: &dyn Ledger, gates: &Value) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.gates = gates.clone()).await
    }
}

/// Changes the summary in the ledger, and retries after a conflict. Writes nothing if the summary stays the same.
pub(super) async fn change_summary(
    ledger: &dyn Ledger,
    change: impl Fn(&mut Summary),
) -> Result<(), OperationError> {
    for _ in 0..MOST_ATTEMPTS {
        let found = Journal::read_part::<Summary>(ledger, &Part::Summary).await?;
        let missing = || OperationError::Journal {
            what: Part::Summary.to_string(),
            reason: "it is missing".to_string(),
        };
        let (before, revision) = found.ok_or_else(missing)?;
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        let (expected, action) = (Expected::At(revision), Action::Put(to_json(&after)));
        let change = PartChange { part: Part::Summary, expected, action };
        match ledger.write(vec![change], Transaction::default()).await {
            Ok(_) => return Ok(()),
            Err(error) if is_to_be_read_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(OperationError::Contended {
        what: "the summary of the operation".to_string(),
        attempts: MOST_ATTEMPTS,
    })
}

/// Returns whether the ledger must be read again to find the outcome of a commit.
pub(super) fn is_to_be_read_again(error: &OperationError) -> bool {
    matches!(error, OperationError::Commit(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }))
}
