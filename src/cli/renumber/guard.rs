//! `netsurgeon renumber guard`: keeps the old addresses held during the soak, even if clients change their Services.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::api::KubeArgs;
use crate::cli::output::{Output, Tone};
use crate::cli::source::EtcdArgs;
use crate::cli::{Context, Outcome};
use crate::renumber::run::guard::{Guard, Line, Lines, Pass};
use crate::session::Failure;

/// Restore lost holds of old addresses during the soak
///
/// Clients can remove a hold. If a client replaces a Service, the new object does not hold the old address. If a client deletes a
/// Service, no Service has the old address, and the address stays reserved. The guard checks all holds every few seconds, repairs
/// the holds that it can repair, and reports other problems. Each repair and its journal record are one transaction.
///
/// While another process runs an operation, the guard repairs no hold. It only updates copies of endpoints. Several guards can
/// run at the same time. With `--lease`, only one guard repairs holds, and the other guards only watch. The guard needs the
/// Kubernetes API for `--lease`, and to copy the selector, the ports or the endpoints of a Service to its shadow.
///
/// The guard ends when the renumbering ends, or on SIGINT or SIGTERM. With `--once`, the exit status is 3 if findings or repairs
/// remain, and 6 if another process runs an operation. For a soak of several days, run the guard in the cluster with
/// deploy/guard.yaml (docs/guard.md).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # in the foreground, until the renumbering ends
  netsurgeon renumber guard
  netsurgeon renumber guard --once                    # from a timer
  netsurgeon renumber guard --once --dry-run          # only report the repairs
  netsurgeon renumber guard -o json >> guard.log      # one JSON object per line
  netsurgeon renumber guard --metrics-listen 127.0.0.1:9464
  # several guards in a Deployment: one of them repairs
  netsurgeon renumber guard --stay --lease")]
pub struct GuardArgs {
    /// Id of the renumbering [default: the renumbering under way]
    #[arg(long, value_name = "ID")]
    operation: Option<String>,
    /// Check once, repair the holds that can be repaired, and exit
    #[arg(long)]
    once: bool,
    /// Seconds between two checks
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Only report the repairs that are needed
    #[arg(long)]
    dry_run: bool,
    /// If there is no renumbering, or if a renumbering ends, do not exit. Wait for the next renumbering, until SIGINT or SIGTERM
    #[arg(long, conflicts_with_all = ["once", "operation"])]
    stay: bool,
    /// Serve `GET /metrics`, for Prometheus, and `GET /healthz` at this address; docs/metrics.md lists the metrics
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "once")]
    metrics_listen: Option<String>,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// The Lease of the guards.
#[derive(Debug, Clone, Args)]
pub struct LeaseArgs {
    /// Repair only while this guard holds the Lease `kube-system/netsurgeon-guard`. While another guard holds the Lease, only
    /// watch
    #[arg(long, conflicts_with_all = ["once", "dry_run"])]
    lease: bool,
    /// If a guard does not renew the Lease for this many seconds, another guard acquires the Lease
    #[arg(long, value_name = "SECONDS", default_value = "15", requires = "lease")]
    #[arg(value_parser = clap::value_parser!(u64).range(4..=3600))]
    lease_duration: u64,
}

/// Runs the command.
pub async fn run(context: &Context, args: &GuardArgs) -> Result<Outcome, Failure> {
    // The guard needs these handlers, because process 1 of a container ignores a signal that has no handler.
    let told = if args.once { None } else { Some(Signals::new()?) };
    let guard = Guard {
        operation: args.operation.clone(),
        interval: Duration::from_secs(args.interval),
        dry_run: args.dry_run,
        stay: args.stay,
        metrics: args.metrics_listen.clone(),
        lease: args.lease.lease.then(|| Duration::from_secs(args.lease.lease_duration)),
        layout: args.etcd.layout(),
        store: args.etcd.connect().await?,
        kube: Arc::new(args.kube.clone()),
    };
    let (ui, lines) = (context.ui(), &context.output);
    let Some(told) = told else {
        return Ok(match guard.once(&ui, lines).await? {
            Pass::Fine => Outcome::Done,
            Pass::Wrong => Outcome::Findings,
            Pass::Busy => Outcome::Paused,
        });
    };
    guard.keep(&ui, lines, told.received()).await?;
    Ok(Outcome::Done)
}

/// The signals that end the guard. A signal is safe at any time, because etcd executes a transaction either completely or not at
/// all.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn received(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Lines for Output {
    fn line(&self, line: &Line<'_>) -> Result<(), Failure> {
        if self.is_structured() {
            // Plain data always serializes.
            return Self::line(self, &serde_json::to_string(line).unwrap_or_default());
        }
        let time = OffsetDateTime::from_unix_timestamp(line.at).ok();
        let time = time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default();
        let tone = match line.event {
            "wrong" | "failed" => Tone::Bad,
            "would-repair" | "busy" | "standby" => Tone::Careful,
            _ => Tone::Good,
        };
        let event = self.paint(tone, line.event);
        let words = [event.as_str(), line.code, line.subject, line.message];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        Self::line(self, &format!("{time}  {}", words.join("  ")))
    }
}
