//! What `mirror activate`, `mirror deactivate` and `operation` on an activation have in common.

use clap::Args;
use serde::Serialize;

use super::SkippedOutput;
use crate::cli::api::KubeArgs;
use crate::cli::output::table;
use crate::cli::run_args::RunArgs;
use crate::cli::{Context, Outcome};
use crate::kube_api::Cluster;
use crate::mirror::activation::run::{ActivationSession, Ran};
use crate::mirror::activation::{Activation, Entry, KIND, Moved, Waits};
use crate::operation::{Plan, Status};
use crate::session::{ClusterSession, Failure, give_up};
use crate::words::{counted, in_words};

/// How long a hand-over waits. An operation that is resumed or rolled back has the times of its start.
#[derive(Debug, Clone, Args)]
pub struct WaitArgs {
    /// Seconds to wait for the answer of the CronJob controller
    #[arg(long = "wait-controllers", value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=3600))]
    controllers: u64,
    /// Seconds to wait until the Jobs of a CronJob have finished, or the Pods of a workload have ended. Scheduled times that pass in
    /// the meantime are not run
    #[arg(long = "wait-jobs", value_name = "SECONDS", default_value = "300", value_parser = clap::value_parser!(u64).range(0..=86400))]
    jobs: u64,
    /// Seconds to wait until a workload is available in the mirror
    #[arg(long = "wait-ready", value_name = "SECONDS", default_value = "300", value_parser = clap::value_parser!(u64).range(0..=86400))]
    ready: u64,
}

impl WaitArgs {
    pub fn waits(&self) -> Waits {
        Waits { controllers: self.controllers, jobs: self.jobs, ready: self.ready }
    }
}

/// Both clusters.
pub struct Clusters {
    pub source: Cluster,
    pub mirror: Cluster,
}

impl Clusters {
    /// Connects to both clusters.
    pub async fn connect(source: &KubeArgs, mirror: &KubeArgs) -> Result<Self, Failure> {
        let (source, mirror) = tokio::join!(source.connect(), mirror.connect());
        let lost = |failure: Failure| {
            failure.hint(
                "an object moves only if the source proves that it is quiet there, or becomes active there again; nothing was changed",
            )
        };
        Ok(Self { source: source.map_err(lost)?, mirror: mirror? })
    }

    /// Starts a session on the mirror.
    pub async fn session(self, context: &Context, run: &RunArgs) -> Result<ActivationSession, Failure> {
        // One object never stops the others.
        let session = ClusterSession::open(context.ui(), self.mirror, run.settings(usize::MAX)).await?;
        Ok(ActivationSession::new(session, self.source))
    }
}

/// Returns the ids of the activations that were not rolled back, the newest first.
pub(super) async fn chosen(
    session: &ActivationSession,
    namespaces: &[String],
) -> Result<Vec<String>, Failure> {
    let is_there = |status: Status| !matches!(status, Status::RolledBack | Status::Removing);
    let mut listed = session.listed(KIND).await?;
    listed.retain(|one| is_there(one.summary.status));
    listed.sort_by_key(|one| std::cmp::Reverse(one.summary.started));
    let mut found = Vec::new();
    for one in listed {
        let plan = session.read::<Activation>(&one.operation).await?.plan;
        let of = |entry: &Entry| entry.object.namespace.clone().unwrap_or_default();
        let (inside, outside): (Vec<String>, Vec<String>) =
            plan.work.moves().map(of).partition(|namespace| namespaces.contains(namespace));
        if namespaces.is_empty() || outside.is_empty() {
            found.push(one.operation);
        } else if let Some(inside) = inside.first() {
            let (id, outside) = (&one.operation, outside.first().cloned().unwrap_or_default());
            let text = format!("the activation `{id}` has objects of `{inside}` and of `{outside}`");
            return Err(Failure::refused(text).hint(format!(
                "an activation is moved back as a whole: add the namespace, or `netsurgeon mirror deactivate {id}`"
            )));
        }
    }
    if found.is_empty() {
        return Err(Failure::refused("no activation is in force in the mirror")
            .hint("`netsurgeon operation list` lists the operations of a cluster"));
    }
    Ok(found)
}

/// The output of `mirror activate -o json` and `mirror deactivate -o json`.
#[derive(Serialize)]
struct RunsOutput<'a> {
    version: u8,
    /// Empty if nothing moves, so there is no operation.
    operations: Vec<RunOutput<'a>>,
}

#[derive(Serialize)]
struct RunOutput<'a> {
    operation: &'a str,
    digest: &'a str,
    status: Status,
    /// Number of objects that this run moved or moved back.
    done: usize,
    /// The objects that were skipped, each with the reason.
    skipped: Vec<SkippedOutput<'a>>,
    /// Workloads that are not available in the mirror.
    unavailable: Vec<String>,
    /// The command that moves the objects back.
    rollback: Option<String>,
}

/// Prints that nothing moves.
pub(super) fn nothing(context: &Context, digest: &str) -> Result<Outcome, Failure> {
    context.output.data(&RunsOutput { version: 1, operations: Vec::new() }, |_| String::new())?;
    context.output.progress(&format!("nothing moves; nothing was written (plan {digest})"));
    Ok(Outcome::Done)
}

