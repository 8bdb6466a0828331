//! Runs a cutover, for the commands `dns cutover`, `dns rollback` and `operation resume`. A run takes the operation lease,
//! continues where the journal ends, and reports the result.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::cutover::{Awaited, Cutover, Point};
use super::environment::Live;
use super::measured_share::ShareQuery;
use super::plan::Refusal;
use super::probe::Prober;
use super::progress::progress;
use super::provider::{self, Provider};
use super::situation::Situation;
use super::views::refuse_other_view;
use super::waiver::{planned, waivers};
use super::whereabouts::{PLANNED_ROLLBACK, Whereabouts, refuse_unrecorded};
use crate::inventory::ZoneService;
use crate::nameserver::{AT_ONCE, Key, Server};
use crate::operation::{OperationError, Plan, Report, RunFailure, Status, Stuck, WaitKind as _, Waiver};
use crate::session::gates::{GateSettings, Gates};
use crate::session::progress::SharedProgress;
use crate::session::{
    Arrival, ClusterSession, EndOfRun, ExitKind, Failure, Heading, Holding, Recorded, Taking, refuse_ended,
    rolled_back,
};
use crate::words::{counted, first_few};

/// Time limit for the check of all names after a run.
const CHECK: Duration = Duration::from_secs(30);

/// A session that runs a cutover.
pub struct CutoverSession {
    session: ClusterSession,
    /// The key that signs updates.
    key: Option<Key>,
    prober: Prober,
    /// Names to give up.
    given_up: Vec<String>,
    /// The metrics query for the mirror's share, if it may be sent.
    seen: Option<ShareQuery>,
    /// Options to repeat in the next command, each with a leading space.
    options: String,
}

impl Deref for CutoverSession {
    type Target = ClusterSession;

    fn deref(&self) -> &ClusterSession {
        &self.session
    }
}

/// The point at which a forward run stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// At the end of this stage. The first stage has the number 1.
    Stage(usize),
    /// At the end of the first stage that is not complete.
    NextStage,
    /// At the end of the cutover.
    All,
}

/// The result of a run.
pub struct Ran {
    /// The cutover, with its journal.
    pub recorded: Recorded<Cutover>,
    /// The report of the run.
    pub report: Report,
    /// Names that another client has changed since netsurgeon last changed them.
    pub changed: Vec<String>,
    options: String,
    gates: String,
}

impl Ran {
    /// Returns the situation after the run.
    pub fn situation(&self) -> Situation {
        Situation::of(&self.recorded, false).repeating(&self.options).with_gates(&self.gates)
    }

    /// Returns the names that were skipped. Each name is listed once, with the reason.
    pub fn skipped(&self) -> Vec<&Stuck> {
        self.report.stuck.iter().filter(|stuck| !is_unconfirmed(stuck)).collect()
    }
}

impl CutoverSession {
    /// Adds gates between stages.
    #[must_use]
    pub fn with_gates(self, gates: Gates) -> Self {
        Self { session: self.session.with_gates(gates), ..self }
    }

    /// Returns a session that signs updates with this key. `trusted`: additional CA certificates that probes trust, as DER.
    pub fn new(session: ClusterSession, key: Option<Key>, trusted: Vec<Vec<u8>>) -> Result<Self, Failure> {
        let prober = Prober::new(trusted).map_err(Failure::refused)?;
        Ok(Self { session, key, prober, given_up: Vec::new(), seen: None, options: String::new() })
    }

    /// Gives these names up before the run: their records stay as they are, and the cutover continues without them.
    #[must_use]
    pub fn giving_up(self, names: &[String]) -> Self {
        Self { given_up: names.to_vec(), ..self }
    }

    /// Measures the mirror's share with this query. Without this call, the query of the plan is not used.
    #[must_use]
    pub fn measuring(self, seen: Option<ShareQuery>) -> Self {
        Self { seen, ..self }
    }

