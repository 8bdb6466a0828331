//! The operation lease decides which process runs an operation. A command that continues an operation waits until the lease of an
//! ended process expires. The command fails if the previous process is still alive.

use std::sync::Arc;
use std::time::Duration;

use super::{Api, Failure, LiveEtcd, Session, Ui};
use crate::kube_api::Cluster;
use crate::operation::{
    Ambient, ClusterLock, Held, LeaseHolder, Lock, OperationError, Silence, SystemAmbient, Terms,
};

/// The operation and the command that acquire the lease.
pub struct Taking<'a> {
    /// Id of the operation.
    pub operation: &'a str,
    /// Purpose of the operation, as text.
    pub purpose: &'a str,
}

/// Settings for the operation lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTerms {
    /// Whether to take the lease over from a process of the same operation, even if that process is alive.
    pub take_over: bool,
    /// Lifetime of the lease after its process was killed.
    pub ttl: Duration,
}

impl Session {
    /// Acquires the operation lease of the cluster. If the session has an API, also acquires the Kubernetes Lease of the cluster.
    /// If the session needs no API, and none answers, warns that operations without access to etcd are not excluded.
    pub async fn lock(&self, taking: &Taking<'_>) -> Result<Lock, Failure> {
        let (ui, lease) = (&self.ui, self.settings.lease);
        match self.api() {
            Api::Answers(api) => lease.take_both(ui, &self.store, &self.id, Ok(api), taking).await,
            Api::Silent { why: Some(why), .. } => {
                lease.take_both(ui, &self.store, &self.id, Err(why), taking).await
            }
            Api::Silent { time, .. } => lease.take(ui, &self.store, &self.id, taking, time.now()).await,
        }
    }
}

impl LeaseTerms {
    /// Acquires the operation lease like [`Self::take`], and then the Kubernetes Lease, which also excludes operations that do
    /// not use etcd. If no API answers (`api` contains the reason) or the Lease cannot be written, warns that these operations
    /// are not excluded.
    async fn take_both(
        self,
        ui: &Ui,
        store: &Arc<LiveEtcd>,
        cluster: &str,
        api: Result<&Cluster, &Failure>,
        taking: &Taking<'_>,
    ) -> Result<Lock, Failure> {
        // The start of an operation is compared with the times of its steps, which come from the clock of the cluster.
        let now = api.map_or_else(|_| SystemAmbient.now(), |api| Ambient::now(api.clock()));
        let lock = self.take(ui, store, cluster, taking, now).await?;
        // The fencing token is in etcd, where a previous process of this operation has lost the operation lease. So the
        // Kubernetes Lease can be taken over immediately.
        let terms = Terms { ttl: self.ttl, silence: Silence::Keeps, take_over: true };
        let reason = match api {
            Ok(api) => match lock_cluster(ui, api, lock.claim(), terms).await {
                Ok(beside) => return Ok(lock.with(beside)),
                Err(error @ OperationError::Locked(_)) => {
                    return release(lock, Err(words(error, taking))).await;
                }
                Err(error) => error.to_string(),
            },
            Err(failure) => failure.to_string(),
        };
        // A rollback must not depend on the Kubernetes Lease, so this is only a warning.
        ui.warn(&format!(
            "cannot acquire the Lease `{}`: {reason}; an operation that is recorded in the cluster could run at the same time",
            ClusterLock::LEASE
        ));
        Ok(lock)
    }

    /// Acquires the operation lease of a cluster. If a process holds the lease for the same operation and no longer renews it,
    /// waits until the lease expires. `now` is in seconds since 1970.
    async fn take(
        self,
        ui: &Ui,
        store: &Arc<LiveEtcd>,
        cluster: &str,
        taking: &Taking<'_>,
        now: i64,
    ) -> Result<Lock, Failure> {
        let claim = LeaseHolder::of_this_process(taking.operation, taking.purpose, now);
        let (store, ttl) = (store.clone(), self.ttl);
        let locked = if self.take_over {
            Lock::take_over(store, cluster, &claim, ttl).await
        } else {
            let mut countdown = ui.countdown();
            let mut waiting = |held: &Held| {
                let LeaseHolder { holder, pid, .. } = &held.claim;
                let left = held.left.unwrap_or_default();
                countdown(
                    left,
                    &format!(
                        "waiting until the operation lease of `{holder}` (pid {pid}) expires (`--take-over` does not wait)"
                    ),
                );
            };
            Lock::acquire_after(store, cluster, &claim, ttl, &mut waiting).await
        };
        locked.map_err(|error| words(error, taking))
    }
}

