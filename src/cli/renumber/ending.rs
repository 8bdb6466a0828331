//! `netsurgeon renumber retire` and `rollback`: the two ways in which a renumbering ends.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::evidence::EvidenceArgs;
use super::flows::{users_of, words};
use crate::cli::controlplane::other_ranges;
use crate::cli::failure::{Failure, Kind};
use crate::cli::live::{
    LiveArgs, Ongoing, Options, Session, Taking, Way, half_removed, refuse_done, refuse_ended, release,
};
use crate::cli::output::counted;
use crate::cli::tally::Phases;
use crate::cli::{Context, Outcome};
use crate::ip::{ServiceCidr, as_flag};
use crate::operation::{
    Ambient as _, Journal, Lock, Manual, Report, State, Status, Stuck, SystemAmbient, Work as _,
};
use crate::renumber::guard::watch;
use crate::renumber::{Action, Renumbering, Step, current, verify};
use crate::survey::{Era, Finding, Severity, Survey};

/// Stop holding the old addresses: the end of a renumbering
///
/// Refuses while `renumber verify` finds something wrong, a Service has an address of the old range, or somebody may still use an
/// old address: every node must have looked, lately and for long enough, and nobody seen one used (deploy/evidence.yaml,
/// docs/audit.md), nor may this host track a connection to one. From its first step on there is no way back. Afterwards nothing of netsurgeon's is left in the cluster.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber retire                      # the renumbering that is under way
  netsurgeon renumber retire --quiet-for 3600     # nobody on any node, for an hour
  netsurgeon renumber retire --evidence nodes.log # what nodes have printed, not what they publish
  netsurgeon renumber retire --yes --confirm cluster-dns --confirm soak --confirm certificates-after")]
pub struct RetireArgs {
    /// Which renumbering [default: the one under way]
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) operation: Option<String>,
    /// Keep the journal in etcd
    #[arg(long)]
    pub(in crate::cli) keep_journal: bool,
    #[command(flatten)]
    pub(in crate::cli) evidence: EvidenceArgs,
    #[command(flatten)]
    pub(in crate::cli) live: LiveArgs,
}

/// Undo a renumbering: every Service gets its old address back
///
/// Possible from anywhere before the old addresses were retired. Works on the objects as they are now: what
/// others changed meanwhile stays; a Service whose address someone else has changed is left alone and named, and
/// the exit status is 5.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber rollback
  netsurgeon renumber rollback --operation renumber-20261121T083915Z-3f2a --yes --confirm flags
  netsurgeon renumber rollback --without-api 10   # no API server answers: Services first, in etcd")]
pub struct RollbackArgs {
    /// Which renumbering [default: the one under way]
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) operation: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) api: ApiLessArgs,
    #[command(flatten)]
    pub(in crate::cli) live: LiveArgs,
}

/// Whether to go back in etcd alone.
#[derive(Debug, Clone, Args)]
pub struct ApiLessArgs {
    /// While no API server answers: give every Service its old address in etcd alone, with a pause of so many seconds in
    /// place of each wait; the rest of the way back needs the API, and another call
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(..=3600))]
    without_api: Option<u16>,
}

/// What `-o json` prints of an ending.
#[derive(Serialize)]
struct Ended<'a> {
    version: u8,
    operation: &'a str,
    /// `done`, `rolled-back`, `paused` or `stuck`.
    status: Status,
    steps: usize,
    stuck: Vec<String>,
}

fn print(context: &Context, ongoing: &Ongoing, report: &Report) -> Result<(), Failure> {
    if !context.output.is_structured() {
        return Ok(());
    }
    let stuck = report.stuck.iter().map(|stuck| format!("{}: {}", stuck.step, stuck.reason)).collect();
    let status = ongoing.summary.status;
    let ended = Ended { version: 1, operation: &ongoing.operation, status, steps: report.done, stuck };
    context.output.data(&ended, |_| Ok(String::new()))
}

impl RetireArgs {
    /// Returns the options that the next call needs again.
    fn options(&self) -> Options {
        let given = |is_given: bool, option: &str| if is_given { option.to_string() } else { String::new() };
        let yes = given(self.live.is_agreed(), " --yes");
        Options {
            until_no_return: self.evidence.options() + &yes,
            always: given(self.keep_journal, " --keep-journal"),
        }
    }
}

