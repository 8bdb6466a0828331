//! One operation on a cluster at a time, whatever its kind and wherever it is recorded: the Lease `kube-system/netsurgeon`.
//!
//! It keeps operations apart, and is no fence: a holder that was frozen may believe for a moment that it still is one. The
//! fence is the matter of the ledger. Nobody compares clocks ([`Lease`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::keeping::Keeping;
use super::{Claim, Held, OperationError};
use crate::cluster::{Cluster, ClusterError, Lease, LeaseHolder};
use crate::store::Key;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "netsurgeon";
/// How often is looked whether a Lease has ended that is waited for.
const LOOK: Duration = Duration::from_secs(1);
/// The Lease is renewed this many times in the time that it runs, so that one attempt may fail.
const BEATS: u32 = 3;

/// What becomes of a lock whose API is silent for longer than its Lease runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// It is lost.
    Loses,
    /// It is kept until the API says otherwise: for an operation that lets API servers start again, and whose fence is
    /// elsewhere.
    Keeps,
}

/// How the lock is taken and kept.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How long it outlives its process, in whole seconds.
    pub ttl: Duration,
    /// What silence means.
    pub silence: Silence,
    /// Whether it is taken away at once from whoever holds it for the same operation.
    pub take_over: bool,
}

/// A lock that is held. Dropping it lets its Lease run out; [`Self::release`] ends it at once.
pub struct ClusterLock {
    lease: Arc<Mutex<Lease>>,
    keeping: Keeping,
}

impl ClusterLock {
    /// Its namespace and name, for messages.
    pub const LEASE: &str = "kube-system/netsurgeon";

    /// Takes the lock of a cluster and keeps it until it is released or dropped. Where somebody holds it, looks whether it is
    /// renewed, and takes it when nobody has for as long as it runs. `waiting` hears what is held, about once a second.
    ///
    /// Fails with [`OperationError::Locked`] when it is renewed.
    pub async fn acquire(
        api: &Cluster,
        claim: &Claim,
        terms: Terms,
        waiting: &mut (dyn FnMut(&Held) + Send),
    ) -> Result<Self, OperationError> {
        let mut lease = lease(api, &name_of(claim), terms.ttl);
        let mut before = None;
        let mut holder = lease.hold().await?;
        loop {
            let LeaseHolder::Other { name, left } = holder else { return Ok(Self::kept(lease, terms)) };
            let held = held(&name, left);
            if terms.take_over && held.claim.operation == claim.operation {
                // Or whoever was faster.
                holder = lease.seize(&name).await?;
                continue;
            }
            // Time has passed since the last look: what is not renewed has less of it left.
            if before.is_some_and(|before| left >= before) {
                return Err(OperationError::Locked(Box::new(held)));
            }
            waiting(&held);
            before = Some(left);
            sleep(LOOK.min(left)).await;
            holder = lease.hold().await?;
        }
    }

    /// Returns who holds the lock of a cluster, by the clock of this machine; `None` if nobody does.
    pub async fn holder(api: &Cluster) -> Result<Option<Held>, OperationError> {
        let found = lease(api, "", Duration::ZERO).holder().await?;
        Ok(found.map(|(name, left)| held(&name, left)))
    }

    fn kept(lease: Lease, Terms { ttl, silence, .. }: Terms) -> Self {
        let lease = Arc::new(Mutex::new(lease));
        let keeping = Keeping::begin(keep(lease.clone(), ttl, silence));
        Self { lease, keeping }
    }

    /// Returns why the lock is known to be lost, or must be taken to be; `None` while it is held.
    pub fn lost(&self) -> Option<String> {
        self.keeping.lost()
    }

    /// Waits until the lock is lost, and returns why.
    pub async fn until_lost(&self) -> String {
        self.keeping.until_lost().await
    }

    /// Gives the lock back.
    pub async fn release(self) -> Result<(), ClusterError> {
        self.keeping.end();
        self.lease.lock().await.release().await
    }
}

fn lease(api: &Cluster, holder: &str, ttl: Duration) -> Lease {
    Lease::new(api.clone(), NAMESPACE, NAME, holder, ttl)
}

/// Ends when the lock is lost, with the reason.
async fn keep(lease: Arc<Mutex<Lease>>, ttl: Duration, silence: Silence) -> String {
    let beat = ttl.checked_div(BEATS).unwrap_or(ttl);
    let mut renewed = Instant::now();
    loop {
        sleep(beat).await;
        let asked = Instant::now();
        match lease.lock().await.renew().await {
            Ok(LeaseHolder::Ours) => renewed = asked,
            Ok(LeaseHolder::Other { name, .. }) if name.is_empty() => {
                return "somebody else had it meanwhile, and has given it back".to_string();
            }
            Ok(LeaseHolder::Other { name, .. }) => return format!("{} has it", claim_of(&name)),
            Err(error) if silence == Silence::Loses && renewed.elapsed() >= ttl => {
                return format!("it could not be renewed for {} s: {error}", ttl.as_secs());
            }
            Err(error) => tracing::warn!(%error, "the operation lease could not be renewed, trying again"),
        }
    }
}

/// A lock as somebody holds it.
fn held(name: &str, left: Duration) -> Held {
    let key = Key::from(format!("Lease {}", ClusterLock::LEASE));
    Held { key, claim: claim_of(name), left: Some(left) }
}

/// The holder's name in the Lease, which no other process has: `USER@HOST/PID/OPERATION/SINCE`.
fn name_of(claim: &Claim) -> String {
    let Claim { holder, pid, operation, since, .. } = claim;
    format!("{holder}/{pid}/{operation}/{since}")
}

/// Reads such a name; whatever else is there is taken for a holder's.
fn claim_of(name: &str) -> Claim {
    let mut parts = name.rsplitn(4, '/');
    let mut next = || parts.next().map(str::to_string);
    let (since, operation, pid, holder) = (next(), next(), next(), next());
    let since = since.and_then(|text| text.parse().ok());
    let pid = pid.and_then(|text| text.parse().ok());
    match (holder, pid, operation, since) {
        (Some(holder), Some(pid), Some(operation), Some(since)) => {
            Claim { holder, pid, operation, since, purpose: String::new() }
        }
        _ => Claim { holder: name.to_string(), ..Claim::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_back() {
        let claim = Claim {
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
