//! Runs a mirror operation, for the commands `mirror apply`, `mirror teardown` and `operation resume`. The operation is recorded in
//! the mirror.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::OnceCell;

use super::activation::ledger::refuse_active;
use super::environment::Clusters;
use super::former_names::FormerNames;
use super::progress::progress;
use super::source_pages::SourcePages;
use super::work::{Entry, Mirror, Planned};
use crate::kube_api::ReadOnly;
use crate::operation::{self, Plan, Report, Status};
use crate::session::progress::SharedProgress;
use crate::session::{
    Arrival, ClusterSession, EndOfRun, ExitKind, Failure, Heading, Holding, Recorded, Taking, refuse_ended,
    stopped_before_end,
};

/// A session that runs a mirror operation.
pub struct MirrorSession {
    /// The session on the mirror.
    session: ClusterSession,
    /// The source; a rollback does not need it.
    source: Option<ReadOnly>,
    /// Subjects of steps to give up.
    given_up: Vec<String>,
    /// Whether files that the plan names are read.
    reads_files: bool,
}

impl Deref for MirrorSession {
    type Target = ClusterSession;

    fn deref(&self) -> &ClusterSession {
        &self.session
    }
}

/// The result of a run.
pub struct Ran {
    /// The operation, with its journal.
    pub recorded: Recorded<Mirror>,
    /// The report of the run. It contains the objects that were skipped.
    pub report: Report,
}

impl MirrorSession {
    /// Returns a session. `session`: of the mirror. `source`: the source, which only a rollback does not need.
    pub fn new(session: ClusterSession, source: Option<ReadOnly>) -> Self {
        Self { session, source, given_up: Vec::new(), reads_files: false }
    }

    /// Gives these subjects up before the run ([`super::Reference::subject`]): their objects stay as they are, and the operation or its
    /// rollback ends without them.
    #[must_use]
    pub fn giving_up(self, subjects: &[String]) -> Self {
        Self { given_up: subjects.to_vec(), ..self }
    }

    /// Reads the files of pull secrets, because the plan is from a file of the operator. A plan that is only recorded in the cluster
    /// could name any file.
    #[must_use]
    pub fn reading_files(self) -> Self {
        Self { reads_files: true, ..self }
    }

    /// Fails if the plan has no step for a subject to give up.
    fn refuse_unknown(&self, work: &Mirror) -> Result<(), Failure> {
        let is_known = |subject: &&String| work.changes().any(|entry| entry.object.subject() == **subject);
        match self.given_up.iter().find(|subject| !is_known(subject)) {
            None => Ok(()),
            Some(subject) => Err(Failure::usage(format!("the operation changes no object `{subject}`"))
                .hint("`netsurgeon operation show ID` lists the steps: a subject is a step without `copy/` or `delete/`")),
        }
    }

    /// Fails if the plan is not for this source and this mirror.
    pub async fn refuse_other_clusters(&self, plan: &Plan<Mirror>) -> Result<(), Failure> {
        if plan.header.cluster != self.session.id {
            let (planned, this) = (&plan.header.cluster, &self.session.id);
            let text = format!("the plan is for the mirror `{planned}`, but this mirror is `{this}`");
            return Err(Failure::refused(text).hint("check `--mirror-kubeconfig` and `--mirror-context`"));
        }
        let Some(source) = &self.source else { return Ok(()) };
        let (this, planned) = (source.identity().await?, &plan.work.source);
        if this == *planned {
            return Ok(());
        }
        Err(Failure::refused(format!("the plan is for the source `{planned}`, but this source is `{this}`"))
            .hint("check `--kubeconfig` and `--context`; for `operation resume`, `--source-context`"))
    }

    /// Starts an operation, and runs it. Fails before any change if the plan is for other clusters. Returns `None` if the plan
    /// changes nothing: nothing is written then.
    pub async fn start(&self, plan: Plan<Mirror>) -> Result<Option<Ran>, Failure> {
        self.refuse_other_clusters(&plan).await?;
        if plan.work.changes().next().is_none() {
            return Ok(None);
        }
        let purpose = purpose(&plan.work);
        let (mut recorded, holding) = self.begin(plan, Value::Null, &purpose).await?;
        self.ui.progress(&format!("operation {}", recorded.operation));
        let outcome = self.forward(&mut recorded, &holding).await;
        let report = holding.release(outcome).await?;
        Ok(Some(Ran { recorded, report }))
    }

