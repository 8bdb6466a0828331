//! `netsurgeon mirror apply`: copies the objects of a plan to the mirror.

use std::path::PathBuf;

use clap::Args;

use super::{RunOutput, conclude, describe, open, summary};
use crate::cli::api::{KubeArgs, MirrorKubeArgs};
use crate::cli::run_args::RunArgs;
use crate::cli::{Context, Outcome, digest};
use crate::kube_api::ReadOnly;
use crate::mirror::Mirror;
use crate::mirror::run::MirrorSession;
use crate::operation::{Plan, Status};
use crate::session::Failure;
use crate::words::counted;

/// Copy the objects of a plan to the mirror
///
/// Reads each object from the source again, and applies its copy to the mirror: namespaces first, then ServiceAccounts,
/// configuration, Services, workloads and Ingresses. The field manager is `netsurgeon-mirror`, and no apply takes a field from
/// another manager. The operation is recorded in the mirror, with the uid of each object that it creates.
///
/// If an object is refused, for example by a quota or a policy, or if another client has created it since the plan, netsurgeon skips
/// this object and names the reason. The other objects are copied, and the exit status is 3. To copy the skipped objects, create a
/// new plan. If a process was killed, run the same command again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror apply --plan plan.json --mirror-context green
  netsurgeon mirror apply --plan plan.json --approve 3f2a91c0 --yes \\
      --kubeconfig blue.conf --mirror-kubeconfig green.conf")]
pub struct ApplyArgs {
    /// The saved plan
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Refuse the plan if it does not have this digest. Give the first 8 digits or more
    #[arg(long, value_name = "DIGEST", value_parser = digest::parse)]
    approve: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &ApplyArgs) -> Result<Outcome, Failure> {
    let plan: Plan<Mirror> = Plan::read(&args.plan)?;
    digest::refuse_other(&plan.digest, args.approve.as_deref())?;
    let of_mirror = args.mirror.required(&args.kube)?;
    let source = ReadOnly::new(args.kube.connect().await?);
    let session =
        MirrorSession::new(open(context, &of_mirror, &args.run).await?, Some(source)).reading_files();
    session.refuse_other_clusters(&plan).await?;
    if let Some(known) = session.of_plan(&plan).await? {
        let id = &known.operation;
        match known.summary.status {
            // A plan after a rollback can be the same as the plan before.
            Status::RolledBack => {}
            Status::Done => {
                return Err(Failure::refused(format!("the operation `{id}` of this plan is done"))
                    .hint(format!("create a new plan: it contains what still has to be copied; if it has the same digest, another client deleted the copies: remove the rest with `netsurgeon mirror teardown {id} --mirror-context NAME`, then apply it")));
            }
            _ => return conclude(context, &session.resume(id).await?),
        }
    }
    context.output.progress(&describe(&plan));
    context.output.progress(&summary(&plan));
    let count = plan.work.changes().count();
    if count > 0 {
        session.ask(&format!("Change {} in the mirror now?", counted(count, "object", "objects")))?;
    }
    let digest = plan.digest.clone();
    if let Some(ran) = session.start(plan).await? {
        return conclude(context, &ran);
    }
    context.output.data(&RunOutput::nothing(&digest), |_| String::new())?;
    context.output.progress("the plan changes nothing; nothing was written");
    Ok(Outcome::Done)
}
