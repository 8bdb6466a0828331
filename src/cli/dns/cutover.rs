//! `netsurgeon dns cutover` and `rollback`: run the stages of a cutover, and roll them back.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{CutoverRunArgs, GiveUpArgs, KeyArgs, Origin, describe, summary};
use crate::cli::gates::GateArgs;
use crate::cli::{Context, Outcome, digest};
use crate::dns::run::{CutoverSession, Goal, Ran, changed_by_another};
use crate::dns::{Cutover, KIND, NameState, PLANNED_ROLLBACK, Situation, Whereabouts};
use crate::operation::{Plan, Status, Stuck, Summary, Waiver};
use crate::session::gates::GateSettings;
use crate::session::{Candidates, ClusterSession, ExitKind, Failure, Recorded};
use crate::words::{counted, first_few};

/// Run a cutover up to a stage, or to its end
///
/// Starts a cutover from a saved plan, or continues a cutover. First, netsurgeon lowers the TTLs, and waits until caches have
/// dropped the records with the old TTLs. Each stage probes the mirror, changes the records, and waits until every name server
/// and the resolver return the new records. Then the stage waits as long as the plan defines (`dns plan --soak`). The journal is
/// in the cluster, so you can continue the cutover on another machine.
///
/// If the mirror does not serve a name, if another client changed the records of a name, or if the DNS server refuses the change
/// of a name, netsurgeon skips this name and does not change its records. The cutover continues with the other names. The exit status is 3 if names were skipped, or if another
/// client changed the records of a name after netsurgeon had changed them. To retry skipped names, run the same command again. To
/// continue without a skipped name, give it up with `--give-up`.
///
/// Between two stages, the cutover can check gates: a program, a URL, a Prometheus query or a time. (In the options for gates, a
/// batch means a stage.) If a gate is closed, the cutover pauses (exit status 6). With `--on-gate-failure rollback`, it first
/// rolls back the last stage, then pauses. With `--on-gate-failure rollback-all`, it rolls back the whole cutover (exit status
/// 4).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon dns cutover --plan cutover.json --stage 1
  netsurgeon dns cutover --stage 2                     # the cutover under way
  netsurgeon dns cutover --plan cutover.json --approve 3f2a91c0 --yes --all \\
      --gate-http http://127.0.0.1:8080/healthy --on-gate-failure rollback-all
  netsurgeon dns cutover dns-cutover-20261121T083915Z-3f2a --all --yes")]
pub struct CutoverArgs {
    /// Id of the cutover [default: the cutover under way, or the cutover of `--plan`]
    #[arg(value_name = "ID", conflicts_with = "plan")]
    operation: Option<String>,
    /// The saved plan
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Refuse the plan if it does not have this digest. Give the first 8 digits or more
    #[arg(long, value_name = "DIGEST", value_parser = digest::parse, requires = "plan")]
    approve: Option<String>,
    /// Run all stages up to and including this stage, counted from 1
    #[arg(long, value_name = "N", required_unless_present = "all", conflicts_with = "all")]
    stage: Option<usize>,
    /// Run all stages
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    without: GiveUpArgs,
    #[command(flatten)]
    run: CutoverRunArgs,
    #[command(flatten)]
    gates: GateArgs,
    /// Check no gates from now on. This also removes the gates that the journal contains
    #[arg(long, help_heading = "Gates between batches")]
    no_gates: bool,
}

/// Point the names back to the old cluster
///
/// Restores the old records of each name with one update. Then waits until every name server returns the old records, and until
/// caches have dropped the mirror's records. The mirror must serve until then. You can roll back at any time while the journal
/// exists, also after the end of the cutover. With the plan, you can roll back even if the journal was deleted: the rollback then
/// changes each name that has the records of any stage of the plan. If another client changed the records of a name, or the DNS server refuses the
/// change, the rollback reports this name and does not change it. If another name server or the resolver does not return the old
/// records, the rollback ends and reports this server. In both cases, the exit status is 3. To end
/// the rollback without a name, give it up with `--give-up`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon dns rollback                             # the cutover under way
  netsurgeon dns rollback dns-cutover-20261121T083915Z-3f2a --yes
  # also if the record of the cutover in the cluster was deleted
  netsurgeon dns rollback --plan cutover.json
  # leave the records of a name that another client changed as they are
  netsurgeon dns rollback --give-up www.example.com")]
pub struct RollbackArgs {
    /// Id of the cutover [default: the cutover under way, or the cutover of `--plan`]
    #[arg(value_name = "ID", conflicts_with = "plan")]
    operation: Option<String>,
    /// The saved plan of the cutover. Use this option if the journal of the cutover was deleted or is damaged
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    without: GiveUpArgs,
    #[command(flatten)]
    run: CutoverRunArgs,
}

