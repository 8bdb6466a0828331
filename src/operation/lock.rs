//! One operation on a cluster at a time, on any machine.
//!
//! ```text
//! /netsurgeon/CLUSTER/lock      who, since when, for which operation; ends with its lease
//! ```
//!
//! The lock promises two things. Whoever comes second is told who holds it. And whoever has lost it, be it to
//! a pause of minutes or to a cut cable, can write no more: every write of an operation carries
//! [`Lock::guard`], which compares the revision of the lock key's creation, and a lock taken anew is a key
//! created anew. Nothing depends on a clock: that the holder looks at its own only lets it stop sooner.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::keeping::Keeping;
use super::{Claim, ClusterLock, OperationError};
use crate::store::lease::{Granted, LeaseId, LeaseStore};
use crate::store::{
    Action, Change, CommitError, Entry, Expected, Guard, Key, ReadStore, Revision, StoreError, Transaction,
};

/// How often the lock is tried for that others take and release in the same moments.
const MOST_ATTEMPTS: u32 = 20;
/// How often is looked whether a lease has ended that is waited for.
const LOOK: Duration = Duration::from_secs(1);
/// A lease may end so much later than it said: etcd tells whole seconds, and ends leases twice a second
/// (`expireExpiredLeases`, `server/lease/lessor.go`, v3.6.16).
const GRACE: Duration = Duration::from_secs(3);
/// The lease is kept alive this many times in the time that it runs, so that one attempt may fail.
const BEATS: u32 = 3;

/// A lock as somebody holds it, in words: for those who cannot have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its key.
    pub key: Key,
    /// Who holds it, and for what.
    pub claim: Claim,
    /// How long its lease still runs; `None` for a key without a lease, which never ends by itself.
    pub left: Option<Duration>,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { holder, pid, .. } = &self.claim;
        write!(f, "`{holder}` (pid {pid}) holds the operation lease for {}; ", self.claim.matter())?;
        match self.left {
            Some(left) => write!(f, "it ends in {} s unless it is renewed", left.as_secs()),
            None => write!(f, "it never ends by itself (key `{}`)", self.key),
        }
    }
}

/// A lock that is held. Dropping it lets its lease run out; [`Self::release`] ends it at once.
pub struct Lock {
    store: Arc<dyn LeaseStore>,
    key: Key,
    claim: Claim,
    created: Revision,
    lease: LeaseId,
    keeping: Keeping,
    beside: Option<ClusterLock>,
}

