//! The operation lease in etcd: only one operation runs on a cluster at a time, even if netsurgeon runs on several machines.
//!
//! ```text
//! /netsurgeon/CLUSTER/lock      holder, its start time and its operation; expires with its etcd lease
//! ```
//!
//! The operation lease gives two guarantees. Every client can see which process holds the lease. A process that lost the lease,
//! for example after a pause of several minutes or a network partition, can no longer write. To enforce the second guarantee,
//! every write of an operation has the precondition [`Lock::guard`]. The precondition compares the create revision of the key,
//! and each acquisition creates the key again.
//!
//! These guarantees do not depend on clocks. The holder uses its own clock only to stop earlier.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::lease_renewal::LeaseRenewal;
use super::{ClusterLock, LeaseHolder, OperationError};
use crate::store::lease::{Granted, LeaseId, LeaseStore};
use crate::store::{
    Action, Change, CommitError, Entry, Expected, Guard, Key, ReadStore, Revision, StoreError, Transaction,
};

/// Maximum number of attempts to create the key while other clients acquire and release the lease.
const MOST_ATTEMPTS: u32 = 20;
/// How often to check whether another holder's lease has expired.
const LOOK: Duration = Duration::from_secs(1);
/// Extra time after the reported expiry of a lease. It is needed because etcd reports whole seconds, and checks for expired
/// leases only twice a second (`expireExpiredLeases`, `server/lease/lessor.go`, v3.6.16).
const GRACE: Duration = Duration::from_secs(3);
/// Number of keep-alives per TTL. If a keep-alive fails, the next keep-alive can still renew the lease.
const BEATS: u32 = 3;

/// The operation lease and its holder, for a message to another client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Key of the operation lease.
    pub key: Key,
    /// Process that holds the operation lease.
    pub claim: LeaseHolder,
    /// Remaining TTL of the key's etcd lease; `None` if the key has no etcd lease and never expires.
    pub left: Option<Duration>,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseHolder { holder, pid, .. } = &self.claim;
        write!(f, "`{holder}` (pid {pid}) holds the operation lease for {}; ", self.claim.matter())?;
        match self.left {
            Some(left) => write!(f, "it expires in {} s unless it is renewed", left.as_secs()),
            None => write!(f, "it never expires (key `{}`)", self.key),
        }
    }
}

/// The operation lease, held by this process. If this value is dropped, the lease expires after its TTL. [`Self::release`]
/// releases the lease immediately.
pub struct Lock {
    store: Arc<dyn LeaseStore>,
    key: Key,
    claim: LeaseHolder,
    created: Revision,
    lease: LeaseId,
    keeping: LeaseRenewal,
    beside: Option<ClusterLock>,
}

impl Lock {
    /// Acquires the operation lease of a cluster and keeps it until it is released or dropped. If the process ends without a
    /// release, the lease expires after `ttl` (in whole seconds; etcd grants at least one and a half election timeouts).
    ///
    /// Fails with [`OperationError::Locked`] if another process holds the lease.
    pub async fn acquire(
        store: Arc<dyn LeaseStore>,
        cluster: &str,
        about: &LeaseHolder,
        ttl: Duration,
    ) -> Result<Self, OperationError> {
        let key = key_of(cluster);
        if let Some(entry) = store.get(&key).await? {
            return Err(refusal(store.as_ref(), &entry).await);
        }
        let asked = Instant::now();
        let granted = store.grant(ttl).await?;
        match create(store.as_ref(), &key, about, granted.lease).await {
            Ok(created) => Ok(Self::kept(store, key, about.clone(), created, granted, asked)),
            Err(error) => {
                // If the answer to a create request was lost, the request can still succeed later. Revoking the etcd lease
                // prevents this. If the revoke fails, the etcd lease expires by itself.
                let _ = store.revoke(granted.lease).await;
                Err(error)
            }
        }
    }

