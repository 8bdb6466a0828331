//! Runs an activation, for the commands `mirror activate`, `mirror deactivate`, `operation resume` and `operation rollback`. The
//! operation is recorded in the mirror.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::environment::BothClusters;
use super::progress::progress;
use super::rights::refuse_lacking;
use super::work::Activation;
use crate::kube_api::Cluster;
use crate::operation::{self, Plan, Report, Status};
use crate::session::progress::SharedProgress;
use crate::session::{
    Arrival, ClusterSession, EndOfRun, ExitKind, Failure, Heading, Holding, Recorded, Taking, refuse_ended,
    stopped_before_end,
};

/// Maximum number of objects that move at the same time. A group is small, so that each hand-over is short.
const MOST_AT_ONCE: usize = 4;

/// A session that runs an activation.
pub struct ActivationSession {
    /// The session on the mirror.
    session: ClusterSession,
    source: Cluster,
    /// Subjects of steps to give up.
    given_up: Vec<String>,
}

impl Deref for ActivationSession {
    type Target = ClusterSession;

    fn deref(&self) -> &ClusterSession {
        &self.session
    }
}

/// The result of a run.
pub struct Ran {
    /// The operation, with its journal.
    pub recorded: Recorded<Activation>,
    /// The report of the run. It contains the objects that were skipped.
    pub report: Report,
}

impl ActivationSession {
    /// Returns a session. `session`: of the mirror. Both directions change both clusters.
    pub fn new(mut session: ClusterSession, source: Cluster) -> Self {
        session.limit_parallel(MOST_AT_ONCE);
        Self { session, source, given_up: Vec::new() }
    }

    /// Gives these subjects up before the run ([`crate::mirror::Reference::subject`]): their objects stay as they are in both clusters.
    #[must_use]
    pub fn giving_up(self, subjects: &[String]) -> Self {
        Self { given_up: subjects.to_vec(), ..self }
    }

    /// Fails if the plan is not for this source and this mirror.
    pub async fn refuse_other_clusters(&self, plan: &Plan<Activation>) -> Result<(), Failure> {
        let source = self.source.identity().await?;
        for (which, planned, this) in
            [("mirror", &plan.header.cluster, &self.session.id), ("source", &plan.work.source, &source)]
        {
            if planned != this {
                let text =
                    format!("the operation is for the {which} `{planned}`, but this {which} is `{this}`");
                return Err(Failure::refused(text).hint(
                    "for `mirror`, check `--context` and `--mirror-context`; for `operation`, `--source-context` and `--context`",
                ));
            }
        }
        Ok(())
    }

    fn refuse_unknown(&self, work: &Activation) -> Result<(), Failure> {
        let is_known = |subject: &&String| work.moves().any(|entry| entry.object.subject() == **subject);
        match self.given_up.iter().find(|subject| !is_known(subject)) {
            None => Ok(()),
            Some(subject) => Err(Failure::usage(format!("the operation moves no object `{subject}`")).hint(
                "`netsurgeon operation show ID` lists the steps: a subject is a step without `activate/`",
            )),
        }
    }

    /// Starts an operation, and runs it. Returns `None` if nothing moves: nothing is written then.
    pub async fn start(&self, plan: Plan<Activation>) -> Result<Option<Ran>, Failure> {
        self.refuse_other_clusters(&plan).await?;
        if plan.work.moves().next().is_none() {
            return Ok(None);
        }
        refuse_lacking(&self.source, &self.session.api, &plan.work).await?;
        let (mut recorded, holding) = self.begin(plan, Value::Null, PURPOSE).await?;
        self.ui.progress(&format!("operation {}", recorded.operation));
        let outcome = self.carry(&mut recorded, &holding, Heading::Forward(None)).await;
        let report = holding.release(outcome).await?;
        Ok(Some(Ran { recorded, report }))
    }

    /// Continues an operation. If its rollback has started, continues the rollback.
    pub async fn resume(&self, operation: &str) -> Result<Ran, Failure> {
        let known: Recorded<Activation> = self.read(operation).await?;
        refuse_ended(operation, &known.summary)?;
        self.refuse_other_clusters(&known.plan).await?;
        self.refuse_unknown(&known.plan.work)?;
        refuse_lacking(&self.source, &self.session.api, &known.plan.work).await?;
        let (mut recorded, holding) = self.take(&Taking { operation, purpose: PURPOSE }).await?;
        let resumed = async {
            refuse_ended(operation, &recorded.summary)?;
            let is_back = recorded.journal.is_going_back(&recorded.summary);
            holding.give_up_subjects(&mut recorded, &self.given_up, is_back).await?;
            let heading = if is_back { Heading::Back } else { Heading::Forward(None) };
            self.carry(&mut recorded, &holding, heading).await
        };
        let outcome = resumed.await;
        let report = holding.release(outcome).await?;
        Ok(Ran { recorded, report })
    }

    /// Moves everything back to the source, even if the operation is complete.
    pub async fn roll_back(&self, operation: &str) -> Result<Ran, Failure> {
        let known: Recorded<Activation> = self.read(operation).await?;
        self.refuse_other_clusters(&known.plan).await?;
        self.refuse_unknown(&known.plan.work)?;
        refuse_lacking(&self.source, &self.session.api, &known.plan.work).await?;
        let taking = Taking { operation, purpose: "move the active objects back to the source" };
        let (mut recorded, holding) = self.take(&taking).await?;
        let back = async {
            holding.give_up_subjects(&mut recorded, &self.given_up, true).await?;
            self.carry(&mut recorded, &holding, Heading::Back).await
        };
        let outcome = back.await;
        let report = holding.release(outcome).await?;
        Ok(Ran { recorded, report })
    }

    async fn carry(
        &self,
        recorded: &mut Recorded<Activation>,
        holding: &Holding,
        heading: Heading,
    ) -> Result<Report, Failure> {
        let clusters = BothClusters { source: &self.source, mirror: &self.session.api };
        let progress: SharedProgress =
            Arc::new(Mutex::new(progress(&recorded.operation, &recorded.plan.work)));
        match self.execute(recorded, holding, (&clusters, progress), heading, self).await? {
            Arrival::There(report) => Ok(report),
            // An activation has no gates.
            Arrival::Gate(closed) => Err(Failure::of(ExitKind::Bug, closed.reason)),
        }
    }
}

const PURPOSE: &str = "move the passive objects to the mirror";

impl EndOfRun<Activation> for ActivationSession {
    fn status_at_target(&self, _: &Recorded<Activation>, heading: Heading, report: &Report) -> Status {
        match heading {
            // Objects that were skipped are active in the source. A new activation contains them again.
            Heading::Forward(_) => Status::Done,
            Heading::Back if report.stuck.is_empty() => Status::RolledBack,
            Heading::Back => Status::Stuck,
        }
    }

    fn stopped(&self, recorded: &Recorded<Activation>, failure: operation::RunFailure, _: bool) -> Failure {
        stopped_before_end(failure, &recorded.operation)
    }
}