/// The output of `dns cutover -o json` and of `dns rollback -o json`.
#[derive(Serialize)]
struct CutoverOutput<'a> {
    version: u8,
    operation: &'a str,
    digest: &'a str,
    status: Status,
    /// Number of the first stage that is not complete, counted from 1.
    next_stage: Option<usize>,
    /// The command that continues the cutover.
    next: Option<String>,
    names: &'a [NameState],
    /// Names that were skipped in this run, each with the reason.
    skipped: Vec<String>,
    /// Names with records that another client changed after the last step for the name.
    changed: &'a [String],
    /// Names that the operator has given up.
    given_up: Vec<&'a Waiver>,
    /// The command that continues without the skipped names.
    give_up: Option<String>,
    /// What a rollback could not confirm, and at which server.
    unconfirmed: &'a [String],
}

/// Runs `dns cutover`.
pub async fn run(context: &Context, args: &CutoverArgs) -> Result<Outcome, Failure> {
    let given = args.gates.settings();
    let gates = given.resolve()?;
    let goal = args.stage.map_or(Goal::All, Goal::Stage);
    let session = args.run.open(context).await?;
    let Some(path) = &args.plan else {
        let id = chosen(&session, "netsurgeon dns cutover", args.operation.as_deref()).await?;
        let with = (&args.run.key, args.without.give_up.as_slice());
        return go_on(context, (session, with), &id, (&given, args.no_gates), goal).await;
    };
    let plan: Plan<Cutover> = Plan::read(path)?;
    digest::refuse_other(&plan.digest, args.approve.as_deref())?;
    refuse_unknown_stage(&plan.work, goal)?;
    let session = args.run.key.session(session, &plan.work, Origin::File)?.giving_up(&args.without.give_up);
    if let Some(begun) = session.of_plan(&plan).await? {
        return match begun.summary.status {
            Status::Done => {
                context.output.progress(&format!("the cutover `{}` of this plan is done", begun.operation));
                conclude(context, &session.look_again(&begun.operation).await?)
            }
            Status::RolledBack => Err(rolled_back_before(&begun.operation)),
            _ => {
                let gates = recorded_gates((&given, args.no_gates), &begun.summary, begun.summary.back)?;
                resumed(context, session, &begun.operation, &gates, goal).await
            }
        };
    }
    context.output.progress(&describe(&context.output, &plan.work));
    context.output.progress(&summary(&plan));
    session.ask(&question(&plan.work, goal))?;
    let session = session.with_gates(gates);
    let ran = session.start(plan, &given, goal).await?;
    conclude(context, &ran)
}

fn question(work: &Cutover, goal: Goal) -> String {
    let count = counted(work.names.len(), "name", "names");
    match goal {
        Goal::Stage(stage) => {
            let share = work.shares.get(stage.saturating_sub(1)).copied().unwrap_or_default();
            format!("Point {count} to the mirror now, up to stage {stage} ({share} %)?")
        }
        Goal::All | Goal::NextStage => format!("Point {count} to the mirror now, in all stages?"),
    }
}

fn refuse_unknown_stage(work: &Cutover, goal: Goal) -> Result<(), Failure> {
    let Goal::Stage(stage) = goal else { return Ok(()) };
    if (1..=work.shares.len()).contains(&stage) {
        return Ok(());
    }
    let count = work.shares.len();
    let stages =
        if count == 1 { "its only stage is 1".to_string() } else { format!("its stages are 1 to {count}") };
    Err(Failure::usage(format!("the plan has no stage {stage}")).hint(stages))
}

fn rolled_back_before(operation: &str) -> Failure {
    Failure::refused(format!("the cutover `{operation}` of this plan was rolled back"))
        .hint(format!("to run the plan again: `netsurgeon operation forget {operation}`, then this command"))
}

/// Returns the id of the cutover: the given id, or the only cutover under way. `command`: the command that asks.
pub(super) async fn chosen(
    session: &ClusterSession,
    command: &'static str,
    given: Option<&str>,
) -> Result<String, Failure> {
    if let Some(id) = given {
        return Ok(id.to_string());
    }
    // A cutover that has ended cannot continue.
    let candidates = Candidates {
        kind: ("cutover", "cutovers"),
        with_ended: command != "netsurgeon dns cutover",
        command: Some(command),
    };
    let found = candidates.only_under_way(session.listed(KIND).await?, |one| one);
    found.map(|found| found.operation).map_err(|failure| match failure.kind {
        ExitKind::Refused => failure
            .hint("to start one: `netsurgeon dns cutover --plan FILE --stage 1`")
            .hints((command == "netsurgeon dns rollback").then_some(PLANNED_ROLLBACK)),
        _ => failure,
    })
}

