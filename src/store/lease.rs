//! Keys that end by themselves: what a store needs so that someone can be known to be alive.
//!
//! A lease is given for a time and ends unless it is kept alive; the keys that were made with it end with
//! it. Only a store whose clock runs while nobody looks has leases: a live one. That a lease stands for a
//! lock is known to those who take one, not here.

use std::time::Duration;

use async_trait::async_trait;

use super::{CommitError, Key, Revision, StoreError, WriteStore};

/// The name of a lease, never 0: that is what an entry without a lease has ([`super::Entry::lease`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A lease as the store has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Its name; no other lease has had it or will have it.
    pub lease: LeaseId,
    /// How long it runs from now on, and again from every time it is kept alive: what was asked for in
    /// whole seconds, or more where the store does not give so little.
    pub ttl: Duration,
}

/// A store with leases.
#[async_trait]
pub trait LeaseStore: WriteStore {
    /// Makes a lease. If the answer is lost there may be one that nobody knows; it ends by itself.
    async fn grant(&self, ttl: Duration) -> Result<Granted, StoreError>;

    /// Makes a key that ends with the lease, if there is no such key; returns the revision of its creation.
    ///
    /// Fails as [`WriteStore::commit`] does: with [`CommitError::Conflict`] when there is such a key, with
    /// [`CommitError::Refused`] when there is no such lease, and with [`CommitError::OutcomeUnknown`] when the
    /// answer was lost; the key's lease then tells whose it is.
    async fn create(&self, key: &Key, value: &[u8], lease: LeaseId) -> Result<Revision, CommitError>;

    /// Lets the lease run for its whole time again. Returns `false` if it has ended.
    ///
    /// Ends within the time given (and what connecting takes), trying each endpoint in it.
    async fn keep_alive(&self, lease: LeaseId, within: Duration) -> Result<bool, StoreError>;

    /// Returns how long the lease still runs, in whole seconds; `None` if it has ended.
    async fn time_left(&self, lease: LeaseId) -> Result<Option<Duration>, StoreError>;

    /// Ends the lease, and its keys with it. A lease that has ended already is as it should be.
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;
}
