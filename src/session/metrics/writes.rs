//! Counts the writes to a store, by wrapping the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::store::{
    CommitError, Entry, Key, KeyRange, ReadStore, Revision, StoreError, Transaction, Visitor, WriteStore,
};

/// A shared counter of writes.
#[derive(Debug, Clone, Default)]
pub struct Writes(Arc<AtomicU64>);

impl Writes {
    /// Returns the counter.
    pub fn counter(&self) -> Arc<AtomicU64> {
        self.0.clone()
    }

    /// Returns the number of writes.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A store whose transactions are counted.
pub struct Counted<'a> {
    /// The wrapped store.
    pub store: &'a dyn WriteStore,
    /// Counter of the store's writes.
    pub writes: Writes,
}

#[async_trait]
impl ReadStore for Counted<'_> {
    fn describe(&self) -> String {
        self.store.describe()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.store.get(key).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, StoreError> {
        self.store.get_many(keys).await
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        self.store.scan(ranges, at, visitor).await
    }

    fn count_hint(&self, range: &KeyRange) -> Option<usize> {
        self.store.count_hint(range)
    }
}

#[async_trait]
impl WriteStore for Counted<'_> {
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        let revision = self.store.commit(transaction).await?;
        self.writes.0.fetch_add(1, Ordering::Relaxed);
        Ok(revision)
    }
}
