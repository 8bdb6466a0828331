//! One operation on a cluster at a time, on any machine.
//!
//! ```text
//! /netsurgeon/CLUSTER/lock      holder, since when, for which operation; expires with its etcd lease
//! ```
//!
//! The operation lease promises two things. A second client learns who holds it. A holder that lost it, to a pause
//! of minutes or to a network partition, cannot write any more: every write of an operation carries [`Lock::guard`],
//! which compares the create revision of the key, and each acquisition creates the key again. Nothing depends on a
//! clock: the holder checks its own clock only to stop sooner.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::keeping::Keeping;
use super::{ClusterLock, LeaseHolder, OperationError};
use crate::store::lease::{Granted, LeaseId, LeaseStore};
use crate::store::{
    Action, Change, CommitError, Entry, Expected, Guard, Key, ReadStore, Revision, StoreError, Transaction,
};

/// Attempts to create the key while other clients acquire and release it.
const MOST_ATTEMPTS: u32 = 20;
/// How often to check whether another holder's lease has expired.
const LOOK: Duration = Duration::from_secs(1);
/// A lease may expire this much later than reported: etcd reports whole seconds, and expires leases twice a second
/// (`expireExpiredLeases`, `server/lease/lessor.go`, v3.6.16).
const GRACE: Duration = Duration::from_secs(3);
/// Keep-alives per TTL, so that one attempt may fail.
const BEATS: u32 = 3;

/// The operation lease and its holder, for the message to another client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its key.
    pub key: Key,
    /// Its holder.
    pub claim: LeaseHolder,
    /// The remaining TTL of its etcd lease; `None` for a key without one, which never expires.
    pub left: Option<Duration>,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseHolder { holder, pid, .. } = &self.claim;
        write!(f, "`{holder}` (pid {pid}) holds the operation lease for {}; ", self.claim.matter())?;
        match self.left {
            Some(left) => write!(f, "it ends in {} s unless it is renewed", left.as_secs()),
            None => write!(f, "it never expires (key `{}`)", self.key),
        }
    }
}

/// The operation lease, held by this process. Dropping it lets it expire; [`Self::release`] releases it at once.
pub struct Lock {
    store: Arc<dyn LeaseStore>,
    key: Key,
    claim: LeaseHolder,
    created: Revision,
    lease: LeaseId,
    keeping: Keeping,
    beside: Option<ClusterLock>,
}