    /// Acquires the operation lease like [`Self::acquire`]. If a process holds the lease for the same operation, waits until the
    /// lease expires, at most for its remaining TTL. A live holder renews the lease during this time. Calls `waiting` with the
    /// holder about once a second.
    ///
    /// Fails immediately with [`OperationError::Locked`] if the lease is held for another operation or has no etcd lease. Fails
    /// with the same error as soon as the holder renews the lease.
    pub async fn acquire_after(
        store: Arc<dyn LeaseStore>,
        cluster: &str,
        about: &LeaseHolder,
        ttl: Duration,
        waiting: &mut (dyn FnMut(&Held) + Send),
    ) -> Result<Self, OperationError> {
        let mut first: Option<(Instant, Duration)> = None;
        let mut last: Option<Held> = None;
        loop {
            let held = match Self::acquire(store.clone(), cluster, about, ttl).await {
                Err(OperationError::Locked(held)) if held.claim.operation == about.operation => held,
                outcome => return outcome,
            };
            let Some(left) = held.left else { return Err(OperationError::Locked(held)) };
            let (since, bound) = *first.get_or_insert((Instant::now(), left.saturating_add(GRACE)));
            let is_renewed = last.is_some_and(|last| last.claim != held.claim || held.left > last.left);
            if is_renewed || since.elapsed() > bound {
                return Err(OperationError::Locked(held));
            }
            waiting(&held);
            last = Some(*held);
            sleep(LOOK).await;
        }
    }

