//! The record by which an operation exists: what it is, and how it stands as a whole.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keep::commit;
use super::returning::{MOST_ATTEMPTS, is_to_be_read_again};
use super::{Journal, Returning, Status, to_json};
use crate::operation::{Claim, OperationError};
use crate::store::{Action, Change, Expected, Guard, WriteStore};

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
        store: &dyn WriteStore,
        status: Status,
        now: i64,
        guards: &[Guard],
    ) -> Result<(), OperationError> {
        self.change_summary(store, |summary| summary.stand(status, None, now), guards).await
    }

    /// Records that a process sets out, and in which direction.
    pub async fn set_out(
        &self,
        store: &dyn WriteStore,
        back: bool,
        now: i64,
        guards: &[Guard],
    ) -> Result<(), OperationError> {
        self.change_summary(store, |summary| summary.set_out(back, now), guards).await
    }

    /// Records that the operation waits for a manual step.
    pub async fn set_waiting(
        &self,
        store: &dyn WriteStore,
        manual_step: &str,
        now: i64,
        guards: &[Guard],
    ) -> Result<(), OperationError> {
        let status = Status::WaitingForManualStep;
        self.change_summary(store, |summary| summary.stand(status, Some(manual_step), now), guards).await
    }

    /// Records what is asked between batches from here on.
    pub async fn set_gates(
        &self,
        store: &dyn WriteStore,
        gates: &Value,
        guards: &[Guard],
    ) -> Result<(), OperationError> {
        self.change_summary(store, |summary| summary.gates = gates.clone(), guards).await
    }

    /// Changes the summary as it is in the store, if that makes a difference; again if somebody else was faster.
    pub(super) async fn change_summary(
        &self,
        store: &dyn WriteStore,
        change: impl Fn(&mut Summary),
        guards: &[Guard],
    ) -> Result<(), OperationError> {
        let key = self.summary_key();
        for _ in 0..MOST_ATTEMPTS {
            let found = Self::read_at::<Summary>(store, &key).await?;
            let (before, revision) = found.ok_or_else(|| Self::broken(&key, "the summary is gone"))?;
            let mut after = before.clone();
            change(&mut after);
            if after == before {
                return Ok(());
            }
            let (key, action) = (key.clone(), Action::Put(to_json(&after)));
            let change = Change { key, expected: Expected::At(revision), action };
            match commit(store, guards, vec![change]).await {
                Ok(_) => return Ok(()),
                Err(error) if is_to_be_read_again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(OperationError::Contended { key, attempts: MOST_ATTEMPTS })
    }
}
