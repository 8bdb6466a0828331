//! `netsurgeon mirror activate`: moves passive objects from the source to the mirror.

use clap::Args;

use super::activation::{Clusters, WaitArgs, conclude, describe, nothing, warnings};
use crate::cli::api::{KubeArgs, MirrorKubeArgs};
use crate::cli::run_args::RunArgs;
use crate::cli::{Context, Outcome};
use crate::kube_api::ReadOnly;
use crate::mirror::activation::reader::ActivationReader;
use crate::session::Failure;
use crate::words::counted;

/// Move the passive copies from the source to the mirror: CronJobs, and workloads that have no replicas in the mirror
///
/// Nothing is active in both clusters at any instant, whatever is killed. A CronJob is suspended in the source first. netsurgeon then
/// proves that its controller has seen this, waits until its Jobs have finished, writes the latest scheduled time that has run to the
/// mirror, and unsuspends the CronJob there. A workload is scaled to 0 in the source first, and has no Pod there before it gets
/// replicas in the mirror.
///
/// A CronJob that its owner has suspended stays suspended in both clusters. If the CronJob controller of the source does not answer,
/// or Jobs or Pods do not end in time, the object is active in the source again, is named, and the exit status is 3.
///
/// If several scheduled times pass during the hand-over of a CronJob, the mirror makes up only the last one, and only within
/// `startingDeadlineSeconds`. The operation is recorded in the mirror. `mirror deactivate` moves everything back.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror activate --mirror-context green --dry-run
  netsurgeon mirror activate -n shop,pay --mirror-context green
  netsurgeon mirror activate --mirror-context green --dry-run -o json \\
      | jq '.objects[] | select(.action == \"move\")'")]
pub struct ActivateArgs {
    /// Only objects of these namespaces; can be repeated, or a list separated by commas [default: every copy]
    #[arg(short, long = "namespace", value_name = "NAMESPACE", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Show the plan, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    waits: WaitArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &ActivateArgs) -> Result<Outcome, Failure> {
    let of_mirror = args.mirror.required(&args.kube)?;
    let clusters = Clusters::connect(&args.kube, &of_mirror).await?;
    let source = ReadOnly::new(clusters.source.clone());
    let reader = ActivationReader::new(&source, &clusters.mirror, &args.namespaces, args.waits.waits());
    let plan = reader.plan().await?;
    for warning in warnings(&plan) {
        context.output.warn(&warning);
    }
    if args.dry_run {
        context.output.data(&plan, |_| describe(&plan))?;
        context.output.note("nothing was written (`--dry-run`)");
        return Ok(Outcome::Done);
    }
    context.output.progress(&describe(&plan));
    let count = plan.work.moves().count();
    let session = clusters.session(context, &args.run).await?;
    if count > 0 {
        session.ask(&format!("Move {} to the mirror now?", counted(count, "object", "objects")))?;
    }
    let digest = plan.digest.clone();
    match session.start(plan).await? {
        Some(ran) => conclude(context, &[ran]),
        None => nothing(context, &digest),
    }
}
