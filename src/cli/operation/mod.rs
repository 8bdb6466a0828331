//! `netsurgeon operation`: commands for operations of any kind ([`kinds`]) and their journals.

mod activation;
mod cutover;
mod kind;
mod kinds;
mod mirror;
mod renumber;
mod rewrite;
mod sans;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use self::kind::Next;
use super::api::SourceKubeArgs;
use super::dns::KeyArgs;
use super::gates::GateArgs;
use super::ledger_args::LedgerArgs;
use super::output::{can_ask, counted, table};
use super::renumber::ApiLessArgs;
use super::report::ReportArgs;
use super::{Context, Outcome};
use crate::cli::run_args::LiveArgs;
use crate::operation::{Ambient as _, Listed, State, Status, StepId, SystemAmbient, Waiver};
use crate::session::Failure;
use crate::session::ledger_place::FoundOperation;
use crate::session::{if_killed, status_hint};
use crate::words::in_words;

#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    List(ListArgs),
    Show(ShowArgs),
    Report(ReportArgs),
    Resume(Box<ResumeArgs>),
    Rollback(Box<UndoArgs>),
    Forget(ForgetArgs),
}

/// List all operations that have a journal, in etcd or in ConfigMaps of the cluster
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation list
  netsurgeon operation list -o json \\
      | jq -r '.operations[] | select(.status == \"interrupted\").operation'")]
pub struct ListArgs {
    #[command(flatten)]
    homes: LedgerArgs,
}

/// Show the steps that an operation has started, and the state of each step
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation show renumber-20261121T083915Z-3f2a
  netsurgeon operation show renumber-20261121T083915Z-3f2a -o json \\
      | jq '.steps[] | select(.error)'")]
pub struct ShowArgs {
    /// Id of the operation [default: the operation under way]
    #[arg(value_name = "ID")]
    operation: Option<String>,
    #[command(flatten)]
    homes: LedgerArgs,
}

/// Resume an operation from its journal
///
/// You can run this command on any machine and in any folder. If a rollback had started, the command continues the rollback. If
/// the operation has ended, the command fails. If a process was killed, the command waits until the operation lease of that
/// process expires, usually within a minute, and shows a countdown. With `--take-over`, it does not wait. If the process is alive
/// and renews the lease, the command fails.
///
/// The journal contains the gates of the operation. A recorded pause or time limit applies again after a resume. netsurgeon runs
/// no program and opens no URL that only the journal names: give these gates again, or `--no-gates`. If you give gates here, they
/// replace all recorded gates.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation resume                       # the operation under way
  netsurgeon operation resume renumber-20261121T083915Z-3f2a --take-over \\
      --confirm flags
  netsurgeon operation resume renumber-20261121T083915Z-3f2a --until +90m \\
      --gate-http http://127.0.0.1:8080/healthy
  netsurgeon operation resume renumber-20261121T083915Z-3f2a --no-gates")]
pub struct ResumeArgs {
    /// Id of the operation [default: the operation under way]
    #[arg(value_name = "ID")]
    operation: Option<String>,
    /// Accepted for scripts of older versions: every operation keeps its journal
    #[arg(long, hide = true)]
    keep_journal: bool,
    /// Give this subject up: it stays as it is now, and the operation continues and ends without it. A subject is a name of a
    /// cutover, or `NAMESPACE/NAME` of a Service; `operation show` prints the command; can be repeated
    #[arg(long, value_name = "SUBJECT")]
    give_up: Vec<String>,
    #[command(flatten)]
    live: LiveArgs,
    /// Check no gates from now on. This also removes the gates that the journal contains
    #[arg(long, help_heading = "Gates between batches")]
    no_gates: bool,
    #[command(flatten)]
    gates: GateArgs,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    source: SourceKubeArgs,
}

/// Roll back an operation
///
/// You cannot roll back an operation after its point of no return. For a renumbering, this point is the first step of `renumber
/// retire`. If the operation is already rolled back, the command changes nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation rollback renumber-20261121T083915Z-3f2a
  netsurgeon operation rollback renumber-20261121T083915Z-3f2a --yes \\
      --confirm flags")]
