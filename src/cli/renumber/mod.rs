//! `netsurgeon renumber`: moves every Service of a cluster to another Service range.

mod apply;
mod end_output;
mod evidence;
mod guard;
mod kept_addresses;
mod other_changes;
mod retire;
mod rollback;
mod status;

use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

pub use evidence::EvidenceArgs;
pub use retire::{RetireArgs, retire};
pub use rollback::{ApiLessArgs, RollbackArgs, rollback};

use super::file::{Readers, write_file};
use super::output::{Output, Tone, counted, table};
use super::source::SourceArgs;
use super::target::TargetArgs;
use super::tiers::TierArgs;
use super::{Context, Outcome};
use crate::operation::Plan;
use crate::renumber::estimate::{Estimate, estimate};
use crate::renumber::run::reasons;
use crate::renumber::{Move, Renumbering, plan};
use crate::session::Failure;
use crate::words::in_words;

#[derive(Debug, Subcommand)]
pub enum RenumberCommand {
    Plan(Box<PlanArgs>),
    Apply(Box<apply::ApplyArgs>),
    Status(status::StatusArgs),
    Verify(status::VerifyArgs),
    Guard(guard::GuardArgs),
    Rollback(Box<RollbackArgs>),
    Retire(Box<RetireArgs>),
}

/// Plan the move: the new address of each Service, and how its old address is held
///
/// Reads a snapshot or a live etcd, and writes nothing to etcd. `default/kubernetes` gets the first address of the new range.
/// Every other Service keeps the offset of its address in the range, if the new range has a free address at this offset:
/// `10.96.0.10` becomes `10.200.0.10`. Otherwise, the Service gets another free address. A Service whose address the new range
/// also has keeps it. Each old address answers until you retire it. The column HOLD shows how the old address is held (docs/renumber.md).
///
/// `--save` writes the plan to a file, and `-o json` prints it. The plan has a digest. Review the plan, then apply exactly this
/// plan with `renumber apply --plan FILE --approve DIGEST`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # from the live etcd, on a control-plane host
  netsurgeon renumber plan --to 10.200.0.0/16
  netsurgeon renumber plan --snapshot backup.db --to 10.200.0.0/16 \\
      --save plan.json
  # grow 10.96.0.0/20 in place: no Service moves
  netsurgeon renumber plan --to 10.96.0.0/16
  # the IPv6 addresses of a dual-stack cluster
  netsurgeon renumber plan --to fd00:200::/112
  netsurgeon renumber plan --to 10.200.0.0/16 --tiers dev,web,core \\
      --tier-label team.example/tier --default-tier web
  netsurgeon renumber plan --snapshot backup.db --to 10.200.0.0/24 \\
      --pin pins.txt -o json | jq .moves")]
pub struct PlanArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    tiers: TierArgs,
    /// Also write the plan to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
}

/// Runs the command.
pub async fn run(context: &Context, command: &RenumberCommand) -> Result<Outcome, Failure> {
    match command {
        RenumberCommand::Plan(args) => plan_moves(context, args).await,
        RenumberCommand::Apply(args) => apply::run(context, args).await,
        RenumberCommand::Status(args) => status::status(context, args).await,
        RenumberCommand::Verify(args) => status::verify(context, args).await,
        RenumberCommand::Guard(args) => guard::run(context, args).await,
        RenumberCommand::Rollback(args) => rollback(context, (args, &[])).await,
        RenumberCommand::Retire(args) => retire(context, (args, &[])).await,
    }
}

async fn plan_moves(context: &Context, args: &PlanArgs) -> Result<Outcome, Failure> {
    let mut options = args.target.resolve(&args.tiers)?;
    // The survey and the plan can be large. Their memory is not freed, because the process ends soon.
    let (survey, store) = args.source.survey_annotated(context, options.annotation()).await?;
    let survey = ManuallyDrop::new(survey);
    args.tiers.settle(context, &survey, &mut options).await?;
    let plan = ManuallyDrop::new(plan(&survey, &options)?);
    if let Some(path) = &args.save {
        let text = serde_json::to_vec_pretty(&*plan).map_err(|e| Failure::new(super::ExitKind::Bug, e))?;
        write_file(path, &text, Readers::Owner)?;
        context.output.note(&format!("the plan was written to `{}`", path.display()));
    }
    context.output.data(&*plan, |output| describe(output, &plan))?;
    context.output.progress(&summary(&plan, &store, None));
    Ok(Outcome::Done)
}

