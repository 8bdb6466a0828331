//! Carrying an operation out on a live cluster: what `renumber apply`, `retire`, `rollback` and `operation
//! resume` share. Connect to etcd and to the API, take the lock, go on where the journal says, and say how it
//! ended.

mod approving;
mod connecting;
mod gone;
mod kubelets;
mod node_local_dns;
mod renewing;
mod sealing;
mod sweeping;
mod turning;
mod watchers;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use self::renewing::renew;
use self::turning::{Arrival, go, rolled_back};
use self::watchers::Watchers;
use super::Context;
use super::api::KubeArgs;
use super::failure::{Failure, Kind};
use super::gates::{Gatekeeper, Gates};
use super::metrics::{Counted, Metrics};
use super::output::Output;
use super::source::EtcdArgs;
use crate::cli::source::LiveEtcd;
use crate::cluster::{Cluster, Reach};
use crate::operation::{
    self, Ambient, Checkpoint, Claim, Executor, Journal, Lock, OperationError, Plan, REMOVING, Report,
    StepId, Stop, StopSwitch, Stuck, Summary, SystemAmbient, Work,
};
use crate::renumber::live::LINGER;
use crate::renumber::plan::KIND;
use crate::renumber::{Renumbering, is_past_no_return};
use crate::store::{ReadStore, Revision};

/// How to carry an operation out.
#[derive(Debug, Clone, Args)]
pub struct LiveArgs {
    /// Services in flight at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u8).range(1..=64))]
    parallel: u8,
    /// Writes a second, at most
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    /// Services that may be left alone because someone else changed or deleted them; with one more it stops
    #[arg(long, value_name = "N", default_value = "0")]
    max_failures: u32,
    /// How every kube-proxy is asked whether it has applied what was written: `auto`, `direct`, `node-proxy`
    /// (through the API server), or so many seconds of waiting, which prove nothing
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = parse_reach)]
    barrier: Reach,
    /// On the way back: how long the new addresses go on answering once every Service has its old one again, in
    /// seconds, for those who resolved a name a moment before
    #[arg(long, value_name = "SECONDS", default_value_t = LINGER.as_secs(), value_parser = clap::value_parser!(u64).range(..=3600))]
    linger: u64,
    /// Say that something which others do is done, by its name: `flags`, `soak`, ...
    #[arg(long, value_name = "WHAT")]
    confirm: Vec<String>,
    /// Do not ask whether to begin
    #[arg(short, long)]
    yes: bool,
    /// Take the lock from a process that carried out the same operation and is known to be gone
    #[arg(long)]
    take_over: bool,
    /// How long the lock outlives a process that was killed, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(2..=3600))]
    lock_ttl: u64,
    /// Answer `GET /metrics` here, for Prometheus, while it runs; docs/metrics.md lists what there is
    #[arg(long, value_name = "ADDR:PORT")]
    metrics_listen: Option<String>,
    /// Write no Kubernetes event about each Service that moves
    #[arg(long)]
    no_events: bool,
    #[command(flatten)]
    pub(super) etcd: EtcdArgs,
    #[command(flatten)]
    kube: KubeArgs,
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
    /// These, with something more that is done.
    pub fn confirming(&self, name: &str) -> Self {
        let mut args = self.clone();
        args.confirm.push(name.to_string());
        args
    }

    /// Asks whether to begin, unless told not to.
    pub fn ask(&self, output: &Output, question: &str) -> Result<(), Failure> {
        output.ask(question, self.yes)
    }
}

/// A live cluster: its etcd and its API, which were found to be the same cluster's.
pub struct Session {
    /// The etcd.
    pub store: Arc<LiveEtcd>,
    /// The API.
    api: Api,
    /// The uid of the namespace `kube-system`.
    pub id: String,
    metrics: Option<Metrics>,
    /// What is asked between batches.
    gates: Gates,
}

/// The Kubernetes API.
enum Api {
    Answers(Box<Cluster>),
    /// It does not, and nobody asks: each wait takes as long as this.
    Silent(Duration),
}

/// Where to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// On, up to but not including a stage, or to the end.
    Forward(Option<usize>),
    /// Back to the start.
    Back,
    /// Every Service back to its old address, and nothing that needs the API.
    MovesBack,
}

impl Way {
    /// The command that goes on.
    fn goes_on(self, operation: &str) -> String {
        let verb = if matches!(self, Self::Forward(_)) { "resume" } else { "rollback" };
        format!("netsurgeon operation {verb} {operation}")
    }
}

