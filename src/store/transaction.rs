//! The rules of a transaction, independent of the store that executes it.
//!
//! The memory store and the overlay execute transactions themselves; the live store sends them to etcd and
//! only interprets the response. All of them share these rules, so that etcd accepts every transaction that a rehearsal
//! accepts, and a conflict has the same message everywhere.

use std::collections::HashSet;

use super::{Action, Change, CommitError, Entry, Expected, Guard, Key, Record, Revision, Transaction};

/// The part of a key's state that conditions check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyState {
    /// Revision of the key's creation.
    pub create_revision: Revision,
    /// Revision of its last change.
    pub mod_revision: Revision,
    /// Number of writes since its creation.
    pub version: i64,
    /// Its lease, 0 for none.
    pub lease: i64,
}

impl From<&Entry> for KeyState {
    fn from(entry: &Entry) -> Self {
        Self::from(entry.as_record())
    }
}

impl From<Record<'_>> for KeyState {
    fn from(record: Record<'_>) -> Self {
        Self {
            create_revision: record.create_revision,
            mod_revision: record.mod_revision,
            version: record.version,
            lease: record.lease,
        }
    }
}

impl Guard {
    /// Returns the key of the precondition.
    pub fn key(&self) -> &Key {
        match self {
            Self::Unchanged(key, _) | Self::SameCreation(key, _) | Self::Absent(key) => key,
        }
    }

    /// Whether the precondition holds for its key as it was read; `None` if the key does not exist.
    pub fn holds(&self, entry: Option<&Entry>) -> bool {
        let found = self.found(entry.map(KeyState::from));
        match self.expected() {
            Expected::Absent => found.is_none(),
            Expected::At(revision) => found == Some(revision),
        }
    }

    /// Returns the expected state of its key.
    fn expected(&self) -> Expected {
        match self {
            Self::Unchanged(_, revision) | Self::SameCreation(_, revision) => Expected::At(*revision),
            Self::Absent(_) => Expected::Absent,
        }
    }

    /// Returns the revision that the precondition compares.
    fn found(&self, state: Option<KeyState>) -> Option<Revision> {
        match self {
            Self::SameCreation(..) => state.map(|state| state.create_revision),
            Self::Unchanged(..) | Self::Absent(_) => state.map(|state| state.mod_revision),
        }
    }
}

impl Transaction {
    /// Refuses a transaction that no store can execute: one without changes, a key in two changes
    /// (etcd: `duplicate key given in txn request`), an empty key (etcd: `key is not provided`), an
    /// expected revision below 1 (which means "the key is absent" to etcd), the removal of a key
    /// that is expected to be absent.
    pub(super) fn validate(&self) -> Result<(), CommitError> {
        let refuse = |reason: String| Err(CommitError::Refused { reason });
        if self.changes.is_empty() {
            return refuse("it changes nothing".to_string());
        }
        let mut seen = HashSet::with_capacity(self.changes.len());
        for change in &self.changes {
            if !seen.insert(&change.key) {
                return refuse(format!("`{}` is in two of its changes", change.key));
            }
            if change.action == Action::Delete && change.expected == Expected::Absent {
                return refuse(format!("it removes `{}` and expects it to be absent", change.key));
            }
        }
        for (key, expected) in self.conditions().map(|(key, expected, _)| (key, expected)) {
            if key.as_bytes().is_empty() {
                return refuse("a key is empty".to_string());
            }
            if matches!(expected, Expected::At(revision) if revision.0 < 1) {
                return refuse(format!("it expects `{key}` at a revision below 1"));
            }
        }
        Ok(())
    }

    /// Every condition, preconditions first: key, expectation, and the precondition if it is one.
    fn conditions(&self) -> impl Iterator<Item = (&Key, Expected, Option<&Guard>)> {
        let guards = self.guards.iter().map(|guard| (guard.key(), guard.expected(), Some(guard)));
        guards.chain(self.changes.iter().map(|change| (&change.key, change.expected, None)))
    }

    /// Returns every key that a condition checks, preconditions first, each once.
    pub(super) fn condition_keys(&self) -> Vec<&Key> {
        let mut seen = HashSet::new();
        self.conditions().map(|(key, _, _)| key).filter(|key| seen.insert(*key)).collect()
    }

    /// Returns the first condition that does not hold, preconditions first, as a conflict.
    pub(super) fn first_conflict(&self, state: impl Fn(&Key) -> Option<KeyState>) -> Option<CommitError> {
        self.conditions().find_map(|(key, expected, guard)| {
            let state = state(key);
            let found =
                guard.map_or_else(|| state.map(|state| state.mod_revision), |guard| guard.found(state));
            let holds = match expected {
                Expected::Absent => found.is_none(),
                Expected::At(revision) => found == Some(revision),
            };
            (!holds).then(|| CommitError::Conflict { key: key.clone(), expected, found })
        })
    }
}

impl Change {
    /// Returns the key after the change at this revision, `None` if the change removes it.
    ///
    /// The rules are those of etcd's `storeTxnWrite.put` (server/storage/mvcc/kvstore_txn.go, v3.6.16): a
    /// creation starts at version 1 with its own revision, an update keeps the creation revision and increments the version. An
    /// update keeps the key's lease (`ignore_lease` of etcd's `PutRequest`): rewriting an object must not
    /// change when it expires.
    pub(super) fn outcome(&self, before: Option<KeyState>, revision: Revision) -> Option<Entry> {
        let Action::Put(value) = &self.action else { return None };
        Some(Entry {
            key: self.key.clone(),
            value: value.clone(),
            create_revision: before.map_or(revision, |state| state.create_revision),
            mod_revision: revision,
            version: before.map_or(1, |state| state.version.saturating_add(1)),
            lease: before.map_or(0, |state| state.lease),
        })
    }
}
