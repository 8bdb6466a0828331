//! A store that reads from a base store and keeps its own writes in memory. Dry runs and rehearsals use it.
//!
//! The overlay cannot write to its base, because it has only a [`ReadStore`]. The overlay behaves as its base would if no other
//! client changed the base. The overlay always reads the base at one revision: the base's revision when the overlay was created.
//! The revisions of the overlay continue from there.
//!
//! Memory use is proportional to the writes, because the base is streamed and never copied. If the base compacts the revision
//! that the overlay reads, reads fail with [`StoreError::Compacted`].

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::history::{History, Version};
use super::{
    CommitError, Entry, Key, KeyRange, ReadStore, Record, Revision, StoreError, Transaction, Visit, Visitor,
    WriteStore,
};

/// A store above a base store. See the module documentation.
pub struct Overlay {
    base: Arc<dyn ReadStore>,
    base_revision: Revision,
    state: Mutex<State>,
}

struct State {
    history: History,
    newest: Revision,
}

/// A key that was changed in the overlay, with its current content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayChange {
    /// The key.
    pub key: Key,
    /// Current content of the key; `None` if the key was deleted.
    pub entry: Option<Entry>,
}

impl Overlay {
    /// Returns an overlay without changes, above the current revision of the base.
    ///
    /// Fails if the revision of the base cannot be read.
    pub async fn new(base: Arc<dyn ReadStore>) -> Result<Self, StoreError> {
        let base_revision = base.revision().await?;
        let state = Mutex::new(State { history: History::default(), newest: base_revision });
        Ok(Self { base, base_revision, state })
    }

    /// Returns the revision at which the base is read.
    pub fn base_revision(&self) -> Revision {
        self.base_revision
    }

    /// Returns the keys that were written or deleted in the overlay, with their current content, in key order. Includes a key
    /// that was changed back to its old content.
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

    /// Locks the state. A poisoned lock is usable, because its state is consistent (see [`super::memory`]).
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads these keys from the base in one scan. Separate reads would be slow, because a snapshot scans its whole file on every
    /// read of a key outside its scope.
    async fn base_entries(&self, keys: &[&Key]) -> Result<HashMap<Key, Entry>, StoreError> {
        let ranges: Vec<_> = keys.iter().map(|key| KeyRange::exact(key)).collect();
        let (_, entries) = self.base.entries(&ranges, Some(self.base_revision)).await?;
        Ok(entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect())
    }

    /// Visits one range of the merged keys of base and overlay. Copies the overlay's keys first, so that no lock is held while
    /// the base is read.
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

/// The overlay's versions of the keys in one range, in key order, except versions that are already visited.
struct Merge {
    own: std::iter::Peekable<std::vec::IntoIter<(Key, Version)>>,
}

impl Merge {
    /// Visits the overlay's keys up to the key of a base record. Then visits the base record, unless the overlay has its own
    /// version of this key.
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

    /// Visits the remaining keys of the overlay, after the last record of the base.
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
        if let Some(entry) = own {
            return Ok(entry.map(|entry| (*entry).clone()));
        }
        let (_, mut entries) = self.base.entries(&[KeyRange::exact(key)], Some(self.base_revision)).await?;
        Ok(entries.pop())
    }

    /// Scans like [`ReadStore::scan`]. The overlay has its base revision and all later revisions. It reads an older revision from
    /// the base, and this read fails if the base has compacted that revision.
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
        // The base is read at a fixed revision, so it can be read before the lock is taken.
        let base = self.base_entries(&transaction.condition_keys()).await?;
        let mut state = self.lock();
        let newest = state.newest;
        state.newest = state.history.commit(transaction, newest, |key| base.get(key), 0)?;
        Ok(state.newest)
    }
}

#[cfg(test)]
mod tests;