/// An operation that has a journal.
pub struct Ongoing {
    /// Its id.
    pub operation: String,
    /// What it carries out.
    pub plan: Plan<Renumbering>,
    /// What was done.
    pub journal: Journal,
    /// How it stands.
    pub summary: Summary,
    /// Whether its journal goes once it is done.
    pub journal_goes: bool,
}

impl Session {
    /// The same with gates between batches.
    pub fn with_gates(self, gates: Gates) -> Self {
        Self { gates, ..self }
    }

    /// Whether no API server is asked for anything.
    pub fn is_without_api(&self) -> bool {
        matches!(self.api, Api::Silent(_))
    }

    /// The API; `None` while no API server is asked.
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.api {
            Api::Answers(cluster) => Some(cluster),
            Api::Silent(_) => None,
        }
    }

    /// Returns the names of the Nodes; none while no API server is asked.
    pub async fn nodes(&self) -> Result<Vec<String>, Failure> {
        let Some(cluster) = self.cluster() else { return Ok(Vec::new()) };
        Ok(cluster.nodes().await?.into_iter().map(|node| node.name).collect())
    }

    /// Returns the renumberings of this cluster that have not come to an end.
    pub async fn unfinished(&self) -> Result<Vec<String>, Failure> {
        unfinished(self.store.as_ref(), &self.id).await
    }

    /// Opens an operation by its id, or the one that has not come to an end.
    pub async fn find(&self, operation: Option<&str>) -> Result<Ongoing, Failure> {
        open_operation(self.store.as_ref(), &self.id, operation, None).await
    }

    /// Returns who holds the cluster's lock, `None` if nobody does.
    pub async fn holder(&self) -> Result<Option<operation::Held>, Failure> {
        Ok(Lock::holder(self.store.as_ref(), &self.id).await?)
    }

    /// Takes the cluster's lock for an operation.
    pub async fn lock(&self, args: &LiveArgs, operation: &str, purpose: &str) -> Result<Lock, Failure> {
        let claim = Claim::of_this_process(operation, purpose, SystemAmbient.now());
        let (store, ttl) = (self.store.clone(), Duration::from_secs(args.lock_ttl));
        let locked = if args.take_over {
            Lock::take_over(store, &self.id, &claim, ttl).await
        } else {
            Lock::acquire(store, &self.id, &claim, ttl).await
        };
        Ok(locked?)
    }

    /// Goes on with an operation, and writes into its journal how it stands afterwards. At a gate that is closed it may
    /// roll everything back, which is a failure.
    pub async fn carry_out(
        &self,
        context: &Context,
        args: &LiveArgs,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Way,
    ) -> Result<Report, Failure> {
        match self.carry(context, args, ongoing, lock, way).await? {
            Arrival::There(report) => Ok(report),
            Arrival::Gate(closed) => {
                let report = self.roll_back(context, args, ongoing, lock).await?;
                Err(rolled_back(&closed, &report, &ongoing.operation))
            }
        }
    }

    async fn carry(
        &self,
        context: &Context,
        args: &LiveArgs,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Way,
    ) -> Result<Arrival, Failure> {
        let (work, journal) = (&ongoing.plan.work, &mut ongoing.journal);
        let approver = self.approver(context, args, work, last_move(work, journal));
        let boxed = self.world(args, &ongoing.operation, work, &approver, lock);
        let world = boxed.as_ref();
        let renewed = renew(&context.output, &self.store, world, work, journal, lock).await;
        renewed.map_err(|failure| left_open(failure, &ongoing.operation, way))?;
        let (switch, stop) = Stop::new();
        let listener = tokio::spawn(listen(context.output.clone(), switch));
        let about = (ongoing.operation.as_str(), work, &*journal);
        let mut watchers = Watchers::new(&context.output, self, args, about, way);
        let writes = self.metrics.as_ref().map(Metrics::writes).unwrap_or_default();
        let store = Counted { store: self.store.as_ref(), writes };
        let keeper = Gatekeeper::new(&self.gates, &context.output, &ongoing.operation);
        let mut executor = Executor {
            guards: vec![lock.guard()],
            parallel: args.parallel.into(),
            stop,
            rate: args.rate,
            max_failures: usize::try_from(args.max_failures).unwrap_or(usize::MAX),
            checkpoint: self.gates.are_there().then_some(&keeper as &dyn Checkpoint),
            ..Executor::new(&store, world, &SystemAmbient, &mut watchers, journal)
        };
        let outcome = go(&mut executor, work, way, &keeper).await;
        listener.abort();
        watchers.finish().await;
        drop(boxed);
        self.noted(ongoing, lock, way, outcome).await
    }

    /// Writes how it went, and says it.
    async fn noted(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Way,
        outcome: Result<Arrival, operation::Failure>,
    ) -> Result<Arrival, Failure> {
        let noted = self.note(ongoing, lock, way, &outcome).await;
        if let (Err(_), Err(unnoted)) = (&outcome, &noted) {
            // What stopped it says more than that this could not be written down.
            tracing::warn!(error = %unnoted.error, "the journal could not be told how the operation stands");
        }
        let arrival = outcome.map_err(|failure| stopped(failure, &ongoing.operation, way))?;
        noted.map_err(|failure| left_open(failure, &ongoing.operation, way))?;
        Ok(arrival)
    }

    /// Writes how an operation stands, unless the lock is somebody else's by now.
    async fn note(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Way,
        outcome: &Result<Arrival, operation::Failure>,
    ) -> Result<(), Failure> {
        let status = match (way, outcome) {
            (_, Ok(Arrival::Gate(_))) => return Ok(()),
            (_, Err(failure)) => match &failure.source {
                // Somebody else's by now, or refused before its first step: it stands as it did.
                OperationError::LockLost { .. }
                | OperationError::Locked(_)
                | OperationError::PointOfNoReturn { .. }
                | OperationError::BeingUndone => return Ok(()),
                source if source.is_pause() => "paused",
                OperationError::BatchStuck { .. } => "stuck",
                _ => "stopped",
            },
            (Way::Back | Way::MovesBack, Ok(Arrival::There(report))) if !report.stuck.is_empty() => "stuck",
            (Way::Forward(None), Ok(Arrival::There(report))) if !ongoing.still_held(report).is_empty() => {
                "stuck"
            }
            (Way::Back, Ok(Arrival::There(_))) => "rolled-back",
            (Way::MovesBack, Ok(Arrival::There(_))) => "paused",
            (Way::Forward(Some(_)), Ok(Arrival::There(_))) => "held",
            (Way::Forward(None), Ok(Arrival::There(_))) => "done",
        };
        ongoing.summary.status = status.to_string();
        // In one write with its end: whoever is interrupted in between leaves what the next `retire` takes away.
        let status = if status == "done" && ongoing.journal_goes { REMOVING } else { status };
        let now = SystemAmbient.now();
        Ok(ongoing.journal.set_status(self.store.as_ref(), status, now, &[lock.guard()]).await?)
    }
}