fn describe(output: &Output, plan: &Plan<Renumbering>) -> String {
    let tables =
        [(!plan.work.moves.is_empty()).then(|| moves(output, plan)), other_changes::table_of(&plan.work)];
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

fn moves(output: &Output, plan: &Plan<Renumbering>) -> String {
    let row = |candidate: &Move| {
        [
            candidate.namespace.to_string(),
            candidate.name.to_string(),
            candidate.old.join(","),
            output.paint(Tone::Good, &candidate.new.join(",")),
            candidate.hold.to_string(),
            candidate.hold_reason.to_string(),
        ]
    };
    let moves = plan.work.moves.iter();
    if plan.work.tiers.is_empty() {
        return table(["NAMESPACE", "NAME", "OLD", "NEW", "HOLD", "REASON"], moves.map(row));
    }
    let rows = moves.map(|candidate| {
        let [namespace, name, old, new, hold, reason] = row(candidate);
        [namespace, name, candidate.tier.to_string(), old, new, hold, reason]
    });
    table(["NAMESPACE", "NAME", "TIER", "OLD", "NEW", "HOLD", "REASON"], rows)
}

fn summary(plan: &Plan<Renumbering>, store: &str, rate: Option<NonZeroU32>) -> String {
    let work = &plan.work;
    let from = work.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let change = if work.moves.is_empty() {
        format!("no Service moves; the Service range changes from {from} to {}", work.to)
    } else {
        format!(
            "{} from {from} to {} in {}",
            counted(work.moves.len(), "Service moves", "Services move"),
            work.to,
            counted(work.batches().len(), "batch", "batches"),
        )
    };
    let stay = counted(work.staying(), "stays", "stay");
    let (revision, era) = (plan.header.base_revision, work.era);
    let mut lines =
        vec![format!("{store}, revision {revision}, era {era}: {change}, {stay}{}", reasons(work))];
    lines.extend(work.tiers_in_words().map(|tiers| format!("tiers, least critical first: {tiers}")));
    lines.extend((!work.moves.is_empty()).then(|| format!("estimated duration: {}", duration(work, rate))));
    lines.push(format!("digest {}", plan.digest));
    lines.extend(remarks(work));
    lines.join("\n")
}

/// Returns remarks about the data plane, about objects that could not be read, and about shadows that need the guard.
pub(super) fn remarks(work: &Renumbering) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(kept_addresses::remarks(work));
    lines.extend(work.data_plane.iter().map(|about| format!("Services are routed by {about}")));
    lines.extend(work.unread.iter().map(|unread| {
        format!("Cannot read {unread}: if it records the range or the DNS address, update it by hand")
    }));
    let copied = work.moves.iter().filter(|candidate| candidate.has_copies()).count();
    if copied > 0 {
        lines.push(format!(
            "{} no selector. Each shadow gets a copy of the endpoints, and `netsurgeon renumber guard --stay` keeps the copy current. Start this guard before `apply`, and keep the guard running until the old addresses are retired",
            counted(copied, "Service with a shadow has", "Services with shadows have"),
        ));
    }
    lines.extend(work.gap.iter().map(|gap| {
        let accepted = if work.gap_accepted {
            " (accepted)"
        } else {
            "; if kube-proxy routes Services on every node, give `--kube-proxy-config FILE`"
        };
        format!("Cannot tell whether every node can hold old addresses: {gap}{accepted}")
    }));
    lines
}

/// Returns the estimated duration of the moves as text: `2 s to 40 s, without manual steps, gates and the soak`.
pub(super) fn duration(work: &Renumbering, rate: Option<NonZeroU32>) -> String {
    let Estimate { least, most } = estimate(work, rate);
    let least = Duration::from_secs(least.as_secs().max(1));
    // The estimate is rough, so the maximum is rounded up.
    let most = match most.as_secs() {
        seconds if seconds < 60 => seconds.next_multiple_of(10),
        seconds => seconds.next_multiple_of(60),
    };
    let most = Duration::from_secs(most).max(least);
    format!("{} to {}, without manual steps, gates and the soak", in_words(least), in_words(most))
}
