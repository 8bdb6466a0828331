//! Runs the operation, for the commands `mirror sans apply`, `operation resume` and `operation rollback`. The operation is recorded in
//! the source.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::environment::Source;
use super::progress::progress;
use super::rights::refuse_lacking;
use super::work::Sans;
use crate::operation::{self, Plan, Report, Status};
use crate::session::progress::SharedProgress;
use crate::session::{
    Arrival, ClusterSession, EndOfRun, ExitKind, Failure, Heading, Holding, Recorded, Taking, refuse_ended,
    stopped_before_end,
};

/// Maximum number of certificates that are issued at the same time.
const MOST_AT_ONCE: usize = 4;
const PURPOSE: &str = "add names to certificates";

/// A session that adds names to certificates.
pub struct SansSession {
    session: ClusterSession,
    /// Subjects of steps to give up.
    given_up: Vec<String>,
}

impl Deref for SansSession {
    type Target = ClusterSession;

    fn deref(&self) -> &ClusterSession {
        &self.session
    }
}

/// The result of a run.
pub struct SansRun {
    /// The operation, with its journal.
    pub recorded: Recorded<Sans>,
    /// The report of the run. It contains the Certificates that were skipped.
    pub report: Report,
}

impl SansSession {
    /// Returns a session. `session`: of the source.
    pub fn new(mut session: ClusterSession) -> Self {
        session.limit_parallel(MOST_AT_ONCE);
        Self { session, given_up: Vec::new() }
    }

    /// Gives these subjects up before the run ([`crate::mirror::Reference::subject`]): their Certificates stay as they are.
    #[must_use]
    pub fn giving_up(self, subjects: &[String]) -> Self {
        Self { given_up: subjects.to_vec(), ..self }
    }

    fn refuse_another_cluster(&self, plan: &Plan<Sans>) -> Result<(), Failure> {
        let (planned, this) = (&plan.header.cluster, &self.session.id);
        if planned == this {
            return Ok(());
        }
        let text = format!("the operation is for the cluster `{planned}`, but this cluster is `{this}`");
        Err(Failure::refused(text).hint("check `--context` and `--kubeconfig`: they select the source"))
    }

    fn refuse_unknown(&self, work: &Sans) -> Result<(), Failure> {
        let is_known = |subject: &&String| work.additions().any(|entry| entry.object.subject() == **subject);
        match self.given_up.iter().find(|subject| !is_known(subject)) {
            None => Ok(()),
            Some(subject) => Err(Failure::usage(format!("the operation changes no Certificate `{subject}`"))
                .hint("`netsurgeon operation show ID` lists the steps: a subject is a step without `sans/`")),
        }
    }

    /// Starts an operation, and runs it. Returns `None` if no Certificate gets a name: nothing is written then.
    pub async fn start(&self, plan: Plan<Sans>) -> Result<Option<SansRun>, Failure> {
        self.refuse_another_cluster(&plan)?;
        if plan.work.additions().next().is_none() {
            return Ok(None);
        }
        refuse_lacking(&self.session.api, &plan.work).await?;
        let (mut recorded, holding) = self.begin(plan, Value::Null, PURPOSE).await?;
        self.ui.progress(&format!("operation {}", recorded.operation));
        let outcome = self.carry(&mut recorded, &holding, Heading::Forward(None)).await;
        let report = holding.release(outcome).await?;
        Ok(Some(SansRun { recorded, report }))
    }

    /// Continues an operation. If its rollback has started, continues the rollback.
    pub async fn resume(&self, operation: &str) -> Result<SansRun, Failure> {
        let known = self.known(operation).await?;
        refuse_ended(operation, &known.summary)?;
        self.take_and_run(operation, (PURPOSE, false)).await
    }

    /// Removes the added names again, even if the operation is complete.
    pub async fn roll_back(&self, operation: &str) -> Result<SansRun, Failure> {
        self.known(operation).await?;
        self.take_and_run(operation, ("remove the added names from certificates", true)).await
    }

    /// Reads an operation, and checks what it needs before this process takes it.
    async fn known(&self, operation: &str) -> Result<Recorded<Sans>, Failure> {
        let known: Recorded<Sans> = self.read(operation).await?;
        self.refuse_another_cluster(&known.plan)?;
        self.refuse_unknown(&known.plan.work)?;
        refuse_lacking(&self.session.api, &known.plan.work).await?;
        Ok(known)
    }

    async fn take_and_run(&self, operation: &str, (purpose, back): (&str, bool)) -> Result<SansRun, Failure> {
        let (mut recorded, holding) = self.take(&Taking { operation, purpose }).await?;
        let run = async {
            if !back {
                refuse_ended(operation, &recorded.summary)?;
            }
            let is_back = back || recorded.journal.is_going_back(&recorded.summary);
            holding.give_up_subjects(&mut recorded, &self.given_up, is_back).await?;
            let heading = if is_back { Heading::Back } else { Heading::Forward(None) };
            self.carry(&mut recorded, &holding, heading).await
        };
        let outcome = run.await;
        let report = holding.release(outcome).await?;
        Ok(SansRun { recorded, report })
    }

    async fn carry(
        &self,
        recorded: &mut Recorded<Sans>,
        holding: &Holding,
        heading: Heading,
    ) -> Result<Report, Failure> {
        let source = Source(&self.session.api);
        let progress: SharedProgress =
            Arc::new(Mutex::new(progress(&recorded.operation, &recorded.plan.work)));
        match self.execute(recorded, holding, (&source, progress), heading, self).await? {
            Arrival::There(report) => Ok(report),
            // The operation has no gates.
            Arrival::Gate(closed) => Err(Failure::of(ExitKind::Bug, closed.reason)),
        }
    }
}

impl EndOfRun<Sans> for SansSession {
    fn status_at_target(&self, _: &Recorded<Sans>, heading: Heading, report: &Report) -> Status {
        match heading {
            // Certificates that were skipped have their former names. A new operation contains them again.
            Heading::Forward(_) => Status::Done,
            Heading::Back if report.stuck.is_empty() => Status::RolledBack,
            Heading::Back => Status::Stuck,
        }
    }

    fn stopped(&self, recorded: &Recorded<Sans>, failure: operation::RunFailure, _: bool) -> Failure {
        stopped_before_end(failure, &recorded.operation)
    }
}