/// Runs `retire`.
pub async fn retire(context: &Context, args: &RetireArgs) -> Result<Outcome, Failure> {
    let session = Session::open(&args.live).await?;
    if let Some(outcome) = go_on_removing(context, args, &session).await? {
        return Ok(outcome);
    }
    let mut ongoing = session.find(args.operation.as_deref()).await?;
    refuse_ended(&ongoing.operation, &ongoing.summary)?;
    args.live.confirm_only_known(&ongoing, false)?;
    ongoing.journal_goes = !args.keep_journal;
    ongoing.options = args.options();
    let command = ongoing.situation().retire();
    let operation = &ongoing.operation;
    let taking = Taking { operation, purpose: "retire the old addresses", command: &command };
    let lock = session.lock(&context.output, &args.live, &taking).await?;
    let ended = end(context, args, &session, &mut ongoing, &lock).await;
    let report = release(lock, ended).await?;
    print(context, &ongoing, &report)?;
    if let Some(failure) = left_alone(&ongoing, &ongoing.still_held(&report), "retired") {
        return Err(again(failure, &ongoing));
    }
    context.output.progress(&format!(
        "{} retired; the cluster's Service range is {}",
        counted(ongoing.plan.work.moves.len(), "old address", "old addresses"),
        ongoing.plan.work.to
    ));
    context.output.note(&afterlife(&ongoing.plan.work));
    Ok(Outcome::Done)
}

/// Takes away what is left of journals whose removal was interrupted: everything else was done by then. `None` if there is another
/// renumbering to retire.
async fn go_on_removing(
    context: &Context,
    args: &RetireArgs,
    session: &Session,
) -> Result<Option<Outcome>, Failure> {
    let (store, mut last) = (session.store.as_ref(), None);
    for operation in half_removed(store, &session.id).await? {
        if args.operation.as_ref().is_some_and(|wanted| *wanted != operation) {
            continue;
        }
        let command = format!("netsurgeon renumber retire --operation {operation}");
        let taking = Taking { operation: &operation, purpose: "remove its journal", command: &command };
        let lock = session.lock(&context.output, &args.live, &taking).await?;
        let removed = Journal::remove_all(store, &session.id, &operation, &[lock.guard()]).await;
        release(lock, removed.map_err(Failure::from)).await?;
        context
            .output
            .progress(&format!("`{operation}` was retired before; what was left of its journal is removed"));
        last = Some(operation);
    }
    let Some(operation) = last else { return Ok(None) };
    if args.operation.is_none() && !session.unfinished().await?.is_empty() {
        return Ok(None);
    }
    if context.output.is_structured() {
        let ended =
            Ended { version: 1, operation: &operation, status: Status::Done, steps: 0, stuck: Vec::new() };
        context.output.data(&ended, |_| Ok(String::new()))?;
    }
    Ok(Some(Outcome::Done))
}

/// Words what no rule ends: kube-proxy does not delete what the kernel tracks of an address that no Service has any more
/// (`CleanStaleEntries`, `pkg/proxy/conntrack/cleanup.go`, v1.36.3).
fn afterlife(work: &Renumbering) -> String {
    let family = work.family.to_string().to_lowercase();
    let end = |range: &ServiceCidr| format!("`conntrack -D -p udp -f {family} -d {range}`");
    let ends = work.from.iter().map(end).collect::<Vec<_>>().join(" and ");
    format!(
        "connections that are open to old addresses go on until they end, and a UDP client that keeps its port may go on for \
         ever; {ends} on each node ends those of UDP"
    )
}

async fn end(
    context: &Context,
    args: &RetireArgs,
    session: &Session,
    ongoing: &mut Ongoing,
    lock: &Lock,
) -> Result<Report, Failure> {
    if !ongoing.has_begun_to_retire() {
        // What owners have changed since the last look.
        session.replan(context, &args.live, ongoing, lock, false).await?;
        check(context, session, args, ongoing).await?;
        if !args.evidence.is_waived() {
            is_unused(ongoing).await?;
            args.evidence.check(session, &ongoing.plan.work).await?;
        }
        let count = counted(ongoing.plan.work.moves.len(), "old address", "old addresses");
        args.live.ask(&context.output, &format!("Stop holding {count}? There is no way back."))?;
    }
    if ongoing.has_begun_to_retire() {
        session.sweep(context, &args.live, ongoing, lock).await?;
    }
    session.retire_strays(context, &args.live, ongoing, lock).await?;
    let report = session.carry_out(context, &args.live, ongoing, lock, Way::Retire).await?;
    if ongoing.still_held(&report).is_empty() && !args.keep_journal {
        let (store, guards) = (session.store.as_ref(), [lock.guard()]);
        let removed = Journal::remove_all(store, &session.id, &ongoing.operation, &guards).await;
        removed.map_err(|error| {
            let text = format!("the old addresses are retired, and the journal is not removed yet: {error}");
            Failure::new(Kind::Stuck, anyhow::Error::msg(text))
                .hint("`netsurgeon renumber retire` removes the rest")
        })?;
    }
    Ok(report)
}

