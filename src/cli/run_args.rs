//! The options for an operation on a live cluster, and the session that the operation opens.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use super::Context;
use super::ledger_args::LedgerArgs;
use crate::kube_api::BarrierRoute;
use crate::renumber::environment::LINGER;
use crate::renumber::run::{Choices, RenumberSession};
use crate::session::Failure;
use crate::session::{LeaseTerms, Session, Settings};

/// Maximum time to wait for an answer from an API server, if the operation does not need the API.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Number of copies that are changed at the same time by default: enough for an API server that is 20 ms away.
const COPIES_AT_ONCE: usize = 32;

/// How to acquire the operation lease.
#[derive(Debug, Clone, Args)]
pub struct LeaseArgs {
    /// Take over the operation lease at once. Use this only if the process that holds the lease for the same operation is dead or
    /// hangs. Without this option, netsurgeon waits until the lease expires
    #[arg(long)]
    take_over: bool,
    /// Seconds until the operation lease expires after the process is killed
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(2..=3600))]
    lock_ttl: u64,
}

impl LeaseArgs {
    /// Returns the settings of the operation lease.
    pub fn terms(&self) -> LeaseTerms {
        LeaseTerms { take_over: self.take_over, ttl: Duration::from_secs(self.lock_ttl) }
    }
}

/// How to run an operation of any kind.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Maximum number of Services, names of a cutover, or copies that are changed at the same time [default: 8; copies of a mirror:
    /// 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    parallel: Option<u8>,
    /// Maximum number of Services to skip because another client changed or deleted them, or because the API rejects a change; for
    /// a cutover, of names to skip. If there are more, the operation stops [default: 0; for a cutover: no limit]
    #[arg(long, value_name = "N")]
    pub(super) max_failures: Option<u32>,
    /// Do not ask for confirmation before the start
    #[arg(short, long)]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) lock: LeaseArgs,
    /// Serve `GET /metrics` for Prometheus at this address while the operation runs; docs/metrics.md lists the metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics_listen: Option<String>,
}

impl RunArgs {
    /// Returns the settings of a session that copies objects. One object never stops the others.
    pub fn settings_of_copies(&self) -> Settings {
        let parallel = self.parallel.map_or(COPIES_AT_ONCE, usize::from);
        Settings { parallel, ..self.settings(usize::MAX) }
    }

    /// Returns the settings of a session. `skipped`: the default for the number of subjects that can be skipped.
    pub fn settings(&self, skipped: usize) -> Settings {
        let most = self.max_failures.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let defaults = Settings::default();
        Settings {
            lease: self.lock.terms(),
            parallel: self.parallel.map_or(defaults.parallel, usize::from),
            max_failures: most.unwrap_or(skipped),
            agreed: self.yes,
            metrics: self.metrics_listen.clone(),
            ..defaults
        }
    }
}

/// How to run a renumbering, in addition to [`RunArgs`]. The options have no defaults here, so that another kind of operation can
/// refuse them.
#[derive(Debug, Clone, Args)]
pub struct RenumberRunArgs {
    /// Maximum number of writes per second [default: no limit]
    #[arg(long, value_name = "N")]
    pub(super) rate: Option<NonZeroU32>,
    /// How to check that every kube-proxy has applied the writes. `direct`: by a request to each node. `node-proxy`: by requests
    /// through the API server. `auto`: `direct` or, if this fails, `node-proxy`. A number: wait for this many seconds, without a
    /// check [default: auto]
    #[arg(long, value_name = "HOW", value_parser = parse_route)]
    barrier: Option<BarrierRoute>,
    /// How long the new addresses still answer after a rollback has moved the Services back, in seconds. Clients can still have a
    /// new address in their DNS cache. In the storage era `bitmap` (the default up to Kubernetes 1.32), the maximum is 300
    /// seconds [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=3600))]
    linger: Option<u64>,
    /// Host of an API server that is permanently stopped. netsurgeon does not wait for this API server. You need this option for
    /// about an hour after the stop, until the Lease of the API server in `kube-system` expires
    #[arg(long, value_name = "HOST")]
    without_api_server: Vec<String>,
    /// Do not create Kubernetes Events for the Services that move
    #[arg(long)]
    no_events: bool,
}