/// Reads a cutover. If its record is missing or damaged, the failure says how to go back.
pub(super) async fn read(session: &ClusterSession, id: &str) -> Result<Recorded<Cutover>, Failure> {
    match session.read(id).await {
        Ok(known) => Ok(known),
        Err(failure) => {
            let is_damaged = session.damage(id).await.is_ok_and(|reason| reason.is_some());
            Err(failure.hints(is_damaged.then_some(PLANNED_ROLLBACK)))
        }
    }
}

/// Continues a cutover from its journal.
async fn go_on(
    context: &Context,
    (session, (key, give_up)): (ClusterSession, (&KeyArgs, &[String])),
    id: &str,
    (given, no_gates): (&GateSettings, bool),
    goal: Goal,
) -> Result<Outcome, Failure> {
    let known = read(&session, id).await?;
    refuse_unknown_stage(&known.plan.work, goal)?;
    let session = key.session(session, &known.plan.work, Origin::Journal)?.giving_up(give_up);
    let is_back = known.journal.is_going_back(&known.summary);
    let gates = recorded_gates((given, no_gates), &known.summary, is_back)?;
    resumed(context, session, id, &gates, goal).await
}

/// Returns the gates of a run: the given gates, or the recorded ones. A rollback checks no gates.
fn recorded_gates(
    (given, none): (&GateSettings, bool),
    summary: &Summary,
    is_back: bool,
) -> Result<GateSettings, Failure> {
    if is_back { Ok(given.clone()) } else { given.or_recorded(&summary.gates, none) }
}

async fn resumed(
    context: &Context,
    session: CutoverSession,
    id: &str,
    gates: &GateSettings,
    goal: Goal,
) -> Result<Outcome, Failure> {
    let session = session.with_gates(gates.resolve()?);
    // Boxed, because the future is large.
    let ran = Box::pin(session.resume(id, gates, goal)).await?;
    conclude(context, &ran)
}

/// Continues a cutover to the end of the first stage that is not complete, for `operation resume`.
pub(in crate::cli) async fn resume_on(
    context: &Context,
    (session, key): (ClusterSession, (&KeyArgs, &[String])),
    id: &str,
    gates: (&GateSettings, bool),
) -> Result<Outcome, Failure> {
    go_on(context, (session, key), id, gates, Goal::NextStage).await
}

/// Runs `dns rollback`.
pub async fn roll_back(context: &Context, args: &RollbackArgs) -> Result<Outcome, Failure> {
    let session = args.run.open(context).await?;
    if let Some(path) = &args.plan {
        return undo_planned(context, session, args, Plan::read(path)?).await;
    }
    let id = chosen(&session, "netsurgeon dns rollback", args.operation.as_deref()).await?;
    let with = (&args.run.key, args.without.give_up.as_slice());
    undo(context, (session, with), &id, Origin::Journal).await
}

/// Rolls a cutover back, for `operation rollback`.
pub(in crate::cli) async fn roll_back_on(
    context: &Context,
    (session, key): (ClusterSession, (&KeyArgs, &[String])),
    id: &str,
) -> Result<Outcome, Failure> {
    undo(context, (session, key), id, Origin::Journal).await
}

/// Rolls the cutover of a plan back, also if its journal is lost.
async fn undo_planned(
    context: &Context,
    session: ClusterSession,
    args: &RollbackArgs,
    plan: Plan<Cutover>,
) -> Result<Outcome, Failure> {
    let with = (&args.run.key, args.without.give_up.as_slice());
    if let Some(begun) = session.of_plan(&plan).await?
        && begun.summary.status != Status::RolledBack
    {
        let id = &begun.operation;
        let Some(reason) = session.damage(id).await? else {
            return undo(context, (session, with), id, Origin::File).await;
        };
        context.output.warn(&format!("the journal of `{id}` cannot be used: {reason}"));
    }
    let session = args.run.key.session(session, &plan.work, Origin::File)?.giving_up(&args.without.give_up);
    match session.roll_back_unrecorded(plan, |names| agree(context, &session, names)).await? {
        Some(ran) => conclude(context, &ran),
        None => Ok(Outcome::Done),
    }
}