/// Refuses when something is wrong that retiring would make worse.
async fn check(
    context: &Context,
    session: &Session,
    args: &RetireArgs,
    ongoing: &Ongoing,
) -> Result<(), Failure> {
    let work = &ongoing.plan.work;
    has_every_flag(session, work).await?;
    let survey = Survey::read(session.store.as_ref(), &args.live.etcd.layout(), None).await?;
    let verified = verify::verify(work, &survey, |step| ongoing.journal.state(step));
    let [waiting, ..] = verified.counts;
    let go_on = format!("go on with `netsurgeon operation resume {}`", ongoing.operation);
    if waiting > 0 {
        let count = counted(waiting, "Service has", "Services have");
        return Err(Failure::refused(format!("{count} not moved yet")).hint(go_on));
    }
    let mut errors: Vec<Finding> = verified.findings;
    errors.retain(|finding| finding.severity == Severity::Error);
    // An old address that its Service's owner has given up cannot be held again, and need not be.
    let watched = watch(work, &survey, |step| ongoing.journal.state(step), SystemAmbient.now());
    let is_given_up = |finding: &Finding| {
        finding.code == "hold-missing" && watched.findings.iter().any(|it| it.subject == finding.subject)
    };
    let (given_up, errors): (Vec<Finding>, Vec<Finding>) = errors.into_iter().partition(is_given_up);
    for finding in &given_up {
        context.output.warn(&format!("{} {}", finding.subject, finding.message));
    }
    if let Some(wrong) = errors.first().filter(|_| errors.len() > args.live.most_failures()) {
        let more = errors.len().saturating_sub(1);
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        return Err(Failure::refused(format!("{} {}{more}", wrong.subject, wrong.message))
            .hint("`netsurgeon renumber guard --once` puts lost holds and reservations back")
            .hint("`netsurgeon renumber verify` lists everything, and docs/findings.md says what to do")
            .hint(format!("to retire the others: `--max-failures {}`", errors.len())));
    }
    let newcomers = current::compare(work, &survey).newcomers;
    if let Some(first) = newcomers.first() {
        let count = counted(newcomers.len(), "Service has", "Services have");
        return Err(Failure::refused(format!(
            "{count} an address of the old range and no part in the plan; the first is `{first}`"
        ))
        .hint(format!("move them, too: `netsurgeon operation resume {}`", ongoing.operation)));
    }
    Ok(())
}

/// Refuses while an API server is seen to have another range than the new one: it would recreate the old ServiceCIDR, and
/// the old range could not be closed.
async fn has_every_flag(session: &Session, work: &Renumbering) -> Result<(), Failure> {
    let Some(cluster) = session.cluster() else { return Ok(()) };
    let range = as_flag(&work.flag);
    let others = other_ranges(cluster, &range).await?;
    let Some(first) = others.first() else { return Ok(()) };
    let text = format!("{}: {}, and every API server must have `{range}`", first.subject, first.message);
    Err(Failure::refused(text).hint(format!(
        "on its host: `netsurgeon controlplane set-range --to {range}`, then `netsurgeon controlplane wait --range {range} --host`; \
         then retire again"
    )))
}

/// Refuses while this host tracks a connection to an old address. Where it cannot be asked, what the nodes have seen must do.
async fn is_unused(ongoing: &Ongoing) -> Result<(), Failure> {
    let users = users_of(ongoing).await.unwrap_or_default();
    let Some(first) = users.first() else { return Ok(()) };
    let count = counted(users.len(), "port of an old address is", "ports of old addresses are");
    Err(Failure::refused(format!("{count} in use from this host now, or a moment ago; {}", words(first)))
        .hint(
            "`netsurgeon renumber status --flows` lists them; restart those clients, and look on every node",
        )
        .hint("to retire the old addresses all the same: `--without-evidence`"))
}

/// Words what was left alone because someone else changed it; `None` if nothing was.
fn left_alone(ongoing: &Ongoing, stuck: &[&Stuck], what: &str) -> Option<Failure> {
    let first = stuck.first()?;
    let text = format!(
        "{} left alone and not {what}; the first is `{}`: {}",
        counted(stuck.len(), "step was", "steps were"),
        first.step,
        first.reason
    );
    let failure = Failure::new(Kind::Stuck, anyhow::Error::msg(text));
    Some(failure.hint(format!("`netsurgeon operation show {}` lists them", ongoing.operation)))
}

