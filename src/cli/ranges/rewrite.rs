//! `netsurgeon ranges rewrite`: the bits of a RangeAllocation from the Services, or for another range.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use crate::cli::failure::{Failure, Kind};
use crate::cli::output::{Output, Tone, counted};
use crate::cli::source::EtcdArgs;
use crate::cli::{Context, Outcome, new_operation_id};
use crate::ip::{Item, ServiceCidr};
use crate::operation::{Ambient, Claim, Executor, Journal, NoWorld, Plan, Silent, SystemAmbient};
use crate::renumber::ranges::{Content, KIND, RangeRewrite, RewriteError, plan_rewrite};
use crate::store::overlay::Overlay;
use crate::store::{ReadStore, WriteStore};
use crate::survey::Survey;

/// As many addresses of a difference as fit on a screen.
const SHOWN: usize = 20;

/// Rewrite a RangeAllocation: its bits from the Services, for its own range or for another one
///
/// For clusters that keep a bitmap of allocations (Kubernetes 1.33 and earlier). Shows the difference, asks,
/// looks again, and writes by compare-and-swap: if the bitmap or what the Services say changed meanwhile,
/// nothing is written. The old value is kept in the journal, and `--undo` puts it back.
///
/// The API server allocates an address a moment before it stores the Service. Bits are freed only if no
/// Service had them at two looks some seconds apart; still, nothing should create Services meanwhile.
///
/// API servers take the new value at their next allocation, without a restart. On 1.32 and earlier they also
/// rewrite it themselves every three minutes, from their own `--service-cluster-ip-range`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon ranges rewrite --dry-run                   # show what the Services say
  netsurgeon ranges rewrite --yes                       # mend the bits
  netsurgeon ranges rewrite --to 10.200.0.0/16          # after the API servers' flag was changed (1.33)
  netsurgeon ranges rewrite servicenodeports --dry-run
  netsurgeon ranges rewrite --undo 20261121T083915Z-3f2a")]
pub struct RewriteArgs {
    /// Which one: serviceips, secondaryserviceips or servicenodeports
    #[arg(default_value = "serviceips", value_parser = ["serviceips", "secondaryserviceips", "servicenodeports"])]
    name: String,
    /// The new range [default: the one that it has]
    #[arg(long, value_name = "CIDR")]
    to: Option<String>,
    /// Only show the difference
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Put the old value of this operation back
    #[arg(long, value_name = "OPERATION", conflicts_with_all = ["to", "dry_run"])]
    undo: Option<String>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// What `ranges rewrite -o json` prints.
#[derive(Serialize)]
struct Rewritten<'a> {
    version: u8,
    /// `planned`, `rewritten` or `undone`.
    status: &'static str,
    operation: Option<&'a str>,
    name: &'a str,
    range_before: Option<&'a str>,
    range_after: &'a str,
    /// Addresses or ports that become allocated.
    allocated: Vec<String>,
    /// Addresses or ports that become free.
    freed: Vec<String>,
    /// Services with an address outside the range.
    outside: usize,
}

/// Runs the command.
pub async fn run(context: &Context, args: &RewriteArgs) -> Result<Outcome, Failure> {
    let to = args.to.as_deref().map(str::parse::<ServiceCidr>).transpose()?;
    let store = args.etcd.connect().await?;
    let survey = Survey::read(store.as_ref(), &args.etcd.layout(), None).await?;
    if let Some(operation) = &args.undo {
        return undo(context, args, store.as_ref(), &survey, operation).await;
    }
    let plan = match plan_rewrite(&survey, &args.name, to.as_ref()) {
        Err(unchanged @ RewriteError::Unchanged { .. }) => {
            context.output.progress(&unchanged.to_string());
            return Ok(Outcome::Done);
        }
        other => other?,
    };
    let shown = |status, operation| show(context, &plan.work, status, operation);
    if args.dry_run {
        // The same steps on another store, which keeps them to itself.
        let overlay = Overlay::new(store as Arc<dyn ReadStore>).await?;
        carry_out(&overlay, &plan, "dry-run").await?;
        shown("planned", None)?;
        context.output.note("nothing was written (`--dry-run`)");
        return Ok(Outcome::Done);
    }
    context.output.progress(&describe(&context.output, &plan.work));
    context
        .output
        .ask(&format!("Rewrite RangeAllocation `{}` in {}?", args.name, store.describe()), args.yes)?;
    look_again(store.as_ref(), args, &plan, to.as_ref()).await?;
    let operation = new_operation_id();
    carry_out(store.as_ref(), &plan, &operation).await?;
    if context.output.is_structured() {
        shown("rewritten", Some(operation.as_str()))?;
    }
    context.output.progress(&format!(
        "rewritten; to put the old value back: `netsurgeon ranges rewrite --undo {operation}`"
    ));
    Ok(Outcome::Done)
}

/// How long an API server may take from allocating an address to storing its Service: admission comes before
/// the allocation, so only the write to etcd lies between.
const ALLOCATION: std::time::Duration = std::time::Duration::from_secs(3);