    /// Repeats these options in the next command.
    #[must_use]
    pub fn repeating(self, options: String) -> Self {
        Self { options, ..self }
    }

    fn ran(&self, recorded: Recorded<Cutover>, report: Report, changed: Vec<String>) -> Ran {
        let (options, gates) = (self.options.clone(), self.gate_options().to_string());
        Ran { recorded, report, changed, options, gates }
    }

    /// Starts a cutover, and runs it. Fails before any change if the plan is for another cluster, or if the zone cannot be
    /// changed.
    pub async fn start(&self, plan: Plan<Cutover>, gates: &GateSettings, goal: Goal) -> Result<Ran, Failure> {
        self.refuse_other_cluster(&plan)?;
        planned(&plan.work, &self.given_up)?;
        let provider = self.provider(&plan.work, false).await?;
        refuse_other_view(&plan.work, provider.as_ref()).await?;
        refuse_unrecorded(&plan.work, provider.as_ref()).await?;
        let purpose = purpose(&plan.work);
        let (mut recorded, holding) = self.begin(plan, gates.record()?, &purpose).await?;
        self.ui.progress(&format!("operation {}", recorded.operation));
        gates.report(&self.ui, &recorded.summary.gates);
        let started = async {
            self.give_up(&mut recorded, &holding, provider.as_ref(), false).await?;
            self.forward(&mut recorded, &holding, provider.as_ref(), goal).await
        };
        let outcome = started.await;
        let outcome = self.with_changes(outcome, &recorded, provider.as_ref()).await;
        let (report, changed) = holding.release(outcome).await?;
        Ok(self.ran(recorded, report, changed))
    }

    /// Continues a cutover. If its rollback has started, continues the rollback.
    pub async fn resume(&self, operation: &str, gates: &GateSettings, goal: Goal) -> Result<Ran, Failure> {
        let known: Recorded<Cutover> = self.read(operation).await?;
        planned(&known.plan.work, &self.given_up)?;
        if known.summary.status == Status::Done && !self.given_up.is_empty() {
            return self.look_again(operation).await;
        }
        refuse_ended(operation, &known.summary)?;
        let is_back = known.journal.is_going_back(&known.summary);
        let provider = self.provider(&known.plan.work, is_back).await?;
        let purpose = purpose(&known.plan.work);
        let taking = Taking { operation, purpose: &purpose };
        let (mut recorded, holding) = self.take(&taking).await?;
        let resumed = async {
            refuse_ended(operation, &recorded.summary)?;
            let back = recorded.journal.is_going_back(&recorded.summary);
            self.give_up(&mut recorded, &holding, provider.as_ref(), back).await?;
            if back {
                return self.back(&mut recorded, &holding, provider.as_ref()).await;
            }
            gates.report(&self.ui, &recorded.summary.gates);
            holding.set_gates(&mut recorded, &gates.record()?).await?;
            self.forward(&mut recorded, &holding, provider.as_ref(), goal).await
        };
        let outcome = resumed.await;
        let outcome = self.with_changes(outcome, &recorded, provider.as_ref()).await;
        let (report, changed) = holding.release(outcome).await?;
        Ok(self.ran(recorded, report, changed))
    }

    /// Rolls back a cutover, even if it is complete.
    pub async fn roll_back(&self, operation: &str) -> Result<Ran, Failure> {
        let known: Recorded<Cutover> = self.read(operation).await?;
        planned(&known.plan.work, &self.given_up)?;
        let provider = self.provider(&known.plan.work, true).await?;
        let taking = Taking { operation, purpose: "roll the cutover back" };
        let (recorded, holding) = self.take(&taking).await?;
        self.undo(recorded, holding, provider.as_ref()).await
    }

