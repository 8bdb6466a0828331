//! The record by which an operation exists: what it is, and how it stands as a whole.

use serde::{Deserialize, Serialize};

use super::keep::commit;
use super::returning::{MOST_ATTEMPTS, is_to_be_read_again};
use super::{Journal, Returning, to_json};
use crate::operation::OperationError;
use crate::store::{Action, Change, Expected, Guard, WriteStore};

/// The status of an operation that has not come to an end.
pub(super) const RUNNING: &str = "running";

/// The record of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// What kind of operation.
    pub kind: String,
    /// Digest of its plan.
    pub digest: String,
    /// Number of parts of the plan.
    pub plan_parts: usize,
    /// When it began, in seconds since 1970.
    pub started: i64,
    /// How it stands, in a word: `running`, `done`, `rolled-back`, `stuck`, `removing`.
    pub status: String,
    /// Who began it, as in `alice@cp-1`, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// When it came to what its status says, in seconds since 1970; `None` while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
    /// The batch that is being rolled back, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returning: Option<Returning>,
}

impl Journal {
    /// Writes how the operation as a whole stands, from `now` on unless it stood so before.
    pub async fn set_status(
        &self,
        store: &dyn WriteStore,
        status: &str,
        now: i64,
        guards: &[Guard],
    ) -> Result<(), OperationError> {
        let change = |summary: &mut Summary| {
            if summary.status != status {
                summary.status = status.to_string();
                summary.ended = (status != RUNNING).then_some(now);
            }
        };
        self.change_summary(store, change, guards).await
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
