//! The ledger in etcd: one key per part, in the same etcd as the objects that the operation changes.
//!
//! ```text
//! /netsurgeon/CLUSTER/OPERATION/operation      kind, digest, times, status
//! /netsurgeon/CLUSTER/OPERATION/plan/00000     the plan, in parts
//! /netsurgeon/CLUSTER/OPERATION/amended/00001  an addition to the plan during its execution
//! /netsurgeon/CLUSTER/OPERATION/steps/STEP     the state of a step, with the times of its changes
//! /netsurgeon/CLUSTER/OPERATION/repaired/NAME  the repairs of a subject after its steps were done
//! ```

use std::ops::ControlFlow;

use async_trait::async_trait;

use super::{Ledger, Part, PartChange, Parts, ReadLedger, SeePart};
use crate::operation::lock::lost_to;
use crate::operation::{OperationError, StepId};
use crate::store::{
    Change, CommitError, Guard, Key, KeyRange, ReadStore, Record, Revision, Transaction, Visit, WriteStore,
};

/// The record of one operation in etcd, read-only.
pub struct EtcdRecord<'a> {
    store: &'a dyn ReadStore,
    cluster: String,
    operation: String,
    at: Option<Revision>,
}

impl<'a> EtcdRecord<'a> {
    /// Returns the record of a cluster's operation.
    pub fn new(store: &'a dyn ReadStore, cluster: &str, operation: &str) -> Self {
        Self { store, cluster: cluster.to_string(), operation: operation.to_string(), at: None }
    }

    /// Sets the revision at which [`ReadLedger::read_all`] reads. The returned parts are then consistent with other reads at that
    /// revision, even while the operation runs. [`ReadLedger::read`] always returns the newest value.
    #[must_use]
    pub fn at(self, at: Option<Revision>) -> Self {
        Self { at, ..self }
    }

    fn base(&self) -> String {
        base_of(&self.cluster, &self.operation)
    }

    fn key(&self, part: &Part) -> Key {
        key_of(&self.base(), part)
    }
}

/// The record of one operation. It is stored in the etcd that the operation changes, and used by the process that runs the
/// operation.
pub struct EtcdLedger<'a> {
    store: &'a dyn WriteStore,
    record: EtcdRecord<'a>,
    guards: Vec<Guard>,
}

impl<'a> EtcdLedger<'a> {
    /// Returns the ledger of a cluster's operation. Every write has the preconditions `guards`. On a live cluster, `guards` must
    /// contain the precondition of the operation lease ([`crate::operation::Lock::guard`]).
    pub fn new(store: &'a dyn WriteStore, cluster: &str, operation: &str, guards: &[Guard]) -> Self {
        Self { store, record: EtcdRecord::new(store, cluster, operation), guards: guards.to_vec() }
    }
}

/// Returns the prefix of an operation's keys.
pub(in crate::operation) fn base_of(cluster: &str, operation: &str) -> String {
    format!("/netsurgeon/{cluster}/{operation}")
}

/// Returns the key of a part.
pub(in crate::operation) fn key_of(base: &str, part: &Part) -> Key {
    Key::from(match part {
        Part::Summary => format!("{base}/operation"),
        Part::Plan(number) => format!("{base}/plan/{number:05}"),
        Part::Amendment(number) => format!("{base}/amended/{number:05}"),
        Part::Step(step) => format!("{base}/steps/{step}"),
        Part::Repaired(subject) => format!("{base}/repaired/{subject}"),
    })
}

#[async_trait]
impl ReadLedger for EtcdRecord<'_> {
    fn operation(&self) -> (&str, &str) {
        (&self.cluster, &self.operation)
    }

    fn place(&self, part: &Part) -> String {
        format!("`{}`", self.key(part))
    }

    async fn read(&self, part: &Part) -> Result<Option<(Vec<u8>, Revision)>, OperationError> {
        let entry = self.store.get(&self.key(part)).await?;
        Ok(entry.map(|entry| (entry.value, entry.mod_revision)))
    }

    async fn read_all(&self, parts: Parts, see: SeePart<'_>) -> Result<(), OperationError> {
        let prefix = match parts {
            Parts::Amendments => format!("{}/amended/", self.base()),
            Parts::Steps => format!("{}/steps/", self.base()),
        };
        let mut visitor = |record: Record<'_>| -> Visit {
            let name = String::from_utf8_lossy(record.key.get(prefix.len()..).unwrap_or_default());
            let part = match parts {
                // The name is a number with five digits or more.
                Parts::Amendments => Part::Amendment(name.parse().unwrap_or_default()),
                Parts::Steps => Part::Step(StepId(name.into_owned())),
            };
            see(part, record.value, record.mod_revision);
            ControlFlow::Continue(())
        };
        self.store.scan(&[KeyRange::prefix(prefix.clone())], self.at, &mut visitor).await?;
        Ok(())
    }
}

#[async_trait]
impl ReadLedger for EtcdLedger<'_> {
    fn operation(&self) -> (&str, &str) {
        self.record.operation()
    }

    fn place(&self, part: &Part) -> String {
        self.record.place(part)
    }

    async fn read(&self, part: &Part) -> Result<Option<(Vec<u8>, Revision)>, OperationError> {
        self.record.read(part).await
    }

    async fn read_all(&self, parts: Parts, see: SeePart<'_>) -> Result<(), OperationError> {
        self.record.read_all(parts, see).await
    }
}

#[async_trait]
impl Ledger for EtcdLedger<'_> {
    async fn write(&self, parts: Vec<PartChange>, with: Transaction) -> Result<Revision, OperationError> {
        let Transaction { mut guards, mut changes } = with;
        changes.extend(parts.into_iter().map(|PartChange { part, expected, action }| Change {
            key: self.record.key(&part),
            expected,
            action,
        }));
        guards.extend(self.guards.iter().cloned());
        match self.store.commit(&Transaction { guards, changes }).await {
            Err(CommitError::Conflict { key, .. }) if self.guards.iter().any(|guard| *guard.key() == key) => {
                Err(lost_to(self.store, &key).await)
            }
            outcome => Ok(outcome?),
        }
    }

    fn store(&self) -> &dyn ReadStore {
        self.store
    }

    async fn still_ours(&self) -> Result<(), OperationError> {
        for guard in &self.guards {
            let entry = self.store.get(guard.key()).await?;
            if !guard.holds(entry.as_ref()) {
                return Err(lost_to(self.store, guard.key()).await);
            }
        }
        Ok(())
    }
}