impl Lock {
    /// Takes the lock of a cluster and keeps it until it is released or dropped. It outlives its process by
    /// `ttl` (in whole seconds; etcd gives no less than its election timeout and a half).
    ///
    /// Fails with [`OperationError::Locked`] when somebody holds it.
    pub async fn acquire(
        store: Arc<dyn LeaseStore>,
        cluster: &str,
        about: &Claim,
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
                // A creation whose answer was lost cannot come late once its lease has ended. If this fails,
                // the lease ends by itself.
                let _ = store.revoke(granted.lease).await;
                Err(error)
            }
        }
    }

    /// Takes the lock as [`Self::acquire`] does. Where it is held for the same operation, waits until that lease ends, for
    /// as long as it had to run at first: a holder that is alive renews it meanwhile. `waiting` hears what is held, about
    /// once a second.
    ///
    /// Fails with [`OperationError::Locked`] at once when it is held for another operation or has no lease, and as soon as
    /// it is renewed.
    pub async fn acquire_after(
        store: Arc<dyn LeaseStore>,
        cluster: &str,
        about: &Claim,
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

    /// Takes the lock away from whoever holds it for the same operation, as one does who resumes it and knows
    /// that the other hangs; takes it as [`Self::acquire`] does if nobody holds it.
    ///
    /// Fails with [`OperationError::Locked`] when it is held for another operation, or somebody else was
    /// faster.
    pub async fn take_over(
        store: Arc<dyn LeaseStore>,
        cluster: &str,
        about: &Claim,
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
                // Only then, lest a lease be ended whose key is not the one that was read.
                Ok(_) if entry.lease != 0 => drop(store.revoke(LeaseId(entry.lease)).await),
                // Whoever has it now is named by the attempt to take it.
                Ok(_) | Err(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Self::acquire(store, cluster, about, ttl).await
    }

    /// Returns who holds the lock of a cluster, `None` if nobody does.
    pub async fn holder(store: &dyn LeaseStore, cluster: &str) -> Result<Option<Held>, OperationError> {
        match store.get(&key_of(cluster)).await? {
            Some(entry) => held(store, &entry).await.map(Some),
            None => Ok(None),
        }
    }

    fn kept(
        store: Arc<dyn LeaseStore>,
        key: Key,
        claim: Claim,
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

    /// The same with the cluster's Lease, which keeps operations away that know nothing of etcd. It is released with the lock.
    #[must_use]
    pub fn with(mut self, beside: ClusterLock) -> Self {
        self.beside = Some(beside);
        self
    }

    /// Returns who holds it, and for what.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Returns the condition under which the lock is still this one: what every write must carry
    /// ([`super::Executor::guards`]).
    pub fn guard(&self) -> Guard {
        Guard::SameCreation(self.key.clone(), self.created)
    }

    /// Returns why the lock is known to be lost, or must be taken to be; `None` while it is held.
    pub fn lost(&self) -> Option<String> {
        self.keeping.lost()
    }

    /// Waits until the lock is lost, and returns why.
    pub async fn until_lost(&self) -> String {
        self.keeping.until_lost().await
    }

    /// Waits until the cluster's Lease is lost to somebody, and returns why; for ever where there is none. No write is refused
    /// then: whoever has it knows nothing of etcd.
    pub async fn until_lease_lost(&self) -> String {
        match &self.beside {
            Some(beside) => beside.until_lost().await,
            None => std::future::pending().await,
        }
    }

    /// Gives the lock back.
    pub async fn release(mut self) -> Result<(), StoreError> {
        if let Some(beside) = self.beside.take()
            && let Err(error) = beside.release().await
        {
            tracing::warn!(%error, "the cluster's Lease could not be given back; it ends by itself");
        }
        self.keeping.end();
        self.store.revoke(self.lease).await
    }
}

/// Keeps a lock's lease alive, and notices when the lock is lost.
struct Keeper {
    store: Arc<dyn LeaseStore>,
    key: Key,
    created: Revision,
    lease: LeaseId,
    ttl: Duration,
    /// Until when the lease runs by this machine's clock: counted from before the request, so the store ends
    /// it no sooner.
    good_until: Instant,
}

impl Keeper {
    /// Ends when the lock is lost, with the reason.
    async fn keep(mut self) -> String {
        let beat = self.ttl.checked_div(BEATS).unwrap_or(self.ttl);
        let mut last = "nothing was heard".to_string();
        loop {
            let left = self.good_until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return format!("its lease could not be kept alive for {} s: {last}", self.ttl.as_secs());
            }
            sleep(beat.min(left)).await;
            let asked = Instant::now();
            // Late is better than never: a store that was away longer than the lease runs may have kept it.
            match self.store.keep_alive(self.lease, beat).await {
                Ok(true) => self.good_until = asked.checked_add(self.ttl).unwrap_or(asked),
                Ok(false) => return "its lease has ended".to_string(),
                Err(error) => {
                    tracing::warn!(%error, "the lock's lease could not be kept alive, trying again");
                    last = error.to_string();
                }
            }
            // The key can go while the lease stays: somebody took the lock over.
            let read = timeout_at(self.good_until, self.store.get(&self.key)).await;
            if let Ok(Ok(entry)) = read
                && !Guard::SameCreation(self.key.clone(), self.created).holds(entry.as_ref())
            {
                let claim = entry.as_ref().and_then(|entry| parse(entry).ok());
                return claim.map_or_else(|| NOBODY.to_string(), |claim| format!("{claim} has it"));
            }
        }
    }
}

/// Words for a lock whose key is gone.
const NOBODY: &str = "nobody: its lease has ended, and the lock is free";

/// Returns the failure of somebody whose write was refused because the lock is not theirs any more.
pub(super) async fn lost_to(store: &dyn ReadStore, key: &Key) -> OperationError {
    let to = match store.get(key).await {
        Ok(None) => NOBODY.to_string(),
        Ok(Some(entry)) => match parse(&entry) {
            Ok(claim) => claim.to_string(),
            Err(_) => format!("somebody whose record at `{key}` cannot be read"),
        },
        Err(error) => format!("somebody who could not be found out ({error})"),
    };
    OperationError::LockLost { to }
}

pub(super) fn key_of(cluster: &str) -> Key {
    Key::from(format!("/netsurgeon/{cluster}/lock"))
}

/// Creates the lock's key; returns the revision of its creation.
async fn create(
    store: &dyn LeaseStore,
    key: &Key,
    about: &Claim,
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

fn parse(entry: &Entry) -> Result<Claim, OperationError> {
    serde_json::from_slice(&entry.value).map_err(|error| OperationError::Journal {
        what: format!("`{}`", entry.key),
        reason: format!("somebody holds this lock, and its record cannot be read: {error}"),
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
