//! `netsurgeon ranges rewrite`: calculates the bits of a RangeAllocation from the Services, for the current range or for another
//! range, and writes these bits.

mod output;

use std::sync::Arc;

use clap::Args;
use serde_json::Value;

use self::output::{describe, show};
use crate::cli::ledger_args::LedgerArgs;
use crate::cli::run_args::{LeaseArgs, PATIENCE};
use crate::cli::{Context, Outcome};
use crate::ip::ServiceCidr;
use crate::operation::{Journal, LeaseHolder, Plan, Status, SystemAmbient};
use crate::renumber::rewrite::run::{RewriteResult, RewriteSession, Rewriting, is_written};
use crate::renumber::rewrite::{RangeRewrite, RewriteError, plan_rewrite};
use crate::session::{Connect, Failure, LiveEtcd, Session, Settings, refuse_removing};
use crate::store::ReadStore;
use crate::store::overlay::Overlay;
use crate::survey::Survey;

/// Rewrite an allocation bitmap (RangeAllocation) from the Services
///
/// Use this if the cluster has an allocation bitmap (Kubernetes 1.33 and earlier). The command can also change the range of the
/// bitmap (`--to`). The command shows the difference, asks for confirmation, checks again, and writes by compare-and-swap. If the
/// bitmap or the allocations of Services change meanwhile, the command writes nothing. The journal keeps the old value. To
/// restore the old value, use `netsurgeon operation rollback` or `--undo`.
///
/// The rewrite is an operation. It acquires the operation lease, and it fails if another operation has not ended. It needs only
/// etcd. If an API server answers, the rewrite also acquires the Lease that excludes operations of other kinds. You can list,
/// show, resume, roll back, report and forget the rewrite with `netsurgeon operation`.
///
/// Make sure that no client creates Services during the rewrite. The API server allocates an address shortly before it stores the
/// Service. Therefore, the rewrite frees a bit only if two checks, some seconds apart, find no Service with this address.
///
/// API servers read the new value at the next allocation, without a restart. API servers of Kubernetes 1.32 and earlier also
/// rewrite the bitmap every three minutes, from their flag `--service-cluster-ip-range`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # only show the difference
  netsurgeon ranges rewrite --dry-run
  netsurgeon ranges rewrite --yes                       # repair the bits
  # after the API servers' flag was changed (1.33)
  netsurgeon ranges rewrite --to 10.200.0.0/16
  netsurgeon ranges rewrite servicenodeports --dry-run
  netsurgeon ranges rewrite --undo rewrite-range-20261121T083915Z-3f2a")]
pub struct RewriteArgs {
    /// The RangeAllocation: serviceips, secondaryserviceips or servicenodeports
    #[arg(default_value = "serviceips", value_parser = ["serviceips", "secondaryserviceips", "servicenodeports"])]
    name: String,
    /// The new range [default: the current range]
    #[arg(long, value_name = "CIDR")]
    to: Option<String>,
    /// Only show the difference
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Restore the old value from the journal of this operation
    #[arg(long, value_name = "OPERATION", conflicts_with_all = ["to", "dry_run"])]
    undo: Option<String>,
    #[command(flatten)]
    lock: LeaseArgs,
    #[command(flatten)]
    home: LedgerArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &RewriteArgs) -> Result<Outcome, Failure> {
    let with = (&args.home, &args.lock, args.yes);
    if let Some(operation) = &args.undo {
        return roll_back(context, with, operation).await;
    }
    let store = args.home.etcd.connect().await?;
    let to = args.to.as_deref().map(str::parse::<ServiceCidr>).transpose()?;
    let survey = Survey::read(store.as_ref(), &args.home.etcd.layout(), None).await?;
    let plan = match plan_rewrite(&survey, &args.name, to.as_ref()) {
        Err(unchanged @ RewriteError::Unchanged { .. }) => {
            context.output.progress(&unchanged.to_string());
            return Ok(Outcome::Done);
        }
        other => other?,
    };
    if args.dry_run {
        dry_run(store, &plan).await?;
        show(context, &plan.work, "planned", None)?;
        context.output.note("nothing was written (`--dry-run`)");
        return Ok(Outcome::Done);
    }
    context.output.progress(&describe(&context.output, &plan.work));
    context
        .output
        .ask(&format!("Rewrite RangeAllocation `{}` in {}?", args.name, store.describe()), args.yes)?;
    let session = open(context, with, store).await?;
    let operation = session.begin(&plan).await?;
    conclude(context, &operation, (&plan.work, RewriteResult::Written))
}

