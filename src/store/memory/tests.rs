//! Tests of the memory store. They compare the store with a model that keeps a copy of all keys for each revision.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::store::random_transactions::{build, everything, histories, run};
use crate::store::{Action, Expected, Guard};

type Keys = BTreeMap<Key, Entry>;

/// Returns the keys after a transaction, computed without the tested code.
fn model(keys: &Keys, transaction: &Transaction, revision: Revision) -> Option<Keys> {
    let found = |key: &Key| keys.get(key).map(|entry| entry.mod_revision);
    let guards_hold = transaction.guards.iter().all(|guard| match guard {
        Guard::Unchanged(key, at) => found(key) == Some(*at),
        Guard::SameCreation(key, at) => keys.get(key).map(|entry| entry.create_revision) == Some(*at),
        Guard::Absent(key) => found(key).is_none(),
    });
    let mut changed = keys.clone();
    let mut touched = Vec::new();
    for change in &transaction.changes {
        let holds = match change.expected {
            Expected::Absent => found(&change.key).is_none(),
            Expected::At(at) => found(&change.key) == Some(at),
        };
        if !holds || touched.contains(&&change.key) {
            return None;
        }
        touched.push(&change.key);
        let before = changed.remove(&change.key);
        match &change.action {
            Action::Delete => _ = before.as_ref()?,
            Action::Put(value) => {
                let create_revision = before.as_ref().map_or(revision, |entry| entry.create_revision);
                let version = before.map_or(1, |entry| entry.version + 1);
                let (key, value) = (change.key.clone(), value.clone());
                let entry = Entry {
                    key: key.clone(),
                    value,
                    create_revision,
                    mod_revision: revision,
                    version,
                    lease: 0,
                };
                changed.insert(key, entry);
            }
        }
    }
    (guards_hold && !transaction.changes.is_empty()).then_some(changed)
}

proptest! {
    /// A commit must succeed only if it succeeds in the model. Every revision since the compaction must still have the same keys.
    #[test]
    fn store_behaves_as_a_map_with_a_copy_per_revision(history in histories(), compact_at in 0..30_i64) {
        run(async {
            let store = MemoryStore::new();
            let mut revisions = vec![Keys::new(), Keys::new()];
            for wishes in &history {
                let now = revisions.last().unwrap();
                let transaction = build(wishes, |key| now.get(key).cloned());
                let next = Revision(i64::try_from(revisions.len()).unwrap());
                match (store.commit(&transaction).await, model(now, &transaction, next)) {
                    (Ok(revision), Some(keys)) => {
                        assert_eq!(revision, next);
                        revisions.push(keys);
                    }
                    (Err(CommitError::Conflict { .. } | CommitError::Refused { .. }), None) => {}
                    (outcome, expected) => panic!("{transaction:?}: {outcome:?}, expected {expected:?}"),
                }
            }
            let compacted = store.compact(Revision(compact_at)).is_ok();
            for (revision, keys) in revisions.iter().enumerate().skip(1) {
                let revision = Revision(i64::try_from(revision).unwrap());
                if !compacted || revision.0 >= compact_at {
                    let expected: Vec<_> = keys.values().cloned().collect();
                    assert_eq!(everything(&store, revision).await, expected);
                }
            }
        });
    }
}
