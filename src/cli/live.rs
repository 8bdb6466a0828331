//! Carrying an operation out on a live cluster: what `renumber apply`, `retire`, `rollback` and `operation
//! resume` share. Connect to etcd and to the API, take the lock, go on where the journal says, and say how it
//! ended.

mod allocating;
mod approving;
mod carrying;
mod confirming;
mod connecting;
mod gone;
mod kubelets;
mod late;
mod lease;
mod lingering;
mod locking;
mod node_local_dns;
mod renewing;
mod replanning;
mod sealing;
mod stopping;
mod sweeping;
mod trying;
mod turning;
mod vigil;
mod watchers;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

pub use self::gone::DELETED;
pub use self::lease::{Taking, lock_cluster, release};
pub use self::locking::{
    LockArgs, is_open, refuse_beside_another, refuse_done, refuse_ended, refuse_removing, unfinished,
};
use self::turning::{Arrival, rolled_back};
use super::Context;
use super::api::KubeArgs;
use super::failure::Failure;
use super::gates::Gates;
use super::metrics::Metrics;
use super::output::Output;
use super::situation::Situation;
use super::source::EtcdArgs;
use crate::cli::source::LiveEtcd;
use crate::cluster::{Cluster, Reach};
use crate::operation::{
    self, EtcdLedger, EtcdRecord, Journal, Lock, Plan, PlanFileError, Report, Status, StepId, Stuck, Summary,
    Work,
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
    /// seconds, for those who resolved a name a moment before; at most 300 in the bitmap era
    #[arg(long, value_name = "SECONDS", default_value_t = LINGER.as_secs(), value_parser = clap::value_parser!(u64).range(..=3600))]
    linger: u64,
    /// An API server that is stopped for good, by its host: do not wait for its answer. Its Lease in `kube-system` lasts an
    /// hour longer than it
    #[arg(long, value_name = "HOST")]
    without_api_server: Vec<String>,
    /// Confirm that a manual step is complete, by its name: `flags`, `soak`, ... Refused while an API server is seen to have
    /// another flag
    #[arg(long, value_name = "WHAT")]
    confirm: Vec<String>,
    /// Do not ask whether to begin
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    pub(super) lock: LockArgs,
    /// Answer `GET /metrics` here, for Prometheus, while it runs; docs/metrics.md lists what there is
    #[arg(long, value_name = "ADDR:PORT")]
    metrics_listen: Option<String>,
    /// Write no Kubernetes event about each Service that moves
    #[arg(long)]
    no_events: bool,
    #[command(flatten)]
    pub(super) etcd: EtcdArgs,
    #[command(flatten)]
    pub(super) kube: KubeArgs,
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

    /// How many Services may be skipped.
    pub fn most_failures(&self) -> usize {
        usize::try_from(self.max_failures).unwrap_or(usize::MAX)
    }

    /// How long the new addresses of a renumbering linger on the way back.
    pub fn linger_of(&self, work: &Renumbering) -> Duration {
        lingering::longest(Duration::from_secs(self.linger), work.era)
    }

    /// Whether nothing is to be asked.
    pub fn is_agreed(&self) -> bool {
        self.yes
    }

    /// Whether a manual step was said to be complete.
    pub fn confirms(&self, name: &str) -> bool {
        self.confirm.iter().any(|given| given == name)
    }

    /// Writes a second, at most.
    pub fn rate(&self) -> Option<NonZeroU32> {
        self.rate
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
    /// On, until every Service has moved and the old addresses are held.
    Forward,
    /// On to the end: the old addresses are retired.
    Retire,
    /// Back to the start.
    Back,
    /// Every Service back to its old address, and nothing that needs the API.
    MovesBack,
}

impl Way {
    /// Whether it is one of those that go on.
    pub(super) fn is_forward(self) -> bool {
        matches!(self, Self::Forward | Self::Retire)
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
    /// Options that the command which continues it needs again.
    pub options: Options,
}

/// Options of a command, each after a space.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Up to the point of no return alone.
    pub until_no_return: String,
    /// Always.
    pub always: String,
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
        open(self.store.as_ref(), &self.id, operation, None, true).await
    }

    /// Returns the ledger of an operation, for whoever has the lock.
    pub fn ledger(&self, journal: &Journal, lock: &Lock) -> EtcdLedger<'_> {
        journal.in_store(self.store.as_ref(), &[lock.guard()])
    }

    /// Returns who holds the cluster's lock, `None` if nobody does.
    pub async fn holder(&self) -> Result<Option<operation::Held>, Failure> {
        Ok(Lock::holder(self.store.as_ref(), &self.id).await?)
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
}

