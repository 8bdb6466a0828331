//! `netsurgeon operation`: the journals of operations, and going on with one.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::failure::Failure;
use super::gates::GateArgs;
use super::live::{LiveArgs, Ongoing, Session, half_removed, open_operation, release};
use super::output::{counted, table};
use super::renumber::{ApiLessArgs, EvidenceArgs, RetireArgs, RollbackArgs, retire, rollback};
use super::report::{self, ReportArgs};
use super::source::EtcdArgs;
use super::{Context, Outcome};
use crate::operation::{Journal, Lock, REMOVING, Report, State, StepId, Work};
use crate::survey::Survey;

/// List, show, report, resume and undo operations
#[derive(Debug, Args)]
pub struct OperationArgs {
    #[command(subcommand)]
    command: OperationCommand,
}

#[derive(Debug, Subcommand)]
enum OperationCommand {
    List(ListArgs),
    Show(ShowArgs),
    Report(ReportArgs),
    Resume(Box<ResumeArgs>),
    Rollback(UndoArgs),
    Forget(ForgetArgs),
}

/// List the operations that have a journal in this etcd
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation list
  netsurgeon operation list -o json | jq -r '.operations[] | select(.status == \"paused\").operation'")]
struct ListArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Show the steps of an operation that were begun, and how they stand
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation show renumber-20261121T083915Z-3f2a
  netsurgeon operation show renumber-20261121T083915Z-3f2a -o json | jq '.steps[] | select(.error)'")]
struct ShowArgs {
    /// Its id
    operation: String,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Go on with an operation where its journal says
///
/// From any machine and folder. One that was being rolled back goes on going back. If a process that carried it
/// out was killed, its lock ends with its lease, within a minute; `--take-over` does not wait for that.
///
/// Gates between batches are not remembered: give them again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation resume renumber-20261121T083915Z-3f2a
  netsurgeon operation resume renumber-20261121T083915Z-3f2a --take-over --confirm flags
  netsurgeon operation resume renumber-20261121T083915Z-3f2a --until +90m --gate-http http://127.0.0.1:8080/healthy")]
struct ResumeArgs {
    /// Its id
    operation: String,
    /// Keep the journal in etcd, where old addresses were being retired
    #[arg(long)]
    keep_journal: bool,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    gates: GateArgs,
}

/// Undo an operation
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation rollback renumber-20261121T083915Z-3f2a
  netsurgeon operation rollback renumber-20261121T083915Z-3f2a --yes --confirm flags")]
struct UndoArgs {
    /// Its id
    operation: String,
    #[command(flatten)]
    api: ApiLessArgs,
    #[command(flatten)]
    live: LiveArgs,
}

/// Remove the journal of an operation that has ended
///
/// One that was retired removes its own, one that was rolled back leaves it to be looked at. As long as an operation
/// could go on, or back, its journal stays.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation report renumber-20261121T083915Z-3f2a --html report.html
  netsurgeon operation forget renumber-20261121T083915Z-3f2a")]
struct ForgetArgs {
    /// Its id
    operation: String,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &OperationArgs) -> Result<Outcome, Failure> {
    match &args.command {
        OperationCommand::List(args) => list(context, args).await,
        OperationCommand::Show(args) => show(context, args).await,
        OperationCommand::Report(args) => report::run(context, args).await,
        OperationCommand::Resume(args) => resume(context, args).await,
        OperationCommand::Rollback(args) => {
            let (operation, live) = (Some(args.operation.clone()), args.live.clone());
            rollback(context, &RollbackArgs { operation, api: args.api.clone(), live }).await
        }
        OperationCommand::Forget(args) => forget(context, args).await,
    }
}

#[derive(Serialize)]
struct Listing {
    version: u8,
    operations: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    cluster: String,
    operation: String,
    kind: String,
    status: String,
    digest: String,
    /// Seconds since 1970.
    started: i64,
    steps_begun: usize,
}

async fn list(context: &Context, args: &ListArgs) -> Result<Outcome, Failure> {
    let store = args.etcd.connect().await?;
    let mut operations = Vec::new();
    for listed in Journal::list(store.as_ref(), None).await? {
        let progress = Journal::progress(store.as_ref(), &listed.cluster, &listed.operation).await?;
        operations.push(Line {
            cluster: listed.cluster,
            operation: listed.operation,
            kind: listed.summary.kind,
            status: listed.summary.status,
            digest: listed.summary.digest,
            started: listed.summary.started,
            steps_begun: progress.begun(),
        });
    }
    let listing = Listing { version: 1, operations };
    context.output.data(&listing, |_| {
        let rows: Vec<[String; 4]> = listing
            .operations
            .iter()
            .map(|line| {
                let steps = line.steps_begun.to_string();
                [line.operation.clone(), line.kind.clone(), line.status.clone(), steps]
            })
            .collect();
        let heading = ["OPERATION", "KIND", "STATUS", "STEPS BEGUN"];
        Ok(if rows.is_empty() { String::new() } else { table(heading, rows) })
    })?;
    context.output.progress(&counted(listing.operations.len(), "operation", "operations"));
    Ok(Outcome::Done)
}

#[derive(Serialize)]
struct Shown<'a> {
    version: u8,
    operation: &'a str,
    kind: &'a str,
    status: &'a str,
    digest: &'a str,
    steps: Vec<ShownStep>,
}

