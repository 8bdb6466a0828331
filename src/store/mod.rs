//! Reads and changes the stored objects of a cluster.
//!
//! A store contains keys, values and revisions, as in etcd v3. [`ReadStore`] and [`WriteStore`] are different traits, so code
//! with a `ReadStore` cannot write. The only way to write is [`WriteStore::commit`], which executes a set of changes completely
//! or not at all. Each change contains the expected state of its key: absent, or last changed at a certain revision. There is no
//! unconditional write, so a write never silently overwrites a concurrent change of another client.
//!
//! Four stores implement these traits (`tests/it/store_contract.rs` tests them): [`etcd`] is a live cluster, [`snapshot`] is a
//! file (read only), [`memory`] is a store for tests, and [`overlay`] keeps writes in memory above another store, for dry runs.
//! [`seal`] adds encryption at rest to any store. Stores with a clock also support keys with a TTL ([`lease`]).

pub mod etcd;
pub mod lease;
pub mod memory;
pub mod overlay;
pub mod seal;
pub mod snapshot;

mod error;
mod history;
mod key;
#[cfg(test)]
mod random_transactions;
mod transaction;

pub use error::{Access, CommitError, MAKE_ROOM, NO_SPACE, StoreError};
pub use key::{Key, KeyRange};

use std::ops::ControlFlow;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// A revision of the whole store: etcd's counter, which each transaction increments by one. In a store that contains keys, it is
/// at least 1. For expected revisions see [`Expected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub i64);

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One key with its value, borrowed from the store during a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The full key, including the prefix of the API server.
    pub key: &'a [u8],
    /// The value as stored, including its encryption envelope.
    pub value: &'a [u8],
    /// Revision of the key's creation. A deleted key that is created again has a new creation revision.
    pub create_revision: Revision,
    /// Revision of the last change.
    pub mod_revision: Revision,
    /// Number of writes since the creation, starting at 1.
    pub version: i64,
    /// Lease id; 0 without a lease.
    pub lease: i64,
}

impl Record<'_> {
    /// Returns an owned copy of the record.
    pub fn to_entry(&self) -> Entry {
        Entry {
            key: Key::from(self.key),
            value: self.value.to_vec(),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
        }
    }
}

/// One key with its value, owned. The fields are the same as in [`Record`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of Record, documented there")]
pub struct Entry {
    pub key: Key,
    pub value: Vec<u8>,
    pub create_revision: Revision,
    pub mod_revision: Revision,
    pub version: i64,
    pub lease: i64,
}

impl Entry {
    /// Returns the entry as a borrowed record.
    pub fn as_record(&self) -> Record<'_> {
        Record {
            key: self.key.as_bytes(),
            value: &self.value,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
        }
    }
}

/// What a visitor returns to [`ReadStore::scan`]: continue, or stop the scan early. Stopping is not an error.
pub type Visit = ControlFlow<()>;

/// A function that [`ReadStore::scan`] calls for each record.
pub type Visitor<'v> = dyn for<'r> FnMut(Record<'r>) -> Visit + Send + 'v;

/// A store that can be read.
#[async_trait]
pub trait ReadStore: Send + Sync {
    /// Describes the store for headings and errors, for example `etcd at https://10.0.0.1:2379` or `snapshot FILE`.
    fn describe(&self) -> String;

    /// Returns the newest revision.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// Returns the newest value of a key; `None` if the key does not exist.
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError>;

    /// Returns the newest values of several keys, in the order of `keys`; `None` for a key that does not exist. Uses as few
    /// requests as possible. The values may be from different revisions.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, StoreError> {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(self.get(key).await?);
        }
        Ok(found)
    }

    /// Visits every key in the ranges at the revision `at`, or at the newest revision if `at` is `None`. Visits range by range,
    /// and within each range in key order. Returns the revision that was read.
    ///
    /// Records are streamed: a store keeps at most one page of records in memory. A key in two ranges is visited twice.
    ///
    /// Fails with [`StoreError::Compacted`] if the store no longer has the revision, or if the revision is below 1. If the
    /// revision is compacted during a long scan, start the scan again. Fails with [`StoreError::FutureRevision`] if the revision
    /// does not exist yet.
    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError>;

    /// Returns the entries that [`Self::scan`] visits, and the revision. Holds all of them in memory, so use it for few keys.
    async fn entries(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
    ) -> Result<(Revision, Vec<Entry>), StoreError> {
        let mut entries = Vec::new();
        let mut visitor = |record: Record<'_>| {
            entries.push(record.to_entry());
            ControlFlow::Continue(())
        };
        let revision = self.scan(ranges, at, &mut visitor).await?;
        Ok((revision, entries))
    }

    /// Returns the approximate number of keys in a range, to allocate memory before a scan. `None` if the store cannot estimate
    /// the number without reading the range.
    fn count_hint(&self, _range: &KeyRange) -> Option<usize> {
        None
    }
}

/// Returns the revision to read: `at`, or the newest revision. Fails like [`ReadStore::scan`].
fn readable(at: Option<Revision>, oldest: Revision, newest: Revision) -> Result<Revision, StoreError> {
    match at {
        Some(asked) if asked < oldest => Err(StoreError::Compacted { asked, oldest }),
        Some(asked) if asked > newest => Err(StoreError::FutureRevision { asked, newest }),
        Some(asked) => Ok(asked),
        None => Ok(newest),
    }
}

/// A store that can be written, but only by compare-and-swap.
#[async_trait]
pub trait WriteStore: ReadStore {
    /// Executes all changes of a transaction at one new revision, or none of them. Returns the new revision.
    ///
    /// Fails with [`CommitError::Conflict`] if an expectation or a precondition does not hold. Then nothing is written.
    /// Preconditions are checked first.
    ///
    /// Fails with [`CommitError::Refused`] if no store can execute the transaction. Such a transaction contains no changes, a key
    /// in two changes, an empty key, an expected revision below 1, or the deletion of a key that is expected to be absent. A live
    /// etcd also refuses a transaction that exceeds etcd's limits (by default 1.5 MiB and 128 operations).
    ///
    /// Fails with [`CommitError::OutcomeUnknown`] if the response was lost. The caller must read before it retries.
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError>;
}

/// A set of changes that are executed together or not at all. No key occurs in two changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Preconditions, in addition to the expected state of each change.
    pub guards: Vec<Guard>,
    /// The changes.
    pub changes: Vec<Change>,
}

/// A precondition on a key that the transaction does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The key exists and was last changed at this revision.
    Unchanged(Key, Revision),
    /// The key exists and was created at this revision; later changes do not matter. The creation revision is the fencing token
    /// of the holder of an operation lease.
    SameCreation(Key, Revision),
    /// The key does not exist.
    Absent(Key),
}

/// A change to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// The expected state of the key.
    pub expected: Expected,
    /// The new state of the key.
    pub action: Action,
}

/// The expected state of a key at the moment of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The key does not exist.
    Absent,
    /// The key exists and was last changed at this revision.
    At(Revision),
}

/// The effect of a change on its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Stores a value. An update keeps the lease of the key; a created key has no lease.
    Put(Vec<u8>),
    /// Deletes the key.
    Delete,
}