impl Lock {
    /// Acquires the operation lease of a cluster and keeps it until it is released or dropped. It outlives its process by
    /// `ttl` (in whole seconds; etcd grants at least one and a half election timeouts).
    ///
    /// Fails with [`OperationError::Locked`] if it is held.
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
                // Without its lease, a create whose answer was lost cannot succeed late. If the revoke fails, the
                // lease expires.
                let _ = store.revoke(granted.lease).await;
                Err(error)
            }
        }
    }

    /// Acquires it as [`Self::acquire`] does. If it is held for the same operation, waits at most for its remaining TTL
    /// until it expires: a live holder renews it meanwhile. Calls `waiting` with the holder, about once a second.
    ///
    /// Fails with [`OperationError::Locked`] at once if it is held for another operation or has no etcd lease, and as soon
    /// as it is renewed.
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

    /// Takes it over from a process that holds it for the same operation, when the operator resumes the operation and
    /// knows that this process hangs. If it is free, acquires it as [`Self::acquire`] does.
    ///
    /// Fails with [`OperationError::Locked`] if it is held for another operation, or another client was faster.
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
                // Only after the delete: otherwise it could revoke the lease of a key that changed since the read.
                Ok(_) if entry.lease != 0 => drop(store.revoke(LeaseId(entry.lease)).await),
                // The attempt to acquire it reports the current holder.
                Ok(_) | Err(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Self::acquire(store, cluster, about, ttl).await
    }

    /// Returns the holder of a cluster's operation lease, `None` if it is free.
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
        let keeper = Keeper {
            store: store.clone(),
            key: key.clone(),
            created,
            lease: granted.lease,
            ttl: granted.ttl,
            good_until: since.checked_add(granted.ttl).unwrap_or(since),
        };
        let keeping = Keeping::begin(keeper.keep());
        Self { store, key, claim, created, lease: granted.lease, keeping, beside: None }
    }

    /// Adds the cluster's Lease, which excludes operations without access to etcd. Both are released together.
    #[must_use]
    pub fn with(mut self, beside: ClusterLock) -> Self {
        self.beside = Some(beside);
        self
    }

    /// Returns its holder.
    pub fn claim(&self) -> &LeaseHolder {
        &self.claim
    }

    /// Returns the precondition that the operation lease is still this one. Every write must carry it
    /// ([`super::EtcdLedger::new`]).
    pub fn guard(&self) -> Guard {
        Guard::SameCreation(self.key.clone(), self.created)
    }

    /// Returns why it is lost, or must be considered lost; `None` while it is held.
    pub fn lost(&self) -> Option<String> {
        self.keeping.lost()
    }

    /// Waits until it is lost, and returns why.
    pub async fn until_lost(&self) -> String {
        self.keeping.until_lost().await
    }

    /// Waits until the cluster's Lease is lost to another holder, and returns why; waits forever if there is no Lease.
    /// etcd then rejects no write: the new holder has no access to etcd.
    pub async fn until_lease_lost(&self) -> String {
        match &self.beside {
            Some(beside) => beside.until_lost().await,
            None => std::future::pending().await,
        }
    }

    /// Releases it.
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
struct Keeper {
    store: Arc<dyn LeaseStore>,
    key: Key,
    created: Revision,
    lease: LeaseId,
    ttl: Duration,
    /// When the etcd lease expires by this machine's clock: counted from before the request, so etcd expires it no
    /// sooner.
    good_until: Instant,
}

impl Keeper {
    /// Returns when the operation lease is lost, with the reason.
    async fn keep(mut self) -> String {
        let beat = self.ttl.checked_div(BEATS).unwrap_or(self.ttl);
        let mut last = "no answer".to_string();
        loop {
            let left = self.good_until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return format!("its lease could not be kept alive for {} s: {last}", self.ttl.as_secs());
            }
            sleep(beat.min(left)).await;
            let asked = Instant::now();
            // Also after the TTL: a store that was unavailable for longer may have kept the lease.
            match self.store.keep_alive(self.lease, beat).await {
                Ok(true) => self.good_until = asked.checked_add(self.ttl).unwrap_or(asked),
                Ok(false) => return "its lease has ended".to_string(),
                Err(error) => {
                    tracing::warn!(%error, "cannot keep the operation lease alive, retrying");
                    last = error.to_string();
                }
            }
            // The key can be missing while its etcd lease exists: another process took over.
            let read = timeout_at(self.good_until, self.store.get(&self.key)).await;
            if let Ok(Ok(entry)) = read
                && !Guard::SameCreation(self.key.clone(), self.created).holds(entry.as_ref())
            {
                let claim = entry.as_ref().and_then(|entry| parse(entry).ok());
                return claim.map_or_else(|| NOBODY.to_string(), |claim| format!("{claim} holds it"));
            }
        }
    }
}

/// Why the operation lease is lost if its key is missing.
const NOBODY: &str = "its lease has ended, and no process holds it";

/// Returns the error for a write that was rejected because the operation lease is lost.
pub(super) async fn lost_to(store: &dyn ReadStore, key: &Key) -> OperationError {
    let to = match store.get(key).await {
        Ok(None) => NOBODY.to_string(),
        Ok(Some(entry)) => match parse(&entry) {
            Ok(claim) => format!("{claim} holds it"),
            Err(_) => format!("the record of its holder at `{key}` cannot be read"),
        },
        Err(error) => format!("its holder is unknown ({error})"),
    };
    OperationError::LockLost { to }
}

pub(super) fn key_of(cluster: &str) -> Key {
    Key::from(format!("/netsurgeon/{cluster}/lock"))
}

/// Creates the key; returns its create revision.
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
        reason: format!("this operation lease is held, but the record of its holder cannot be read: {error}"),
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
#[path = "lock_tests.rs"]
mod tests;