impl Ongoing {
    /// Where it is, once no process is at work on it.
    pub fn situation(&self) -> Situation {
        Situation::of_ongoing(self, false)
    }

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

/// Whether the operation lease of a cluster is held for an operation.
pub fn is_leased(held: Option<&operation::Held>, operation: &str) -> bool {
    held.is_some_and(|held| held.claim.operation == operation)
}

/// Returns the renumberings of a cluster that are done, and whose journals are half removed.
pub async fn half_removed(store: &dyn ReadStore, cluster: &str) -> Result<Vec<String>, Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let is_left =
        |listed: &operation::Listed| listed.summary.kind == KIND && listed.summary.status == Status::Removing;
    Ok(listed.into_iter().filter(is_left).map(|listed| listed.operation).collect())
}

/// Whether an operation has no journal any more, or what is left of it is being removed.
pub async fn is_gone(store: &dyn ReadStore, operation: &str) -> Result<bool, Failure> {
    let listed = Journal::list(store, None).await?;
    let found = listed.iter().find(|listed| listed.operation == operation);
    Ok(found.is_none_or(|listed| listed.summary.status == Status::Removing))
}

/// Opens a renumbering by its id, or the one of the cluster that has not come to an end; `at` is the revision at
/// which everything else was read that it is compared with.
pub async fn open_operation(
    store: &dyn ReadStore,
    cluster: &str,
    operation: Option<&str>,
    at: Option<Revision>,
) -> Result<Ongoing, Failure> {
    open(store, cluster, operation, at, false).await
}

/// What to do about a plan that this version does not read. An operation that has ended needs nobody to end it.
fn unreadable(error: PlanFileError, operation: &str, summary: &Summary) -> Failure {
    let is_over = summary.has_ended() && matches!(error, PlanFileError::Begun { .. });
    let failure = Failure::from(error);
    if !is_over {
        return failure;
    }
    let hint = format!("it has ended: `netsurgeon operation forget {operation}` removes its journal");
    Failure { hints: Vec::new(), ..failure }.hint(hint)
}

/// Whether an operation could not be opened because another version began it.
pub fn is_of_another_version(failure: &Failure) -> bool {
    matches!(failure.error.downcast_ref(), Some(PlanFileError::Begun { .. }))
}

/// The same; for whoever is about to change something, its plan must compile as it did when the operation was begun.
pub async fn open(
    store: &dyn ReadStore,
    cluster: &str,
    operation: Option<&str>,
    at: Option<Revision>,
    is_to_change: bool,
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
    let record = EtcdRecord::new(store, cluster, &operation).at(at);
    let (journal, summary, text) = Journal::open_in(&record).await?;
    if summary.kind != KIND {
        return Err(Failure::refused(format!("operation `{operation}` is a `{}`", summary.kind)));
    }
    let mut plan: Plan<Renumbering> =
        Plan::of_operation(&text, &operation).map_err(|error| unreadable(error, &operation, &summary))?;
    if is_to_change {
        plan.compiles_as(&summary.compiled, &operation)?;
    }
    for amendment in Journal::amendments(&record).await? {
        plan.work.amend(Plan::parse(&amendment, Path::new(&operation))?.work);
    }
    let (journal_goes, options) = (false, Options::default());
    Ok(Ongoing { operation, plan, journal, summary, journal_goes, options })
}