/// Says which names a rollback without a journal changes, and asks for approval. Returns whether there is such a name.
fn agree(context: &Context, session: &ClusterSession, names: Whereabouts) -> Result<bool, Failure> {
    let Whereabouts { staged, other, .. } = names;
    if staged == 0 && other == 0 {
        context.output.progress("every name already has its old records; nothing was changed");
        return Ok(false);
    }
    if staged == 0 {
        let names = counted(other, "name has", "names have");
        return Err(Failure::refused(format!(
            "no name has the records of a stage of this plan; {names} other records, or could not be read"
        ))
        .hint("give the plan of the cutover that ran; `netsurgeon dns plan` shows what the names have now"));
    }
    let count = counted(staged, "name has", "names have");
    let others = match other {
        0 => String::new(),
        other => format!("; {} other records and will be skipped", counted(other, "name has", "names have")),
    };
    context.output.progress(&format!(
        "the cluster has no usable journal of a cutover with this plan; {count} the records of a stage of the plan{others}"
    ));
    session.ask("Restore the old records of these names?")?;
    Ok(true)
}

async fn undo(
    context: &Context,
    (session, (key, give_up)): (ClusterSession, (&KeyArgs, &[String])),
    id: &str,
    origin: Origin,
) -> Result<Outcome, Failure> {
    let known = read(&session, id).await?;
    if known.summary.status == Status::RolledBack && Situation::of(&known, false).unconfirmed.is_empty() {
        context.output.progress(&format!("the cutover `{id}` was already rolled back; nothing was changed"));
        return Ok(Outcome::Done);
    }
    let work = &known.plan.work;
    let session = key.session(session, work, origin)?.giving_up(give_up);
    let situation = Situation::of(&known, false);
    context.output.progress(&format!(
        "{}; after the rollback has restored old records, it waits {} s so that caches drop the records of the mirror",
        situation.progress(),
        situation.mirror_ttl.as_secs()
    ));
    session.ask(&format!("Roll `{id}` back?"))?;
    let ran = session.roll_back(id).await?;
    conclude(context, &ran)
}

/// Prints the result of a run.
fn conclude(context: &Context, ran: &Ran) -> Result<Outcome, Failure> {
    let situation = ran.situation();
    let skipped = ran.skipped();
    let shown = CutoverOutput {
        version: 1,
        operation: &situation.operation,
        digest: &ran.recorded.plan.digest,
        status: situation.status,
        next_stage: situation.next_stage,
        next: situation.next(),
        names: &situation.names,
        skipped: skipped.iter().map(|stuck| format!("{}: {}", stuck.step, stuck.reason)).collect(),
        changed: &ran.changed,
        given_up: situation.given_up(),
        give_up: situation.give_up(),
        unconfirmed: &situation.unconfirmed,
    };
    context.output.data(&shown, |_| String::new())?;
    context.output.progress(&format!(
        "{}: {}; {}",
        situation.operation,
        situation.status,
        situation.progress()
    ));
    for text in skipped_in_words(&skipped, situation.names.len()).iter().chain(&situation.not_confirmed()) {
        context.output.warn(text);
    }
    if !ran.changed.is_empty() {
        context.output.warn(&changed_by_another(&ran.changed, &ran.recorded));
    }
    for waiver in &shown.given_up {
        context.output.note(&format!("{}: {waiver}; its records stay as they are", waiver.subject));
    }
    if let Some(next) = &shown.next {
        context.output.note(&format!("next: `{next}`"));
    }
    if let Some(hint) = situation.without_skipped() {
        context.output.note(&hint);
    }
    match situation.status {
        Status::Done if shown.changed.is_empty() => context.output.note(
            "some resolvers ignore TTLs, so keep the old load balancers until they get no more requests",
        ),
        Status::RolledBack => {
            context
                .output
                .note("some resolvers ignore TTLs, so keep the mirror until it gets no more requests");
        }
        _ => {}
    }
    if let Some(back) = situation.rollback() {
        context.output.note(&format!("to go back: `{back}`"));
    }
    let is_as_planned = shown.skipped.is_empty() && shown.changed.is_empty() && shown.unconfirmed.is_empty();
    Ok(if is_as_planned { Outcome::Done } else { Outcome::Findings })
}

/// Returns a text for each reason to skip names. `all`: number of names in the cutover.
fn skipped_in_words(skipped: &[&Stuck], all: usize) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Stuck { step, reason } in skipped {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, steps)) => steps.push(step.to_string()),
            None => reasons.push((reason, vec![step.to_string()])),
        }
    }
    let said = |(reason, steps): (&str, Vec<String>)| match steps.len() {
        1 => format!("skipped: {}: {reason}", steps.concat()),
        count if count == all => format!("every name was skipped: {reason}"),
        _ => format!("skipped: {}: {reason}", first_few(&steps)),
    };
    reasons.into_iter().map(said).collect()
}
