//! A complete store in memory: for tests, and to build other things from.
//!
//! It behaves as etcd does: one revision per transaction, creation and modification revisions, versions,
//! reads at older revisions, compaction. An empty store is at revision 1, as an empty etcd is
//! (`currentRev := int64(1)`, server/storage/mvcc/kvstore.go, v3.6.16).

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::history::History;
use super::transaction::KeyState;
use super::{
    CommitError, Entry, Key, KeyRange, ReadStore, Revision, StoreError, Transaction, Visitor, WriteStore,
};

/// A store in memory. See the module's text.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    history: History,
    newest: Revision,
    /// The revision last compacted to, which can still be read; 0 before the first compaction.
    compacted: Revision,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Returns an empty store, at revision 1.
    pub fn new() -> Self {
        Self::from_entries([])
    }

    /// Returns a store that holds these entries with their revisions and versions as given, at the newest
    /// of their revisions. Their earlier history is unknown, so reads before that revision are refused as
    /// compacted. Of two entries with one key the later in the list counts.
    pub fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut history = History::default();
        let mut newest = Revision(1);
        let mut compacted = Revision(0);
        for entry in entries {
            newest = newest.max(entry.mod_revision);
            compacted = newest;
            history.push(entry.key.clone(), entry.mod_revision, Some(entry));
        }
        Self { state: Mutex::new(State { history, newest, compacted }) }
    }

    /// Forgets history before a revision; that revision itself can still be read.
    ///
    /// Fails with [`StoreError::Compacted`] or [`StoreError::FutureRevision`] as etcd does
    /// (`store.updateCompactRev`, server/storage/mvcc/kvstore.go, v3.6.16).
    pub fn compact(&self, at: Revision) -> Result<(), StoreError> {
        let mut state = self.lock();
        if at <= state.compacted {
            return Err(StoreError::Compacted { asked: at, oldest: state.compacted });
        }
        if at > state.newest {
            return Err(StoreError::FutureRevision { asked: at, newest: state.newest });
        }
        state.compacted = at;
        state.history.compact(at);
        Ok(())
    }

    /// A panic elsewhere cannot leave the state half changed (a commit checks first, then only pushes), so
    /// a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn readable(&self, at: Option<Revision>) -> Result<Revision, StoreError> {
        let Some(asked) = at else { return Ok(self.newest) };
        let oldest = self.compacted.max(Revision(1));
        if asked < oldest {
            Err(StoreError::Compacted { asked, oldest })
        } else if asked > self.newest {
            Err(StoreError::FutureRevision { asked, newest: self.newest })
        } else {
            Ok(asked)
        }
    }

    fn live(&self, key: &Key) -> Option<&Entry> {
        self.history.version_at(key, self.newest).and_then(|version| version.entry.as_deref())
    }
}

#[async_trait]
impl ReadStore for MemoryStore {
    fn describe(&self) -> String {
        "memory".to_string()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.lock().newest)
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Ok(self.lock().live(key).cloned())
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        let (at, entries) = {
            let state = self.lock();
            let at = state.readable(at)?;
            let visible = ranges.iter().flat_map(|range| state.history.range_at(range, at));
            let entries: Vec<_> = visible.filter_map(|(_, version)| version.entry.clone()).collect();
            (at, entries)
        };
        for entry in entries {
            if visitor(entry.as_record()).is_break() {
                break;
            }
        }
        Ok(at)
    }
}

#[async_trait]
impl WriteStore for MemoryStore {
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        transaction.validate()?;
        let mut state = self.lock();
        if let Some(conflict) = transaction.first_conflict(|key| state.live(key).map(KeyState::from)) {
            return Err(conflict);
        }
        let revision = Revision(state.newest.0.saturating_add(1));
        for change in &transaction.changes {
            let before = state.live(&change.key).map(KeyState::from);
            state.history.push(change.key.clone(), revision, change.outcome(before, revision));
        }
        state.newest = revision;
        Ok(revision)
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