impl Ongoing {
    /// Whether it is past the point of no return.
    pub fn has_begun_to_retire(&self) -> bool {
        is_past_no_return(|step| self.journal.state(step))
    }

    /// What was left alone past the point of no return: old addresses that may be held still. What was left alone before is no
    /// matter any more: it was looked at before anything was retired.
    pub fn still_held<'r>(&self, report: &'r Report) -> Vec<&'r Stuck> {
        let work = &self.plan.work;
        let stages = work.stages().into_iter().skip(work.no_return_stage().unwrap_or(usize::MAX));
        let last: BTreeSet<StepId> =
            stages.flat_map(|stage| work.steps(&stage)).map(|step| step.id).collect();
        report.stuck.iter().filter(|stuck| last.contains(&stuck.step)).collect()
    }
}

/// Returns the renumberings of a cluster that have not come to an end.
pub async fn unfinished(store: &dyn ReadStore, cluster: &str) -> Result<Vec<String>, Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let is_open = |listed: &operation::Listed| {
        let status = listed.summary.status.as_str();
        listed.summary.kind == KIND && !matches!(status, "done" | "rolled-back" | REMOVING)
    };
    Ok(listed.into_iter().filter(is_open).map(|listed| listed.operation).collect())
}

/// Returns the renumberings of a cluster that are done, and whose journals somebody was interrupted in removing.
pub async fn half_removed(store: &dyn ReadStore, cluster: &str) -> Result<Vec<String>, Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let is_left =
        |listed: &operation::Listed| listed.summary.kind == KIND && listed.summary.status == REMOVING;
    Ok(listed.into_iter().filter(is_left).map(|listed| listed.operation).collect())
}

/// Whether an operation has no journal any more, or what is left of it is being removed.
pub async fn is_gone(store: &dyn ReadStore, operation: &str) -> Result<bool, Failure> {
    let listed = Journal::list(store, None).await?;
    let found = listed.iter().find(|listed| listed.operation == operation);
    Ok(found.is_none_or(|listed| listed.summary.status == REMOVING))
}

