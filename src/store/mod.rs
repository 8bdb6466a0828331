//! The storage of a cluster's objects, and the only way to change them.
//!
//! A store is a revisioned key-value space in the sense of etcd v3. [`ReadStore`] and [`WriteStore`] are
//! different traits: code with a `ReadStore` cannot write. The only write is
//! [`WriteStore::commit`]: a set of changes, each with the revision that it expects to replace, executed
//! completely or not at all. There is no unconditional write, so a concurrent change of another client is
//! never overwritten unnoticed.
//!
//! Four stores implement this contract (`tests/it/store_contract.rs` checks it):
//! [`etcd`] a live cluster, [`snapshot`] a file (read only), [`memory`] a complete store for tests, and
//! [`overlay`], which reads through another store and keeps writes in memory, for dry runs.
//! [`seal`] is a layer over any of them for encryption at rest.
//! Stores with a clock of their own also have keys with a TTL: [`lease`].

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
mod testing;
mod transaction;

pub use error::{Access, CommitError, StoreError};
pub use key::{Key, KeyRange};

use std::ops::ControlFlow;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// A revision of the whole store: etcd's counter, one step per transaction; never 0 in a store that is
/// not empty. As an *expected* revision, see [`Expected`].
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
    /// The full key, the API server's prefix included.
    pub key: &'a [u8],
    /// The value as stored, envelope included.
    pub value: &'a [u8],
    /// Revision of the key's creation (since it last did not exist).
    pub create_revision: Revision,
    /// Revision of the last change.
    pub mod_revision: Revision,
    /// Number of writes since the creation, from 1.
    pub version: i64,
    /// Lease id, 0 for none.
    pub lease: i64,
}

impl Record<'_> {
    /// Returns an owned copy.
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

/// One key with its value, owned. Fields as in [`Record`].
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

/// The result of a visitor of [`ReadStore::scan`]: continue, or stop the scan early (not an error).
pub type Visit = ControlFlow<()>;

/// The visitor of [`ReadStore::scan`].
pub type Visitor<'v> = dyn for<'r> FnMut(Record<'r>) -> Visit + Send + 'v;

/// A store that can be read.
#[async_trait]
pub trait ReadStore: Send + Sync {
    /// Describes the store for headings and errors, as in `etcd at https://10.0.0.1:2379` or `snapshot FILE`.
    fn describe(&self) -> String;

    /// Returns the newest revision.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// Returns the newest value of one key, `None` if the key does not exist.
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError>;

    /// Returns the newest values of several keys, each as [`Self::get`] does, in the order of the keys; in as few requests
    /// as possible. They are not necessarily from one revision.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, StoreError> {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(self.get(key).await?);
        }
        Ok(found)
    }

    /// Visits every key of the given ranges, range by range and in key order within each, at
    /// one revision: the given one, or the newest one. Returns that revision.
    ///
    /// Records are streamed: a store keeps no more than a page of them in memory. A key in two of the
    /// ranges is visited twice.
    ///
    /// Fails with [`StoreError::Compacted`] if the store no longer has that revision (also in the middle
    /// of a long scan: start again; and for a revision below 1), and with
    /// [`StoreError::FutureRevision`] if it does not have it yet.
    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError>;

    /// Returns about how many keys a range has, to allocate memory before a scan; `None` if
    /// the store would have to read to count them.
    fn count_hint(&self, _range: &KeyRange) -> Option<usize> {
        None
    }
}

/// A store that can be written, by compare-and-swap only.
#[async_trait]
pub trait WriteStore: ReadStore {
    /// Executes a transaction: all of its changes at one new revision, which is returned, or none.
    ///
    /// Fails with [`CommitError::Conflict`] if an expectation or a precondition does not hold (nothing is
    /// written; preconditions are checked first), with [`CommitError::Refused`] if no store can execute it (no
    /// changes, a key in two changes, an empty key, an expected revision below 1, the removal of a key that is
    /// expected to be absent) or etcd's limits prevent it (1.5 MiB, 128 operations by default), and with
    /// [`CommitError::OutcomeUnknown`] if the response was lost: the caller must read before it retries.
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError>;
}

/// A set of changes that happen together or not at all. No key occurs in two changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The preconditions, besides the changes' own expectations.
    pub guards: Vec<Guard>,
    /// The changes.
    pub changes: Vec<Change>,
}

/// A precondition on a key that the transaction does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The key exists, last changed at this revision.
    Unchanged(Key, Revision),
    /// The key exists and was created at this revision, whatever its later changes: the fencing of a
    /// lock holder.
    SameCreation(Key, Revision),
    /// The key does not exist.
    Absent(Key),
}

/// One key's change.
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
    /// It does not exist.
    Absent,
    /// It exists and was last changed at this revision.
    At(Revision),
}

/// The effect of a change on its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Stores this value. An update keeps the key's lease, a creation has none.
    Put(Vec<u8>),
    /// Removes the key.
    Delete,
}
