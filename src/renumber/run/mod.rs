//! Runs a renumbering on a live cluster, for the commands `renumber apply`, `retire`, `rollback` and `operation resume`. A run
//! acquires the operation lease, continues where the journal ends, and reports the result.

mod allocator_check;
mod announce;
mod apply;
mod clocks;
mod deleted_services;
pub mod evidence;
mod exclusive;
mod execution;
mod external_ip_test;
pub mod flows;
pub mod guard;
mod in_flight_requests;
mod kubelets;
mod linger;
mod manual_step_checks;
mod manual_steps;
mod node_local_dns;
pub mod probe;
pub mod progress;
mod range_evidence;
mod replan;
mod reservations;
mod resume;
mod retire;
mod rollback;
pub mod situation;
pub mod status;
mod stop_reason;
mod sweep;
mod waiver;
mod watchers;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

pub use self::deleted_services::DELETED;
pub use self::exclusive::unfinished;
pub use self::retire::{RetireTerms, again, left_alone, refuse_going_back};
pub use self::rollback::refuse_past_no_return;
use self::situation::Situation;
use super::environment::LINGER;
use super::plan::KIND;
use super::{Renumbering, drift, is_past_no_return};
use crate::kube_api::BarrierRoute;
use crate::operation::{
    self, EtcdRecord, Journal, Lock, Plan, PlanFileError, Report, Status, StepId, Stuck, Summary, Work,
};
use crate::session::gates::Gates;
use crate::session::{Arrival, Candidates, Failure, Recorded, Session, rolled_back};
use crate::store::{ReadStore, Revision};
use crate::survey::{Layout, Survey};

/// Options of a renumbering, in addition to the options of every operation.
#[derive(Debug, Clone)]
pub struct Choices {
    /// How to check that every kube-proxy has applied the writes.
    pub barrier: BarrierRoute,
    /// In a rollback: how long the new addresses still answer after every Service has its old address again.
    pub linger: Duration,
    /// API servers that are stopped permanently, by host name or Lease name. No step waits for them.
    pub without_api_servers: BTreeSet<String>,
    /// Whether to create a Kubernetes event for each Service that moves.
    pub events: bool,
    /// The subjects to give up: they stay as they are, and the operation continues and ends without them.
    pub give_up: Vec<String>,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            barrier: BarrierRoute::Auto,
            linger: LINGER,
            without_api_servers: BTreeSet::new(),
            events: true,
            give_up: Vec::new(),
        }
    }
}

/// A session that runs a renumbering.
pub struct RenumberSession {
    session: Session,
    /// Options of the renumbering.
    pub choices: Choices,
}

impl Deref for RenumberSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// The direction of a run, and the stage at which the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Forward, until every Service has moved and the old addresses are held.
    Forward,
    /// Forward to the end: the old addresses are retired.
    Retire,
    /// Back to the initial state.
    Back,
    /// Back until every Service has its old address, without the steps that need the API.
    MovesBack,
}

impl Direction {
    /// Returns whether the direction is forward.
    fn is_forward(self) -> bool {
        matches!(self, Self::Forward | Self::Retire)
    }
}

/// A renumbering that has a journal.
pub struct Ongoing {
    /// Id of the operation.
    pub operation: String,
    /// Plan of the operation.
    pub plan: Plan<Renumbering>,
    /// Journal of the operation.
    pub journal: Journal,
    /// Status of the operation.
    pub summary: Summary,
    /// Command-line options, each with a leading space. Before the point of no return, the next command must repeat these
    /// options.
    pub options: String,
    /// The options for gates that a command which moves more Services must repeat, each with a leading space.
    pub gates: String,
}

impl RenumberSession {
    /// Returns a session that runs a renumbering with these options.
    pub fn new(session: Session, choices: Choices) -> Self {
        Self { session, choices }
    }

    /// Adds gates between batches.
    #[must_use]
    pub fn with_gates(self, gates: Gates) -> Self {
        Self { session: self.session.with_gates(gates), ..self }
    }

