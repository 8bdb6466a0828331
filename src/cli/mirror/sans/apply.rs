//! `netsurgeon mirror sans apply`: adds names to the certificates of the source.

use clap::Args;

use super::{SansChoiceArgs, conclude, describe, nothing, session, summary};
use crate::cli::api::KubeArgs;
use crate::cli::run_args::RunArgs;
use crate::cli::{Context, Outcome, digest};
use crate::session::Failure;
use crate::words::counted;

/// Add names to the certificates of the source, and wait until they are issued
///
/// Creates the plan of `mirror sans plan`, and appends the names to `spec.dnsNames` of each Certificate. cert-manager then issues a new
/// certificate. The step ends when the Certificate is ready and the certificate in its Secret has all added names. Certificates of ACME
/// issuers are issued one after the other, the others up to four at a time.
///
/// If a certificate is not issued in time, its added names are removed again, so that its next renewal does not fail. The command names
/// the Certificate and the reason, and the exit status is 3.
///
/// The operation is recorded in the source. `operation rollback` removes exactly the added names.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror sans apply --config mirror.yaml --context blue
  netsurgeon mirror sans apply --config mirror.yaml -n shop --yes \\
      --approve 3f2a91c0 --wait-issued 600")]
pub struct SansApplyArgs {
    #[command(flatten)]
    choice: SansChoiceArgs,
    /// Refuse the plan if it does not have this digest. Give the first 8 digits or more
    #[arg(long, value_name = "DIGEST", value_parser = digest::parse)]
    approve: Option<String>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &SansApplyArgs) -> Result<Outcome, Failure> {
    let (source, plan) = args.choice.plan(context, &args.kube).await?;
    digest::refuse_other(&plan.digest, args.approve.as_deref())?;
    context.output.progress(&describe(&plan));
    context.output.progress(&summary(&plan));
    let count = plan.work.additions().count();
    let session = session(context, source, &args.run).await?;
    if count > 0 {
        session.ask(&format!("Add names to {} now?", counted(count, "Certificate", "Certificates")))?;
    }
    let digest = plan.digest.clone();
    match session.start(plan).await? {
        Some(ran) => conclude(context, &ran),
        None => nothing(context, &digest),
    }
}
