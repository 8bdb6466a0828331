//! All journals of a store: lists them, counts the steps of one, removes one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde::Deserialize;

use super::{Journal, Noted, State, Status, Summary, put_new};
use crate::operation::ledger::base_of;
use crate::operation::lock::lost_to;
use crate::operation::{EtcdRecord, Ledger, OperationError, Part, Parts, ReadLedger, StepId};
use crate::store::{
    Action, Change, CommitError, Expected, Guard, Key, KeyRange, ReadStore, Record as StoreRecord, Revision,
    Transaction, Visit, WriteStore,
};

/// Keys removed at once: below etcd's limit of 128 operations a transaction (`--max-txn-ops`), which counts
/// conditions and changes separately, with room for preconditions.
const REMOVED_AT_ONCE: usize = 100;
/// Rounds of a removal: a late write can leave keys behind.
const MOST_ROUNDS: u32 = 20;

/// An operation that has a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its cluster.
    pub cluster: String,
    /// Its id.
    pub operation: String,
    /// The summary in its journal.
    pub summary: Summary,
}

/// The number of steps of an operation in each state. Steps that never started have no record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress(BTreeMap<State, usize>);

impl Progress {
    /// Returns the number of steps in a state.
    pub fn of(&self, state: State) -> usize {
        self.0.get(&state).copied().unwrap_or_default()
    }

    /// Whether the undo of a step has started: see [`Summary::status_now`].
    pub fn has_undone(&self) -> bool {
        self.0.iter().any(|(state, count)| state.is_of_the_way_back() && *count > 0)
    }

    /// Returns the number of steps that have started, without those that are to start again.
    pub fn begun(&self) -> usize {
        let begun = self.0.iter().filter(|(state, _)| **state != State::Reset);
        begun.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// The field of a step's record that is counted.
#[derive(Deserialize)]
struct Standing {
    state: State,
}

impl Journal {
    /// Returns the operations with a journal, of one cluster or of all, ordered by id. An operation that was interrupted at
    /// its start does not exist: the next operation that starts removes its remains. A list does not remove them, because
    /// that operation may be starting just now.
    pub async fn list(store: &dyn ReadStore, cluster: Option<&str>) -> Result<Vec<Listed>, OperationError> {
        let mut listed = Vec::new();
        for (cluster, operation) in traces(store, cluster).await? {
            let record = EtcdRecord::new(store, &cluster, &operation);
            if let Some((summary, _)) = Self::read_part::<Summary>(&record, &Part::Summary).await? {
                listed.push(Listed { cluster, operation, summary });
            }
        }
        // The keys have the order of the ids, unless one id is a prefix of another.
        listed.sort_by(|one, other| (&one.cluster, &one.operation).cmp(&(&other.cluster, &other.operation)));
        Ok(listed)
    }

    /// Records that a step failed, and why, if this is detected outside its run.
    pub async fn fail(
        &mut self,
        ledger: &dyn Ledger,
        step: &StepId,
        reason: &str,
        now: i64,
    ) -> Result<(), OperationError> {
        let (change, record) = self.record(step, State::Failed, now, Noted::error(reason.to_string()))?;
        let revision = ledger.write(vec![change], Transaction::default()).await?;
        self.recorded(step, record, revision);
        Ok(())
    }

    /// Adds an amendment to the plan during its execution, with this number, from 1. It is never changed, and must be smaller
    /// than etcd's limit for a request.
    pub async fn amend(ledger: &dyn Ledger, number: usize, amendment: &[u8]) -> Result<(), OperationError> {
        put_new(ledger, Part::Amendment(number), amendment).await
    }

    /// Counts the steps of an operation by state, without reading its plan or keeping its records.
    pub async fn progress(ledger: &dyn ReadLedger) -> Result<Progress, OperationError> {
        let (mut progress, mut bad) = (Progress::default(), None);
        let mut see = |part: Part, value: &[u8], _| match serde_json::from_slice::<Standing>(value) {
            Ok(Standing { state }) => {
                let count = progress.0.entry(state).or_default();
                *count = count.saturating_add(1);
            }
            Err(error) => drop(bad.get_or_insert((part, error.to_string()))),
        };
        ledger.read_all(Parts::Steps, &mut see).await?;
        match bad {
            Some((part, reason)) => Err(ledger.broken(&part, &reason)),
            None => Ok(progress),
        }
    }

    /// Removes the journal of an operation that will not be resumed, a bounded number of keys at a time. The summary is
    /// removed last and, unless the operation was rolled back, marked `removing` first: the remains must not look like a
    /// finished operation. Returns the number of keys. After an interruption, the same call removes the rest.
    pub async fn remove_all(
        store: &dyn WriteStore,
        cluster: &str,
        operation: &str,
        guards: &[Guard],
    ) -> Result<usize, OperationError> {
        let journal = Self::at(cluster, operation);
        let summary = journal.key(&Part::Summary);
        let ledger = journal.in_store(store, guards);
        let found = Self::read_part::<Summary>(&ledger, &Part::Summary).await?.map(|(found, _)| found);
        if let Some(found) = found.filter(|found| found.status != Status::RolledBack) {
            let since = found.ended.unwrap_or(found.started);
            journal.set_status(&ledger, Status::Removing, since).await?;
        }
        let mut removed: usize = 0;
        for _ in 0..MOST_ROUNDS {
            let mut keys = journal.keys(store).await?;
            if keys.is_empty() {
                return Ok(removed);
            }
            keys.sort_by_key(|(key, _)| *key == summary);
            removed = removed.saturating_add(remove(store, &keys, guards).await?);
        }
        Err(OperationError::Contended { what: format!("`{summary}`"), attempts: MOST_ROUNDS })
    }

    /// Removes the remains of operations that were interrupted at their start: parts of a plan without a summary. It
    /// removes the first part first, so an operation that is starting at this moment detects it.
    pub(super) async fn sweep(
        store: &dyn WriteStore,
        cluster: &str,
        guards: &[Guard],
    ) -> Result<(), OperationError> {
        for (cluster, operation) in traces(store, Some(cluster)).await? {
            let journal = Self::at(&cluster, &operation);
            let summary = journal.key(&Part::Summary);
            if store.get(&summary).await?.is_none() {
                let mut guards = guards.to_vec();
                guards.push(Guard::Absent(summary));
                remove(store, &journal.keys(store).await?, &guards).await?;
            }
        }
        Ok(())
    }

    /// Returns the keys of the journal with their revisions.
    async fn keys(&self, store: &dyn ReadStore) -> Result<Vec<(Key, Revision)>, OperationError> {
        let mut keys = Vec::new();
        let mut visitor = |record: StoreRecord<'_>| -> Visit {
            keys.push((Key::from(record.key), record.mod_revision));
            ControlFlow::Continue(())
        };
        store
            .scan(
                &[KeyRange::prefix(format!("{}/", base_of(&self.cluster, &self.operation)))],
                None,
                &mut visitor,
            )
            .await?;
        Ok(keys)
    }
}

/// Returns every cluster and operation with a key of a journal, in order. Reads only the first keys of each.
async fn traces(
    store: &dyn ReadStore,
    cluster: Option<&str>,
) -> Result<Vec<(String, String)>, OperationError> {
    let whole = match cluster {
        Some(cluster) => KeyRange::prefix(format!("/netsurgeon/{cluster}/")),
        None => Journal::of_all_clusters(),
    };
    let mut traces = Vec::new();
    let mut rest = Some(whole);
    while let Some(range) = rest {
        let mut found = None;
        let mut visitor = |record: StoreRecord<'_>| -> Visit {
            match operation_of(record.key) {
                Some(trace) => {
                    found = Some(trace);
                    ControlFlow::Break(())
                }
                // The operation lease.
                None => ControlFlow::Continue(()),
            }
        };
        store.scan(std::slice::from_ref(&range), None, &mut visitor).await?;
        rest = found.and_then(|(cluster, operation)| {
            let its = KeyRange::prefix(format!("/netsurgeon/{cluster}/{operation}/"));
            traces.push((cluster, operation));
            its.end().map(|after| range.from(after.clone()))
        });
    }
    Ok(traces)
}

