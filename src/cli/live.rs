//! The options of an operation on a live cluster, and the session that the operation opens.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use super::Context;
use super::homes::HomeArgs;
use crate::kube_api::Reach;
use crate::renumber::live::LINGER;
use crate::renumber::run::{Choices, RenumberSession};
use crate::session::Failure;
use crate::session::{LeaseTerms, Session, Settings};

/// How long to wait for an answer of an API server, if the operation does not need the API.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How to take the operation lease.
#[derive(Debug, Clone, Args)]
pub struct LockArgs {
    /// Take over the operation lease from a dead process of the same operation, without waiting until the lease expires
    #[arg(long)]
    take_over: bool,
    /// Seconds until the operation lease expires after its process is killed
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(2..=3600))]
    lock_ttl: u64,
}

impl LockArgs {
    /// Returns the settings of the operation lease.
    pub fn terms(&self) -> LeaseTerms {
        LeaseTerms { take_over: self.take_over, ttl: Duration::from_secs(self.lock_ttl) }
    }
}

/// How to run an operation.
#[derive(Debug, Clone, Args)]
pub struct LiveArgs {
    /// How many Services are changed at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u8).range(1..=64))]
    parallel: u8,
    /// Maximum writes per second
    #[arg(long, value_name = "N")]
    pub(super) rate: Option<NonZeroU32>,
    /// How many Services can be skipped because they changed or were deleted concurrently; one more stops the operation
    #[arg(long, value_name = "N", default_value = "0")]
    max_failures: u32,
    /// How to ask every kube-proxy whether it has applied the writes: `auto`, `direct`, `node-proxy` (through the
    /// API server), or a number of seconds to wait without verification
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = parse_reach)]
    barrier: Reach,
    /// In a rollback: how many seconds the new addresses still answer after every Service has its old address again, for clients
    /// that have cached a new address from DNS; at most 300 in the bitmap era
    #[arg(long, value_name = "SECONDS", default_value_t = LINGER.as_secs(), value_parser = clap::value_parser!(u64).range(..=3600))]
    linger: u64,
    /// Host of an API server that is permanently stopped: do not wait for its answer. Its Lease in `kube-system`
    /// remains for another hour
    #[arg(long, value_name = "HOST")]
    without_api_server: Vec<String>,
    /// Confirm by name that a manual step is complete: `flags`, `soak`, ... Refused while an API server shows that it is not
    #[arg(long, value_name = "WHAT")]
    pub(super) confirm: Vec<String>,
    /// Do not ask for confirmation before the start
    #[arg(short, long)]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) lock: LockArgs,
    /// Serve `GET /metrics` at this address, for Prometheus, while it runs; docs/metrics.md lists the metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics_listen: Option<String>,
    /// Write no Kubernetes Events about Services that move
    #[arg(long)]
    no_events: bool,
    #[command(flatten)]
    pub(super) home: HomeArgs,
}

fn parse_reach(text: &str) -> Result<Reach, String> {
    match text {
        "auto" => Ok(Reach::Auto),
        "direct" => Ok(Reach::Direct),
        "node-proxy" => Ok(Reach::NodeProxy),
        seconds => match seconds.parse::<u16>() {
            Ok(seconds) => Ok(Reach::Wait(Duration::from_secs(seconds.into()))),
            Err(_) => Err("give `auto`, `direct`, `node-proxy`, or a number of seconds".to_string()),
        },
    }
}

impl LiveArgs {
    /// Connects to etcd and the API, and checks that both belong to the same cluster.
    pub async fn open(&self, context: &Context) -> Result<RenumberSession, Failure> {
        let etcd = (self.home.etcd.connect().await?, self.home.etcd.layout());
        let cluster = self.home.kube.connect().await?;
        let session = Session::open(context.voice(), etcd, cluster, self.settings()).await?;
        Ok(RenumberSession::new(session, self.choices()))
    }

    /// Connects only to etcd; refuses if an API server answers.
    pub async fn open_without_api(
        &self,
        context: &Context,
        pause: Duration,
    ) -> Result<RenumberSession, Failure> {
        let etcd = (self.home.etcd.connect().await?, self.home.etcd.layout());
        let answers = timeout(PATIENCE, self.answering()).await.ok().flatten();
        let (voice, settings) = (context.voice(), self.settings());
        let session = Session::open_without_api(voice, etcd, answers, pause, settings).await?;
        Ok(RenumberSession::new(session, self.choices()))
    }

    /// Returns the URL of an API server that answers.
    async fn answering(&self) -> Option<String> {
        let cluster = self.home.kube.connect().await.ok()?;
        cluster.identity().await.ok().map(|_| cluster.server().to_string())
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            lease: self.lock.terms(),
            parallel: self.parallel.into(),
            rate: self.rate,
            max_failures: usize::try_from(self.max_failures).unwrap_or(usize::MAX),
            agreed: self.yes,
            confirm: self.confirm.clone(),
            metrics: self.metrics_listen.clone(),
        }
    }

    fn choices(&self) -> Choices {
        Choices {
            barrier: self.barrier,
            linger: Duration::from_secs(self.linger),
            without_api_servers: self.without_api_server.iter().cloned().collect(),
            events: !self.no_events,
        }
    }
}
