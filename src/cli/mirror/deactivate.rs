//! `netsurgeon mirror deactivate`: moves active objects from the mirror back to the source.

use clap::Args;

use super::activation::{Clusters, chosen, conclude};
use crate::cli::api::{KubeArgs, MirrorKubeArgs};
use crate::cli::run_args::RunArgs;
use crate::cli::{Context, Outcome};
use crate::session::Failure;

/// Move what `mirror activate` has moved back to the source
///
/// Does the same in the other direction: quiet in the mirror first and proven quiet, then active in the source. Rolls the activations
/// back, the newest first; `operation rollback` does the same for one of them. An object that another client has changed in the
/// meantime is skipped and named, and the exit status is 3.
///
/// Both directions need both clusters. If the source is lost, nothing can be moved back: the objects stay active in the mirror.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror deactivate --mirror-context green
  netsurgeon mirror deactivate mirror-activate-20261121T083915Z-3f2a --yes \\
      --kubeconfig blue.conf --mirror-kubeconfig green.conf")]
pub struct DeactivateArgs {
    /// Id of the activation [default: every activation that was not rolled back]
    #[arg(value_name = "ID")]
    operation: Option<String>,
    /// Only activations of these namespaces; can be repeated, or a list separated by commas
    #[arg(
        short,
        long = "namespace",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        conflicts_with = "operation"
    )]
    namespaces: Vec<String>,
    /// Give this object up: it stays as it is in both clusters. Give the object as the command names it, for example
    /// `cronjobs.batch/shop/nightly`; can be repeated
    #[arg(long, value_name = "SUBJECT", requires = "operation")]
    give_up: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &DeactivateArgs) -> Result<Outcome, Failure> {
    let of_mirror = args.mirror.required(&args.kube)?;
    let session = Clusters::connect(&args.kube, &of_mirror).await?.session(context, &args.run).await?;
    let session = session.giving_up(&args.give_up);
    let ids = match &args.operation {
        Some(id) => vec![id.clone()],
        None => chosen(&session, &args.namespaces).await?,
    };
    session.ask(&format!("Move the objects of {} back to the source?", ids.join(", ")))?;
    let mut ran = Vec::new();
    for id in &ids {
        ran.push(session.roll_back(id).await?);
    }
    conclude(context, &ran)
}