/// Runs the steps of the rewrite on an overlay, which writes nothing to the store.
async fn dry_run(store: Arc<dyn ReadStore>, plan: &Plan<RangeRewrite>) -> Result<(), Failure> {
    let overlay = Overlay::new(store).await?;
    let mut journal = Journal::begin_plan(&overlay, plan, &LeaseHolder::default(), Value::Null, &[]).await?;
    let rewriting = Rewriting { store: &overlay, ambient: &SystemAmbient, guards: Vec::new() };
    rewriting.run(&plan.work, &mut journal).await?;
    Ok(())
}

/// The options of a live run: where operations are recorded, the operation lease, and whether to ask no question.
type With<'a> = (&'a LedgerArgs, &'a LeaseArgs, bool);

async fn open(
    context: &Context,
    (home, lock, agreed): With<'_>,
    store: Arc<LiveEtcd>,
) -> Result<RewriteSession, Failure> {
    let settings = Settings { lease: lock.terms(), agreed, ..Settings::default() };
    let (etcd, kube) = ((store, home.etcd.layout()), (&home.kube as &dyn Connect, PATIENCE));
    Ok(RewriteSession::new(Session::open_beside_api(context.ui(), etcd, kube, settings).await?))
}

/// Continues a rewrite from its journal.
pub(in crate::cli) async fn resume(
    context: &Context,
    with: With<'_>,
    operation: &str,
) -> Result<Outcome, Failure> {
    let session = open(context, with, with.0.etcd.connect().await?).await?;
    let (work, result) = session.resume(operation).await?;
    conclude(context, operation, (&work, result))
}

/// Restores the old value, after confirmation.
pub(in crate::cli) async fn roll_back(
    context: &Context,
    with: With<'_>,
    operation: &str,
) -> Result<Outcome, Failure> {
    let session = open(context, with, with.0.etcd.connect().await?).await?;
    let known = session.read(operation).await?;
    let (output, work) = (&context.output, &known.plan.work);
    if known.summary.status == Status::RolledBack {
        output.progress("the old value was already restored; nothing was written");
        return Ok(Outcome::Done);
    }
    refuse_removing(operation, &known.summary)?;
    if is_written(work, &known.journal) {
        output.progress(&describe(output, &work.inverse()));
    } else {
        output.progress(&format!("RangeAllocation `{}` is not written yet", work.name));
    }
    let store = session.store.describe();
    session.ask(&format!("Restore the old value of RangeAllocation `{}` in {store}?", work.name))?;
    let (work, result) = session.roll_back(operation, work).await?;
    conclude(context, operation, (&work, result))
}

/// Reports what a run has done, and how to restore the old value.
fn conclude(
    context: &Context,
    operation: &str,
    (work, result): (&RangeRewrite, RewriteResult),
) -> Result<Outcome, Failure> {
    if context.output.is_structured() {
        match result {
            RewriteResult::Written => show(context, work, "rewritten", Some(operation))?,
            _ => show(context, &work.inverse(), "undone", Some(operation))?,
        }
    }
    context.output.progress(&match result {
        RewriteResult::Written => format!(
            "RangeAllocation `{}` is rewritten; to restore the old value: `netsurgeon operation rollback {operation}`",
            work.name
        ),
        RewriteResult::Restored => "the old value is restored".to_string(),
        RewriteResult::NeverWritten => "rolled back: nothing was written".to_string(),
    });
    Ok(Outcome::Done)
}
