//! Journals in the same etcd as the objects that the operation changes. [`EtcdLedger`] defines their keys.

use serde_json::Value;

use super::{Journal, Summary};
use crate::operation::ledger::{base_of, key_of};
use crate::operation::{
    EtcdLedger, EtcdRecord, LeaseHolder, OperationError, OperationKind, Part, Plan, StepId, Work,
};
use crate::store::{Guard, Key, KeyRange, ReadStore, WriteStore};

impl Journal {
    /// Returns the key range of the journals of all clusters.
    pub fn of_all_clusters() -> KeyRange {
        KeyRange::prefix("/netsurgeon/")
    }

    /// Creates the journal of a plan that is about to run. `by` contains the operation's id, holder and start time. `gates` are
    /// the gates between batches (`null` if there are none). For `guards` see [`Self::begin`].
    pub async fn begin_plan<W: OperationKind + Work>(
        store: &dyn WriteStore,
        plan: &Plan<W>,
        by: &LeaseHolder,
        gates: Value,
        guards: &[Guard],
    ) -> Result<Self, OperationError> {
        let (text, summary) = Self::of_plan(plan, by, gates)?;
        Self::begin(store, &plan.header.cluster, &by.operation, &text, summary, guards).await
    }

    /// Creates a journal. First removes the remains of operations that were interrupted at their start.
    ///
    /// Every write has the preconditions `guards`. On a live cluster, `guards` must contain the precondition of the operation
    /// lease ([`crate::operation::Lock::guard`]). Without this precondition, another operation that starts could treat this
    /// journal as remains and remove it.
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

    /// Reads the journal of an existing operation: its summary, its plan and its records.
    pub async fn open(
        store: &dyn ReadStore,
        cluster: &str,
        operation: &str,
    ) -> Result<(Self, Summary, Vec<u8>), OperationError> {
        Self::open_in(&EtcdRecord::new(store, cluster, operation)).await
    }

    /// Returns the ledger of this journal, for the process that runs the operation. Every write has the preconditions `guards`.
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

    /// Returns the key of the repair record of a subject.
    pub(in crate::operation) fn repaired_key(&self, subject: &str) -> Key {
        self.key(&Part::Repaired(subject.to_string()))
    }

    /// Returns the precondition that the record of a step is unchanged, or still missing.
    pub fn guard_of(&self, step: &StepId) -> Guard {
        let key = self.step_key(step);
        match self.changed_at(step) {
            Some(revision) => Guard::Unchanged(key, revision),
            None => Guard::Absent(key),
        }
    }
}
