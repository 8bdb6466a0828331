//! `netsurgeon renumber status` and `verify`: show the state of a renumbering, and check whether the cluster matches its journal.

mod watch;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::cli::source::EtcdArgs;
use crate::cli::{Context, Outcome, findings};
use crate::renumber::run::flows::words;
use crate::renumber::run::probe::{Asked, parse};
use crate::renumber::run::status::Look;
use crate::session::Failure;
use crate::session::LiveEtcd;

/// Show the progress of a renumbering
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber status
  netsurgeon renumber status --watch              # until the renumbering ends
  # on a node
  netsurgeon renumber status --watch --probe default/web --probe shop/cart:8080
  # on a node, as root: clients that still use an old address
  netsurgeon renumber status --watch --flows
  netsurgeon renumber status -o json | jq .held
  netsurgeon renumber status --watch 10 -o json \\
      | jq -c '[.status, .stage, .waiting]'")]
pub struct StatusArgs {
    /// Check again every SECONDS (2 if you give no number), until the renumbering ends. On a terminal, netsurgeon redraws the
    /// screen. Otherwise it prints a line after each change. If no renumbering is under way, it waits for the next renumbering
    #[arg(
        long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    watch: Option<u16>,
    #[command(flatten)]
    standing: StandingArgs,
}

/// Check every Service against the journal
///
/// Checks for each moved Service that it has its new address, that its old address is held, and that no other Service except its
/// shadow has one of the two addresses. The exit status is 3 if a check fails. docs/findings.md explains what to do about each
/// finding.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber verify
  # on a node: also connect to the old and the new address of the Service
  netsurgeon renumber verify --probe default/web
  netsurgeon renumber verify -o json | jq '.findings[].code'")]
pub struct VerifyArgs {
    #[command(flatten)]
    standing: StandingArgs,
}

/// The renumbering to check, and how to reach it.
#[derive(Debug, Args)]
struct StandingArgs {
    /// Id of the renumbering [default: the renumbering under way]
    #[arg(long, value_name = "ID")]
    operation: Option<String>,
    /// Test a TCP connection from this host to the old and to the new address of this Service. Without PORT, use the first port
    /// of the Service; can be repeated. Run this on a node or in a Pod, because other hosts do not route the addresses of
    /// Services
    #[arg(long = "probe", value_name = "NAMESPACE/NAME[:PORT]", value_parser = parse)]
    probes: Vec<Asked>,
    /// Show clients that still use an old address, from the connections that the kernel of this host tracks. Run this on each
    /// node, as root, because a node tracks only the connections of its own Pods
    #[arg(long)]
    flows: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

impl StandingArgs {
    /// Checks the renumbering with this id, or with the id in the arguments.
    async fn look(&self, store: &Arc<LiveEtcd>, operation: Option<&str>) -> Result<Look, Failure> {
        let operation = operation.or(self.operation.as_deref());
        Look::take(store, &self.etcd.layout(), operation, (&self.probes, self.flows)).await
    }
}

/// Runs `status`.
pub async fn status(context: &Context, args: &StatusArgs) -> Result<Outcome, Failure> {
    if let Some(seconds) = args.watch {
        return watch::run(context, &args.standing, Duration::from_secs(seconds.into())).await;
    }
    let store = args.standing.etcd.connect().await?;
    let look = args.standing.look(&store, None).await?;
    context.output.data(&look, |output| watch::layout(output, &look))?;
    Ok(Outcome::Done)
}

/// Runs `verify`.
pub async fn verify(context: &Context, args: &VerifyArgs) -> Result<Outcome, Failure> {
    let look = stand(context, &args.standing).await?;
    Ok(findings::outcome(&look.findings))
}

async fn stand(context: &Context, args: &StandingArgs) -> Result<Look, Failure> {
    let store = args.etcd.connect().await?;
    let look = args.look(&store, None).await?;
    context.output.data(&look, |output| findings::tabled(output, &look.findings))?;
    for probed in &look.probes {
        context.output.progress(&probed.words());
    }
    for user in look.users.iter().flatten() {
        context.output.progress(&words(user));
    }
    context.output.progress(&look.to_string());
    Ok(look)
}
