//! The ledger in etcd: a key for each part, beside the objects that the operation changes.
//!
//! ```text
//! /netsurgeon/CLUSTER/OPERATION/operation      kind, digest, when, how it ended
//! /netsurgeon/CLUSTER/OPERATION/plan/00000     the plan, in parts
//! /netsurgeon/CLUSTER/OPERATION/amended/00001  what was added to the plan while it was carried out
//! /netsurgeon/CLUSTER/OPERATION/steps/STEP     the state of a step, with the times of its changes
//! /netsurgeon/CLUSTER/OPERATION/mended/NAME    what was put right of a thing after it was done
//! ```

use async_trait::async_trait;

use super::{Ledger, Part, PartChange};
use crate::operation::OperationError;
use crate::operation::lock::lost_to;
use crate::store::{Change, CommitError, Guard, Key, ReadStore, Revision, Transaction, WriteStore};

/// The record of one operation, in the etcd that it changes.
pub struct EtcdLedger<'a> {
    store: &'a dyn WriteStore,
    base: String,
    guards: Vec<Guard>,
}

impl<'a> EtcdLedger<'a> {
    /// Returns the ledger of the operation whose keys begin so.
    pub(in crate::operation) fn new(store: &'a dyn WriteStore, base: String, guards: &[Guard]) -> Self {
        Self { store, base, guards: guards.to_vec() }
    }

    fn key(&self, part: &Part) -> Key {
        key_of(&self.base, part)
    }
}

/// What the keys of an operation begin with.
pub(in crate::operation) fn base_of(cluster: &str, operation: &str) -> String {
    format!("/netsurgeon/{cluster}/{operation}")
}

/// The key of a part.
pub(in crate::operation) fn key_of(base: &str, part: &Part) -> Key {
    Key::from(match part {
        Part::Summary => format!("{base}/operation"),
        Part::Plan(number) => format!("{base}/plan/{number:05}"),
        Part::Amendment(number) => format!("{base}/amended/{number:05}"),
        Part::Step(step) => format!("{base}/steps/{step}"),
        Part::Mended(subject) => format!("{base}/mended/{subject}"),
    })
}

#[async_trait]
impl Ledger for EtcdLedger<'_> {
    async fn read(&self, part: &Part) -> Result<Option<(Vec<u8>, Revision)>, OperationError> {
        let entry = self.store.get(&self.key(part)).await?;
        Ok(entry.map(|entry| (entry.value, entry.mod_revision)))
    }

    async fn write(&self, parts: Vec<PartChange>, with: Transaction) -> Result<Revision, OperationError> {
        let Transaction { mut guards, mut changes } = with;
        changes.extend(parts.into_iter().map(|PartChange { part, expected, action }| Change {
            key: self.key(&part),
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
