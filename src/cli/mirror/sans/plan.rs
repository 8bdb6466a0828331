//! `netsurgeon mirror sans plan`: plans which names the certificates of the source get.

use clap::Args;

use super::{SansChoiceArgs, describe, summary};
use crate::cli::api::KubeArgs;
use crate::cli::{Context, Outcome};
use crate::session::Failure;

/// Plan which names the certificates of the source get
///
/// Reads the Certificates of cert-manager and their issuers in the source, and writes nothing. The new names come from the `hosts` rules
/// with `add`, the same that `mirror plan` uses.
///
/// Each Certificate has one action. `add`: it gets names. `same`: it has them. `left out`: it gets none, for the reason that the plan
/// names. For example, an Ingress or a Gateway owns it, a wildcard covers the name, its issuer is not ready, the issuer's limit of names is
/// exceeded, or it is not ready now.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror sans plan --config mirror.yaml --context blue
  netsurgeon mirror sans plan --config mirror.yaml -n shop -o json \\
      | jq '.certificates[] | select(.action == \"left-out\")'")]
pub struct SansPlanArgs {
    #[command(flatten)]
    choice: SansChoiceArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: &SansPlanArgs) -> Result<Outcome, Failure> {
    let (_, plan) = args.choice.plan(context, &args.kube).await?;
    context.output.data(&plan, |_| describe(&plan))?;
    context.output.progress(&summary(&plan));
    if plan.work.additions().next().is_some() {
        context.output.note("next: `netsurgeon mirror sans apply`, with the same options");
    }
    Ok(Outcome::Done)
}