    /// Rolls back a cutover whose record is lost, for example because it was deleted. Takes every name back that has the records of
    /// any stage of the plan. `agreed` gets what the names have now. If it returns `false`, nothing is recorded and changed, and the
    /// result is `None`.
    pub async fn roll_back_unrecorded(
        &self,
        plan: Plan<Cutover>,
        agreed: impl FnOnce(Whereabouts) -> Result<bool, Failure>,
    ) -> Result<Option<Ran>, Failure> {
        self.refuse_other_cluster(&plan)?;
        planned(&plan.work, &self.given_up)?;
        let provider = self.provider(&plan.work, true).await?;
        if !agreed(Whereabouts::of(&plan.work, provider.as_ref()).await)? {
            return Ok(None);
        }
        let (recorded, holding) = self.begin_recovered(plan, "roll the cutover back").await?;
        self.ui.progress(&format!("operation {}", recorded.operation));
        self.undo(recorded, holding, provider.as_ref()).await.map(Some)
    }

    /// Rolls back a cutover that this process holds, and releases it.
    async fn undo(
        &self,
        mut recorded: Recorded<Cutover>,
        holding: Holding,
        provider: &dyn Provider,
    ) -> Result<Ran, Failure> {
        let undone = async {
            self.give_up(&mut recorded, &holding, provider, true).await?;
            self.back(&mut recorded, &holding, provider).await
        };
        let outcome = undone.await;
        let report = holding.release(outcome).await?;
        Ok(self.ran(recorded, report, Vec::new()))
    }

    fn refuse_other_cluster(&self, plan: &Plan<Cutover>) -> Result<(), Failure> {
        if plan.header.cluster == self.id {
            return Ok(());
        }
        let (planned, this) = (&plan.header.cluster, &self.id);
        let text = format!("the plan is for cluster `{planned}`, but this cluster is `{this}`");
        Err(Failure::refused(text).hint("check `--kubeconfig` and `--context`"))
    }

    /// Records the names that the operator gives up, with their present records. `back`: whether the cutover is being rolled back.
    async fn give_up(
        &self,
        recorded: &mut Recorded<Cutover>,
        holding: &Holding,
        provider: &dyn Provider,
        back: bool,
    ) -> Result<(), Failure> {
        let waivers = waivers(provider, &planned(&recorded.plan.work, &self.given_up)?, back).await;
        if waivers.is_empty() {
            return Ok(());
        }
        holding.give_up(recorded, &waivers).await?;
        for Waiver { subject, observed, .. } in &waivers {
            self.ui.progress(&format!("gave up `{subject}`: its records stay as they are: {observed}"));
        }
        Ok(())
    }

    /// If a run has ended or paused, checks which names another client has changed, and adds these names to the result.
    async fn with_changes(
        &self,
        outcome: Result<Report, Failure>,
        recorded: &Recorded<Cutover>,
        provider: &dyn Provider,
    ) -> Result<(Report, Vec<String>), Failure> {
        if outcome.as_ref().is_err_and(|failure| failure.kind != ExitKind::Paused) {
            return outcome.map(|report| (report, Vec::new()));
        }
        let (changed, unread) = match timeout(CHECK, changed_since(recorded, provider)).await {
            Ok(found) => found,
            Err(_) => (Vec::new(), recorded.plan.work.names.len()),
        };
        if unread > 0 {
            let names = counted(unread, "name", "names");
            self.ui.warn(&format!("could not check whether another client has changed {names}"));
        }
        match outcome {
            Ok(report) => Ok((report, changed)),
            Err(failure) if changed.is_empty() => Err(failure),
            Err(failure) => Err(failure.hint(changed_by_another(&changed, recorded))),
        }
    }

    /// Checks whether other clients have changed names since the cutover was completed. First records the names that the operator
    /// gives up.
    pub async fn look_again(&self, operation: &str) -> Result<Ran, Failure> {
        let mut recorded: Recorded<Cutover> = self.read(operation).await?;
        planned(&recorded.plan.work, &self.given_up)?;
        let provider = provider::reader(&recorded.plan.work, self.key.clone()).await?;
        if !self.given_up.is_empty() {
            let taken = self.take(&Taking { operation, purpose: "give names up" }).await?;
            let holding;
            (recorded, holding) = taken;
            let noted = self.give_up(&mut recorded, &holding, provider.as_ref(), false).await;
            holding.release(noted).await?;
        }
        let outcome = self.with_changes(Ok(Report::default()), &recorded, provider.as_ref()).await;
        let (report, changed) = outcome?;
        Ok(self.ran(recorded, report, changed))
    }

