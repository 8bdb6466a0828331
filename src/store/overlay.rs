//! A store that reads through another one and keeps writes in memory: the store of a dry run and of a
//! rehearsal.
//!
//! It never writes to its base (it has a [`ReadStore`] and so cannot), and behaves like the base without
//! concurrent clients: the base is read at the one revision that it had when
//! the overlay was created, and the overlay counts its own revisions from there.
//!
//! Memory is proportional to the writes: the base is streamed, never copied. If the base compacts the pinned
//! revision, reads fail with [`StoreError::Compacted`].

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::history::{History, Version};
use super::transaction::KeyState;
use super::{
    CommitError, Entry, Key, KeyRange, ReadStore, Record, Revision, StoreError, Transaction, Visit, Visitor,
    WriteStore,
};

/// A store above another one. See the module documentation.
pub struct Overlay {
    base: Arc<dyn ReadStore>,
    base_revision: Revision,
    state: Mutex<State>,
}

struct State {
    history: History,
    newest: Revision,
}

/// The overlay's state of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayChange {
    /// The key.
    pub key: Key,
    /// The key as it is now; `None` if it was removed.
    pub entry: Option<Entry>,
}

impl Overlay {
    /// Returns an overlay without changes, above the base at its present revision.
    ///
    /// Fails if the base cannot return its revision.
    pub async fn new(base: Arc<dyn ReadStore>) -> Result<Self, StoreError> {
        let base_revision = base.revision().await?;
        let state = Mutex::new(State { history: History::default(), newest: base_revision });
        Ok(Self { base, base_revision, state })
    }

    /// Returns the revision at which the base is read.
    pub fn base_revision(&self) -> Revision {
        self.base_revision
    }

    /// Returns the keys written or removed in the overlay, in key order, including keys that were
    /// changed and changed back.
    pub fn changed_keys(&self) -> Vec<Key> {
        self.changes().into_iter().map(|change| change.key).collect()
    }

    /// Returns the overlay's changes, in key order: each changed key in its present state.
    pub fn changes(&self) -> Vec<OverlayChange> {
        let state = self.lock();
        let everything = KeyRange::everything();
        let versions = state.history.range_at(&everything, state.newest);
        versions
            .map(|(key, version)| OverlayChange {
                key: key.clone(),
                entry: version.entry.as_deref().cloned(),
            })
            .collect()
    }

    /// See [`super::memory`]: a poisoned lock has a consistent state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn base_get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let mut found = None;
        let mut visitor = |record: Record<'_>| {
            found = Some(record.to_entry());
            ControlFlow::Break(())
        };
        self.base.scan(&[KeyRange::exact(key)], Some(self.base_revision), &mut visitor).await?;
        Ok(found)
    }

    /// Reads the keys of conditions in one scan: for keys outside its scope a snapshot needs a pass
    /// over its file for each.
    async fn base_states(&self, keys: &[&Key]) -> Result<HashMap<Key, KeyState>, StoreError> {
        let mut states = HashMap::with_capacity(keys.len());
        let ranges: Vec<_> = keys.iter().map(|key| KeyRange::exact(key)).collect();
        let mut visitor = |record: Record<'_>| {
            states.insert(Key::from(record.key), KeyState::from(record));
            ControlFlow::Continue(())
        };
        self.base.scan(&ranges, Some(self.base_revision), &mut visitor).await?;
        Ok(states)
    }

    /// Visits one range of base and overlay merged. The overlay's part is copied first, so that no lock
    /// is held during reads of the base.
    async fn scan_range(
        &self,
        range: &KeyRange,
        at: Revision,
        visitor: &mut Visitor<'_>,
    ) -> Result<Visit, StoreError> {
        let own: Vec<(Key, Version)> = {
            let state = self.lock();
            state.history.range_at(range, at).map(|(key, version)| (key.clone(), version.clone())).collect()
        };
        let mut merge = Merge { own: own.into_iter().peekable() };
        let mut outcome = ControlFlow::Continue(());
        let mut from_base = |record: Record<'_>| {
            outcome = merge.step(record, visitor);
            outcome
        };
        self.base.scan(std::slice::from_ref(range), Some(self.base_revision), &mut from_base).await?;
        Ok(if outcome.is_break() { outcome } else { merge.rest(visitor) })
    }
}

/// The overlay's versions of one range that are still to be visited, in key order.
struct Merge {
    own: std::iter::Peekable<std::vec::IntoIter<(Key, Version)>>,
}

impl Merge {
    /// Visits the overlay's keys up to the base's record, then that record unless the overlay replaces it.
    fn step(&mut self, base: Record<'_>, visitor: &mut Visitor<'_>) -> Visit {
        while let Some((key, version)) = self.own.next_if(|(key, _)| key.as_bytes() <= base.key) {
            if let Some(entry) = &version.entry {
                visitor(entry.as_record())?;
            }
            if key.as_bytes() == base.key {
                return ControlFlow::Continue(());
            }
        }
        visitor(base)
    }

    /// Visits the rest after the base's last record.
    fn rest(self, visitor: &mut Visitor<'_>) -> Visit {
        for (_, version) in self.own {
            if let Some(entry) = &version.entry {
                visitor(entry.as_record())?;
            }
        }
        ControlFlow::Continue(())
    }
}

#[async_trait]
impl ReadStore for Overlay {
    fn describe(&self) -> String {
        format!("a rehearsal over {}", self.base.describe())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.lock().newest)
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let own = {
            let state = self.lock();
            state.history.version_at(key, state.newest).map(|version| version.entry.clone())
        };
        match own {
            Some(entry) => Ok(entry.map(|entry| (*entry).clone())),
            None => self.base_get(key).await,
        }
    }

    /// As the trait requires. Revisions from the base's on are the overlay's own, all of which it still
    /// has; an older one is read from the base, which can have compacted it.
    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        let newest = self.lock().newest;
        let at = at.unwrap_or(newest);
        if at > newest {
            return Err(StoreError::FutureRevision { asked: at, newest });
        }
        if at < self.base_revision {
            return self.base.scan(ranges, Some(at), visitor).await;
        }
        for range in ranges {
            if self.scan_range(range, at, visitor).await?.is_break() {
                break;
            }
        }
        Ok(at)
    }
}

#[async_trait]
impl WriteStore for Overlay {
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        transaction.validate()?;
        // The base stays at its revision, so it can be read before the lock is taken.
        let base = self.base_states(&transaction.condition_keys()).await?;
        let mut state = self.lock();
        let revision = Revision(state.newest.0.saturating_add(1));
        let before = |state: &State, key: &Key| match state.history.version_at(key, state.newest) {
            Some(version) => version.entry.as_deref().map(KeyState::from),
            None => base.get(key).copied(),
        };
        if let Some(conflict) = transaction.first_conflict(|key| before(&state, key)) {
            return Err(conflict);
        }
        for change in &transaction.changes {
            let entry = change.outcome(before(&state, &change.key), revision);
            state.history.push(change.key.clone(), revision, entry);
        }
        state.newest = revision;
        Ok(revision)
    }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
