//! `netsurgeon renumber apply`: moves every Service of a live cluster, and holds the old addresses.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{describe, duration, other_changes, summary};
use crate::cli::gates::GateArgs;
use crate::cli::output::counted;
use crate::cli::run_args::LiveArgs;
use crate::cli::target::TargetArgs;
use crate::cli::tiers::TierArgs;
use crate::cli::{Context, Outcome, digest};
use crate::operation::{Plan, Report, Status};
use crate::renumber::run::{Ongoing, RenumberSession};
use crate::renumber::target::TargetError;
use crate::renumber::{PlanError, PlanOptions, Renumbering, plan};
use crate::session::Failure;
use crate::store::ReadStore;
use crate::store::etcd::Backup;
use crate::survey::Survey;
use crate::words::and_more;

/// Maximum time until the ServiceCIDR of an earlier operation is deleted. The controller manager deletes it within seconds after the
/// last IPAddress of its range is deleted.
const LEAVING: Duration = Duration::from_mins(2);
/// Pause between two checks of that ServiceCIDR.
const LOOK: Duration = Duration::from_secs(1);

/// Move every Service of a live cluster to another range, and hold the old addresses
///
/// Creates a plan, or uses a saved plan that still matches the cluster. Shows the plan and asks for confirmation. Acquires the
/// operation lease, saves a snapshot of etcd, and moves the Services batch by batch. Each old address answers until `renumber
/// retire`. A signal pauses the operation between two steps. You can continue the operation with `operation resume`, or undo it
/// with `operation rollback`, on any machine, even if the process was killed.
///
/// At a manual step (certificates, the flag of the API servers), netsurgeon asks you to do the step. Without a terminal, the
/// operation pauses with exit status 6. Do the step, then run `operation resume` with `--confirm`.
///
/// Between two batches, the operation can check gates: a program, a URL, a Prometheus query or a time. If a gate is closed, the
/// operation pauses (exit status 6). With `--on-gate-failure rollback`, it first rolls back the last batch, then pauses. With
/// `--on-gate-failure rollback-all`, it rolls back the whole operation (exit status 4). The journal records the gates, and the
/// operation checks them again after a resume.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a control-plane host
  netsurgeon renumber apply --to 10.200.0.0/16 --snapshot-to before.db
  netsurgeon renumber apply --plan plan.json --approve 3f2a91c0 --yes \\
      --snapshot-to before.db
  netsurgeon renumber apply --to 10.200.0.0/16 --no-snapshot --parallel 16 \\
      --confirm certificates
  netsurgeon renumber apply --plan plan.json --yes --snapshot-to before.db \\
      --log-format json --metrics-listen 127.0.0.1:9464
  netsurgeon renumber apply --plan plan.json --yes --snapshot-to before.db \\
      --until 18:00 --pause 60 \\
      --gate-prometheus http://prometheus:9090 --gate-max 0.01 \\
      --gate-query 'sum(rate(errors[1m])) / sum(rate(requests[1m]))' \\
      --on-gate-failure rollback")]
pub struct ApplyArgs {
    #[command(flatten)]
    target: Option<TargetArgs>,
    #[command(flatten)]
    tiers: TierArgs,
    /// Apply the plan in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "pin", "hold", "kube_proxy_config", "accept_gap", "move_all", "batch_size", "tiers"], required_unless_present = "to")]
    plan: Option<PathBuf>,
    /// Refuse the plan if it does not have this digest. Give the first 8 digits or more
    #[arg(long, value_name = "DIGEST", value_parser = digest::parse)]
    approve: Option<String>,
    /// Save a snapshot of etcd to this file before the first write
    #[arg(long, value_name = "FILE", conflicts_with = "no_snapshot")]
    snapshot_to: Option<PathBuf>,
    /// Do not save a snapshot. Use this only if you can restore etcd in another way
    #[arg(long)]
    no_snapshot: bool,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    gates: GateArgs,
}