    /// Checks and returns the provider of the zone. `back`: whether the run is a rollback.
    async fn provider(&self, work: &Cutover, back: bool) -> Result<Box<dyn Provider>, Failure> {
        if let (Some(planned), None) = (work.service.key(), &self.key) {
            let name = &planned.name;
            return Err(Failure::refused(format!("the plan needs the key `{name}` to sign updates"))
                .hint("give its file: `--tsig-key-file FILE`"));
        }
        // The future is boxed because the requests of an SDK are large.
        Box::pin(provider::open(work, self.key.clone(), &self.session.api, back)).await
    }

    async fn forward(
        &self,
        recorded: &mut Recorded<Cutover>,
        holding: &Holding,
        provider: &dyn Provider,
        goal: Goal,
    ) -> Result<Report, Failure> {
        let next = Situation::of(recorded, false).next_stage;
        let until = match goal {
            Goal::All => None,
            Goal::Stage(stage) => Some(stage),
            Goal::NextStage => next,
        };
        let until = until.and_then(|stage| recorded.plan.work.end_of_share(stage.saturating_sub(1)));
        match self.carry(recorded, holding, provider, Heading::Forward(until)).await? {
            Arrival::There(report) => Ok(report),
            Arrival::Gate(closed) => {
                let mut report = self.back(recorded, holding, provider).await?;
                report.stuck.retain(|stuck| !is_unconfirmed(stuck));
                let again = format!("netsurgeon dns rollback {}{}", recorded.operation, self.options);
                let unconfirmed = Situation::of(recorded, false).repeating(&self.options).not_confirmed();
                Err(rolled_back(&closed, &report, &again, "every name has its old records")
                    .hints(unconfirmed))
            }
        }
    }

    async fn back(
        &self,
        recorded: &mut Recorded<Cutover>,
        holding: &Holding,
        provider: &dyn Provider,
    ) -> Result<Report, Failure> {
        match self.carry(recorded, holding, provider, Heading::Back).await? {
            Arrival::There(report) => Ok(report),
            Arrival::Gate(_) => Ok(Report::default()),
        }
    }

    async fn carry(
        &self,
        recorded: &mut Recorded<Cutover>,
        holding: &Holding,
        provider: &dyn Provider,
        heading: Heading,
    ) -> Result<Arrival, Failure> {
        let work = Cutover { seen: self.seen.clone(), ..recorded.plan.work.clone() };
        let resolver = Server::new(work.resolver, None);
        let waivers = recorded.summary.given_up.clone();
        // A rollback restores a name that was given up in the forward direction, if the records are still unchanged.
        let is_left = |waiver: &&Waiver| waiver.back || heading != Heading::Back;
        let given_up = waivers.iter().filter(is_left).map(|waiver| waiver.subject.as_str()).collect();
        let ui = &self.ui;
        let live = Live { work: &work, provider, resolver, prober: &self.prober, ui, given_up };
        let progress: SharedProgress = Arc::new(Mutex::new(progress(&recorded.operation, &work)));
        self.execute(recorded, holding, (&live, progress), heading, self).await
    }
}

impl EndOfRun<Cutover> for CutoverSession {
    fn status_at_target(&self, recorded: &Recorded<Cutover>, heading: Heading, report: &Report) -> Status {
        match heading {
            // A name server that does not return the old records does not prevent the end of the rollback.
            Heading::Back if report.stuck.iter().all(is_unconfirmed) => Status::RolledBack,
            Heading::Back => Status::Stuck,
            Heading::Forward(_) if Situation::of(recorded, false).is_complete() => Status::Done,
            Heading::Forward(_) => Status::Paused,
        }
    }

