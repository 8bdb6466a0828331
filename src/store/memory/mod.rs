//! A complete store in memory, for tests and as the base of an overlay.
//!
//! It behaves like etcd: one revision per transaction, creation and modification revisions, versions, reads at older revisions,
//! compaction, leases. An empty store is at revision 1, like an empty etcd (`currentRev := int64(1)`,
//! server/storage/mvcc/kvstore.go, v3.6.16). The clock of the leases advances only with [`MemoryStore::advance`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::history::History;
use super::lease::{Granted, LeaseId, LeaseStore};
use super::{
    Action, Change, CommitError, Entry, Expected, Key, KeyRange, ReadStore, Revision, StoreError,
    Transaction, Visitor, WriteStore, readable,
};

/// A store in memory. See the module documentation.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    history: History,
    newest: Revision,
    /// Revision of the last compaction, or 0 before the first compaction. This revision is still readable.
    compacted: Revision,
    /// Time since the store was created.
    now: Duration,
    leases: BTreeMap<LeaseId, Term>,
    last_lease: i64,
}

/// TTL and expiry of a lease.
#[derive(Debug, Clone, Copy)]
struct Term {
    ttl: Duration,
    ends: Duration,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Returns an empty store at revision 1.
    pub fn new() -> Self {
        Self::from_entries([])
    }

    /// Returns a store with entries that keep their revisions and versions. The store is at the newest revision of the entries.
    /// The history before this revision is unknown, so reads at earlier revisions fail with [`StoreError::Compacted`]. If two
    /// entries have the same key, the store uses the last of them.
    pub fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut history = History::default();
        let mut newest = Revision(1);
        let mut compacted = Revision(0);
        for entry in entries {
            newest = newest.max(entry.mod_revision);
            compacted = newest;
            history.push(entry.key.clone(), entry.mod_revision, Some(entry));
        }
        let (now, leases, last_lease) = (Duration::ZERO, BTreeMap::new(), 0);
        Self { state: Mutex::new(State { history, newest, compacted, now, leases, last_lease }) }
    }

    /// Advances the clock of the leases. Ends the leases that expire, and deletes their keys.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        state.now = state.now.saturating_add(by);
        let now = state.now;
        let over: Vec<LeaseId> =
            state.leases.iter().filter(|(_, term)| term.ends <= now).map(|(lease, _)| *lease).collect();
        for lease in over {
            state.end(lease);
        }
    }

    /// Drops the history before a revision. The revision itself stays readable.
    ///
    /// Fails with [`StoreError::Compacted`] or [`StoreError::FutureRevision`], like etcd (`store.updateCompactRev`,
    /// server/storage/mvcc/kvstore.go, v3.6.16).
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

    /// Locks the state. A poisoned lock is usable, because a commit checks its conditions first and then only appends versions. A
    /// panic in another thread therefore cannot leave a half-changed state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn readable(&self, at: Option<Revision>) -> Result<Revision, StoreError> {
        readable(at, self.compacted.max(Revision(1)), self.newest)
    }

    fn live(&self, key: &Key) -> Option<&Entry> {
        self.history.version_at(key, self.newest).and_then(|version| version.entry.as_deref())
    }

    /// Ends a lease, and deletes its keys in a separate revision.
    fn end(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let everything = KeyRange::everything();
        let live = self.history.range_at(&everything, self.newest);
        let entries = live.filter_map(|(_, version)| version.entry.as_deref());
        let keys: Vec<Key> =
            entries.filter(|entry| entry.lease == lease.0).map(|entry| entry.key.clone()).collect();
        if keys.is_empty() {
            return;
        }
        self.newest = Revision(self.newest.0.saturating_add(1));
        for key in keys {
            self.history.push(key, self.newest, None);
        }
    }

    fn commit(&mut self, transaction: &Transaction, lease: Option<LeaseId>) -> Result<Revision, CommitError> {
        if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
            return Err(CommitError::Refused { reason: "the lease does not exist".to_string() });
        }
        let lease = lease.map_or(0, |lease| lease.0);
        self.newest = self.history.commit(transaction, self.newest, |_| None, lease)?;
        Ok(self.newest)
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
        self.lock().commit(transaction, None)
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn grant(&self, ttl: Duration) -> Result<Granted, StoreError> {
        let mut state = self.lock();
        state.last_lease = state.last_lease.saturating_add(1);
        let lease = LeaseId(state.last_lease);
        let ends = state.now.saturating_add(ttl);
        state.leases.insert(lease, Term { ttl, ends });
        Ok(Granted { lease, ttl })
    }

    async fn create(&self, key: &Key, value: &[u8], lease: LeaseId) -> Result<Revision, CommitError> {
        let action = Action::Put(value.to_vec());
        let change = Change { key: key.clone(), expected: Expected::Absent, action };
        let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
        transaction.validate()?;
        self.lock().commit(&transaction, Some(lease))
    }

    async fn keep_alive(&self, lease: LeaseId, _within: Duration) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let now = state.now;
        let Some(term) = state.leases.get_mut(&lease) else { return Ok(false) };
        term.ends = now.saturating_add(term.ttl);
        Ok(true)
    }

    async fn time_left(&self, lease: LeaseId) -> Result<Option<Duration>, StoreError> {
        let state = self.lock();
        Ok(state.leases.get(&lease).map(|term| term.ends.saturating_sub(state.now)))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.lock().end(lease);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
