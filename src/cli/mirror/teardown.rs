//! `netsurgeon mirror teardown`: removes the copies of a mirror operation.

use clap::Args;

use super::{chosen, open, roll_back_on};
use crate::cli::api::{KubeArgs, MirrorKubeArgs};
use crate::cli::run_args::RunArgs;
use crate::cli::{Context, Outcome};
use crate::session::Failure;

/// Remove the copies of a mirror operation from the mirror
///
/// Deletes exactly the objects that the operation created, by their uids, in the reverse order. Restores the fields that it changed.
/// If another client has replaced an object, or a namespace contains an object of another client, netsurgeon skips it and names it,
/// and the exit status is 3. Does not need the source, and changes nothing there. `operation rollback` does the same.
///
/// The deletion of a namespace takes some seconds after the command has ended.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror teardown --mirror-context green
  netsurgeon mirror teardown mirror-20261121T083915Z-3f2a --yes \\
      --mirror-kubeconfig green.conf")]
pub struct TeardownArgs {
    /// Id of the operation [default: the only mirror operation that was not rolled back]
    #[arg(value_name = "ID")]
    operation: Option<String>,
    /// Give this object up: it stays as it is now, and the rollback ends without it. Give the object as the command names it, for example
    /// `configmaps/shop/settings`; can be repeated
    #[arg(long, value_name = "SUBJECT")]
    give_up: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &TeardownArgs) -> Result<Outcome, Failure> {
    let session = open(context, &args.mirror.required(&args.kube)?, &args.run).await?;
    let id = chosen(&session, args.operation.as_deref()).await?;
    roll_back_on(context, session, (&id, &args.give_up)).await
}