/// Parses cluster and operation from a journal's key; `None` for any other key.
fn operation_of(key: &[u8]) -> Option<(String, String)> {
    let key = String::from_utf8_lossy(key);
    let mut names = key.strip_prefix("/netsurgeon/")?.splitn(3, '/');
    let (cluster, operation, _) = (names.next()?, names.next()?, names.next()?);
    Some((cluster.to_string(), operation.to_string()))
}

/// Removes keys in order until a conflict; returns how many.
async fn remove(
    store: &dyn WriteStore,
    keys: &[(Key, Revision)],
    guards: &[Guard],
) -> Result<usize, OperationError> {
    let mut removed: usize = 0;
    for some in keys.chunks(REMOVED_AT_ONCE) {
        let changes = some.iter().map(|(key, revision)| Change {
            key: key.clone(),
            expected: Expected::At(*revision),
            action: Action::Delete,
        });
        match commit(store, guards, changes.collect()).await {
            Ok(_) => removed = removed.saturating_add(some.len()),
            Err(OperationError::Commit(
                CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. },
            )) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

/// Commits changes of a journal. If the precondition on the operation lease fails, the lease is lost.
pub(super) async fn commit(
    store: &dyn WriteStore,
    guards: &[Guard],
    changes: Vec<Change>,
) -> Result<Revision, OperationError> {
    let fences = |key: &Key| {
        guards.iter().any(|guard| matches!(guard, Guard::SameCreation(guarded, _) if guarded == key))
    };
    match store.commit(&Transaction { guards: guards.to_vec(), changes }).await {
        Ok(revision) => Ok(revision),
        Err(CommitError::Conflict { key, .. }) if fences(&key) => Err(lost_to(store, &key).await),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[path = "keep_tests.rs"]
mod tests;
