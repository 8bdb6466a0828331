//! `netsurgeon mirror verify`: compares the copies of a plan or an operation with the source and the mirror as they are now.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::in_effect;
use crate::cli::api::{KubeArgs, MirrorKubeArgs};
use crate::cli::output::table;
use crate::cli::{Context, Outcome};
use crate::kube_api::ReadOnly;
use crate::mirror::Mirror;
use crate::mirror::activation::MovedCopies;
use crate::mirror::activation::ledger::in_force;
use crate::mirror::verify::{Comparison, CopyState, Verified, verify};
use crate::operation::Plan;
use crate::session::{ClusterSession, Failure, Settings};
use crate::words::counted;

/// Check that the mirror has every planned copy, and that no passive copy is active
///
/// Compares each copy with the object of the source as it is now, and looks whether the Pods of workloads are ready. Changes nothing.
/// The exit status is 3 if a copy is missing or different, if Pods are not ready, if a CronJob is not suspended in the mirror, or if an
/// object could not be read.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror verify --mirror-context green --wait 300
  netsurgeon mirror verify mirror-20261121T083915Z-3f2a --mirror-context green
  netsurgeon mirror verify --plan plan.json --mirror-context green -o json \\
      | jq '.objects[] | select(.state != \"equal\")'")]
pub struct VerifyArgs {
    /// Id of the operation [default: every mirror operation that was not rolled back; of the same namespaces, the newest]
    #[arg(value_name = "ID", conflicts_with = "plan")]
    operation: Option<String>,
    /// A saved plan
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// How long to wait until the Pods of workloads are ready
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = clap::value_parser!(u64).range(..=3600))]
    wait: u64,
    /// Only compare the copies; their Pods need not be ready
    #[arg(long, conflicts_with = "wait")]
    skip_readiness: bool,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// The output of `mirror verify -o json`.
#[derive(Serialize)]
struct VerifyOutput<'a> {
    version: u8,
    /// Digests of the plans.
    digests: Vec<&'a str>,
    /// Number of copies that are equal and, if they have Pods, ready.
    equal: usize,
    /// Number of copies that are equal and whose Pods are not ready.
    not_ready: usize,
    objects: &'a [Verified],
}

/// Runs the command.
pub async fn run(context: &Context, args: &VerifyArgs) -> Result<Outcome, Failure> {
    let of_mirror = args.mirror.required(&args.kube)?;
    let (source, mirror) = tokio::join!(args.kube.connect(), of_mirror.connect());
    let (source, mirror) = (source?, mirror?);
    let plans: Vec<Plan<Mirror>> = if let Some(path) = &args.plan {
        vec![Plan::read(path)?]
    } else {
        let session = ClusterSession::open(context.ui(), mirror.clone(), Settings::default()).await?;
        match &args.operation {
            Some(id) => vec![session.read(id).await?.plan],
            None => newest(&session).await?,
        }
    };
    let moved = MovedCopies::new(&in_force(&mirror).await?);
    let clusters = (&ReadOnly::new(source), &ReadOnly::new(mirror));
    let comparison = Comparison {
        moved: &moved,
        reads_files: args.plan.is_some(),
        patience: (!args.skip_readiness).then(|| Duration::from_secs(args.wait)),
    };
    let mut last = 0;
    let mut waiting = |left: usize| {
        if std::mem::replace(&mut last, left) != left {
            let workloads = counted(left, "workload is", "workloads are");
            context.output.progress(&format!("{workloads} not ready; waiting"));
        }
    };
    let mut found: Vec<Verified> = Vec::new();
    for plan in &plans {
        let more = verify(clusters, plan, comparison, &mut waiting).await?;
        let known: BTreeSet<String> = found.iter().map(|one| one.object.clone()).collect();
        found.extend(more.into_iter().filter(|one| !known.contains(&one.object)));
    }
    let equal = found.iter().filter(|one| one.state == CopyState::Equal).count();
    let not_ready = found.iter().filter(|one| one.state == CopyState::NotReady).count();
    let shown = VerifyOutput {
        version: 1,
        digests: plans.iter().map(|plan| plan.digest.as_str()).collect(),
        equal,
        not_ready,
        objects: &found,
    };
    context.output.data(&shown, |_| describe(&found))?;
    let copies = equal.saturating_add(not_ready);
    context.output.progress(&format!("{copies} of {} copies are equal", found.len()));
    if not_ready > 0 {
        let workloads = counted(not_ready, "workload is", "workloads are");
        context.output.progress(&format!("{workloads} not ready"));
        context.output.note("to wait until they are: the same command with `--wait 300`");
    }
    Ok(if equal == found.len() { Outcome::Done } else { Outcome::Findings })
}

/// Returns the plans of the operations that have not been rolled back, the newest first. A plan contains every object of its namespaces,
/// so an older plan of the same namespaces is not needed.
async fn newest(session: &ClusterSession) -> Result<Vec<Plan<Mirror>>, Failure> {
    let mut plans: Vec<Plan<Mirror>> = Vec::new();
    for listed in in_effect(session).await? {
        let plan = session.read::<Mirror>(&listed.operation).await?.plan;
        let is_known = |name: &String| plans.iter().any(|plan| plan.work.namespaces.contains(name));
        if !plan.work.namespaces.iter().all(is_known) {
            plans.push(plan);
        }
    }
    Ok(plans)
}

/// Returns a table of the copies that are not equal.
fn describe(found: &[Verified]) -> String {
    let row = |one: &Verified| {
        let state = match one.state {
            CopyState::Equal => "equal",
            CopyState::Missing => "missing",
            CopyState::Different => "different",
            CopyState::Active => "active, must be passive",
            CopyState::SourceMissing => "missing in the source",
            CopyState::NotReady => "not ready",
            CopyState::NotDeleted => "not deleted",
            CopyState::Unknown => "unknown",
        };
        let note = one.error.clone().unwrap_or_else(|| one.fields.join(", "));
        [one.object.clone(), state.to_string(), note]
    };
    let other = found.iter().filter(|one| one.state != CopyState::Equal);
    table(["OBJECT", "STATE", "NOTE"], other.map(row))
}
