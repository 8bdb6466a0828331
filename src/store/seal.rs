//! Encryption at rest as a layer above any store. The layer decrypts values on reads and encrypts values on writes.
//!
//! Reads from a [`Sealed`] store return decrypted values with their keys and revisions. Without a [`Seal`] the layer changes
//! nothing. If the encryption key of a value is not configured, the layer returns the value as it is stored.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::lease::{Granted, LeaseId, LeaseStore};
use super::{
    Action, CommitError, Entry, Key, KeyRange, ReadStore, Record, Revision, StoreError, Transaction, Visitor,
    WriteStore,
};

/// Why a value cannot be decrypted or encrypted. The text contains no part of encryption keys or values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SealError(pub String);

/// Decrypts and encrypts values.
pub trait Seal: Send + Sync {
    /// Returns the decrypted value of a key. Returns `None` if the value is not encrypted, or if its encryption key is not
    /// configured. Fails if the configured key cannot decrypt the value, or if an unencrypted value is not allowed.
    fn open(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, SealError>;

    /// Returns the encrypted form of a value; `None` if the value is stored unencrypted. Fails if the encryption needs a key that
    /// is not configured.
    fn seal(&self, key: &[u8], plain: &[u8]) -> Result<Option<Vec<u8>>, SealError>;
}

/// A seal that returns a value as it is stored if decryption fails. Callers use it if they scan all values and report unreadable
/// values themselves.
pub struct Lenient(pub Arc<dyn Seal>);

impl Seal for Lenient {
    fn open(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, SealError> {
        Ok(self.0.open(key, value).unwrap_or_default())
    }

    fn seal(&self, key: &[u8], plain: &[u8]) -> Result<Option<Vec<u8>>, SealError> {
        self.0.seal(key, plain)
    }
}

/// A store with encryption at rest. See the module documentation.
pub struct Sealed<S> {
    store: S,
    seal: Option<Arc<dyn Seal>>,
}

impl<S> Sealed<S> {
    /// Returns a store that decrypts and encrypts values with `seal`; if `seal` is `None`, values are not changed.
    pub fn new(store: S, seal: Option<Arc<dyn Seal>>) -> Self {
        Self { store, seal }
    }

    /// Returns the store without the encryption layer, for operations that do not depend on values.
    pub fn bare(&self) -> &S {
        &self.store
    }

    /// Returns the seal, if the store has one.
    pub fn seal(&self) -> Option<&Arc<dyn Seal>> {
        self.seal.as_ref()
    }

    fn opened(&self, entry: Option<Entry>) -> Result<Option<Entry>, StoreError> {
        let Some(seal) = &self.seal else { return Ok(entry) };
        let opened = |mut entry: Entry| {
            if let Some(plain) = open(seal.as_ref(), entry.key.as_bytes(), &entry.value)? {
                entry.value = plain;
            }
            Ok(entry)
        };
        entry.map(opened).transpose()
    }
}

fn open(seal: &dyn Seal, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    seal.open(key, value).map_err(|error| sealed(key, error))
}

fn sealed(key: &[u8], error: SealError) -> StoreError {
    StoreError::Sealed { key: String::from_utf8_lossy(key).into_owned(), reason: error.0 }
}

#[async_trait]
impl<S: ReadStore> ReadStore for Sealed<S> {
    fn describe(&self) -> String {
        self.store.describe()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.opened(self.store.get(key).await?)
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, StoreError> {
        let found = self.store.get_many(keys).await?;
        found.into_iter().map(|entry| self.opened(entry)).collect()
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        let Some(seal) = &self.seal else { return self.store.scan(ranges, at, visitor).await };
        let mut failed = None;
        let mut opening = |record: Record<'_>| match open(seal.as_ref(), record.key, record.value) {
            Ok(None) => visitor(record),
            Ok(Some(plain)) => visitor(Record { value: &plain, ..record }),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let revision = self.store.scan(ranges, at, &mut opening).await?;
        failed.map_or(Ok(revision), Err)
    }

    fn count_hint(&self, range: &KeyRange) -> Option<usize> {
        self.store.count_hint(range)
    }
}

#[async_trait]
impl<S: WriteStore> WriteStore for Sealed<S> {
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        let mut transaction = Cow::Borrowed(transaction);
        if let Some(seal) = &self.seal {
            for change in &mut transaction.to_mut().changes {
                let Action::Put(value) = &mut change.action else { continue };
                let key = change.key.as_bytes();
                if let Some(stored) = seal.seal(key, value).map_err(|error| sealed(key, error))? {
                    *value = stored;
                }
            }
        }
        self.store.commit(&transaction).await
    }
}

#[async_trait]
impl<S: LeaseStore> LeaseStore for Sealed<S> {
    async fn grant(&self, ttl: Duration) -> Result<Granted, StoreError> {
        self.store.grant(ttl).await
    }

    /// Does not encrypt the value, because a key with a lease only shows that a client is alive, and never contains an object.
    async fn create(&self, key: &Key, value: &[u8], lease: LeaseId) -> Result<Revision, CommitError> {
        self.store.create(key, value, lease).await
    }

    async fn keep_alive(&self, lease: LeaseId, within: Duration) -> Result<bool, StoreError> {
        self.store.keep_alive(lease, within).await
    }

    async fn time_left(&self, lease: LeaseId) -> Result<Option<Duration>, StoreError> {
        self.store.time_left(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.revoke(lease).await
    }
}
