//! `netsurgeon mirror`: copies the declared objects of namespaces to a mirror of the cluster, and removes the copies again. It also
//! creates the kOps specification of a mirror, and compares what both clusters can do in AWS.

mod activate;
pub(in crate::cli) mod activation;
mod apply;
mod deactivate;
mod diff_output;
mod kops;
mod parity;
mod plan;
pub(in crate::cli) mod sans;
mod teardown;
mod verify;

pub(in crate::cli) use plan::configuration;

use clap::Subcommand;
use serde::Serialize;

use super::api::KubeArgs;
use super::output::table;
use super::run_args::RunArgs;
use super::{Context, Outcome};
use crate::mirror::run::{MirrorSession, Ran};
use crate::mirror::{DryRun, Entry, KIND, Mirror, Planned};
use crate::operation::{Listed, Plan, Report, Status, Work};
use crate::session::{ClusterSession, Failure, Recorded, give_up};
use crate::words::counted;

#[derive(Debug, Subcommand)]
pub enum MirrorCommand {
    Plan(plan::PlanArgs),
    Apply(Box<apply::ApplyArgs>),
    Verify(verify::VerifyArgs),
    Activate(Box<activate::ActivateArgs>),
    Deactivate(deactivate::DeactivateArgs),
    /// Add the names of the mirror to the certificates of the source
    #[command(subcommand)]
    Sans(sans::SansCommand),
    Teardown(teardown::TeardownArgs),
    Kops(kops::KopsArgs),
    Parity(parity::ParityArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: &MirrorCommand) -> Result<Outcome, Failure> {
    match command {
        MirrorCommand::Plan(args) => plan::run(context, args).await,
        MirrorCommand::Apply(args) => apply::run(context, args).await,
        MirrorCommand::Verify(args) => verify::run(context, args).await,
        MirrorCommand::Activate(args) => activate::run(context, args).await,
        MirrorCommand::Deactivate(args) => deactivate::run(context, args).await,
        MirrorCommand::Sans(command) => sans::run(context, command).await,
        MirrorCommand::Teardown(args) => teardown::run(context, args).await,
        MirrorCommand::Kops(args) => kops::run(context, args),
        MirrorCommand::Parity(args) => parity::run(context, args).await,
    }
}

/// Starts a session on the mirror.
pub(super) async fn open(
    context: &Context,
    mirror: &KubeArgs,
    run: &RunArgs,
) -> Result<ClusterSession, Failure> {
    ClusterSession::open(context.ui(), mirror.connect().await?, run.settings_of_copies()).await
}

/// The output of `mirror apply -o json`, `mirror teardown -o json` and `mirror sans apply -o json`.
#[derive(Serialize)]
struct RunOutput<'a> {
    version: u8,
    /// `null` if the plan changes nothing, so there is no operation.
    operation: Option<&'a str>,
    digest: &'a str,
    status: Option<Status>,
    /// Number of steps that this run executed or undid.
    done: usize,
    /// The objects that were skipped, each with the reason.
    skipped: Vec<SkippedOutput<'a>>,
    /// The command that undoes the operation.
    rollback: Option<String>,
}

impl<'a> RunOutput<'a> {
    /// Returns the output of a plan that changes nothing.
    fn nothing(digest: &'a str) -> Self {
        let (operation, status, rollback) = (None, None, None);
        Self { version: 1, operation, digest, status, done: 0, skipped: Vec::new(), rollback }
    }

    /// Returns the output of a run.
    fn of<W: Work>(recorded: &'a Recorded<W>, report: &'a Report, rollback: Option<String>) -> Self {
        let skipped = report.stuck.iter();
        Self {
            version: 1,
            operation: Some(&recorded.operation),
            digest: &recorded.plan.digest,
            status: Some(recorded.summary.status),
            done: report.done,
            skipped: skipped.map(|one| SkippedOutput { step: &one.step.0, reason: &one.reason }).collect(),
            rollback,
        }
    }
}

#[derive(Serialize)]
struct SkippedOutput<'a> {
    step: &'a str,
    reason: &'a str,
}

/// Prints the result of a run.
fn conclude(context: &Context, ran: &Ran) -> Result<Outcome, Failure> {
    let (id, status) = (&ran.recorded.operation, ran.recorded.summary.status);
    let stuck = &ran.report.stuck;
    let teardown = format!("netsurgeon mirror teardown {id} --mirror-context NAME");
    let rollback = (status != Status::RolledBack).then(|| teardown.clone());
    context.output.data(&RunOutput::of(&ran.recorded, &ran.report, rollback), |_| String::new())?;
    let objects = counted(ran.report.done, "object", "objects");
    let what = if status == Status::Done { "changed" } else { "removed or restored" };
    context.output.progress(&format!("{id}: {status}; {objects} {what}"));
    for stuck in stuck {
        context.output.warn(&format!("skipped: {}: {}", stuck.step, stuck.reason));
    }
    if status == Status::Stuck {
        let subjects = stuck.iter().filter_map(|stuck| Some(stuck.step.0.split_once('/')?.1));
        let options = give_up(subjects);
        context.output.note(&format!(
            "to end the teardown and leave these objects as they are: `netsurgeon mirror teardown {id}{options} --mirror-context NAME`"
        ));
    }
    if status == Status::Done && !stuck.is_empty() {
        let what = match &ran.recorded.plan.work {
            work if work.config.is_empty() => format!("-n {}", work.namespaces.join(",")),
            _ => "--config FILE".to_string(),
        };
        context.output.note(&format!(
            "to copy the skipped objects, remove the causes, and apply a new plan: `netsurgeon mirror plan {what} --mirror-context NAME --save plan.json`"
        ));
    }
    if status == Status::Done {
        context.output.note(&format!("to remove the copies: `{teardown}`"));
    }
    Ok(if stuck.is_empty() { Outcome::Done } else { Outcome::Findings })
}

