//! `netsurgeon network clean`: removes what a network test left behind.

use clap::Args;
use serde::Serialize;

use super::failure;
use crate::cli::api::KubeArgs;
use crate::cli::{Context, Outcome};
use crate::network::objects::{NAMESPACE, READER_NAMESPACE};
use crate::network::{Cleaned, Deployment};
use crate::session::Failure;

/// Remove what `network test` or `cni show` left behind after it was killed
///
/// Removes the Pods, Services, NetworkPolicies and the Lease of these commands, and the namespace if they created it. Each command
/// removes its own objects at its end, and those of earlier runs at its start. The Pods also end by themselves.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon network clean
  # a test holds the namespace, but its process was killed
  netsurgeon network clean --force")]
pub struct CleanArgs {
    /// The namespace of the Pods [default: the default namespaces of `network test` and `cni show`]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Also if a test holds the namespace. A running test then fails
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

#[derive(Serialize)]
struct CleanOutput<'c> {
    version: u8,
    namespaces: &'c [String],
    #[serde(flatten)]
    cleaned: &'c Cleaned,
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &CleanArgs) -> Result<Outcome, Failure> {
    let cluster = args.kube.connect().await?;
    let namespaces: Vec<String> = match &args.namespace {
        Some(namespace) => vec![namespace.clone()],
        None => [NAMESPACE, READER_NAMESPACE].map(str::to_string).into(),
    };
    let mut cleaned = Cleaned::default();
    for namespace in &namespaces {
        let one = Deployment::clean_all(&cluster, namespace, args.force).await;
        let one = one.map_err(|error| failure(error, namespace))?;
        cleaned.has_removed_namespace |= one.has_removed_namespace;
        for (kind, count) in one.removed {
            let sum = cleaned.removed.entry(kind).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let output = CleanOutput { version: 1, namespaces: &namespaces, cleaned: &cleaned };
    context.output.data(&output, |_| text(&namespaces, &cleaned))?;
    Ok(Outcome::Done)
}

fn text(namespaces: &[String], cleaned: &Cleaned) -> String {
    let mut parts: Vec<String> =
        cleaned.removed.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    if cleaned.has_removed_namespace {
        parts.push("the namespace".to_string());
    }
    if parts.is_empty() {
        return format!("nothing is left behind in {}\n", namespaces.join(" and "));
    }
    format!("removed: {}\n", parts.join(", "))
}
