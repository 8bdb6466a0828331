//! The record by which an operation exists: what it is, and how it stands as a whole.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Journal, Returning, Status, to_json};
use crate::operation::{Claim, Ledger, OperationError, Part, PartChange};
use crate::store::CommitError;
use crate::store::{Action, Expected, Transaction};

/// How often is tried again what others, or lost answers, have come in between.
pub(super) const MOST_ATTEMPTS: u32 = 5;

/// The record of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// What kind of operation.
    pub kind: String,
    /// Digest of its plan.
    pub digest: String,
    /// Digest of what the plan compiled to when the operation began ([`Plan::compiled`](crate::operation::Plan::compiled)).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiled: String,
    /// Number of parts of the plan.
    pub plan_parts: usize,
    /// When it began, in seconds since 1970.
    pub started: i64,
    /// How it stood when that was recorded last; [`Self::status_now`] tells how it stands.
    pub status: Status,
    /// The manual step that is open, where that is its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_step: Option<String>,
    /// Who began it, as in `alice@cp-1`, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Whether it was being rolled back, as a whole, when a process was at work on it last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub back: bool,
    /// When it came to what its status says, in seconds since 1970; `None` while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
    /// The batch that is being rolled back, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returning: Option<Returning>,
    /// What is asked between batches, in the form of whoever asks; `null` where nothing is.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub gates: Value,
}

impl Summary {
    /// Returns the record of an operation that begins.
    pub fn begun(kind: &str, digest: &str, by: &Claim) -> Self {
        Self {
            kind: kind.to_string(),
            digest: digest.to_string(),
            started: by.since,
            holder: Some(by.holder.clone()).filter(|holder| !holder.is_empty()),
            ..Self::default()
        }
    }

    /// Takes note that a process sets out, and in which direction; that stays known when it pauses.
    pub fn set_out(&mut self, back: bool, now: i64) {
        self.stand(if back { Status::RollingBack } else { Status::Running }, None, now);
        self.back = back;
    }

    /// Takes note of how it stands, from `now` on unless it stood so before.
    fn stand(&mut self, status: Status, manual_step: Option<&str>, now: i64) {
        if self.status != status {
            self.status = status;
            self.ended = (!status.is_at_work()).then_some(now);
        }
        self.manual_step = manual_step.map(str::to_string);
    }
}

impl Summary {
    /// Whether the operation came to an end, forward or back: nothing of it is to be resumed.
    pub fn has_ended(&self) -> bool {
        self.status.has_ended()
    }
}

impl Journal {
    /// Records how the operation as a whole stands, from `now` on unless it stood so before.
    pub async fn set_status(
        &self,
        ledger: &dyn Ledger,
        status: Status,
        now: i64,
    ) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.stand(status, None, now)).await
    }

    /// Records that a process sets out, and in which direction.
    pub async fn set_out(&self, ledger: &dyn Ledger, back: bool, now: i64) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.set_out(back, now)).await
    }

    /// Records that the operation waits for a manual step.
    pub async fn set_waiting(
        &self,
        ledger: &dyn Ledger,
        manual_step: &str,
        now: i64,
    ) -> Result<(), OperationError> {
        let status = Status::WaitingForManualStep;
        change_summary(ledger, |summary| summary.stand(status, Some(manual_step), now)).await
    }

    /// Records what is asked between batches from here on.
    pub async fn set_gates(&self, ledger: &dyn Ledger, gates: &Value) -> Result<(), OperationError> {
        change_summary(ledger, |summary| summary.gates = gates.clone()).await
    }
}

/// Changes the summary as it is in the ledger, if that makes a difference; again if somebody else was faster.
pub(super) async fn change_summary(
    ledger: &dyn Ledger,
    change: impl Fn(&mut Summary),
) -> Result<(), OperationError> {
    for _ in 0..MOST_ATTEMPTS {
        let found = Journal::read_part::<Summary>(ledger, &Part::Summary).await?;
        let gone =
            || OperationError::Journal { what: Part::Summary.to_string(), reason: "it is gone".to_string() };
        let (before, revision) = found.ok_or_else(gone)?;
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

/// Whether what is there now says what came of a commit.
pub(super) fn is_to_be_read_again(error: &OperationError) -> bool {
    matches!(error, OperationError::Commit(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }))
}
