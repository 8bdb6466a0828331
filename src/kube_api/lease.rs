//! A Lease object of the API. Only one process at a time holds the Lease, as with the Lease of a controller that has several
//! replicas.
//!
//! The Lease reduces contention; it is not a fencing token. A holder that was suspended can continue to write for a moment after
//! another process has taken the Lease. Therefore, every write of a holder must also be safe without the Lease.
//!
//! The rules are the same as in `tools/leaderelection` of client-go, v1.36.3. Clocks are not compared. A waiting process records
//! when it observed the last change of the Lease. The process takes the Lease if the Lease has not changed during the whole lease
//! duration. The precondition of every write is the `resourceVersion` that the write replaces.
//!
//! netsurgeon does not use the crate `kube-lease-manager` 0.13, because that crate compares `renewTime` with the clock of this
//! machine. The crate also clears an expired holder without a precondition, and cannot take over a Lease from a named holder.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease as Record;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::event::micro_time;
use super::{Cluster, ClusterError, MANAGED_BY, ObjectRef};

const API_VERSION: &str = "coordination.k8s.io/v1";

/// Longest duration in a Lease that is respected. No holder of netsurgeon uses a longer one (`--lock-ttl`), so a longer one was
/// written by another client, and must not block operations for years.
const LONGEST: Duration = Duration::from_hours(1);

/// Maximum number of reads in one call. netsurgeon reads the Lease again if another process changed it first.
const MOST_READS: u32 = 3;

/// Which process holds a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseState {
    /// This process holds the Lease and has just renewed it.
    Ours,
    /// Another process holds the Lease.
    Other {
        /// Name of the other holder.
        name: String,
        /// Time until the Lease can be taken over if it is not renewed.
        left: Duration,
    },
}

/// A Lease that this process requests and renews.
pub struct Lease {
    cluster: Cluster,
    namespace: String,
    name: String,
    holder: String,
    duration: Duration,
    seen: Option<Seen>,
    /// The value of `leaseTransitions` when this process took the Lease; `None` while this process does not hold the Lease.
    ours: Option<i32>,
}

/// The version of another process's Lease, and the time when this process first observed it.
struct Seen {
    version: String,
    at: Instant,
}

/// The next action for an existing Lease.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Renew,
    Take,
    Leave(Duration),
}

impl Lease {
    /// Returns a Lease without sending a request. `holder` must be unique to this process. `duration`, in whole seconds, is the
    /// time after the last renewal during which other processes do not take the Lease.
    pub fn new(cluster: Cluster, namespace: &str, name: &str, holder: &str, duration: Duration) -> Self {
        let (namespace, name, holder) = (namespace.to_string(), name.to_string(), holder.to_string());
        Self { cluster, namespace, name, holder, duration, seen: None, ours: None }
    }