/// The output of `renumber apply -o json`.
#[derive(Serialize)]
struct Applied<'a> {
    version: u8,
    operation: &'a str,
    digest: &'a str,
    /// The status of the operation, which is `soaking`.
    status: Status,
    moved: usize,
    /// Number of moved Services that were created in the old range during the operation.
    swept: usize,
    skipped: usize,
    steps: usize,
    /// Steps that were skipped because an object was changed or deleted concurrently, each with the reason.
    left_alone: Vec<String>,
    /// Services that were created in the old range during the operation, and that were not moved.
    newcomers: Vec<String>,
    snapshot: Option<Backup>,
}

/// Runs the command.
pub async fn run(context: &Context, args: &ApplyArgs) -> Result<Outcome, Failure> {
    if args.snapshot_to.is_none() && !args.no_snapshot {
        return Err(Failure::usage("name the file for a snapshot of etcd: `--snapshot-to FILE`")
            .hint("without a snapshot: `--no-snapshot`"));
    }
    let settings = args.gates.settings();
    let gates = settings.resolve()?;
    // The manual step `snapshot` is confirmed here: `apply` saves the snapshot, or the user declined it with `--no-snapshot`.
    let session = args.live.open(context).await?.with_gates(gates).confirming("snapshot");
    session.refuse_beside_others().await?;
    let plan = decide(context, args, &session).await?;
    let (ongoing, report, snapshot) = session.apply(plan, &settings, args.snapshot_to.as_deref()).await?;
    conclude(context, &session, &ongoing, &report, snapshot).await
}

/// Returns a plan that matches the cluster and that the user has approved.
async fn decide(
    context: &Context,
    args: &ApplyArgs,
    session: &RenumberSession,
) -> Result<Plan<Renumbering>, Failure> {
    let mut options = args.target.as_ref().map(|target| target.resolve(&args.tiers)).transpose()?;
    let (store, layout) = (session.store.as_ref(), &session.layout);
    let (plan, survey) = match (&args.plan, &mut options) {
        (Some(path), _) => (Plan::read(path)?, Survey::read(store, layout, None).await?),
        (None, Some(options)) => {
            let survey = Survey::read_annotated(store, layout, None, options.annotation()).await?;
            args.tiers.settle(context, &survey, options).await?;
            plan_when_free(session, survey, options).await?
        }
        (None, None) => return Err(Failure::usage("give `--to CIDR` or `--plan FILE`")),
    };
    digest::refuse_other(&plan.digest, args.approve.as_deref())?;
    session.refuse_unfit(&plan, &survey).await?;
    if let Some(shown) = shown(context, args, &plan) {
        context.output.progress(&shown);
    }
    context.output.progress(&summary(&plan, &session.store.describe(), args.live.renumber.rate));
    let count = counted(plan.work.moves.len(), "Service", "Services");
    let question = if plan.work.moves.is_empty() {
        format!("Change the Service range to {} now?", plan.work.to)
    } else {
        format!("Move {count} now? It takes {}.", duration(&plan.work, args.live.renumber.rate))
    };
    session.ask(&question)?;
    Ok(plan)
}

/// Returns what to show before the question: every move, and what else changes. With `--yes` there is no question, so only what
/// else changes.
fn shown(context: &Context, args: &ApplyArgs, plan: &Plan<Renumbering>) -> Option<String> {
    if args.live.run.yes {
        other_changes::table_of(&plan.work)
    } else {
        Some(describe(&context.output, plan))
    }
}