/// Makes the plan anew, where bits are freed after a while, and refuses if it is another one.
async fn look_again(
    store: &dyn ReadStore,
    args: &RewriteArgs,
    plan: &Plan<RangeRewrite>,
    to: Option<&ServiceCidr>,
) -> Result<(), Failure> {
    if !difference(&plan.work).1.is_empty() {
        tokio::time::sleep(ALLOCATION).await;
    }
    let survey = Survey::read(store, &args.etcd.layout(), None).await?;
    match plan_rewrite(&survey, &args.name, to) {
        Ok(now) if now.work == plan.work => Ok(()),
        _ => Err(Failure::refused("allocations changed meanwhile; nothing was written")
            .hint("run it again, while nothing creates or deletes Services")),
    }
}

async fn carry_out(
    store: &dyn WriteStore,
    plan: &Plan<RangeRewrite>,
    operation: &str,
) -> Result<(), Failure> {
    let ambient = SystemAmbient;
    let purpose = format!("rewrite RangeAllocation `{}`", plan.work.name);
    let by = Claim::of_this_process(operation, &purpose, ambient.now());
    let mut journal = Journal::begin_plan(store, plan, &by, &[]).await?;
    let mut silent = Silent;
    let mut executor = Executor::new(store, &NoWorld, &ambient, &mut silent, &mut journal);
    match executor.run(&plan.work, None).await {
        Ok(_) => Ok(journal.set_status(store, "done", ambient.now(), &[]).await?),
        Err(failure) => {
            journal.set_status(store, "failed", ambient.now(), &[]).await?;
            Err(Failure::from(failure).hint("nothing was changed; run the command again"))
        }
    }
}

async fn undo(
    context: &Context,
    args: &RewriteArgs,
    store: &dyn WriteStore,
    survey: &Survey,
    operation: &str,
) -> Result<Outcome, Failure> {
    let cluster = survey.cluster_id.clone().unwrap_or_default();
    let (mut journal, summary, text) = Journal::open(store, &cluster, operation).await?;
    if summary.kind != KIND {
        return Err(Failure::refused(format!(
            "operation `{operation}` is a `{}`, not a rewrite",
            summary.kind
        )));
    }
    let plan: Plan<RangeRewrite> = Plan::parse(&text, std::path::Path::new(operation))?;
    context.output.progress(&describe(&context.output, &plan.work.inverse()));
    let question =
        format!("Put the old value of RangeAllocation `{}` back in {}?", plan.work.name, store.describe());
    context.output.ask(&question, args.yes)?;
    let mut silent = Silent;
    let mut executor = Executor::new(store, &NoWorld, &SystemAmbient, &mut silent, &mut journal);
    let report = executor.unwind(&plan.work).await?;
    if report.done == 0 && report.stuck.is_empty() {
        context.output.progress("it had been put back before; nothing was written");
        return Ok(Outcome::Done);
    }
    if let Some(stuck) = report.stuck.first() {
        journal.set_status(store, "stuck", SystemAmbient.now(), &[]).await?;
        let text = format!("it cannot be put back: {}", stuck.reason);
        return Err(Failure::new(Kind::Stuck, anyhow::Error::msg(text)).hint(
            "something was allocated since; `netsurgeon ranges rewrite` makes it right for what is there now",
        ));
    }
    journal.set_status(store, "rolled-back", SystemAmbient.now(), &[]).await?;
    if context.output.is_structured() {
        show(context, &plan.work.inverse(), "undone", Some(operation))?;
    }
    context.output.progress("the old value is back");
    Ok(Outcome::Done)
}

fn difference(work: &RangeRewrite) -> (Vec<String>, Vec<String>) {
    let before = work.before.as_ref().map(Content::marked).unwrap_or_default();
    let after = work.after.marked();
    let only = |a: &BTreeSet<Item>, b: &BTreeSet<Item>| a.difference(b).map(ToString::to_string).collect();
    (only(&after, &before), only(&before, &after))
}

fn show(
    context: &Context,
    work: &RangeRewrite,
    status: &'static str,
    operation: Option<&str>,
) -> Result<(), Failure> {
    let (allocated, freed) = difference(work);
    let value = Rewritten {
        version: 1,
        status,
        operation,
        name: &work.name,
        range_before: work.before.as_ref().map(|content| content.range.as_str()),
        range_after: &work.after.range,
        allocated,
        freed,
        outside: work.outside,
    };
    context.output.data(&value, |output| Ok(describe(output, work)))
}

fn describe(output: &Output, work: &RangeRewrite) -> String {
    let (allocated, freed) = difference(work);
    let before = work.before.as_ref().map_or("(none)", |content| content.range.as_str());
    let mut lines = vec![format!("RangeAllocation {}", work.name)];
    if before == work.after.range {
        lines.push(format!("  range  {before}, kept"));
    } else {
        lines.push(format!("  range  {before} -> {}", work.after.range));
    }
    lines.push(format!(
        "  bits   {} become allocated, {} become free",
        counted(allocated.len(), "item", "items"),
        counted(freed.len(), "item", "items")
    ));
    if work.outside > 0 {
        let services = counted(work.outside, "Service has", "Services have");
        lines.push(output.paint(Tone::Careful, &format!("  {services} an address outside that range")));
    }
    for (sign, tone, items) in [("+", Tone::Good, &allocated), ("-", Tone::Bad, &freed)] {
        for item in items.iter().take(SHOWN) {
            lines.push(output.paint(tone, &format!("  {sign} {item}")));
        }
        if items.len() > SHOWN {
            lines
                .push(format!("  {sign} and {} more (`-o json` has all)", items.len().saturating_sub(SHOWN)));
        }
    }
    lines.join("\n")
}