/// Says what to do about steps that could not be done, or undone.
fn again(failure: Failure, ongoing: &Ongoing) -> Failure {
    match ongoing.situation().next() {
        Some(next) => failure.hint(format!("repair those objects, then: `{next}`")),
        None => failure,
    }
}

/// Says what a rollback will do: how many Services move back, and which manual steps it asks for.
fn rollback_plan(ongoing: &Ongoing, linger: Duration) -> Vec<String> {
    let (work, journal) = (&ongoing.plan.work, &ongoing.journal);
    let phases = Phases::of(&work.moves, journal);
    let from = work.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let moves = counted(phases.held, "Service moves", "Services move");
    let others = match phases.waiting {
        0 => String::new(),
        1 => ", 1 Service has its old address".to_string(),
        count => format!(", {count} Services have their old addresses"),
    };
    let mut lines =
        vec![
            format!("rollback of `{}`: {moves} back from {} to {from}{others}", ongoing.operation, work.to,),
        ];
    if phases.held > 0 && !linger.is_zero() {
        let seconds = linger.as_secs();
        lines.push(format!("the new addresses answer for {seconds} s after the last move (`--linger`)"));
        if work.sweeps() > 0 && work.era != Era::Bitmap {
            lines.push(
                "those of swept Services, which move back first, for as long after the last of these"
                    .to_string(),
            );
        }
    }
    let manual = manual_steps_back(work, journal);
    lines.extend(manual.iter().map(|(name, what)| format!("it will ask for manual step `{name}`: {what}")));
    if manual.is_empty() {
        lines.push("it will ask for no manual step".to_string());
    }
    lines
}

/// The manual steps that a rollback asks for: those that were done, or asked for, and have an opposite.
fn manual_steps_back(work: &Renumbering, journal: &Journal) -> Vec<(String, String)> {
    let steps = work.way_back().into_iter().flat_map(|stage| work.steps(&stage));
    let is_begun =
        |step: &Step| !matches!(journal.state(&step.id), None | Some(State::UndoDone | State::Failed));
    let manual = steps.filter(is_begun).filter_map(|step| match step.action {
        Action::Manual(Manual { name, undo: Some(undo), .. }) => Some((name, undo)),
        _ => None,
    });
    manual.collect()
}

/// Runs `rollback`.
pub async fn rollback(context: &Context, args: &RollbackArgs) -> Result<Outcome, Failure> {
    let session = match args.api.without_api {
        None => Session::open(&args.live).await?,
        Some(seconds) => {
            let pause = Duration::from_secs(seconds.into());
            Session::open_without_api(&args.live, &context.output, pause).await?
        }
    };
    let mut ongoing = session.find(args.operation.as_deref()).await?;
    refuse_done(&ongoing.operation, &ongoing.summary)?;
    if ongoing.summary.has_ended() {
        print(context, &ongoing, &Report::default())?;
        context.output.progress("rolled back before: every Service has its old address");
        return Ok(Outcome::Done);
    }
    args.live.confirm_only_known(&ongoing, true)?;
    let yes = if args.live.is_agreed() { " --yes" } else { "" };
    ongoing.options = Options { until_no_return: yes.to_string(), always: String::new() };
    let command = format!("netsurgeon operation rollback {}{yes}", ongoing.operation);
    let operation = &ongoing.operation;
    let taking = Taking { operation, purpose: "roll the renumbering back", command: &command };
    let lock = session.lock(&context.output, &args.live, &taking).await?;
    session.warn_of_kubelets(&context.output, &args.live, &ongoing.plan.work).await;
    if !ongoing.has_begun_to_retire() {
        for line in rollback_plan(&ongoing, args.live.linger_of(&ongoing.plan.work)) {
            context.output.progress(&line);
        }
    }
    let undone = match args.live.ask(&context.output, &format!("Roll `{}` back?", ongoing.operation)) {
        Ok(()) => session.roll_back(context, &args.live, &mut ongoing, &lock).await,
        Err(failure) => Err(failure),
    };
    let report = release(lock, undone).await?;
    print(context, &ongoing, &report)?;
    if let Some(failure) = left_alone(&ongoing, &report.stuck.iter().collect::<Vec<_>>(), "undone") {
        return Err(again(failure, &ongoing));
    }
    if session.is_without_api() {
        let text = format!(
            "every Service has its old address again in etcd, and the rest of the rollback needs the API; when an API server \
             answers: `netsurgeon operation rollback {}`",
            ongoing.operation
        );
        return Err(Failure::new(Kind::Paused, anyhow::Error::msg(text)));
    }
    session.say_what_is_left(&context.output, &ongoing.plan.work).await;
    context.output.progress("rolled back: every Service has its old address");
    Ok(Outcome::Done)
}
