//! `netsurgeon renumber apply`: move every Service of a live cluster, and hold the old addresses.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{also, duration, summary};
use crate::cli::failure::Failure;
use crate::cli::gates::GateArgs;
use crate::cli::live::{
    LiveArgs, Ongoing, Options, Session, Taking, is_leased, refuse_beside_another, release,
};
use crate::cli::output::counted;
use crate::cli::situation::Situation;
use crate::cli::target::TargetArgs;
use crate::cli::tiers::TierArgs;
use crate::cli::{Context, Outcome};
use crate::operation::{Journal, Lock, Plan, Report, Status, Summary};
use crate::renumber::{PlanOptions, Renumbering, current, plan};
use crate::store::ReadStore;
use crate::store::etcd::Backup;
use crate::survey::Survey;

/// Move every Service of a live cluster to another range, and hold the old addresses
///
/// Plans, or takes a saved plan that still fits the cluster; shows it and asks; takes a snapshot of etcd; locks
/// the cluster against other operators; then moves the Services batch by batch. Each old address goes on
/// answering until `renumber retire`. A signal stops it between two steps; whatever ends the process, `operation
/// resume` continues and `operation rollback` goes back, from any machine.
///
/// Manual steps (certificates, the API servers' flag) are asked for at their place. Without a terminal the
/// operation pauses there, with exit status 6: do it, then resume with `--confirm`.
///
/// Between two batches gates can be asked: a program, a URL, a Prometheus, the clock. At a closed one the operation
/// pauses, or the batch before it is rolled back first (exit status 6), or everything is (exit status 4). They are
/// recorded with the operation, and asked again when it is resumed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber apply --to 10.200.0.0/16 --snapshot-to before.db       # on a control-plane host
  netsurgeon renumber apply --plan plan.json --approve 3f2a91c0 --yes --snapshot-to before.db
  netsurgeon renumber apply --to 10.200.0.0/16 --no-snapshot --parallel 16 --confirm certificates
  netsurgeon renumber apply --plan plan.json --yes --snapshot-to before.db --log-format json --metrics-listen 127.0.0.1:9464
  netsurgeon renumber apply --plan plan.json --yes --snapshot-to before.db --until 18:00 --pause 60 \\
      --gate-prometheus http://prometheus:9090 --gate-max 0.01 --on-gate-failure rollback \\
      --gate-query 'sum(rate(http_errors_total[1m])) / sum(rate(http_requests_total[1m]))'")]
pub struct ApplyArgs {
    #[command(flatten)]
    target: Option<TargetArgs>,
    #[command(flatten)]
    tiers: TierArgs,
    /// Carry out this saved plan
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "pin", "hold", "kube_proxy_config", "accept_gap", "tiers"], required_unless_present = "to")]
    plan: Option<PathBuf>,
    /// Refuse a plan with another digest; its first 8 digits or more are enough
    #[arg(long, value_name = "DIGEST", value_parser = parse_digest)]
    approve: Option<String>,
    /// Save a snapshot of etcd here before anything is written
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "no_snapshot",
        conflicts_with = "no_snapshot"
    )]
    snapshot_to: Option<PathBuf>,
    /// Take no snapshot: there is another way back
    #[arg(long)]
    no_snapshot: bool,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    gates: GateArgs,
}

/// Fewer digits may be those of several plans.
const FEWEST_DIGITS: usize = 8;

fn parse_digest(text: &str) -> Result<String, String> {
    let digits = text.trim().to_lowercase();
    if digits.len() < FEWEST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!(
            "give the digest that the plan shows, or its first {FEWEST_DIGITS} digits or more"
        ));
    }
    Ok(digits)
}

/// What `renumber apply -o json` prints.
#[derive(Serialize)]
struct Applied<'a> {
    version: u8,
    operation: &'a str,
    digest: &'a str,
    /// `soaking`.
    status: Status,
    moved: usize,
    /// How many of them were born in the old range meanwhile.
    swept: usize,
    skipped: usize,
    steps: usize,
    /// Steps that were left alone because someone else changed or deleted an object, each with the reason.
    left_alone: Vec<String>,
    /// Services born in the old range meanwhile that were not moved.
    newcomers: Vec<String>,
    snapshot: Option<Backup>,
}

/// Runs the command.
pub async fn run(context: &Context, args: &ApplyArgs) -> Result<Outcome, Failure> {
    let gates = args.gates.fixed()?;
    let session = Session::open(&args.live).await?.with_gates(gates.resolve()?);
    refuse_beside_renumbering(&session).await?;
    refuse_beside_another(session.store.as_ref(), &session.id).await?;
    let plan = decide(context, args, &session).await?;
    let operation = operation_id();
    let purpose = format!("renumber to {}", plan.work.to);
    let command = "netsurgeon renumber apply";
    let taking = Taking { operation: &operation, purpose: &purpose, command };
    let lock = session.lock(&context.output, &args.live, &taking).await?;
    let begun = begin(context, args, (&session, &gates), plan, &lock).await;
    let (ongoing, report, snapshot) = release(lock, begun).await?;
    conclude(context, args, &session, &ongoing, &report, snapshot).await
}

