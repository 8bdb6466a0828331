//! The rules of a transaction, independent of the store that executes it.
//!
//! The memory store and the overlay execute transactions themselves. The live store sends transactions to etcd and only
//! interprets the response. Because all stores share these rules, etcd accepts every transaction that a rehearsal accepts, except
//! transactions that exceed etcd's limits. A conflict has the same message in every store.

use std::collections::HashSet;

use super::{Action, Change, CommitError, Entry, Expected, Guard, Key, Revision, Transaction};

impl Expected {
    /// Returns whether the key has the expected state. `found` is the compared revision; `None` if the key does not exist.
    fn holds(self, found: Option<Revision>) -> bool {
        match self {
            Self::Absent => found.is_none(),
            Self::At(revision) => found == Some(revision),
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

    /// Returns whether the precondition holds. `entry` is the current entry of its key; `None` if the key does not exist.
    pub fn holds(&self, entry: Option<&Entry>) -> bool {
        self.expected().holds(self.found(entry))
    }

    /// Returns the expected state of the precondition's key.
    fn expected(&self) -> Expected {
        match self {
            Self::Unchanged(_, revision) | Self::SameCreation(_, revision) => Expected::At(*revision),
            Self::Absent(_) => Expected::Absent,
        }
    }

    /// Returns the revision that the precondition compares: the revision of the key's creation or of its last change.
    fn found(&self, entry: Option<&Entry>) -> Option<Revision> {
        match self {
            Self::SameCreation(..) => entry.map(|entry| entry.create_revision),
            Self::Unchanged(..) | Self::Absent(_) => entry.map(|entry| entry.mod_revision),
        }
    }
}

impl Transaction {
    /// Rejects a transaction that no store can execute, because it has no changes, has a key in two changes (etcd: `duplicate key
    /// given in txn request`), or has an empty key (etcd: `key is not provided`). Also rejects an expected revision below 1
    /// (which means "the key is absent" to etcd), and the deletion of a key that is expected to be absent.
    pub(super) fn validate(&self) -> Result<(), CommitError> {
        let refuse = |reason: String| Err(CommitError::Refused { reason });
        if self.changes.is_empty() {
            return refuse("it changes nothing".to_string());
        }
        let mut seen = HashSet::with_capacity(self.changes.len());
        for change in &self.changes {
            if !seen.insert(&change.key) {
                return refuse(format!("two of its changes have the key `{}`", change.key));
            }
            if change.action == Action::Delete && change.expected == Expected::Absent {
                return refuse(format!("it deletes `{}`, but expects the key to be absent", change.key));
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

    /// Returns every condition with its key, its expected state, and the precondition, if the condition comes from a
    /// precondition. Preconditions come first.
    fn conditions(&self) -> impl Iterator<Item = (&Key, Expected, Option<&Guard>)> {
        let guards = self.guards.iter().map(|guard| (guard.key(), guard.expected(), Some(guard)));
        guards.chain(self.changes.iter().map(|change| (&change.key, change.expected, None)))
    }

    /// Returns every key that a condition checks, each once. Keys of preconditions come first.
    pub(super) fn condition_keys(&self) -> Vec<&Key> {
        let mut seen = HashSet::new();
        self.conditions().map(|(key, _, _)| key).filter(|key| seen.insert(*key)).collect()
    }

    /// Returns a conflict for the first condition that does not hold. Preconditions are checked first. `current` returns the
    /// current entry of a key.
    pub(super) fn first_conflict<'e>(
        &self,
        current: impl Fn(&Key) -> Option<&'e Entry>,
    ) -> Option<CommitError> {
        self.conditions().find_map(|(key, expected, guard)| {
            let entry = current(key);
            let found =
                guard.map_or_else(|| entry.map(|entry| entry.mod_revision), |guard| guard.found(entry));
            (!expected.holds(found)).then(|| CommitError::Conflict { key: key.clone(), expected, found })
        })
    }
}

impl Change {
    /// Returns the entry after the change at this revision; `None` if the change deletes the key. A key that the change creates
    /// gets the lease; 0 means no lease.
    ///
    /// The rules are the same as in etcd's `storeTxnWrite.put` (server/storage/mvcc/kvstore_txn.go, v3.6.16). A creation starts
    /// at version 1 with its own revision. An update keeps the creation revision and increments the version. An update also keeps
    /// the lease of the key (`ignore_lease` of etcd's `PutRequest`), so that an update of an object does not change its expiry.
    pub(super) fn outcome(&self, before: Option<&Entry>, revision: Revision, lease: i64) -> Option<Entry> {
        let Action::Put(value) = &self.action else { return None };
        Some(Entry {
            key: self.key.clone(),
            value: value.clone(),
            create_revision: before.map_or(revision, |entry| entry.create_revision),
            mod_revision: revision,
            version: before.map_or(1, |entry| entry.version.saturating_add(1)),
            lease: before.map_or(lease, |entry| entry.lease),
        })
    }
}
