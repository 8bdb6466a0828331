//! Keys with a TTL: with them a store shows that a client is alive.
//!
//! A lease has a TTL and expires unless it is renewed; its keys are removed with
//! it. Only a live store, whose clock always runs, has leases. Locks are not part of this
//! module: they are built on leases.

use std::time::Duration;

use async_trait::async_trait;

use super::{CommitError, Key, Revision, StoreError, WriteStore};

/// The id of a lease, never 0, which means no lease ([`super::Entry::lease`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Its id, which no other lease has or will have.
    pub lease: LeaseId,
    /// Its TTL, from now on and from every renewal: the requested time in
    /// whole seconds, or more if the store's minimum is higher.
    pub ttl: Duration,
}

/// A store with leases.
#[async_trait]
pub trait LeaseStore: WriteStore {
    /// Grants a lease. If the response is lost, an unused lease can exist; it expires.
    async fn grant(&self, ttl: Duration) -> Result<Granted, StoreError>;

    /// Creates a key that is removed with the lease, unless the key exists; returns the revision of its creation.
    ///
    /// Fails as [`WriteStore::commit`] does: with [`CommitError::Conflict`] if the key exists, with
    /// [`CommitError::Refused`] if the lease does not exist, and with [`CommitError::OutcomeUnknown`] if the
    /// response was lost; the key's lease then shows its owner.
    async fn create(&self, key: &Key, value: &[u8], lease: LeaseId) -> Result<Revision, CommitError>;

    /// Renews the lease for its whole TTL. Returns `false` if it has expired.
    ///
    /// Ends within the given time (and the time to connect), and tries each endpoint in it.
    async fn keep_alive(&self, lease: LeaseId, within: Duration) -> Result<bool, StoreError>;

    /// Returns the remaining time of the lease, in whole seconds; `None` if it has expired.
    async fn time_left(&self, lease: LeaseId) -> Result<Option<Duration>, StoreError>;

    /// Ends the lease and removes its keys. Succeeds if the lease has ended already.
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;
}