async fn refuse_beside_renumbering(session: &Session) -> Result<(), Failure> {
    let Some(other) = session.unfinished().await?.into_iter().next() else { return Ok(()) };
    let holder = session.holder().await?;
    let is_leased = is_leased(holder.as_ref(), &other);
    // A journal that this version cannot read is named all the same.
    let situation = session.find(Some(&other)).await.ok();
    let situation = situation.map(|ongoing| Situation::of_ongoing(&ongoing, is_leased));
    let status = situation.as_ref().map(|found| format!(" ({})", found.words())).unwrap_or_default();
    let by = holder.filter(|_| is_leased).map_or_else(String::new, |held| format!(": {held}"));
    let text = format!("renumbering `{other}` of this cluster has not ended{status}{by}");
    let next = situation.as_ref().and_then(Situation::next);
    let next = next.unwrap_or_else(|| format!("netsurgeon operation resume {other}"));
    let back = situation.and_then(|found| found.rollback_hint());
    let failure = Failure::refused(text);
    let failure = if is_leased {
        failure
            .hint("`netsurgeon renumber status --watch` shows what that process does")
            .hint(format!("if it is gone: `{next}` waits until its lease ends, and continues"))
    } else {
        failure.hint(format!("to continue it: `{next}`"))
    };
    Err(match back {
        Some(back) => failure.hint(back),
        None => failure,
    })
}

/// Takes the snapshot, begins the journal, and moves everything. Looks again first: between the approval and the
/// lock may lie hours.
async fn begin(
    context: &Context,
    args: &ApplyArgs,
    (session, gates): (&Session, &GateArgs),
    plan: Plan<Renumbering>,
    lock: &Lock,
) -> Result<(Ongoing, Report, Option<Backup>), Failure> {
    refuse_beside_another(session.store.as_ref(), &session.id).await?;
    refuse_changed(&plan, &Survey::read(session.store.as_ref(), &args.live.etcd.layout(), None).await?)?;
    session.try_external_ips(&context.output, &args.live, &lock.claim().operation, &plan.work).await?;
    let snapshot = match &args.snapshot_to {
        Some(path) => Some(session.store.bare().save_snapshot(path).await?),
        None => None,
    };
    if let Some(backup) = &snapshot {
        let (path, revision) = (backup.path.display(), backup.revision);
        context.output.progress(&format!("snapshot `{path}`: revision {revision}, {} keys", backup.keys));
    }
    let (store, by, record) = (session.store.as_ref(), lock.claim(), gates.record()?);
    let journal = Journal::begin_plan(store, &plan, by, record, &[lock.guard()]).await?;
    let (operation, summary) = (by.operation.clone(), Summary::begun(&plan.header.kind, &plan.digest, by));
    context.output.progress(&format!("operation {operation}"));
    gates.report(&context.output, &summary.gates);
    let options = Options::default();
    let mut ongoing = Ongoing { operation, plan, journal, summary, journal_goes: false, options };
    // Taken above, or declined in so many words.
    let live = args.live.confirming("snapshot");
    let report = session.move_all(context, &live, &mut ongoing, lock).await?;
    Ok((ongoing, report, snapshot))
}

/// Returns the plan that was approved and fits the cluster.
async fn decide(
    context: &Context,
    args: &ApplyArgs,
    session: &Session,
) -> Result<Plan<Renumbering>, Failure> {
    let mut options = args.target.as_ref().map(|target| target.resolve(&args.tiers)).transpose()?;
    let annotation = options.as_ref().and_then(PlanOptions::annotation);
    let (store, layout) = (session.store.as_ref(), args.live.etcd.layout());
    let survey = Survey::read_annotated(store, &layout, None, annotation).await?;
    let plan = match (&args.plan, &mut options) {
        (Some(path), _) => Plan::read(path)?,
        (None, Some(options)) => {
            args.tiers.settle(context, &survey, options)?;
            plan(&survey, options)?
        }
        (None, None) => return Err(Failure::usage("give `--to CIDR` or `--plan FILE`")),
    };
    if plan.header.cluster != session.id {
        return Err(Failure::refused(format!(
            "the plan is for cluster `{}`, this is `{}`",
            plan.header.cluster, session.id
        )));
    }
    if let Some(approved) = args.approve.as_ref().filter(|approved| !plan.digest.starts_with(*approved)) {
        return Err(Failure::refused(format!(
            "the plan has digest `{}`, approved is `{approved}`",
            plan.digest
        ))
        .hint("review the plan, and approve its digest"));
    }
    refuse_changed(&plan, &survey)?;
    session.refuse_other_allocation(context, &plan.work, &survey).await?;
    args.live.confirm_only_planned(&plan.work)?;
    if let Some(gap) = plan.work.gap.as_ref().filter(|_| !plan.work.gap_accepted) {
        return Err(Failure::refused(format!(
            "whether every node can hold old addresses is not known: {gap}"
        ))
        .hint("give kube-proxy's configuration: `--kube-proxy-config FILE`")
        .hint("or accept, in the plan, that connections to old addresses may fail: `--accept-gap`"));
    }
    if let Some(also) = also::table_of(&plan.work) {
        context.output.progress(&also);
    }
    context.output.progress(&summary(&plan, &session.store.describe(), args.live.rate()));
    let count = counted(plan.work.moves.len(), "Service", "Services");
    let question = format!("Move {count} now? It takes {}.", duration(&plan.work, args.live.rate()));
    args.live.ask(&context.output, &question)?;
    Ok(plan)
}

