//! Running a renumbering on a live cluster: what `renumber apply`, `retire`, `rollback` and `operation resume` share. Take the
//! lock, continue where the journal says, and report how it ended.

mod allocating;
mod announce;
mod applying;
mod approving;
mod carrying;
mod confirming;
pub mod evidence;
mod exclusive;
pub mod flows;
mod gone;
pub mod guarding;
mod kubelets;
mod late;
mod lingering;
pub mod look;
mod node_local_dns;
pub mod probe;
mod renewing;
mod replanning;
mod resuming;
mod retiring;
mod returning;
pub mod rewrite;
pub mod situation;
mod stopping;
mod sweeping;
pub mod tally;
mod trying;
mod watchers;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

pub use self::exclusive::{is_open, refuse_beside_another, unfinished};
pub use self::gone::DELETED;
pub use self::retiring::{again, left_alone};
use self::situation::Situation;
use super::live::LINGER;
use super::plan::KIND;
use super::{Renumbering, is_past_no_return};
use crate::cluster::Reach;
use crate::operation::{
    self, EtcdRecord, Journal, Lock, Plan, PlanFileError, Report, Status, StepId, Stuck, Summary, Work,
};
use crate::session::gates::Gates;
use crate::session::{Arrival, Failure, Session, rolled_back};
use crate::store::{ReadStore, Revision};

/// How a renumbering is run, besides what holds for an operation of any kind.
#[derive(Debug, Clone)]
pub struct Choices {
    /// How every kube-proxy is asked whether it has applied what was written.
    pub barrier: Reach,
    /// On the way back: how long the new addresses go on answering once every Service has its old one again.
    pub linger: Duration,
    /// API servers that are stopped for good, by host or Lease: nothing waits for them.
    pub without_api_servers: BTreeSet<String>,
    /// Whether a Kubernetes event is written about each Service that moves.
    pub events: bool,
}

impl Default for Choices {
    fn default() -> Self {
        Self { barrier: Reach::Auto, linger: LINGER, without_api_servers: BTreeSet::new(), events: true }
    }
}

/// A session in which a renumbering is run.
pub struct RenumberSession {
    session: Session,
    /// How it is run.
    pub choices: Choices,
}

impl Deref for RenumberSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
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
    fn is_forward(self) -> bool {
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

impl RenumberSession {
    /// Returns a session in which a renumbering is run in this way.
    pub fn new(session: Session, choices: Choices) -> Self {
        Self { session, choices }
    }

    /// The same with gates between batches.
    #[must_use]
    pub fn with_gates(self, gates: Gates) -> Self {
        Self { session: self.session.with_gates(gates), ..self }
    }

    /// The same with a manual step that is complete.
    #[must_use]
    pub fn confirming(mut self, name: &str) -> Self {
        self.session.settings.confirm.push(name.to_string());
        self
    }

    /// How long the new addresses of a renumbering linger on the way back.
    pub fn linger_of(&self, work: &Renumbering) -> Duration {
        lingering::longest(self.choices.linger, work.era)
    }

    /// Returns the renumberings of this cluster that have not come to an end.
    pub async fn unfinished(&self) -> Result<Vec<String>, Failure> {
        unfinished(self.store.as_ref(), &self.id).await
    }

    /// Opens an operation by its id, or the one that has not come to an end.
    pub async fn find(&self, operation: Option<&str>) -> Result<Ongoing, Failure> {
        open(self.store.as_ref(), &self.id, operation, None, true).await
    }

    /// Goes on with an operation, and writes into its journal how it stands afterwards. At a gate that is closed it may
    /// roll everything back, which is a failure.
    pub async fn carry_out(&self, ongoing: &mut Ongoing, lock: &Lock, way: Way) -> Result<Report, Failure> {
        match self.carry(ongoing, lock, way).await? {
            Arrival::There(report) => Ok(report),
            Arrival::Gate(closed) => {
                let report = self.roll_back(ongoing, lock).await?;
                Err(rolled_back(&closed, &report, &ongoing.operation, "every Service has its old address"))
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

/// Counts the Services that stay, by reason: ` (3 headless, 1 ExternalName)`.
pub fn reasons(work: &Renumbering) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for skipped in &work.skipped {
        let count = counts.entry(&skipped.reason).or_default();
        *count = count.saturating_add(1);
    }
    if counts.is_empty() {
        return String::new();
    }
    let words: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    format!(" ({})", words.join(", "))
}
