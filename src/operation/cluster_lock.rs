//! The Kubernetes Lease `kube-system/netsurgeon`. In a cluster, only one operation at a time can hold this Lease. This applies to
//! every kind of operation and to every ledger.
//!
//! The Lease reduces contention; it is not a fencing token. A process that was suspended can act for a moment as if it still held
//! the Lease. The ledger has the fencing token. Clocks of different machines are never compared ([`Lease`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::lease_renewal::LeaseRenewal;
use super::{Held, LeaseHolder, OperationError};
use crate::kube_api::{Cluster, ClusterError, Lease, LeaseState};
use crate::store::Key;

pub(super) const NAMESPACE: &str = "kube-system";
pub(super) const NAME: &str = "netsurgeon";
/// How often to check whether another holder's Lease has expired.
const LOOK: Duration = Duration::from_secs(1);
/// Number of renewals per TTL. If a renewal fails, the next renewal can still keep the Lease.
const BEATS: u32 = 3;

/// What happens if the API does not answer for longer than the TTL of the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The operation lease is lost.
    Loses,
    /// The operation lease is kept until the API reports another holder. Used by operations that restart API servers and have
    /// their fencing token in etcd.
    Keeps,
}

/// How the operation lease is acquired and kept.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How long the lease stays valid after its process ends, in whole seconds.
    pub ttl: Duration,
    /// What happens if the API does not answer.
    pub silence: Silence,
    /// Whether to take the lease over immediately from a process that holds it for the same operation.
    pub take_over: bool,
}

/// The operation lease, held by this process. If this value is dropped, the Lease expires after its TTL. [`Self::release`]
/// releases the Lease immediately.
pub struct ClusterLock {
    lease: Arc<Mutex<Lease>>,
    keeping: LeaseRenewal,
}

impl ClusterLock {
    /// Namespace and name of the Lease, for messages.
    pub const LEASE: &str = "kube-system/netsurgeon";

    /// Acquires the operation lease of a cluster and keeps it until it is released or dropped. If another process holds the
    /// lease, checks whether that process renews it. Acquires the lease after one TTL without a renewal. Calls `waiting` with the
    /// holder about once a second.
    ///
    /// Fails with [`OperationError::Locked`] if the other process renews the lease.
    pub async fn acquire(
        api: &Cluster,
        claim: &LeaseHolder,
        terms: Terms,
        waiting: &mut (dyn FnMut(&Held) + Send),
    ) -> Result<Self, OperationError> {
        let mut lease = lease(api, &name_of(claim), terms.ttl);
        let mut before = None;
        let mut holder = lease.hold().await?;
        loop {
            let LeaseState::Other { name, left } = holder else { return Ok(Self::kept(lease, terms)) };
            let held = held(&name, left);
            if terms.take_over && held.claim.operation == claim.operation {
                // `seize` returns the new holder if another client took the lease first.
                holder = lease.seize(&name).await?;
                continue;
            }
            // Without a renewal, the remaining TTL decreases between two checks. It did not decrease, so the holder renews the
            // lease.
            if before.is_some_and(|before| left >= before) {
                return Err(OperationError::Locked(Box::new(held)));
            }
            waiting(&held);
            before = Some(left);
            sleep(LOOK.min(left)).await;
            holder = lease.hold().await?;
        }
    }

    /// Returns the holder of a cluster's operation lease; `None` if the lease is free. Uses the clock of the cluster to decide
    /// whether the lease has expired.
    pub async fn holder(api: &Cluster) -> Result<Option<Held>, OperationError> {
        let found = lease(api, "", Duration::ZERO).holder().await?;
        Ok(found.map(|(name, left)| held(&name, left)))
    }

    fn kept(lease: Lease, Terms { ttl, silence, .. }: Terms) -> Self {
        let lease = Arc::new(Mutex::new(lease));
        let keeping = LeaseRenewal::begin(keep(lease.clone(), ttl, silence));
        Self { lease, keeping }
    }

    /// Returns why the lease is lost, or must be considered lost; `None` while the lease is held.
    pub fn lost(&self) -> Option<String> {
        self.keeping.lost()
    }

    /// Waits until the lease is lost, and returns why.
    pub async fn until_lost(&self) -> String {
        self.keeping.until_lost().await
    }

    /// Releases the lease.
    pub async fn release(self) -> Result<(), ClusterError> {
        self.keeping.end();
        self.lease.lock().await.release().await
    }
}

fn lease(api: &Cluster, holder: &str, ttl: Duration) -> Lease {
    Lease::new(api.clone(), NAMESPACE, NAME, holder, ttl)
}

/// Runs until the operation lease is lost, and returns the reason.
async fn keep(lease: Arc<Mutex<Lease>>, ttl: Duration, silence: Silence) -> String {
    let beat = ttl.checked_div(BEATS).unwrap_or(ttl);
    let mut renewed = Instant::now();
    loop {
        sleep(beat).await;
        let asked = Instant::now();
        match lease.lock().await.renew().await {
            Ok(LeaseState::Ours) => renewed = asked,
            Ok(LeaseState::Other { name, .. }) if name.is_empty() => {
                return "another process acquired it in the meantime and released it".to_string();
            }
            Ok(LeaseState::Other { name, .. }) => return format!("{} holds it", claim_of(&name)),
            Err(error) if silence == Silence::Loses && renewed.elapsed() >= ttl => {
                return format!("every attempt to renew it failed for {} s: {error}", ttl.as_secs());
            }
            Err(error) => tracing::warn!(%error, "cannot renew the operation lease, retrying"),
        }
    }
}

/// Returns the operation lease with its holder and remaining TTL.
fn held(name: &str, left: Duration) -> Held {
    let key = Key::from(format!("Lease {}", ClusterLock::LEASE));
    Held { key, claim: claim_of(name), left: Some(left) }
}

/// Returns the name of the holder in the Lease, unique to this process: `USER@HOST/PID/OPERATION/SINCE`.
fn name_of(claim: &LeaseHolder) -> String {
    let LeaseHolder { holder, pid, operation, since, .. } = claim;
    format!("{holder}/{pid}/{operation}/{since}")
}

/// Parses a name that [`name_of`] returned. Any other text becomes the holder's name.
fn claim_of(name: &str) -> LeaseHolder {
    let mut parts = name.rsplitn(4, '/');
    let mut next = || parts.next().map(str::to_string);
    let (since, operation, pid, holder) = (next(), next(), next(), next());
    let since = since.and_then(|text| text.parse().ok());
    let pid = pid.and_then(|text| text.parse().ok());
    match (holder, pid, operation, since) {
        (Some(holder), Some(pid), Some(operation), Some(since)) => {
            LeaseHolder { holder, pid, operation, since, purpose: String::new() }
        }
        _ => LeaseHolder { holder: name.to_string(), ..LeaseHolder::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_name_round_trips() {
        let claim = LeaseHolder {
            holder: "a/b@host".into(),
            pid: 7,
            operation: "op-1".into(),
            since: 9,
            purpose: String::new(),
        };
        assert_eq!(claim_of(&name_of(&claim)), claim);
        assert_eq!(claim_of("somebody").holder, "somebody");
    }
}