impl RenumberRunArgs {
    fn choices(&self) -> Choices {
        Choices {
            barrier: self.barrier.unwrap_or(BarrierRoute::Auto),
            linger: self.linger.map_or(LINGER, Duration::from_secs),
            without_api_servers: self.without_api_server.iter().cloned().collect(),
            events: !self.no_events,
            give_up: Vec::new(),
        }
    }

    /// Refuses these options for an operation of another kind.
    pub(super) fn refuse_of_another_kind(&self) -> Result<(), Failure> {
        let given = [
            ("--rate", self.rate.is_some()),
            ("--barrier", self.barrier.is_some()),
            ("--linger", self.linger.is_some()),
            ("--without-api-server", !self.without_api_server.is_empty()),
            ("--no-events", self.no_events),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => {
                Err(Failure::usage(format!("`{option}` is only for a renumbering")).hint("omit this option"))
            }
        }
    }
}

/// How to run an operation on a live cluster, with access to etcd and the API.
#[derive(Debug, Clone, Args)]
pub struct LiveArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Confirm that the manual step with this name is complete, for example `flags` or `soak`; can be repeated. netsurgeon
    /// refuses the confirmation if an API server shows that the step is not complete
    #[arg(long, value_name = "WHAT")]
    pub(super) confirm: Vec<String>,
    #[command(flatten)]
    pub(super) renumber: RenumberRunArgs,
    #[command(flatten)]
    pub(super) home: LedgerArgs,
}

fn parse_route(text: &str) -> Result<BarrierRoute, String> {
    match text {
        "auto" => Ok(BarrierRoute::Auto),
        "direct" => Ok(BarrierRoute::Direct),
        "node-proxy" => Ok(BarrierRoute::NodeProxy),
        seconds => match seconds.parse::<u16>() {
            Ok(seconds) => Ok(BarrierRoute::Wait(Duration::from_secs(seconds.into()))),
            Err(_) => Err("give `auto`, `direct`, `node-proxy`, or a number of seconds".to_string()),
        },
    }
}

impl LiveArgs {
    /// Connects to etcd and the API, and checks that both belong to the same cluster.
    pub async fn open(&self, context: &Context) -> Result<RenumberSession, Failure> {
        let etcd = (self.home.etcd.connect().await?, self.home.etcd.layout());
        let cluster = self.home.kube.connect().await?;
        let session = Session::open(context.ui(), etcd, cluster, self.settings()).await?;
        Ok(RenumberSession::new(session, self.renumber.choices()))
    }

    /// Connects only to etcd. Fails if an API server answers.
    pub async fn open_without_api(
        &self,
        context: &Context,
        pause: Duration,
    ) -> Result<RenumberSession, Failure> {
        let etcd = (self.home.etcd.connect().await?, self.home.etcd.layout());
        let answers = timeout(PATIENCE, self.answering()).await.ok().flatten();
        let (ui, settings) = (context.ui(), self.settings());
        let session = Session::open_without_api(ui, etcd, answers, pause, settings).await?;
        Ok(RenumberSession::new(session, self.renumber.choices()))
    }

    /// Returns the option `--max-failures` with a leading space, if it is not the default.
    pub(super) fn max_failures_option(&self) -> String {
        let most = self.run.max_failures.filter(|most| *most > 0);
        most.map(|most| format!(" --max-failures {most}")).unwrap_or_default()
    }

    /// Returns the URL of an API server that answers; `None` if no API server answers.
    async fn answering(&self) -> Option<String> {
        let cluster = self.home.kube.connect().await.ok()?;
        cluster.identity().await.ok().map(|_| cluster.server().to_string())
    }

    /// Returns the settings of a session that runs a renumbering.
    pub(super) fn settings(&self) -> Settings {
        let settings = self.run.settings(0);
        Settings { rate: self.renumber.rate, confirm: self.confirm.clone(), ..settings }
    }
}