/// Prints the results of runs.
pub(in crate::cli) fn conclude(context: &Context, ran: &[Ran]) -> Result<Outcome, Failure> {
    let operations: Vec<RunOutput<'_>> = ran.iter().map(shown).collect();
    let shown = RunsOutput { version: 1, operations };
    context.output.data(&shown, |_| String::new())?;
    let mut is_clean = true;
    for run in &shown.operations {
        let (id, status) = (run.operation, run.status);
        let what = if status == Status::Done { "moved to the mirror" } else { "moved back to the source" };
        let objects = counted(run.done, "object", "objects");
        context.output.progress(&format!("{id}: {status}; {objects} {what}"));
        for skipped in &run.skipped {
            context.output.warn(&format!("skipped: {}: {}", skipped.step, skipped.reason));
        }
        for object in &run.unavailable {
            context.output.warn(&format!("{object} is not available in the mirror yet"));
        }
        if status == Status::Stuck {
            let subjects = run.skipped.iter().map(|one| one.step.trim_start_matches("activate/"));
            let options = give_up(subjects);
            context.output.note(&format!(
                "to end the rollback and leave these objects as they are: `netsurgeon operation rollback {id}{options} --source-context NAME`"
            ));
        }
        if let Some(rollback) = &run.rollback {
            context.output.note(&format!("to move the objects back: `{rollback}`"));
        }
        is_clean = is_clean && run.skipped.is_empty() && run.unavailable.is_empty();
    }
    Ok(if is_clean { Outcome::Done } else { Outcome::Findings })
}

fn shown(ran: &Ran) -> RunOutput<'_> {
    let (id, status) = (&ran.recorded.operation, ran.recorded.summary.status);
    let stuck = ran.report.stuck.iter();
    let is_unavailable = |entry: &&Entry| {
        let made = ran.recorded.journal.find(&entry.step()).and_then(|record| record.made.as_deref());
        status == Status::Done && made.is_some_and(|made| made["is_available"] == false)
    };
    let unavailable = ran.recorded.plan.work.moves().filter(is_unavailable);
    RunOutput {
        operation: id,
        digest: &ran.recorded.plan.digest,
        status,
        done: ran.report.done,
        skipped: stuck.map(|one| SkippedOutput { step: &one.step.0, reason: &one.reason }).collect(),
        unavailable: unavailable.map(|entry| entry.object.to_string()).collect(),
        rollback: (status == Status::Done)
            .then(|| format!("netsurgeon mirror deactivate {id} --mirror-context NAME")),
    }
}

/// Returns a table of the objects.
pub(super) fn describe(plan: &Plan<Activation>) -> String {
    let row = |entry: &Entry| {
        let mut notes: Vec<String> = entry.reason.iter().cloned().collect();
        let (mut schedule, mut next) = ("-".to_string(), "-".to_string());
        if let Some(facts) = &entry.cron_job {
            let zone = facts.time_zone.as_ref().map(|zone| format!(" {zone}")).unwrap_or_default();
            schedule = format!("{}{zone}", facts.schedule);
            next = facts.next.clone().unwrap_or(next);
            let deadline = facts.deadline.and_then(|seconds| u64::try_from(seconds).ok());
            notes.extend(deadline.map(|seconds| {
                format!(
                    "a missed run is made up within {}",
                    in_words(std::time::Duration::from_secs(seconds))
                )
            }));
            if !facts.running.is_empty() {
                notes.push(format!("runs now: {}", facts.running.join(", ")));
            }
        }
        notes.extend(entry.replicas.map(counted_replicas));
        let notes = if notes.is_empty() { "-".to_string() } else { notes.join("; ") };
        [entry.object.to_string(), entry.action.name().to_string(), schedule, next, notes]
    };
    table(["OBJECT", "ACTION", "SCHEDULE", "NEXT (UTC)", "NOTE"], plan.work.objects.iter().map(row))
}

fn counted_replicas(replicas: i64) -> String {
    counted(usize::try_from(replicas).unwrap_or_default(), "replica in the mirror", "replicas in the mirror")
}

/// Returns what the operator must know before the start.
pub(super) fn warnings(plan: &Plan<Activation>) -> Vec<String> {
    let moves: Vec<&Entry> = plan.work.moves().filter(|entry| entry.cron_job.is_some()).collect();
    let mut found = Vec::new();
    for namespace in &plan.work.namespaces {
        if !plan.work.objects.iter().any(|entry| entry.object.namespace.as_ref() == Some(namespace)) {
            found.push(format!("no mirror operation has made a passive copy in the namespace `{namespace}`"));
        }
    }
    let has_no_zone =
        |entry: &&&Entry| entry.cron_job.as_ref().is_some_and(|facts| facts.time_zone.is_none());
    let without = moves.iter().filter(has_no_zone).count();
    if without > 0 {
        let cron_jobs = counted(without, "CronJob has", "CronJobs have");
        found.push(format!(
            "{cron_jobs} no time zone: the schedule is in the zone of kube-controller-manager, which must be the same in both clusters"
        ));
    }
    if !moves.is_empty() {
        found.push(
            "if several scheduled times of a CronJob pass during its hand-over, only the last one is made up, within `startingDeadlineSeconds`"
                .to_string(),
        );
    }
    let unknown = plan.work.objects.iter().filter(|entry| entry.action == Moved::LeftOut);
    found.extend(unknown.map(|entry| {
        let reason = entry.reason.as_deref().unwrap_or_default();
        format!("{} does not move: {reason}", entry.object)
    }));
    found
}