/// Acquires the Kubernetes Lease of the cluster. If another process holds the Lease, waits to find out whether that process still
/// renews the Lease, and reports this wait.
pub(super) async fn lock_cluster(
    ui: &Ui,
    api: &Cluster,
    claim: &LeaseHolder,
    terms: Terms,
) -> Result<ClusterLock, OperationError> {
    let mut countdown = ui.countdown();
    let mut waiting = |held: &Held| {
        let (left, claim) = (held.left.unwrap_or_default(), &held.claim);
        countdown(left, &format!("checking whether {claim} is still running"));
    };
    ClusterLock::acquire(api, claim, terms, &mut waiting).await
}

/// Returns the failure for an operation lease that could not be acquired.
pub(super) fn words(error: OperationError, taking: &Taking<'_>) -> Failure {
    match error {
        OperationError::Locked(held) => refused(&held, taking),
        error => error.into(),
    }
}

/// Returns the failure for a lease that another process holds.
fn refused(held: &Held, taking: &Taking<'_>) -> Failure {
    let operation = taking.operation;
    if held.claim.operation == operation {
        return Failure::refused(format!("another process runs operation `{operation}`: {held}"))
            .hint(format!("to see its progress: `netsurgeon operation show {operation}`"))
            .hint("if that process has ended or hangs: run this command again with `--take-over`");
    }
    let ends = held.left.map_or_else(
        || format!("if that process has ended, delete `{}` from etcd, then run this command again", held.key),
        |left| {
            let seconds = left.as_secs().saturating_add(1);
            format!(
                "if that process has ended, its lease expires in {seconds} s: then run this command again"
            )
        },
    );
    Failure::refused(format!("another operation of this cluster is running: {held}"))
        .hint("wait until it has ended: only one operation per cluster can run at a time")
        .hint(ends)
}

/// Releases the lease, and returns the outcome unchanged.
pub async fn release<T>(lock: Lock, outcome: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(error) = lock.release().await {
        tracing::warn!(%error, "cannot release the operation lease; it expires by itself");
    }
    outcome
}

/// Releases the Kubernetes Lease.
pub(super) async fn release_cluster(lock: ClusterLock) {
    if let Err(error) = lock.release().await {
        tracing::warn!(%error, "cannot release the operation lease; it expires by itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(operation: &str, left: Option<u64>) -> Held {
        let claim = LeaseHolder {
            holder: "alice@cp-1".into(),
            pid: 4711,
            operation: operation.into(),
            purpose: "renumber to 10.200.0.0/16".into(),
            since: 1_800_000_000,
        };
        Held { key: "/netsurgeon/one/lock".into(), claim, left: left.map(Duration::from_secs) }
    }

    fn said(held: &Held) -> String {
        let failure = refused(held, &Taking { operation: "renumber-1", purpose: "" });
        failure.lines().into_iter().map(|(_, text)| text + "\n").collect()
    }

    #[test]
    fn lease_of_the_same_operation_offers_take_over() {
        let said = said(&held("renumber-1", Some(41)));
        assert!(
            said.contains("another process runs operation `renumber-1`: `alice@cp-1` (pid 4711)"),
            "{said}"
        );
        assert!(said.contains("expires in 41 s"), "{said}");
        assert!(said.contains("again with `--take-over`"), "{said}");
    }

    #[test]
    fn lease_of_another_operation_offers_no_take_over() {
        for (left, hint) in [(Some(41), "expires in 42 s"), (None, "delete `/netsurgeon/one/lock`")] {
            let said = said(&held("renumber-2", left));
            assert!(said.contains("another operation of this cluster is running"), "{said}");
            assert!(said.contains("for operation `renumber-2`") && said.contains(hint), "{said}");
            assert!(!said.contains("--take-over"), "{said}");
        }
    }
}