/// Opens a renumbering by its id, or the one of the cluster that has not come to an end; `at` is the revision at
/// which everything else was read that it is compared with.
pub async fn open_operation(
    store: &dyn ReadStore,
    cluster: &str,
    operation: Option<&str>,
    at: Option<Revision>,
) -> Result<Ongoing, Failure> {
    let operation = match operation {
        Some(id) => id.to_string(),
        None => match unfinished(store, cluster).await?.as_slice() {
            [one] => one.clone(),
            [] => {
                return Err(Failure::refused("no renumbering of this cluster is under way")
                    .hint("`netsurgeon operation list` lists those that have ended"));
            }
            more => {
                let list = more.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
                return Err(Failure::usage(format!("several are under way: {list}"))
                    .hint("name one of them with `--operation`"));
            }
        },
    };
    let (journal, summary, text) = Journal::open_at(store, cluster, &operation, at).await?;
    if summary.kind != KIND {
        return Err(Failure::refused(format!("operation `{operation}` is a `{}`", summary.kind)));
    }
    let mut plan: Plan<Renumbering> = Plan::parse(&text, Path::new(&operation))?;
    for amendment in journal.amendments(store).await? {
        plan.work.add_sweep(Plan::parse(&amendment, Path::new(&operation))?.work);
    }
    Ok(Ongoing { operation, plan, journal, summary, journal_goes: false })
}

/// Gives the lock back, however it went with what it was taken for.
pub async fn release<T>(lock: Lock, outcome: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(error) = lock.release().await {
        tracing::warn!(%error, "the lock could not be given back; it ends by itself, with its lease");
    }
    outcome
}

/// Words that something failed after steps were carried out, none of which failed.
/// When the last Service moved, in seconds since 1970.
fn last_move(work: &Renumbering, journal: &Journal) -> Option<i64> {
    let flips = work.moves.iter().filter_map(|candidate| journal.find(&candidate.step("flip")));
    flips.filter_map(|record| record.history.last().map(|(_, time)| *time)).max()
}

fn left_open(failure: Failure, operation: &str, way: Way) -> Failure {
    failure
        .kind(Kind::Stuck)
        .hint(format!("everything that was done is in the journal. To go on: `{}`", way.goes_on(operation)))
}

/// Words why an operation did not come to where it was going.
fn stopped(failure: operation::Failure, operation: &str, way: Way) -> Failure {
    let go_on = way.goes_on(operation);
    let name = match &failure.source {
        OperationError::Paused { name, .. } => Some(name.clone()),
        _ => None,
    };
    let pause = failure.source.is_pause();
    let kind = if pause { Kind::Paused } else { Kind::Stuck };
    let words = if matches!(failure.source, OperationError::BatchRolledBack { .. }) {
        Failure::from(failure).hint(format!("to do that batch anew, with the gates asked first: `{go_on}`"))
    } else if matches!(failure.source, OperationError::BatchStuck { .. }) {
        Failure::from(failure).hint(format!("then, to go on with rolling the batch back: `{go_on}`"))
    } else if let Some(name) = name {
        Failure::from(failure).hint(format!("when it is done: `{go_on} --confirm {name}`"))
    } else if pause {
        Failure::from(failure).hint(format!("to go on: `{go_on}`"))
    } else if matches!(way, Way::Forward(_)) && failure.source.is_about_one_object() {
        let text = format!("to leave what is about it alone and go on: `{go_on} --max-failures N`");
        Failure::from(failure).hint(text)
    } else {
        Failure::from(failure).hint(format!(
            "everything before it is done and in the journal; the old addresses answer. To go on: `{go_on}`"
        ))
    };
    let words = match way {
        Way::Forward(_) => words.hint(format!("to go back: `netsurgeon operation rollback {operation}`")),
        Way::Back | Way::MovesBack => words,
    };
    words.kind(kind)
}

/// Asks the operation to stop at the first signal; a second one ends the process, which is safe as well.
#[expect(clippy::exit, reason = "whoever signals twice does not want to wait for anything")]
async fn listen(output: Output, switch: StopSwitch) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    let mut asked = false;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if asked {
            output.note("stopped at once; the journal has everything that was done");
            std::process::exit(Kind::Paused.code().into());
        }
        asked = true;
        output.note("stopping after the steps that are under way; once more to stop at once");
        switch.ask();
    }
}
