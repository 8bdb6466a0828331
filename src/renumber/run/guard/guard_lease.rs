//! Holds the Lease of the guards in the background, so that the Lease does not expire during a long check. The guard is allowed
//! to repair only while it holds the Lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::kube_api::{Lease, LeaseState};
use crate::operation::{Stop, StopSwitch};
use crate::session::{Connect, Failure};

const NAMESPACE: &str = "kube-system";
/// Name of the Lease.
const NAME: &str = "netsurgeon-guard";

/// Number of attempts to renew the Lease within its duration.
const ATTEMPTS: u32 = 4;
/// Maximum time that the guard waits at its end until the Lease is released.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Whether this guard holds the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// The holder is not known yet.
    Unknown,
    /// This guard holds the Lease. Without a renewal, this guard relies on the Lease only until this time.
    Ours(Instant),
    /// Another guard holds the Lease. The value is its name.
    Other(String),
    /// The Lease cannot be acquired. The value is the reason.
    Failed(String),
}

impl Leadership {
    /// Returns whether this guard holds the Lease, and so is allowed to repair.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(until) if Instant::now() < *until)
    }

    /// Returns the reason why this guard is not allowed to repair, as a message.
    fn words(&self) -> String {
        match self {
            Self::Unknown => "the holder of the Lease is not known yet; this guard only watches".to_string(),
            Self::Ours(_) => "the Lease was not renewed in time; this guard only watches".to_string(),
            Self::Other(holder) => format!("`{holder}` holds the Lease and repairs; this guard only watches"),
            Self::Failed(reason) => {
                format!("this guard only watches, because it cannot acquire the Lease: {reason}")
            }
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Ours(_), Self::Ours(_))) || self == other
    }
}

/// Holds the Lease in a separate task until [`Self::release`] is called.
pub struct GuardLease {
    standing: watch::Receiver<Leadership>,
    stop: StopSwitch,
    task: JoinHandle<()>,
}

struct GuardLeaseRenewal {
    kube: Arc<dyn Connect>,
    cluster: String,
    holder: String,
    duration: Duration,
    lease: Option<Lease>,
    standing: watch::Sender<Leadership>,
}

impl GuardLease {
    /// Starts the task that acquires the Lease. `cluster` is the identity of the cluster in etcd; the API must have the same
    /// identity.
    pub fn start(kube: Arc<dyn Connect>, cluster: &str, duration: Duration) -> Self {
        let host = crate::host::name();
        let (sender, standing) = watch::channel(Leadership::Unknown);
        let keeping = GuardLeaseRenewal {
            kube,
            cluster: cluster.to_string(),
            // The name is unique, because a host can run several guards, and a restarted guard counts as a new holder.
            holder: format!("{host}_{}", uuid::Uuid::new_v4()),
            duration,
            lease: None,
            standing: sender,
        };
        let (stop, asked) = Stop::new();
        Self { standing, stop, task: tokio::spawn(keeping.keep(asked)) }
    }

    /// Returns a receiver that shows whether this guard holds the Lease.
    pub fn standing(&self) -> watch::Receiver<Leadership> {
        self.standing.clone()
    }

    /// Returns an error with the reason if this guard is not allowed to repair.
    pub fn may_repair(&self) -> Result<(), String> {
        let standing = self.standing.borrow();
        if standing.is_ours() { Ok(()) } else { Err(standing.words()) }
    }

    /// Waits until the holder of the Lease is known.
    pub async fn known(&mut self) {
        // An error means that the task has ended. The task ends only when `self` is released.
        let _ = self.standing.wait_for(|standing| *standing != Leadership::Unknown).await;
    }

    /// Waits until the holder of the Lease changes.
    pub async fn passed(&mut self) {
        if self.standing.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Releases the Lease.
    pub async fn release(self) {
        self.stop.ask();
        let mut task = self.task;
        if timeout(LAST_WAIT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl GuardLeaseRenewal {
    async fn keep(mut self, stop: Stop) {
        loop {
            let pause = tokio::select! {
                () = stop.asked() => break,
                pause = self.turn() => pause,
            };
            tokio::select! {
                () = stop.asked() => break,
                () = sleep(pause) => {}
            }
        }
        if let Some(mut lease) = self.lease.take()
            && let Err(error) = lease.release().await
        {
            tracing::debug!("the Lease was not released: {error}");
        }
    }

    /// Tries to acquire or renew the Lease. Returns the time until the next attempt.
    async fn turn(&mut self) -> Duration {
        let share = self.duration.checked_div(ATTEMPTS).unwrap_or(self.duration);
        let start = Instant::now();
        let limit = if self.standing.borrow().is_ours() { share } else { self.duration };
        let (standing, pause) = match timeout(limit, self.attempt()).await {
            // Other guards observe the renewal after `start`. So this guard stops relying on the Lease before another guard can
            // acquire it.
            Ok(Ok(LeaseState::Ours)) => {
                let until = start.checked_add(self.duration.saturating_sub(share)).unwrap_or(start);
                (Leadership::Ours(until), share)
            }
            Ok(Ok(LeaseState::Other { name, left })) => (Leadership::Other(name), left.min(share)),
            Ok(Err(failure)) => {
                let words: Vec<String> = failure.lines().into_iter().map(|(_, text)| text).collect();
                (Leadership::Failed(words.join("; ")), share)
            }
            Err(_) => {
                let reason = format!("the API does not answer within {} ms", limit.as_millis());
                (Leadership::Failed(reason), share)
            }
        };
        self.standing.send_if_modified(|now| {
            if matches!(standing, Leadership::Failed(_)) && now.is_ours() {
                return false;
            }
            let is_news = !now.is_like(&standing);
            *now = standing;
            is_news
        });
        pause
    }

    async fn attempt(&mut self) -> Result<LeaseState, Failure> {
        if let Some(lease) = &mut self.lease {
            return Ok(lease.hold().await?);
        }
        let api = self.kube.connect().await?;
        if api.identity().await? != self.cluster {
            return Err(Failure::refused("the API and etcd belong to different clusters"));
        }
        let lease = self.lease.insert(Lease::new(api, NAMESPACE, NAME, &self.holder, self.duration));
        Ok(lease.hold().await?)
    }
}