    fn object(&self) -> ObjectRef<'_> {
        ObjectRef::new(API_VERSION, "Lease", Some(&self.namespace), &self.name)
    }

    /// Takes the Lease if it is free, or renews it. Call this function again well before the Lease expires.
    pub async fn hold(&mut self) -> Result<LeaseState, ClusterError> {
        self.attempts(Self::judge).await
    }

    /// Renews the Lease if this process still holds it. Does not take the Lease back if another process has taken it over.
    pub async fn renew(&mut self) -> Result<LeaseState, ClusterError> {
        self.attempts(|lease, found, now| match lease.judge(found, now) {
            Verdict::Renew if lease.ours == Some(transitions_of(found)) => Verdict::Renew,
            Verdict::Leave(left) => Verdict::Leave(left),
            Verdict::Renew | Verdict::Take => Verdict::Leave(Duration::ZERO),
        })
        .await
    }

    /// Takes over the Lease if `from` still holds it. If not, does the same as [`hold`](Self::hold).
    pub async fn seize(&mut self, from: &str) -> Result<LeaseState, ClusterError> {
        self.attempts(|lease, found, now| match holder_of(found) {
            holder if holder == from => Verdict::Take,
            _ => lease.judge(found, now),
        })
        .await
    }

    async fn attempts(
        &mut self,
        judge: impl Fn(&mut Self, &Record, Instant) -> Verdict,
    ) -> Result<LeaseState, ClusterError> {
        let mut reads = 1;
        loop {
            match self.attempt(&judge).await {
                Err(ClusterError::Conflict { .. } | ClusterError::AlreadyExists { .. })
                    if reads < MOST_READS =>
                {
                    reads = reads.saturating_add(1);
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(
        &mut self,
        judge: &impl Fn(&mut Self, &Record, Instant) -> Verdict,
    ) -> Result<LeaseState, ClusterError> {
        let Some(found) = self.read().await? else {
            self.cluster.create(&self.manifest()).await?;
            self.ours = Some(0);
            return Ok(LeaseState::Ours);
        };
        let transitions = transitions_of(&found);
        let (change, ours) = match judge(self, &found, Instant::now()) {
            Verdict::Leave(left) => {
                let name = holder_of(&found).to_string();
                return Ok(LeaseState::Other { name, left });
            }
            Verdict::Renew => (
                json!({"renewTime": self.micro_now(), "leaseDurationSeconds": self.duration.as_secs()}),
                transitions,
            ),
            Verdict::Take => {
                let next = transitions.saturating_add(1);
                (self.spec(next), next)
            }
        };
        self.change(&found, change).await?;
        self.ours = Some(ours);
        Ok(LeaseState::Ours)
    }

    /// Returns when the Lease expires, by the clock of the cluster.
    fn until(&self, found: &Record) -> OffsetDateTime {
        let renewed = found.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let renewed = renewed.map(|time| time.0.as_nanosecond()).unwrap_or_default();
        OffsetDateTime::from_unix_timestamp_nanos(renewed)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
            .saturating_add(time::Duration::try_from(self.given(found)).unwrap_or_default())
    }

    fn given(&self, found: &Record) -> Duration {
        let given = found.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let given = given.and_then(|seconds| seconds.try_into().ok()).map(Duration::from_secs);
        given.filter(|given| *given <= LONGEST).unwrap_or(self.duration)
    }

    /// Returns the time of the cluster. Every holder writes it, so that `renewTime` can be compared on any machine.
    fn now(&self) -> OffsetDateTime {
        self.cluster.clock().now().unwrap_or_else(OffsetDateTime::now_utc)
    }

    fn micro_now(&self) -> String {
        micro_time(self.now())
    }

    async fn read(&self) -> Result<Option<Record>, ClusterError> {
        self.cluster.object(Some(&self.namespace), &self.name).await
    }

    /// Returns the current holder, and the remaining time by the clock of the cluster; `None` if the Lease is free.
    pub async fn holder(&self) -> Result<Option<(String, Duration)>, ClusterError> {
        let Some(found) = self.read().await? else { return Ok(None) };
        let name = holder_of(&found).to_string();
        let (until, now) = (self.until(&found).unix_timestamp(), self.now().unix_timestamp());
        let left = u64::try_from(until.saturating_sub(now)).ok().filter(|left| *left > 0 && !name.is_empty());
        Ok(left.map(|left| (name, Duration::from_secs(left).min(LONGEST))))
    }

    /// Releases the Lease if this process holds it, so that no other process has to wait until it expires.
    pub async fn release(&mut self) -> Result<(), ClusterError> {
        let mut reads = 0_u32;
        loop {
            let Some(found) = self.read().await?.filter(|found| holder_of(found) == self.holder) else {
                return Ok(());
            };
            reads = reads.saturating_add(1);
            let free = json!({"holderIdentity": "", "renewTime": self.micro_now()});
            match self.change(&found, free).await {
                // A renewal of this process was still on its way.
                Err(ClusterError::Conflict { .. }) if reads < MOST_READS => {}
                outcome => return outcome,
            }
        }
    }

    async fn change(&self, found: &Record, spec: Value) -> Result<(), ClusterError> {
        let version = version_of(found);
        let change = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        self.cluster.merge(&self.object(), &change).await.map(drop)
    }

    fn judge(&mut self, found: &Record, now: Instant) -> Verdict {
        let holder = holder_of(found);
        if holder == self.holder {
            return Verdict::Renew;
        }
        if holder.is_empty() {
            return Verdict::Take;
        }
        let version = version_of(found);
        let since = match &self.seen {
            Some(seen) if seen.version == version => seen.at,
            _ => {
                self.seen = Some(Seen { version: version.to_string(), at: now });
                now
            }
        };
        match self.given(found).saturating_sub(now.saturating_duration_since(since)) {
            Duration::ZERO => Verdict::Take,
            left => Verdict::Leave(left),
        }
    }

    fn spec(&self, transitions: i32) -> Value {
        let now = self.micro_now();
        json!({
            "holderIdentity": self.holder, "leaseDurationSeconds": self.duration.as_secs(),
            "acquireTime": now, "renewTime": now, "leaseTransitions": transitions,
        })
    }

    fn manifest(&self) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": "Lease",
            "metadata": {
                "namespace": self.namespace, "name": self.name, "labels": {MANAGED_BY.0: MANAGED_BY.1},
            },
            "spec": self.spec(0),
        })
    }
}

fn holder_of(found: &Record) -> &str {
    found.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn transitions_of(found: &Record) -> i32 {
    found.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default()
}

fn version_of(found: &Record) -> &str {
    found.metadata.resource_version.as_deref().unwrap_or_default()
}