/// Plans the move. If a range that an earlier operation has just closed still overlaps the new range, waits until the controller
/// manager has deleted its ServiceCIDR. Does not wait if Services still have addresses of that range.
async fn plan_when_free(
    session: &RenumberSession,
    mut survey: Survey,
    options: &PlanOptions,
) -> Result<(Plan<Renumbering>, Survey), Failure> {
    let started = Instant::now();
    let mut is_told = false;
    loop {
        let leaving = match plan(&survey, options) {
            Ok(plan) => return Ok((plan, survey)),
            Err(PlanError::Target(leaving @ TargetError::Leaving { .. })) if leaving.is_ending() => leaving,
            Err(error) => return Err(error.into()),
        };
        if started.elapsed() >= LEAVING {
            return Err(PlanError::from(leaving).into());
        }
        if !is_told {
            session
                .ui
                .note(&format!("{leaving}; waiting until it is deleted, at most {} s", LEAVING.as_secs()));
            is_told = true;
        }
        sleep(LOOK).await;
        survey = Survey::read_annotated(session.store.as_ref(), &session.layout, None, options.annotation())
            .await?;
    }
}

async fn conclude(
    context: &Context,
    session: &RenumberSession,
    ongoing: &Ongoing,
    report: &Report,
    snapshot: Option<Backup>,
) -> Result<Outcome, Failure> {
    let survey = Survey::read(session.store.as_ref(), &session.layout, None).await?;
    let newcomers = ongoing.newcomers(&survey);
    let work = &ongoing.plan.work;
    let applied = Applied {
        version: 1,
        operation: &ongoing.operation,
        digest: &ongoing.plan.digest,
        status: ongoing.summary.status,
        moved: ongoing.situation().phases.held,
        swept: work.moves.iter().filter(|candidate| candidate.sweep > 0).count(),
        skipped: work.staying(),
        steps: report.done,
        left_alone: report.stuck.iter().map(|stuck| format!("{}: {}", stuck.step, stuck.reason)).collect(),
        newcomers,
        snapshot,
    };
    context.output.data(&applied, |_| String::new())?;
    context.output.progress(&if work.moves.is_empty() {
        format!("the Service range is {}; no Service moved", work.to)
    } else {
        format!(
            "{} to {}; {}",
            counted(applied.moved, "Service moved", "Services moved"),
            work.to,
            counted(
                applied.moved,
                "old address is held and still answers",
                "old addresses are held and still answer"
            ),
        )
    });
    if let Some(first) = applied.left_alone.first() {
        context.output.warn(&format!(
            "{} skipped; the first is `{first}`",
            counted(applied.left_alone.len(), "step was", "steps were")
        ));
    }
    if let Some(first) = applied.newcomers.first() {
        context.output.warn(&format!(
            "{} in the old range during the operation and not moved: `{first}`{}; to retry the move: `netsurgeon operation resume {}`",
            counted(applied.newcomers.len(), "Service was created", "Services were created"),
            and_more(applied.newcomers.len().saturating_sub(1)),
            ongoing.operation,
        ));
    }
    context.output.note(&what_next(ongoing, &applied.newcomers));
    Ok(if applied.left_alone.is_empty() { Outcome::Done } else { Outcome::Findings })
}

/// Returns the next commands for the user after the Services have moved.
fn what_next(ongoing: &Ongoing, newcomers: &[String]) -> String {
    let situation = ongoing.situation().with_newcomers(newcomers);
    let next = situation.next().unwrap_or_default();
    let next = if situation.is_to_retire && ongoing.plan.work.moves.is_empty() {
        format!("to complete the change, run `{next}`")
    } else if situation.is_to_retire {
        format!("when no client uses an old address, run `{next}`")
    } else {
        format!("to move the remaining Services, run `{next}`")
    };
    format!(
        "check with `netsurgeon renumber verify`; {next}; until then, `netsurgeon renumber rollback` undoes the change"
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

    /// clap treats an optional group of arguments as absent if the group contains another group.
    #[test]
    fn target_is_parsed_with_and_without_tiers() {
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

    /// A saved plan contains its range and its batches, so the error must name the conflicting option, not a missing `--to`.
    #[test]
    fn plan_options_conflict_with_a_saved_plan() {
        for option in ["--batch-size 10", "--to 10.200.0.0/16", "--hold shadow"] {
            let words = format!("x --plan plan.json --no-snapshot {option}");
            let error = Words::try_parse_from(words.split_whitespace()).map(drop).expect_err(option);
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{error}");
        }
    }
}
