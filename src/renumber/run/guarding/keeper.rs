//! Keeps the Lease of the guards in the background, so that a look that takes long does not lose it, and tells
//! the guard whether it may mend.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{Lease, LeaseHolder};
use crate::operation::{Stop, StopSwitch};
use crate::session::{Connect, Failure};

const NAMESPACE: &str = "kube-system";
/// The Lease's name.
const NAME: &str = "netsurgeon-guard";

/// How many attempts to renew it fit into its duration.
const ATTEMPTS: u32 = 4;
/// For how long the end of the guard waits until the Lease is given back.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Whether this guard has the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nobody knows yet.
    Unknown,
    /// It has it, until then if nothing more is heard.
    Ours(Instant),
    /// Another has it, whose name this is.
    Other(String),
    /// It cannot be had, and why.
    Failed(String),
}

impl Standing {
    /// Whether this guard may mend.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(until) if Instant::now() < *until)
    }

    /// Why it may not, in words.
    fn words(&self) -> String {
        match self {
            Self::Unknown => "it is not known yet who has the Lease; this guard only watches".to_string(),
            Self::Ours(_) => "the Lease could not be renewed in time; this guard only watches".to_string(),
            Self::Other(holder) => format!("`{holder}` has the Lease and mends; this guard only watches"),
            Self::Failed(reason) => format!("this guard only watches, it cannot get the Lease: {reason}"),
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Ours(_), Self::Ours(_))) || self == other
    }
}

/// The Lease, kept by a task of its own until this is dropped or released.
pub struct Keeper {
    standing: watch::Receiver<Standing>,
    stop: StopSwitch,
    task: JoinHandle<()>,
}

struct Keeping {
    kube: Arc<dyn Connect>,
    cluster: String,
    holder: String,
    duration: Duration,
    lease: Option<Lease>,
    standing: watch::Sender<Standing>,
}

impl Keeper {
    /// Begins to ask for it; `cluster` is that of etcd, and must be the API's.
    pub fn start(kube: Arc<dyn Connect>, cluster: &str, duration: Duration) -> Self {
        let host = crate::host::name();
        let (sender, standing) = watch::channel(Standing::Unknown);
        let keeping = Keeping {
            kube,
            cluster: cluster.to_string(),
            // A host may have several guards, and a restarted one is another.
            holder: format!("{host}_{}", uuid::Uuid::new_v4()),
            duration,
            lease: None,
            standing: sender,
        };
        let (stop, asked) = Stop::new();
        Self { standing, stop, task: tokio::spawn(keeping.keep(asked)) }
    }

    /// Returns what tells how it stands.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Whether this guard may mend, or why not.
    pub fn may_mend(&self) -> Result<(), String> {
        let standing = self.standing.borrow();
        if standing.is_ours() { Ok(()) } else { Err(standing.words()) }
    }

    /// Waits until it is known who has it.
    pub async fn known(&mut self) {
        // An error is the end of the task, which is not before this is dropped.
        let _ = self.standing.wait_for(|standing| *standing != Standing::Unknown).await;
    }

    /// Waits until it passes from one to another.
    pub async fn passed(&mut self) {
        if self.standing.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Gives it back.
    pub async fn release(self) {
        self.stop.ask();
        let mut task = self.task;
        if timeout(LAST_WAIT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Keeping {
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
            tracing::debug!("the Lease was not given back: {error}");
        }
    }

    /// Takes or renews it; returns when to do so again.
    async fn turn(&mut self) -> Duration {
        let share = self.duration.checked_div(ATTEMPTS).unwrap_or(self.duration);
        let begun = Instant::now();
        let limit = if self.standing.borrow().is_ours() { share } else { self.duration };
        let (standing, pause) = match timeout(limit, self.attempt()).await {
            // The others see the change after this instant: they wait longer than this guard counts on it.
            Ok(Ok(LeaseHolder::Ours)) => {
                let until = begun.checked_add(self.duration.saturating_sub(share)).unwrap_or(begun);
                (Standing::Ours(until), share)
            }
            Ok(Ok(LeaseHolder::Other { name, left })) => (Standing::Other(name), left.min(share)),
            Ok(Err(failure)) => {
                let words: Vec<String> = failure.lines().into_iter().map(|(_, text)| text).collect();
                (Standing::Failed(words.join("; ")), share)
            }
            Err(_) => {
                let reason = format!("the API does not answer within {} ms", limit.as_millis());
                (Standing::Failed(reason), share)
            }
        };
        self.standing.send_if_modified(|now| {
            if matches!(standing, Standing::Failed(_)) && now.is_ours() {
                return false;
            }
            let is_news = !now.is_like(&standing);
            *now = standing;
            is_news
        });
        pause
    }

    async fn attempt(&mut self) -> Result<LeaseHolder, Failure> {
        if let Some(lease) = &mut self.lease {
            return Ok(lease.hold().await?);
        }
        let api = self.kube.connect().await?;
        if api.identity().await? != self.cluster {
            return Err(Failure::refused("the API is another cluster's than etcd"));
        }
        let lease = self.lease.insert(Lease::new(api, NAMESPACE, NAME, &self.holder, self.duration));
        Ok(lease.hold().await?)
    }
}
