//! Lists the journals of a store, counts the steps of a journal, and removes a journal.

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

/// Number of keys that are removed in one transaction. This is below etcd's limit of 128 operations per transaction
/// (`--max-txn-ops`), so that there is room for preconditions. etcd counts conditions and changes separately.
const REMOVED_AT_ONCE: usize = 100;
/// Maximum number of rounds in a removal. A late write can create a key after a round.
const MOST_ROUNDS: u32 = 20;

/// An operation that has a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Cluster that the operation changes.
    pub cluster: String,
    /// Id of the operation.
    pub operation: String,
    /// Summary in the journal of the operation.
    pub summary: Summary,
}

/// The operations of a place.
#[derive(Debug, Default)]
pub struct Listing {
    /// The operations that can be read, ordered by id.
    pub operations: Vec<Listed>,
    /// The records that cannot be read, as sentences with the reason and a remedy. They do not prevent other operations.
    pub unreadable: Vec<String>,
}

/// The number of steps of an operation in each state. Steps that never started have no record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepCounts(BTreeMap<State, usize>);

impl StepCounts {
    /// Returns the number of steps in a state.
    pub fn of(&self, state: State) -> usize {
        self.0.get(&state).copied().unwrap_or_default()
    }

    /// Returns whether the undo of any step has started (see [`Summary::status_now`]).
    pub fn has_undone(&self) -> bool {
        self.0.iter().any(|(state, count)| state.is_of_the_way_back() && *count > 0)
    }

    /// Returns the number of steps that have started, except reset steps.
    pub fn begun(&self) -> usize {
        let begun = self.0.iter().filter(|(state, _)| **state != State::Reset);
        begun.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// The part of a step's record that is read to count steps by state.
#[derive(Deserialize)]
struct Standing {
    state: State,
}

impl Journal {
    /// Returns the operations that have a journal, for one cluster or for all clusters, ordered by id. Omits an operation that
    /// was interrupted at its start. The next operation that starts removes the remains of the interrupted operation. This
    /// function does not remove them, because they can belong to an operation that is starting now.
    ///
    /// Skips journals whose summary cannot be read.
    pub async fn list(store: &dyn ReadStore, cluster: Option<&str>) -> Result<Vec<Listed>, OperationError> {
        Ok(Self::listing(store, cluster).await?.operations)
    }

    /// Returns the operations like [`Self::list`], and the journals that cannot be read.
    pub async fn listing(store: &dyn ReadStore, cluster: Option<&str>) -> Result<Listing, OperationError> {
        let mut listing = Listing::default();
        for (cluster, operation) in traces(store, cluster).await? {
            let record = EtcdRecord::new(store, &cluster, &operation);
            match Self::summary_in(&record).await {
                Ok(Some(summary)) => listing.operations.push(Listed { cluster, operation, summary }),
                Ok(None) => {}
                Err(error @ OperationError::Journal { .. }) => listing.unreadable.push(format!(
                    "a journal is skipped: {error}; to delete it: `etcdctl del --prefix {}/`",
                    base_of(&cluster, &operation)
                )),
                Err(error) => return Err(error),
            }
        }
        // The keys are already in the order of the ids, unless one id is a prefix of another.
        listing
            .operations
            .sort_by(|one, other| (&one.cluster, &one.operation).cmp(&(&other.cluster, &other.operation)));
        Ok(listing)
    }

    /// Records that a step failed, with the reason. Used if the failure is detected outside the execution of the step.
    pub async fn fail(
        &mut self,
        ledger: &dyn Ledger,
        step: &StepId,
        reason: &str,
        now: i64,
    ) -> Result<(), OperationError> {
        let (change, record) = self.record(step, State::Failed, now, Noted::error(reason))?;
        let revision = ledger.write(vec![change], Transaction::default()).await?;
        self.recorded(step, record, revision);
        Ok(())
    }

    /// Adds an amendment to the plan while the operation runs. `number` counts the amendments from 1. An amendment never changes,
    /// and must be smaller than etcd's limit for a request.
    pub async fn amend(ledger: &dyn Ledger, number: usize, amendment: &[u8]) -> Result<(), OperationError> {
        put_new(ledger, Part::Amendment(number), amendment).await
    }

    /// Counts the steps of an operation by state, without reading its plan or keeping its records in memory.
    pub async fn progress(ledger: &dyn ReadLedger) -> Result<StepCounts, OperationError> {
        let (mut progress, mut bad) = (StepCounts::default(), None);
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

    /// Removes the journal of an operation that will not be resumed, a bounded number of keys at a time. Returns the number of
    /// removed keys.
    ///
    /// Removes the summary last. Unless the operation was rolled back, first sets its status to `removing`, so that the remains
    /// do not look like a finished operation. After an interruption, the same call removes the remaining keys.
    pub async fn remove_all(
        store: &dyn WriteStore,
        cluster: &str,
        operation: &str,
        guards: &[Guard],
    ) -> Result<usize, OperationError> {
        let journal = Self::at(cluster, operation);
        let summary = journal.key(&Part::Summary);
        let ledger = journal.in_store(store, guards);
        let found = Self::summary_in(&ledger).await?;
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

    /// Removes the remains of operations that were interrupted at their start. The remains are parts of a plan, without a
    /// summary. Removes the first part of the plan first, so that an operation that is starting now detects the removal.
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

/// Returns the cluster and the operation of all journal keys, each pair once and in order. Reads only the first keys of each
/// operation.
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
                // The key of the operation lease.
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

/// Removes keys in order until a conflict. Returns the number of removed keys.
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

/// Commits changes to a journal. If the precondition on the operation lease fails, returns the error for the lost lease.
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
mod tests;