    /// Continues an operation. If its rollback has started, continues the rollback.
    pub async fn resume(&self, operation: &str) -> Result<Ran, Failure> {
        let known: Recorded<Mirror> = self.read(operation).await?;
        refuse_ended(operation, &known.summary)?;
        let is_back = known.journal.is_going_back(&known.summary);
        if !is_back && self.source.is_none() {
            return Err(Failure::usage("give the source: the operation reads its objects again")
                .hint("add `--source-context NAME`, or `--source-kubeconfig FILE`"));
        }
        self.refuse_other_clusters(&known.plan).await?;
        self.refuse_unknown(&known.plan.work)?;
        let purpose = purpose(&known.plan.work);
        let (mut recorded, holding) = self.take(&Taking { operation, purpose: &purpose }).await?;
        let resumed = async {
            refuse_ended(operation, &recorded.summary)?;
            if recorded.journal.is_going_back(&recorded.summary) {
                return self.back(&mut recorded, &holding).await;
            }
            self.forward(&mut recorded, &holding).await
        };
        let outcome = resumed.await;
        let report = holding.release(outcome).await?;
        Ok(Ran { recorded, report })
    }

    /// Rolls an operation back, even if it is complete.
    pub async fn roll_back(&self, operation: &str) -> Result<Ran, Failure> {
        let known: Recorded<Mirror> = self.read(operation).await?;
        self.refuse_unknown(&known.plan.work)?;
        let taking = Taking { operation, purpose: "remove the copies of the mirror" };
        let (mut recorded, holding) = self.take(&taking).await?;
        let outcome = self.back(&mut recorded, &holding).await;
        let report = holding.release(outcome).await?;
        Ok(Ran { recorded, report })
    }

    async fn forward(&self, recorded: &mut Recorded<Mirror>, holding: &Holding) -> Result<Report, Failure> {
        holding.give_up_subjects(recorded, &self.given_up, false).await?;
        self.carry(recorded, holding, Heading::Forward(None)).await
    }

    async fn back(&self, recorded: &mut Recorded<Mirror>, holding: &Holding) -> Result<Report, Failure> {
        refuse_active(&self.session.api, recorded).await?;
        holding.give_up_subjects(recorded, &self.given_up, true).await?;
        self.carry(recorded, holding, Heading::Back).await
    }

    async fn carry(
        &self,
        recorded: &mut Recorded<Mirror>,
        holding: &Holding,
        heading: Heading,
    ) -> Result<Report, Failure> {
        let (work, journal) = (&recorded.plan.work, &recorded.journal);
        let is_new = |entry: &&Entry| {
            let is_forward = heading != Heading::Back && entry.action == Planned::Create;
            is_forward && journal.find(&entry.step()).is_none()
        };
        let created = || work.changes().filter(is_new);
        let clusters = Clusters {
            source: self.source.as_ref(),
            mirror: &self.session.api,
            operation: &recorded.operation.clone(),
            config: recorded.plan.work.config.clone(),
            reads_files: self.reads_files,
            former: FormerNames::of(created().map(|entry| work.target(&entry.object))),
            pages: SourcePages::of(created()),
            created: OnceCell::new(),
        };
        let progress: SharedProgress =
            Arc::new(Mutex::new(progress(&recorded.operation, &recorded.plan.work)));
        match self.execute(recorded, holding, (&clusters, progress), heading, self).await? {
            Arrival::There(report) => Ok(report),
            // A mirror operation has no gates.
            Arrival::Gate(closed) => Err(Failure::of(ExitKind::Bug, closed.reason)),
        }
    }
}

impl EndOfRun<Mirror> for MirrorSession {
    fn status_at_target(&self, _: &Recorded<Mirror>, heading: Heading, report: &Report) -> Status {
        match heading {
            // Objects that were skipped do not keep the operation open: a new plan contains them again.
            Heading::Forward(_) => Status::Done,
            Heading::Back if report.stuck.is_empty() => Status::RolledBack,
            Heading::Back => Status::Stuck,
        }
    }

    fn stopped(&self, recorded: &Recorded<Mirror>, failure: operation::RunFailure, _: bool) -> Failure {
        stopped_before_end(failure, &recorded.operation)
    }
}

fn purpose(work: &Mirror) -> String {
    format!("copy the namespaces {} to the mirror", work.namespaces.join(", "))
}