pub struct UndoArgs {
    /// Id of the operation [default: the operation under way]
    #[arg(value_name = "ID")]
    operation: Option<String>,
    /// Give this subject up: it stays as it is now, and the rollback continues and ends without it. A subject is a name of a
    /// cutover, or `NAMESPACE/NAME` of a Service; `operation show` prints the command; can be repeated
    #[arg(long, value_name = "SUBJECT")]
    give_up: Vec<String>,
    #[command(flatten)]
    api: ApiLessArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    source: SourceKubeArgs,
}

/// Remove the journal of an operation that has ended
///
/// Operations keep their journals after their end, so that you can inspect them and create a report. If the operation has not
/// ended, this command fails, unless its record in the cluster is damaged. (To roll such a cutover back, use `dns rollback --plan`
/// first.) In a terminal, it asks for confirmation, because the report comes from the journal. `renumber retire
/// --forget` removes the journal of its renumbering by itself.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon operation report renumber-20261121T083915Z-3f2a --html report.html
  netsurgeon operation forget renumber-20261121T083915Z-3f2a --yes")]
pub struct ForgetArgs {
    /// Id of the operation
    #[arg(value_name = "ID")]
    operation: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    homes: LedgerArgs,
}

impl UndoArgs {
    /// Refuses the options that only a renumbering has.
    fn refuse_of_a_renumbering(&self) -> Result<(), Failure> {
        if !self.api.is_given() {
            return Ok(());
        }
        Err(Failure::usage("`--without-api` is only for a renumbering").hint("omit this option"))
    }
}