#[derive(Serialize)]
struct ShownStep {
    step: StepId,
    state: State,
    /// Each state that it was in, with the time in seconds since 1970.
    history: Vec<(State, i64)>,
    error: Option<String>,
}

async fn show(context: &Context, args: &ShowArgs) -> Result<Outcome, Failure> {
    let store = args.etcd.connect().await?;
    let cluster = Survey::identity(store.as_ref(), &args.etcd.layout()).await?.unwrap_or_default();
    let ongoing = open_operation(store.as_ref(), &cluster, Some(&args.operation), None).await?;
    let work = &ongoing.plan.work;
    let mut steps = Vec::new();
    for stage in work.stages() {
        for step in work.steps(&stage) {
            if let Some(record) = ongoing.journal.find(&step.id) {
                let (state, history, error) = (record.state, record.history.clone(), record.error.clone());
                steps.push(ShownStep { step: step.id, state, history, error });
            }
        }
    }
    let shown = Shown {
        version: 1,
        operation: &ongoing.operation,
        kind: &ongoing.summary.kind,
        status: &ongoing.summary.status,
        digest: &ongoing.plan.digest,
        steps,
    };
    context.output.data(&shown, |_| {
        let rows = shown.steps.iter().map(|step| {
            [step.step.to_string(), step.state.to_string(), step.error.clone().unwrap_or_default()]
        });
        Ok(table(["STEP", "STATE", "ERROR"], rows))
    })?;
    context.output.progress(&format!(
        "{}: {}, {} begun",
        shown.operation,
        shown.status,
        counted(shown.steps.len(), "step", "steps")
    ));
    Ok(Outcome::Done)
}

async fn resume(context: &Context, args: &ResumeArgs) -> Result<Outcome, Failure> {
    let gates = args.gates.resolve()?;
    let session = Session::open(&args.live).await?.with_gates(gates);
    let is_half_removed = half_removed(session.store.as_ref(), &session.id).await?.contains(&args.operation);
    let retiring = RetireArgs {
        operation: Some(args.operation.clone()),
        keep_journal: args.keep_journal,
        evidence: EvidenceArgs::waived(),
        live: args.live.clone(),
    };
    if is_half_removed {
        return retire(context, &retiring).await;
    }
    let ongoing = session.find(Some(&args.operation)).await?;
    if ongoing.has_begun_to_retire() {
        return retire(context, &retiring).await;
    }
    let lock = session.lock(&args.live, &ongoing.operation, "resume the operation").await?;
    let resumed = go_on(context, args, &session, &lock).await;
    let (ongoing, report) = release(lock, resumed).await?;
    context.output.progress(&format!(
        "{}: {}; {} carried out, {} were done before",
        ongoing.operation,
        ongoing.summary.status,
        counted(report.done, "step", "steps"),
        report.skipped
    ));
    if let Some(first) = report.stuck.first() {
        let count = counted(report.stuck.len(), "Service was", "Services were");
        context.output.warn(&format!("{count} left alone, the first at `{}`: {}", first.step, first.reason));
        return Ok(Outcome::Findings);
    }
    Ok(Outcome::Done)
}

/// Reads the journal once more: whoever had the lock may have written until a moment ago.
async fn go_on(
    context: &Context,
    args: &ResumeArgs,
    session: &Session,
    lock: &Lock,
) -> Result<(Ongoing, Report), Failure> {
    let mut ongoing = session.find(Some(&args.operation)).await?;
    if ongoing.has_begun_to_retire() {
        return Err(Failure::refused("somebody else has begun to retire the old addresses")
            .hint(format!("go on with it: `netsurgeon operation resume {}`", args.operation)));
    }
    let report = if ongoing.journal.is_being_undone() {
        session.roll_back(context, &args.live, &mut ongoing, lock).await?
    } else {
        session.move_all(context, &args.live, &mut ongoing, lock).await?
    };
    Ok((ongoing, report))
}

async fn forget(context: &Context, args: &ForgetArgs) -> Result<Outcome, Failure> {
    let store = args.etcd.connect().await?;
    let (store, id) = (store.as_ref(), &args.operation);
    let listed = Journal::list(store, None).await?.into_iter().find(|listed| listed.operation == *id);
    let Some(listed) = listed else {
        return Err(Failure::refused(format!("there is no operation `{id}`"))
            .hint("`netsurgeon operation list` lists those that there are"));
    };
    let status = &listed.summary.status;
    if !matches!(status.as_str(), "done" | "rolled-back" | REMOVING) {
        return Err(Failure::refused(format!(
            "operation `{id}` is {status}: its journal is the way on, and back"
        ))
        .hint(format!("`netsurgeon operation rollback {id}` or `netsurgeon renumber retire` ends it")));
    }
    let keys = Journal::remove_all(store, &listed.cluster, id, &[]).await?;
    context.output.progress(&format!("forgotten: {} removed", counted(keys, "key", "keys")));
    Ok(Outcome::Done)
}