    fn stopped(&self, recorded: &Recorded<Cutover>, failure: RunFailure, is_damaged: bool) -> Failure {
        if is_damaged {
            return Failure::from(failure).kind(ExitKind::Stuck).hint(PLANNED_ROLLBACK);
        }
        let situation = Situation::of(recorded, false).repeating(&self.options);
        stopped(failure, &situation.with_gates(self.gate_options()))
    }
}

/// Returns whether a rollback could not confirm the end of a wait. The other steps that a run can skip change a name.
fn is_unconfirmed(stuck: &Stuck) -> bool {
    Awaited::CONFIRMATIONS.into_iter().any(|wait| wait.name() == stuck.step.0)
}

/// Returns the names that another client has changed since their last step, and the number of names that could not be read. The
/// next step of a name also detects such a change. But this step can run much later, and after the last step there is no next
/// step.
async fn changed_since(recorded: &Recorded<Cutover>, provider: &dyn Provider) -> (Vec<String>, usize) {
    let (work, situation) = (&recorded.plan.work, Situation::of(recorded, false));
    provider.refresh().await;
    let mut asked = Vec::with_capacity(work.names.len());
    for (name, standing) in work.names.iter().zip(&situation.names) {
        // After the last step, the mirror's ExternalDNS owns these names and can change them.
        let is_handed_over =
            standing.reached == Some(Point::Final) && name.ownership.is_some() && work.heir.is_some();
        let is_left = standing.skipped.is_some() || standing.given_up.is_some();
        if situation.back || standing.reached.is_none() || is_left || is_handed_over {
            continue;
        }
        asked.push(async move {
            (&name.name, provider.is_unchanged(&name.name, &name.kinds(), &standing.expected).await)
        });
    }
    let (mut changed, mut unread) = (Vec::new(), 0_usize);
    for (name, found) in stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await {
        match found {
            Ok(true) => {}
            Ok(false) => changed.push(name.clone()),
            Err(_) => unread = unread.saturating_add(1),
        }
    }
    (changed, unread)
}

/// Returns the message about names that another client has changed.
pub fn changed_by_another(names: &[String], recorded: &Recorded<Cutover>) -> String {
    let (what, id) = (first_few(names), &recorded.operation);
    match recorded.plan.work.service {
        ZoneService::ExternalDns { .. } => format!("another client has changed the annotations for {what}"),
        _ => format!("another client has changed {what}; to see it: `netsurgeon dns status {id}`"),
    }
}

fn purpose(work: &Cutover) -> String {
    format!("cut over the names of `{}`", work.zone)
}

/// Returns the error for a cutover that stopped before its end. Its kind is `Paused` after a pause, and `Stuck` after a failure.
fn stopped(failure: RunFailure, situation: &Situation) -> Failure {
    let progress = situation.progress();
    let next = situation.next();
    let back = situation.rollback().map(|command| format!("to go back: `{command}`"));
    if failure.source.is_pause() {
        let why = match &failure.source {
            OperationError::GateClosed { gate, reason, .. } => {
                format!("; the gate `{gate}` is closed: {reason}")
            }
            OperationError::BatchRolledBack { batch, gate, reason } => {
                let stage = batch.saturating_add(1);
                format!("; the gate `{gate}` was closed: {reason}; stage {stage} was rolled back")
            }
            _ => String::new(),
        };
        let next = next.map(|next| format!("; next: `{next}`")).unwrap_or_default();
        let words = Failure::of(ExitKind::Paused, format!("{progress}{why}{next}"));
        return Failure { step: Some(failure.step.to_string()), ..words }.hints(back);
    }
    let words = Failure::from(failure).kind(ExitKind::Stuck);
    let without = situation.without_skipped();
    words.hint(progress).hints(next.map(|next| format!("to continue: `{next}`"))).hints(without).hints(back)
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let hint = refusal.hint();
        Self::refused(refusal.to_string()).hints(hint)
    }
}
