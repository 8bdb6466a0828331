//! Keys with a TTL, which show that a client is alive.
//!
//! A lease has a TTL and expires unless it is renewed. The store then deletes the keys of the lease. Only stores with a clock
//! have leases. The operation lease of netsurgeon uses these leases, but is not part of this module.

use std::time::Duration;

use async_trait::async_trait;

use super::{CommitError, Key, Revision, StoreError, WriteStore};

/// The id of a lease. It is never 0, because 0 means "no lease" ([`super::Entry::lease`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Id of the lease. No other lease ever gets this id.
    pub lease: LeaseId,
    /// Time from the grant, or from the last renewal, until the lease expires. It is the requested time in whole seconds, or
    /// longer if the store has a higher minimum.
    pub ttl: Duration,
}

/// A store with leases.
#[async_trait]
pub trait LeaseStore: WriteStore {
    /// Grants a lease. If the response is lost, an unused lease can exist until it expires.
    async fn grant(&self, ttl: Duration) -> Result<Granted, StoreError>;

    /// Creates a key that is deleted when the lease ends. Returns the revision of the creation.
    ///
    /// Fails like [`WriteStore::commit`]: with [`CommitError::Conflict`] if the key exists, with [`CommitError::Refused`] if the
    /// lease does not exist, and with [`CommitError::OutcomeUnknown`] if the response was lost. After a lost response, the caller
    /// can check the lease of the key to see which client created the key.
    async fn create(&self, key: &Key, value: &[u8], lease: LeaseId) -> Result<Revision, CommitError>;

    /// Renews the lease for its whole TTL. Returns `false` if the lease has expired.
    ///
    /// Returns after at most the time `within`, plus the time to connect. Tries each endpoint in this time.
    async fn keep_alive(&self, lease: LeaseId, within: Duration) -> Result<bool, StoreError>;

    /// Returns the remaining time of the lease in whole seconds; `None` if the lease has expired.
    async fn time_left(&self, lease: LeaseId) -> Result<Option<Duration>, StoreError>;

    /// Ends the lease and deletes its keys. Also succeeds if the lease has already ended.
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;
}