/// Continues an operation, for `operation resume`.
pub(in crate::cli) async fn resume_on(
    context: &Context,
    session: MirrorSession,
    id: &str,
) -> Result<Outcome, Failure> {
    conclude(context, &session.resume(id).await?)
}

/// Rolls an operation back, for `mirror teardown` and `operation rollback`.
pub(in crate::cli) async fn roll_back_on(
    context: &Context,
    session: ClusterSession,
    (id, give_up): (&str, &[String]),
) -> Result<Outcome, Failure> {
    let session = MirrorSession::new(session, None).giving_up(give_up);
    let known = session.read::<Mirror>(id).await?;
    if known.summary.status == Status::RolledBack {
        context
            .output
            .progress(&format!("the operation `{id}` was already rolled back; nothing was changed"));
        return Ok(Outcome::Done);
    }
    session.ask(&format!("Remove the copies of `{id}` from the mirror?"))?;
    conclude(context, &session.roll_back(id).await?)
}

/// Returns the id of the only operation of this kind that has not been rolled back, or the given id.
async fn chosen(session: &ClusterSession, given: Option<&str>) -> Result<String, Failure> {
    if let Some(id) = given {
        return Ok(id.to_string());
    }
    match in_effect(session).await?.as_slice() {
        [one] => Ok(one.operation.clone()),
        more => {
            let list: Vec<String> = more.iter().map(|one| format!("`{}`", one.operation)).collect();
            Err(Failure::usage(format!("the mirror has several mirror operations: {}", list.join(", ")))
                .hint(
                    "give the id of an operation; remove the newest first, which is the first of this list",
                ))
        }
    }
}

/// Returns the operations of this kind that have not been rolled back, the newest first. Fails if there is none.
async fn in_effect(session: &ClusterSession) -> Result<Vec<Listed>, Failure> {
    let mut found = session.listed(KIND).await?;
    found.retain(|one| !matches!(one.summary.status, Status::RolledBack | Status::Removing));
    found.sort_by_key(|one| std::cmp::Reverse(one.summary.started));
    if found.is_empty() {
        return Err(Failure::refused("the mirror has no copies of a mirror operation")
            .hint("`netsurgeon operation list` lists the operations of a cluster"));
    }
    Ok(found)
}

/// Returns a table of the objects. Objects that are the same are only counted.
fn describe(plan: &Plan<Mirror>) -> String {
    let shown = plan.work.objects.iter().filter(|entry| entry.action != Planned::Same);
    let row = |entry: &Entry| {
        let dry_run = match entry.dry_run {
            Some(DryRun::Accepted) => "accepted",
            Some(DryRun::Refused) => "refused",
            Some(DryRun::Unchecked) => "not checked",
            None => "-",
        };
        let passive = entry.passive.as_ref().map(|_| "passive".to_string());
        let notes = [passive, entry.reason.clone(), entry.detail.clone()];
        let fields = (!entry.fields.is_empty()).then(|| entry.fields.join(", "));
        let notes: Vec<String> = notes.into_iter().flatten().chain(fields).collect();
        [
            entry.object.to_string(),
            entry.action.name().to_string(),
            dry_run.to_string(),
            if notes.is_empty() { "-".to_string() } else { notes.join(": ") },
        ]
    };
    table(["OBJECT", "ACTION", "DRY RUN", "NOTE"], shown.map(row))
}

/// Returns how many changes the mirror's API server has checked.
fn dry_run_summary(work: &Mirror) -> String {
    let of = |result| work.dry_runs(result);
    let checked = format!("dry run: {} accepted, {} refused", of(DryRun::Accepted), of(DryRun::Refused));
    match of(DryRun::Unchecked) {
        0 => checked,
        unchecked => {
            format!(
                "{checked}, {unchecked} not checked, because their namespace, kind or role does not exist yet"
            )
        }
    }
}

/// Returns a summary of a plan.
fn summary(plan: &Plan<Mirror>) -> String {
    let work = &plan.work;
    let counts = work.counts();
    let of = |action| counts.get(&action).copied().unwrap_or_default();
    let counted_actions: Vec<String> =
        Planned::ALL.into_iter().map(|action| format!("{} {}", of(action), action.name())).collect();
    let mut lines = vec![
        format!("namespaces {}: {}", work.namespaces.join(", "), counted_actions.join(", ")),
        dry_run_summary(work),
    ];
    let passive = || work.objects.iter().filter(|entry| entry.passive.is_some());
    let workloads = passive().filter(|entry| entry.shape.is_passive).count();
    let cron_jobs = passive().count().saturating_sub(workloads);
    if cron_jobs > 0 {
        let objects = counted(cron_jobs, "CronJob is", "CronJobs are");
        lines.push(format!("{objects} suspended in the mirror"));
    }
    if workloads > 0 {
        let objects = counted(workloads, "workload has", "workloads have");
        lines.push(format!("{objects} 0 replicas in the mirror"));
    }
    lines.push(format!("digest {}", plan.digest));
    lines.join("\n")
}