/// Runs the command.
pub async fn run(context: &Context, command: &OperationCommand) -> Result<Outcome, Failure> {
    match command {
        OperationCommand::List(args) => list(context, args).await,
        OperationCommand::Show(args) => show(context, args).await,
        OperationCommand::Report(args) => {
            let found = args.homes.find(context, args.operation.as_deref()).await?.listed;
            kinds::of(&found)?.report(context, &found.operation, args).await
        }
        OperationCommand::Resume(args) => {
            let found = args.live.home.find(context, args.operation.as_deref()).await?.listed;
            kinds::to_resume(&found)?.resume(context, &found.operation, args).await
        }
        OperationCommand::Rollback(args) => {
            let found = args.live.home.find(context, args.operation.as_deref()).await?.listed;
            kinds::of(&found)?.roll_back(context, &found.operation, args).await
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
    /// Where the operation is recorded.
    ledger: &'static str,
    status: Status,
    /// The manual step that the operation waits for.
    manual_step: Option<String>,
    digest: String,
    /// Start of the operation, in seconds since 1970.
    started: i64,
    steps_begun: usize,
}

async fn list(context: &Context, args: &ListArgs) -> Result<Outcome, Failure> {
    let mut operations = Vec::new();
    for found in args.homes.list(context).await? {
        let id = found.listed.operation.clone();
        match line(found).await {
            Ok(line) => operations.push(line),
            Err(failure) => context.output.warn(&format!("operation `{id}` is skipped: {}", failure.error)),
        }
    }
    let listing = Listing { version: 1, operations };
    context.output.data(&listing, |_| {
        let now = SystemAmbient.now();
        let rows: Vec<[String; 5]> = listing
            .operations
            .iter()
            .map(|line| {
                let steps = line.steps_begun.to_string();
                let manual = line.manual_step.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default();
                let age = u64::try_from(now.saturating_sub(line.started)).unwrap_or_default();
                let age = in_words(Duration::from_secs(age));
                let status = format!("{}{manual}", line.status);
                [line.operation.clone(), line.kind.clone(), status, steps, age]
            })
            .collect();
        let heading = ["OPERATION", "KIND", "STATUS", "STEPS STARTED", "AGE"];
        if rows.is_empty() { String::new() } else { table(heading, rows) }
    })?;
    context.output.progress(&counted(listing.operations.len(), "operation", "operations"));
    Ok(Outcome::Done)
}

async fn line(found: FoundOperation) -> Result<Line, Failure> {
    let (status, progress) = found.status().await?;
    let (ledger, Listed { cluster, operation, summary }) = (found.home.ledger(), found.listed);
    Ok(Line {
        cluster,
        operation,
        kind: summary.kind,
        ledger,
        status,
        manual_step: summary.manual_step.filter(|_| status == Status::WaitingForManualStep),
        digest: summary.digest,
        started: summary.started,
        steps_begun: progress.begun(),
    })
}

#[derive(Serialize)]
struct OperationOutput<'a> {
    version: u8,
    operation: &'a str,
    kind: &'a str,
    status: Status,
    manual_step: Option<&'a str>,
    /// The command that continues the operation.
    next: Option<String>,
    /// The command that rolls the operation back.
    rollback: Option<String>,
    /// The command that continues without the subjects that were skipped.
    give_up: Option<String>,
    /// The subjects that the operator has given up.
    given_up: &'a [Waiver],
    digest: &'a str,
    steps: Vec<StepOutput>,
}

#[derive(Serialize)]
struct StepOutput {
    step: StepId,
    state: State,
    /// All states of the step until now, each with its time in seconds since 1970.
    history: Vec<(State, i64)>,
    error: Option<String>,
}

/// Shows an operation. The steps come from the records of the journal, which all kinds of operation have.
async fn show(context: &Context, args: &ShowArgs) -> Result<Outcome, Failure> {
    let found = args.homes.find(context, args.operation.as_deref()).await?;
    let (journal, summary) = found.journal().await?;
    let (is_leased, listed) = (found.is_leased().await?, &found.listed);
    let status = summary.status_now(journal.is_being_undone(), is_leased);
    let next = match kinds::of(listed) {
        _ if found.is_foreign => Next::default(),
        Ok(kind) => kind.next(&found, status, &args.homes.etcd.layout()).await,
        Err(_) => Next::default(),
    };
    let steps = journal.records().into_iter().map(|(step, record)| StepOutput {
        step: step.clone(),
        state: record.state,
        history: record.history.clone(),
        error: record.error.clone(),
    });
    let shown = OperationOutput {
        version: 1,
        operation: &listed.operation,
        kind: &summary.kind,
        status,
        manual_step: next.manual_step.as_deref(),
        next: next.command.clone(),
        rollback: next.rollback.clone(),
        give_up: next.give_up.clone(),
        given_up: &summary.given_up,
        digest: &summary.digest,
        steps: steps.collect(),
    };
    context.output.data(&shown, |_| {
        let rows = shown.steps.iter().map(|step| {
            [step.step.to_string(), step.state.to_string(), step.error.clone().unwrap_or_default()]
        });
        table(["STEP", "STATE", "ERROR"], rows)
    })?;
    context.output.progress(&format!(
        "{}: {}, {} started",
        shown.operation,
        shown.status,
        counted(shown.steps.len(), "step", "steps")
    ));
    for waiver in shown.given_up {
        context.output.progress(&format!("`{}`: {waiver}", waiver.subject));
    }
    for line in next.lines() {
        context.output.progress(&line);
    }
    if status.is_at_work() {
        context.output.progress(&if_killed(shown.operation));
    }
    Ok(Outcome::Done)
}

async fn forget(context: &Context, args: &ForgetArgs) -> Result<Outcome, Failure> {
    let found = ended(context, args).await?;
    if can_ask() {
        let question = format!("Remove the journal of `{}`?", args.operation);
        context.output.ask(&question, args.yes)?;
    }
    let removed = found.remove(&context.ui(), async || ended(context, args).await.map(drop)).await?;
    context.output.progress(&format!("the journal is removed: {removed}"));
    Ok(Outcome::Done)
}

/// Finds an operation. Fails if the operation has not ended, unless its record belongs to another cluster.
async fn ended(context: &Context, args: &ForgetArgs) -> Result<FoundOperation, Failure> {
    let (id, found) = (&args.operation, args.homes.find(context, Some(&args.operation)).await?);
    if found.listed.summary.is_under_way() && !found.is_foreign {
        if let Some(reason) = found.damage().await? {
            let what = format!("operation `{id}` has not ended, but it cannot be continued: {reason}");
            context.output.warn(&what);
            return Ok(found);
        }
        let status = found.status().await?.0;
        let next = match kinds::of(&found.listed) {
            Ok(kind) => kind.next(&found, status, &args.homes.etcd.layout()).await,
            Err(_) => Next::default(),
        };
        return Err(Failure::refused(format!("operation `{id}` is {status}: its journal is still needed"))
            .hints(next.lines())
            .hint(status_hint(id)));
    }
    if let (Ok(kind), false) = (kinds::of(&found.listed), found.is_foreign) {
        kind.refuse_forget(&found).await?;
    }
    Ok(found)
}
