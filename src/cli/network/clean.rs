//! `netsurgeon network clean`: removes what a network test left behind.

use clap::Args;
use serde::Serialize;

use super::failure;
use crate::cli::api::KubeArgs;
use crate::cli::{Context, Outcome};
use crate::network::objects::NAMESPACE;
use crate::network::{Cleaned, Deployment};
use crate::session::Failure;

/// Remove what a network test left behind after it was killed
///
/// Removes the Pods, Services, NetworkPolicies and the Lease of network tests, and the namespace if a test created it. Each test
/// removes its own objects at its end, and those of earlier tests at its start. The Pods also end by themselves an hour after
/// their test.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon network clean
  # a test holds the namespace, but its process was killed
  netsurgeon network clean --force")]
pub struct CleanArgs {
    /// The namespace of the test
    #[arg(short, long, value_name = "NAME", default_value = NAMESPACE)]
    namespace: String,
    /// Also if a test holds the namespace. A running test then fails
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

#[derive(Serialize)]
struct CleanOutput<'c> {
    version: u8,
    namespace: &'c str,
    #[serde(flatten)]
    cleaned: &'c Cleaned,
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &CleanArgs) -> Result<Outcome, Failure> {
    let cluster = args.kube.connect().await?;
    let cleaned = Deployment::clean_all(&cluster, &args.namespace, args.force).await;
    let cleaned = cleaned.map_err(|error| failure(error, &args.namespace))?;
    let output = CleanOutput { version: 1, namespace: &args.namespace, cleaned: &cleaned };
    context.output.data(&output, |_| text(&args.namespace, &cleaned))?;
    Ok(Outcome::Done)
}

fn text(namespace: &str, cleaned: &Cleaned) -> String {
    let mut parts: Vec<String> =
        cleaned.removed.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    if cleaned.has_removed_namespace {
        parts.push(format!("the namespace `{namespace}`"));
    }
    if parts.is_empty() {
        return format!("no network test has left anything behind in `{namespace}`\n");
    }
    format!("removed: {}\n", parts.join(", "))
}
