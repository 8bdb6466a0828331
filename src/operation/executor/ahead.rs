//! Reading ahead: what the next steps look at, many keys in one request instead of one each.
//!
//! What was read ahead may be out of date by the time it is used. That does no harm: every transaction compares the
//! revisions of all that it was made from, and one that fails is made anew from what is there then.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;

use super::lock;
use crate::operation::step::{KeyChange, Swap};
use crate::store::{Entry, Key, KeyRange, ReadStore, Revision, StoreError, Transaction, Visitor};

/// How many steps it looks ahead.
pub(super) const STEPS: usize = 64;

/// A store of which some keys are known already.
pub(super) struct Ahead<'e> {
    store: &'e dyn ReadStore,
    known: Mutex<HashMap<Key, Option<Entry>>>,
}

impl<'e> Ahead<'e> {
    pub(super) fn of(store: &'e dyn ReadStore) -> Self {
        Self { store, known: Mutex::default() }
    }

    /// Reads what these changes are made from, in the place of what is known. Of a key that is to be made it is assumed
    /// that it is not there.
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
            // Each step reads for itself then, and says what is wrong.
            Err(error) => tracing::debug!(%error, "nothing was read ahead"),
        }
        *lock(&self.known) = known;
    }

    /// Forgets what was changed.
    pub(super) fn forget(&self, transaction: &Transaction) {
        let mut known = lock(&self.known);
        for change in &transaction.changes {
            known.remove(&change.key);
        }
    }
}

#[async_trait]
impl ReadStore for Ahead<'_> {
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