    /// Takes over the operation lease from a process that holds it for the same operation. The operator requests this on resume
    /// if that process hangs. If the lease is free, acquires it like [`Self::acquire`].
    ///
    /// Fails with [`OperationError::Locked`] if the lease is held for another operation, or if another client acquires it first.
    pub async fn take_over(
        store: Arc<dyn LeaseStore>,
        cluster: &str,
        about: &LeaseHolder,
        ttl: Duration,
    ) -> Result<Self, OperationError> {
        let key = key_of(cluster);
        if let Some(entry) = store.get(&key).await? {
            if parse(&entry)?.operation != about.operation {
                return Err(refusal(store.as_ref(), &entry).await);
            }
            let expected = Expected::At(entry.mod_revision);
            let change = Change { key, expected, action: Action::Delete };
            let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
            match store.commit(&transaction).await {
                // The etcd lease is revoked only after the delete. Otherwise the revoke could end the lease of a key that changed
                // since the read.
                Ok(_) if entry.lease != 0 => drop(store.revoke(LeaseId(entry.lease)).await),
                // `acquire` below reports the current holder.
                Ok(_) | Err(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Self::acquire(store, cluster, about, ttl).await
    }

    /// Returns the holder of a cluster's operation lease; `None` if the lease is free.
    pub async fn holder(store: &dyn LeaseStore, cluster: &str) -> Result<Option<Held>, OperationError> {
        match store.get(&key_of(cluster)).await? {
            Some(entry) => held(store, &entry).await.map(Some),
            None => Ok(None),
        }
    }

    fn kept(
        store: Arc<dyn LeaseStore>,
        key: Key,
        claim: LeaseHolder,
        created: Revision,
        granted: Granted,
        since: Instant,
    ) -> Self {
        let keeper = KeepAlive {
            store: store.clone(),
            key: key.clone(),
            created,
            lease: granted.lease,
            ttl: granted.ttl,
            good_until: since.checked_add(granted.ttl).unwrap_or(since),
        };
        let keeping = LeaseRenewal::begin(keeper.keep());
        Self { store, key, claim, created, lease: granted.lease, keeping, beside: None }
    }

    /// Adds the Kubernetes Lease of the cluster, which excludes operations without access to etcd. Both leases are released
    /// together.
    #[must_use]
    pub fn with(mut self, beside: ClusterLock) -> Self {
        self.beside = Some(beside);
        self
    }

    /// Returns the holder of the lease.
    pub fn claim(&self) -> &LeaseHolder {
        &self.claim
    }

    /// Returns the precondition that this process still holds the operation lease. Every write must include this precondition
    /// ([`super::EtcdLedger::new`]).
    pub fn guard(&self) -> Guard {
        Guard::SameCreation(self.key.clone(), self.created)
    }

    /// Returns why the lease is lost, or must be considered lost; `None` while the lease is held.
    pub fn lost(&self) -> Option<String> {
        self.keeping.lost()
    }

    /// Waits until the lease is lost, and returns why.
    pub async fn until_lost(&self) -> String {
        self.keeping.until_lost().await
    }

    /// Waits until another holder has the Kubernetes Lease of the cluster, and returns the reason. Waits forever if no Kubernetes
    /// Lease was added. After this loss, etcd still accepts the writes of this process, because the new holder has no access to
    /// etcd.
    pub async fn until_lease_lost(&self) -> String {
        match &self.beside {
            Some(beside) => beside.until_lost().await,
            None => std::future::pending().await,
        }
    }

    /// Releases the operation lease, and the Kubernetes Lease if one was added.
    pub async fn release(mut self) -> Result<(), StoreError> {
        if let Some(beside) = self.beside.take()
            && let Err(error) = beside.release().await
        {
            tracing::warn!(%error, "cannot release the cluster's Lease; it expires");
        }
        self.keeping.end();
        self.store.revoke(self.lease).await
    }
}

/// Keeps the etcd lease alive, and detects the loss of the operation lease.
struct KeepAlive {
    store: Arc<dyn LeaseStore>,
    key: Key,
    created: Revision,
    lease: LeaseId,
    ttl: Duration,
    /// Time at which the etcd lease expires, by this machine's clock. The TTL is counted from the moment before the request is
    /// sent, so etcd does not expire the lease earlier.
    good_until: Instant,
}

impl KeepAlive {
    /// Runs until the operation lease is lost, and returns the reason.
    async fn keep(mut self) -> String {
        let beat = self.ttl.checked_div(BEATS).unwrap_or(self.ttl);
        let mut last = "no answer".to_string();
        loop {
            let left = self.good_until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return format!("every attempt to renew it failed for {} s: {last}", self.ttl.as_secs());
            }
            sleep(beat.min(left)).await;
            let asked = Instant::now();
            // The keep-alive is sent even after the TTL, because a store that was unavailable for longer than the TTL can still
            // have the lease.
            match self.store.keep_alive(self.lease, beat).await {
                Ok(true) => self.good_until = asked.checked_add(self.ttl).unwrap_or(asked),
                Ok(false) => return "it has expired".to_string(),
                Err(error) => {
                    tracing::warn!(%error, "cannot renew the operation lease, retrying");
                    last = error.to_string();
                }
            }
            // If another process took over, the key is missing or was created again, although the etcd lease still exists.
            let read = timeout_at(self.good_until, self.store.get(&self.key)).await;
            if let Ok(Ok(entry)) = read
                && !Guard::SameCreation(self.key.clone(), self.created).holds(entry.as_ref())
            {
                let claim = entry.as_ref().and_then(|entry| parse(entry).ok());
                return claim.map_or_else(|| NO_HOLDER.to_string(), |claim| format!("{claim} holds it"));
            }
        }
    }
}

/// Reason for the loss if the key of the operation lease is missing.
const NO_HOLDER: &str = "it has expired, and no process holds it";

/// Returns the error for a write that was rejected because the operation lease is lost.
pub(super) async fn lost_to(store: &dyn ReadStore, key: &Key) -> OperationError {
    let to = match store.get(key).await {
        Ok(None) => NO_HOLDER.to_string(),
        Ok(Some(entry)) => match parse(&entry) {
            Ok(claim) => format!("{claim} holds it"),
            Err(_) => format!("the record of its current holder at `{key}` cannot be read"),
        },
        Err(error) => format!("its current holder is unknown ({error})"),
    };
    OperationError::LockLost { to }
}

pub(super) fn key_of(cluster: &str) -> Key {
    Key::from(format!("/netsurgeon/{cluster}/lock"))
}

/// Creates the key and returns its create revision.
async fn create(
    store: &dyn LeaseStore,
    key: &Key,
    about: &LeaseHolder,
    lease: LeaseId,
) -> Result<Revision, OperationError> {
    let value = serde_json::to_vec(about).unwrap_or_default();
    for _ in 0..MOST_ATTEMPTS {
        match store.create(key, &value, lease).await {
            Ok(created) => return Ok(created),
            Err(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match store.get(key).await? {
            Some(entry) if entry.lease == lease.0 => return Ok(entry.create_revision),
            Some(entry) => return Err(refusal(store, &entry).await),
            None => {}
        }
    }
    Err(OperationError::Contended { what: format!("`{key}`"), attempts: MOST_ATTEMPTS })
}

fn parse(entry: &Entry) -> Result<LeaseHolder, OperationError> {
    serde_json::from_slice(&entry.value).map_err(|error| OperationError::Journal {
        what: format!("`{}`", entry.key),
        reason: format!(
            "this operation lease is held, but the record of its holder cannot be read: {error}; if no process of netsurgeon runs, delete it: `etcdctl del {}`",
            entry.key
        ),
    })
}

async fn held(store: &dyn LeaseStore, entry: &Entry) -> Result<Held, OperationError> {
    let claim = parse(entry)?;
    let left = match entry.lease {
        0 => None,
        lease => Some(store.time_left(LeaseId(lease)).await?.unwrap_or_default()),
    };
    Ok(Held { key: entry.key.clone(), claim, left })
}

async fn refusal(store: &dyn LeaseStore, entry: &Entry) -> OperationError {
    match held(store, entry).await {
        Ok(held) => OperationError::Locked(Box::new(held)),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests;