    /// Confirms the manual step with this name.
    #[must_use]
    pub fn confirming(mut self, name: &str) -> Self {
        self.session.settings.confirm.push(name.to_string());
        self
    }

    /// Returns how long the new addresses of a renumbering still answer in a rollback.
    pub fn linger_of(&self, work: &Renumbering) -> Duration {
        linger::longest(self.choices.linger, work.era)
    }

    /// Returns the unfinished renumberings of this cluster.
    pub async fn unfinished(&self) -> Result<Vec<String>, Failure> {
        unfinished(self.store.as_ref(), &self.id).await
    }

    /// Opens a renumbering by its id. Without an id, opens the unfinished renumbering.
    pub async fn find(&self, operation: Option<&str>) -> Result<Ongoing, Failure> {
        let ongoing = open(self.store.as_ref(), &self.id, operation, None, true).await?;
        Ok(Ongoing { gates: self.gate_options().to_string(), ..ongoing })
    }

    /// Reads an operation again after this process has acquired the lease, because the previous holder could have changed it.
    async fn read_again(&self, ongoing: &mut Ongoing) -> Result<(), Failure> {
        let read = self.find(Some(&ongoing.operation)).await?;
        *ongoing = Ongoing { options: std::mem::take(&mut ongoing.options), ..read };
        Ok(())
    }

    /// Continues an operation, then records its status in the journal. If a closed gate requires a rollback, rolls the whole
    /// operation back and returns a failure.
    pub async fn carry_out(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Direction,
    ) -> Result<Report, Failure> {
        match self.carry(ongoing, lock, way).await? {
            Arrival::There(report) => Ok(report),
            Arrival::Gate(closed) => {
                let report = self.roll_back(ongoing, lock).await?;
                let again = format!("netsurgeon operation rollback {}", ongoing.operation);
                Err(rolled_back(&closed, &report, &again, "every Service has its old address"))
            }
        }
    }
}

impl Ongoing {
    /// Returns the situation of the operation, assuming that no process runs it.
    pub fn situation(&self) -> Situation {
        Situation::of_ongoing(self, false)
    }

    /// Returns the Services that were created in the old range and that the plan does not move, as `namespace/name`.
    pub fn newcomers(&self, survey: &Survey) -> Vec<String> {
        drift::newcomer_names(&self.plan.work, survey)
    }

    /// Returns the Services of [`Self::newcomers`] if they block the next command. Otherwise reads and returns no Service.
    pub async fn blocking_newcomers(
        &self,
        situation: &Situation,
        store: &dyn ReadStore,
        layout: &Layout,
    ) -> Result<Vec<String>, Failure> {
        if !situation.starts_to_retire() {
            return Ok(Vec::new());
        }
        Ok(self.newcomers(&Survey::read(store, layout, None).await?))
    }

    /// Returns whether the operation is past the point of no return.
    pub fn has_begun_to_retire(&self) -> bool {
        is_past_no_return(|step| self.journal.state(step))
    }

    /// Returns the steps that were skipped after the point of no return. The old addresses of their Services may still be held.
    /// Steps that were skipped earlier are not included, because they were checked before the old addresses were retired.
    pub fn still_held<'r>(&self, report: &'r Report) -> Vec<&'r Stuck> {
        let work = &self.plan.work;
        let stages = work.stages().into_iter().skip(work.no_return_stage().unwrap_or(usize::MAX));
        let last: BTreeSet<StepId> =
            stages.flat_map(|stage| work.steps(&stage)).map(|step| step.id).collect();
        report.stuck.iter().filter(|stuck| last.contains(&stuck.step)).collect()
    }
}

/// Returns the ids of the completed renumberings whose journal is not completely removed. `cluster`: identity of the cluster.
pub async fn half_removed(store: &dyn ReadStore, cluster: &str) -> Result<Vec<String>, Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let is_left =
        |listed: &operation::Listed| listed.summary.kind == KIND && listed.summary.status == Status::Removing;
    Ok(listed.into_iter().filter(is_left).map(|listed| listed.operation).collect())
}

