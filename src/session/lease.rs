//! The operation lease: which process runs an operation. A command that continues one waits for the lease of a process
//! that is gone, and refuses beside one that is alive.

use std::sync::Arc;
use std::time::Duration;

use super::{Failure, LiveEtcd, Session, Voice};
use crate::cluster::Cluster;
use crate::operation::{
    Ambient as _, Claim, ClusterLock, Held, Lock, OperationError, Silence, SystemAmbient, Terms,
};

/// What takes the lease.
pub struct Taking<'a> {
    /// The operation's id.
    pub operation: &'a str,
    /// What it is taken for, in words.
    pub purpose: &'a str,
    /// The command that takes it.
    pub command: &'a str,
}

/// How to take the operation lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTerms {
    /// From a process of the same operation, whatever it does.
    pub take_over: bool,
    /// How long it outlives a process that was killed.
    pub ttl: Duration,
}

impl Session {
    /// Takes the operation lease of the cluster, and the cluster's Lease too while an API server is asked.
    pub async fn lock(&self, taking: &Taking<'_>) -> Result<Lock, Failure> {
        let (voice, lease) = (&self.voice, self.settings.lease);
        match self.cluster() {
            Some(api) => lease.take_both(voice, &self.store, &self.id, Ok(api), taking).await,
            None => lease.take(voice, &self.store, &self.id, taking).await,
        }
    }
}

impl LeaseTerms {
    /// Takes the operation lease as [`Self::take`], and the cluster's Lease, which operations hold that change no etcd. Where
    /// no API answers, for the reason given, or the Lease cannot be written, a warning says what is not excluded.
    pub async fn take_both(
        self,
        voice: &Voice,
        store: &Arc<LiveEtcd>,
        cluster: &str,
        api: Result<&Cluster, &Failure>,
        taking: &Taking<'_>,
    ) -> Result<Lock, Failure> {
        let lock = self.take(voice, store, cluster, taking).await?;
        // The fence is in etcd: a process that ran this operation before has lost it with the lock there.
        let terms = Terms { ttl: self.ttl, silence: Silence::Keeps, take_over: true };
        let reason = match api {
            Ok(api) => match lock_cluster(voice, api, lock.claim(), terms).await {
                Ok(beside) => return Ok(lock.with(beside)),
                Err(error @ OperationError::Locked(_)) => {
                    return release(lock, Err(words(error, taking))).await;
                }
                Err(error) => error.to_string(),
            },
            Err(failure) => failure.to_string(),
        };
        // A rollback must not depend on the Lease.
        voice.warn(&format!(
            "the Lease `{}` could not be taken, so operations that change no etcd are not excluded: {reason}",
            ClusterLock::LEASE
        ));
        Ok(lock)
    }

    /// Takes the operation lease of a cluster. Where a process holds it for the same operation and does not renew it
    /// any more, waits until it ends.
    pub async fn take(
        self,
        voice: &Voice,
        store: &Arc<LiveEtcd>,
        cluster: &str,
        taking: &Taking<'_>,
    ) -> Result<Lock, Failure> {
        let claim = Claim::of_this_process(taking.operation, taking.purpose, SystemAmbient.now());
        let (store, ttl) = (store.clone(), self.ttl);
        let locked = if self.take_over {
            Lock::take_over(store, cluster, &claim, ttl).await
        } else {
            let mut countdown = voice.countdown();
            let mut waiting = |held: &Held| {
                let Claim { holder, pid, .. } = &held.claim;
                let left = held.left.unwrap_or_default();
                countdown.show(
                    left,
                    &format!(
                        "waiting for the operation lease of `{holder}` (pid {pid}), which runs this operation or is gone \
                         (`--take-over` does not wait)"
                    ),
                );
            };
            Lock::acquire_after(store, cluster, &claim, ttl, &mut waiting).await
        };
        locked.map_err(|error| words(error, taking))
    }
}

/// Takes the cluster's Lease, and says so while it looks whether somebody who has it renews it.
pub async fn lock_cluster(
    voice: &Voice,
    api: &Cluster,
    claim: &Claim,
    terms: Terms,
) -> Result<ClusterLock, OperationError> {
    let mut countdown = voice.countdown();
    let mut waiting = |held: &Held| {
        let (left, claim) = (held.left.unwrap_or_default(), &held.claim);
        countdown.show(left, &format!("waiting to see whether {claim} is still at work"));
    };
    ClusterLock::acquire(api, claim, terms, &mut waiting).await
}

fn words(error: OperationError, taking: &Taking<'_>) -> Failure {
    match error {
        OperationError::Locked(held) => refused(&held, taking),
        error => error.into(),
    }
}

/// Words that a process holds the lease.
fn refused(held: &Held, taking: &Taking<'_>) -> Failure {
    let Taking { operation, command, .. } = taking;
    if held.claim.operation == *operation {
        return Failure::refused(format!("another process runs operation `{operation}`: {held}"))
            .hint("`netsurgeon renumber status --watch` shows what it does")
            .hint(format!("if that process is gone or hangs: `{command} --take-over`"));
    }
    let ends = held.left.map_or_else(
        || format!("if that process is gone, delete `{}` from etcd, then run this command again", held.key),
        |left| {
            let seconds = left.as_secs().saturating_add(1);
            format!(
                "if that process is gone, its lease ends by itself: run this command again in {seconds} s"
            )
        },
    );
    Failure::refused(format!("another operation of this cluster is running: {held}"))
        .hint("wait until it has ended: one operation of a cluster runs at a time")
        .hint(ends)
}

/// Gives the lease back, however it went with what it was taken for.
pub async fn release<T>(lock: Lock, outcome: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(error) = lock.release().await {
        tracing::warn!(%error, "the operation lease could not be given back; it ends by itself");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(operation: &str, left: Option<u64>) -> Held {
        let claim = Claim {
            holder: "alice@cp-1".into(),
            pid: 4711,
            operation: operation.into(),
            purpose: "renumber to 10.200.0.0/16".into(),
            since: 1_800_000_000,
        };
        Held { key: "/netsurgeon/one/lock".into(), claim, left: left.map(Duration::from_secs) }
    }

    fn said(held: &Held) -> String {
        let (operation, command) = ("renumber-1", "netsurgeon operation resume renumber-1");
        let failure = refused(held, &Taking { operation, purpose: "", command });
        failure.lines().into_iter().map(|(_, text)| text + "\n").collect()
    }

    #[test]
    fn a_lease_of_the_same_operation_offers_to_take_it_over() {
        let said = said(&held("renumber-1", Some(41)));
        assert!(
            said.contains("another process runs operation `renumber-1`: `alice@cp-1` (pid 4711)"),
            "{said}"
        );
        assert!(said.contains("ends in 41 s"), "{said}");
        assert!(said.contains("`netsurgeon operation resume renumber-1 --take-over`"), "{said}");
    }

    #[test]
    fn a_lease_of_another_operation_is_not_to_be_taken_over() {
        for (left, hint) in [(Some(41), "again in 42 s"), (None, "delete `/netsurgeon/one/lock`")] {
            let said = said(&held("renumber-2", left));
            assert!(said.contains("another operation of this cluster is running"), "{said}");
            assert!(said.contains("for operation `renumber-2`") && said.contains(hint), "{said}");
            assert!(!said.contains("--take-over"), "{said}");
        }
    }
}
