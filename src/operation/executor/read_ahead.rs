//! Reads the keys of the next steps in one request, instead of one request per step.
//!
//! A cached key can be out of date when a step uses it. This is safe, because every transaction compares the revisions of all
//! keys that it depends on. After a conflict, the step computes the transaction again from the current state.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;

use super::lock;
use crate::operation::step::{KeyChange, Swap};
use crate::store::{Entry, Key, KeyRange, ReadStore, Revision, StoreError, Transaction, Visitor};

/// Number of steps whose keys are read ahead.
pub(super) const STEPS: usize = 64;

/// A store with a cache of some keys.
pub(super) struct ReadAhead<'e> {
    store: &'e dyn ReadStore,
    known: Mutex<HashMap<Key, Option<Entry>>>,
}

impl<'e> ReadAhead<'e> {
    pub(super) fn of(store: &'e dyn ReadStore) -> Self {
        Self { store, known: Mutex::default() }
    }

    /// Replaces the cache with the keys of the given changes. Assumes that a key is missing if a change creates it.
    pub(super) async fn read(&self, swaps: &[&Swap]) {
        let mut known = HashMap::new();
        let mut wanted = Vec::new();
        for edit in swaps.iter().flat_map(|swap| &swap.edits) {
            match &edit.change {
                KeyChange::Create { .. } => drop(known.insert(edit.key.clone(), None)),
                _ => wanted.push(edit.key.clone()),
            }
        }
        wanted.extend(swaps.iter().flat_map(|swap| &swap.checks).map(|check| check.key.clone()));
        wanted.sort_unstable();
        wanted.dedup();
        match self.store.get_many(&wanted).await {
            Ok(found) => known.extend(wanted.into_iter().zip(found)),
            // Each step then reads its own keys and reports the error.
            Err(error) => tracing::debug!(%error, "cannot read ahead"),
        }
        *lock(&self.known) = known;
    }

    /// Removes the changed keys from the cache.
    pub(super) fn forget(&self, transaction: &Transaction) {
        let mut known = lock(&self.known);
        for change in &transaction.changes {
            known.remove(&change.key);
        }
    }
}

#[async_trait]
impl ReadStore for ReadAhead<'_> {
    fn describe(&self) -> String {
        self.store.describe()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let known = lock(&self.known).get(key).cloned();
        match known {
            Some(entry) => Ok(entry),
            None => self.store.get(key).await,
        }
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        self.store.scan(ranges, at, visitor).await
    }
}