fn refuse_changed(plan: &Plan<Renumbering>, survey: &Survey) -> Result<(), Failure> {
    let fit = current::compare(&plan.work, survey);
    let Some(first) = fit.drifts.first() else { return Ok(()) };
    let text = format!(
        "the cluster has changed since the plan was made: {first}{}",
        more(fit.drifts.len().saturating_sub(1))
    );
    Err(Failure::refused(text).hint("make the plan anew and review it again"))
}

fn more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", and {count} more") }
}

/// `renumber-YYYYMMDDTHHMMSSZ-xxxx`: sorts by time, and tells two of the same second apart.
fn operation_id() -> String {
    format!("renumber-{}", crate::cli::new_operation_id())
}

async fn conclude(
    context: &Context,
    args: &ApplyArgs,
    session: &Session,
    ongoing: &Ongoing,
    report: &Report,
    snapshot: Option<Backup>,
) -> Result<Outcome, Failure> {
    let survey = Survey::read(session.store.as_ref(), &args.live.etcd.layout(), None).await?;
    let newcomers = current::compare(&ongoing.plan.work, &survey).newcomers;
    let work = &ongoing.plan.work;
    let applied = Applied {
        version: 1,
        operation: &ongoing.operation,
        digest: &ongoing.plan.digest,
        status: ongoing.summary.status,
        moved: work.moves.len().saturating_sub(report.stuck.len()),
        swept: work.moves.iter().filter(|candidate| candidate.sweep > 0).count(),
        skipped: work.skipped.len(),
        steps: report.done,
        left_alone: report.stuck.iter().map(|stuck| format!("{}: {}", stuck.step, stuck.reason)).collect(),
        newcomers,
        snapshot,
    };
    if context.output.is_structured() {
        context.output.data(&applied, |_| Ok(String::new()))?;
    }
    context.output.progress(&format!(
        "{} to {}; {}",
        counted(applied.moved, "Service moved", "Services moved"),
        work.to,
        counted(applied.moved, "old address is held and answers", "old addresses are held and answer"),
    ));
    if let Some(first) = applied.left_alone.first() {
        context.output.warn(&format!(
            "{} left alone, the first is `{first}`",
            counted(applied.left_alone.len(), "Service was", "Services were")
        ));
    }
    if let Some(first) = applied.newcomers.first() {
        context.output.warn(&format!(
            "{} in the old range meanwhile and not moved, the first is `{first}`{}: `netsurgeon operation resume {}` \
             tries again",
            counted(applied.newcomers.len(), "Service was born", "Services were born"),
            more(applied.newcomers.len().saturating_sub(1)),
            ongoing.operation,
        ));
    }
    context.output.note(&what_next(ongoing));
    Ok(if applied.left_alone.is_empty() { Outcome::Done } else { Outcome::Findings })
}

/// Words what to do once the Services are moved.
fn what_next(ongoing: &Ongoing) -> String {
    let situation = ongoing.situation();
    let next = situation.next().unwrap_or_default();
    let next = if situation.is_to_retire {
        format!("when nothing uses an old address any more, `{next}`")
    } else {
        format!("to move the others, `{next}`")
    };
    format!(
        "look with `netsurgeon renumber verify`; {next}; until the old addresses are retired `netsurgeon renumber rollback` \
         goes back"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: ApplyArgs,
    }

    #[test]
    fn a_digest_may_be_shortened_to_eight_digits() {
        assert_eq!(parse_digest("14266D7F").as_deref(), Ok("14266d7f"));
        for text in ["14266d7", "", "14266d7f...", "14266d7g"] {
            assert!(parse_digest(text).is_err(), "{text}");
        }
    }

    /// Where an optional group of arguments contains another one, clap takes it for absent.
    #[test]
    fn a_target_is_noticed_with_tiers_and_without() {
        let parsed = |words: &str| {
            let words = words.split_whitespace().chain(["--no-snapshot"]);
            Words::try_parse_from(words).map(|words| words.args)
        };
        for words in ["x --to 10.200.0.0/16", "x --to 10.200.0.0/16 --tiers dev --tier-label tier"] {
            let args = parsed(words).expect(words);
            assert!(args.target.is_some() && args.plan.is_none(), "{words}");
        }
        let args = parsed("x --plan plan.json").expect("a plan alone");
        assert!(args.target.is_none() && args.plan.is_some());
        for words in ["x", "x --tiers dev --tier-label tier", "x --plan p --tiers dev --tier-label t"] {
            assert!(parsed(words).is_err(), "{words}");
        }
    }
}
