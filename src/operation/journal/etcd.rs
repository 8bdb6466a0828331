//! Journals in etcd, beside the objects that the operation changes: its keys are those of [`EtcdLedger`].

use serde_json::Value;

use super::{Journal, Summary};
use crate::operation::ledger::{base_of, key_of};
use crate::operation::{Claim, EtcdLedger, EtcdRecord, Kind, OperationError, Part, Plan, StepId, Work};
use crate::store::{Guard, Key, KeyRange, ReadStore, WriteStore};

impl Journal {
    /// Returns the keys of all journals of all clusters.
    pub fn of_all_clusters() -> KeyRange {
        KeyRange::prefix("/netsurgeon/")
    }

    /// Begins the journal of a plan that is about to be carried out: by whom, as which operation and since when, and with
    /// what is asked between batches (`null`: nothing). For `guards` see [`Self::begin`].
    pub async fn begin_plan<W: Kind + Work>(
        store: &dyn WriteStore,
        plan: &Plan<W>,
        by: &Claim,
        gates: Value,
        guards: &[Guard],
    ) -> Result<Self, OperationError> {
        let begun = Summary::begun(&plan.header.kind, &plan.digest, by);
        let summary = Summary { gates, compiled: plan.compiled(), ..begun };
        let plan_text = serde_json::to_vec(plan).map_err(|error| OperationError::Journal {
            what: format!("`{}`", by.operation),
            reason: format!("its plan cannot be written as JSON: {error}"),
        })?;
        Self::begin(store, &plan.header.cluster, &by.operation, &plan_text, summary, guards).await
    }

    /// Begins a journal. What others have left behind that were interrupted while they began is removed first.
    ///
    /// The guards must hold of every write: on a live cluster the lock's ([`crate::operation::Lock::guard`]), without which
    /// another one who begins may take this one for a leftover.
    pub async fn begin(
        store: &dyn WriteStore,
        cluster: &str,
        operation: &str,
        plan: &[u8],
        summary: Summary,
        guards: &[Guard],
    ) -> Result<Self, OperationError> {
        Self::sweep(store, cluster, guards).await?;
        Self::begin_in(&EtcdLedger::new(store, cluster, operation, guards), plan, summary).await
    }

    /// Opens the journal of an operation that was begun before: its summary, its plan and its records.
    pub async fn open(
        store: &dyn ReadStore,
        cluster: &str,
        operation: &str,
    ) -> Result<(Self, Summary, Vec<u8>), OperationError> {
        Self::open_in(&EtcdRecord::new(store, cluster, operation)).await
    }

    /// Returns its ledger, for whoever carries the operation out. The guards must hold of every write.
    pub fn in_store<'a>(&self, store: &'a dyn WriteStore, guards: &[Guard]) -> EtcdLedger<'a> {
        EtcdLedger::new(store, &self.cluster, &self.operation, guards)
    }

    pub(super) fn key(&self, part: &Part) -> Key {
        key_of(&base_of(&self.cluster, &self.operation), part)
    }

    /// Returns the key of a step's record.
    pub fn step_key(&self, step: &StepId) -> Key {
        self.key(&Part::Step(step.clone()))
    }

    /// Returns the key of what was mended of something.
    pub(in crate::operation) fn mended_key(&self, subject: &str) -> Key {
        self.key(&Part::Mended(subject.to_string()))
    }

    /// Returns the condition that a step stands as it does here: its record unchanged, or still none.
    pub fn guard_of(&self, step: &StepId) -> Guard {
        let key = self.step_key(step);
        match self.changed_at(step) {
            Some(revision) => Guard::Unchanged(key, revision),
            None => Guard::Absent(key),
        }
    }
}