/// Returns whether the journal of an operation is deleted, or the removal of the journal has started.
pub async fn is_gone(store: &dyn ReadStore, operation: &str) -> Result<bool, Failure> {
    let listed = Journal::list(store, None).await?;
    let found = listed.iter().find(|listed| listed.operation == operation);
    Ok(found.is_none_or(|listed| listed.summary.status == Status::Removing))
}

/// Opens a renumbering by its id. Without an id, opens the unfinished renumbering of the cluster. `at` is the revision of the
/// data that the caller compares with the journal.
pub async fn open_operation(
    store: &dyn ReadStore,
    cluster: &str,
    operation: Option<&str>,
    at: Option<Revision>,
) -> Result<Ongoing, Failure> {
    open(store, cluster, operation, at, false).await
}

/// Returns the newest renumbering that started after an operation had ended; `None` if the operation has not ended.
pub async fn later_renumbering(
    store: &dyn ReadStore,
    cluster: &str,
    ongoing: &Ongoing,
) -> Result<Option<String>, Failure> {
    if !ongoing.summary.has_ended() {
        return Ok(None);
    }
    let is_later = |listed: &operation::Listed| {
        let summary = &listed.summary;
        let is_other = summary.kind == KIND && listed.operation != ongoing.operation;
        is_other && summary.started >= ongoing.summary.ended.unwrap_or(ongoing.summary.started)
    };
    let listed = Journal::list(store, Some(cluster)).await?.into_iter().filter(is_later);
    Ok(listed.max_by_key(|listed| listed.summary.started).map(|listed| listed.operation))
}

/// Returns whether an operation could not be opened because another version of netsurgeon started it.
pub fn is_of_another_version(failure: &Failure) -> bool {
    matches!(failure.error.downcast_ref(), Some(PlanFileError::Begun { .. }))
}

/// Opens a renumbering like [`open_operation`]. `is_to_change` is true if the caller will change the cluster. The plan must then
/// compile to the same steps as when the operation started.
pub async fn open(
    store: &dyn ReadStore,
    cluster: &str,
    operation: Option<&str>,
    at: Option<Revision>,
    is_to_change: bool,
) -> Result<Ongoing, Failure> {
    let operation = if let Some(id) = operation {
        id.to_string()
    } else {
        let mut listed = Journal::list(store, Some(cluster)).await?;
        listed.retain(|listed| listed.summary.kind == KIND);
        let candidates =
            Candidates { kind: ("renumbering", "renumberings"), with_ended: true, command: None };
        candidates.only_under_way(listed, |listed| listed)?.operation
    };
    let record = EtcdRecord::new(store, cluster, &operation).at(at);
    let opened: Recorded<Renumbering> = if is_to_change {
        Recorded::open_to_change(&operation, &record, cluster).await?
    } else {
        Recorded::open(&operation, &record).await?
    };
    let Recorded { operation, mut plan, journal, summary } = opened;
    for amendment in Journal::amendments(&record).await? {
        plan.work.amend(Plan::parse(&amendment, Path::new(&operation))?.work);
    }
    Ok(Ongoing { operation, plan, journal, summary, options: String::new(), gates: String::new() })
}

/// Returns the numbers of Services that do not move, by reason, as text: ` (3 headless, 1 ExternalName)`.
pub fn reasons(work: &Renumbering) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for skipped in &work.skipped {
        let count = counts.entry(&skipped.reason).or_default();
        *count = count.saturating_add(1);
    }
    let kept = (work.stays > 0).then(|| format!("{} already in `{}`", work.stays, work.to));
    if counts.is_empty() && kept.is_none() {
        return String::new();
    }
    let others = counts.iter().map(|(reason, count)| format!("{count} {reason}"));
    let words: Vec<String> = kept.into_iter().chain(others).collect();
    format!(" ({})", words.join(", "))
}
