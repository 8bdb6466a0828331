//! `netsurgeon cni plan`: plans a change to the network plug-in in a folder of manifests.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::plan_text::describe;
use crate::cli::api::KubeArgs;
use crate::cli::{Context, Outcome};
use crate::cni::plan::cluster_view::ClusterView;
use crate::cni::plan::manifests;
use crate::cni::plan::newcomer::{Newcomer, NewcomerError, recognise};
use crate::cni::plan::{self, Effect, Plan, PlanOptions, Strategy, finding_names};
use crate::kube_api::ReadOnly;
use crate::session::Failure;
use crate::words::counted;

/// Plan a change to another CNI, with the steps of every node and everything that stands in the way
///
/// Reads the manifests of the new CNI and the cluster, and writes nothing. The plan has what is in place and what comes, a strategy
/// with its reason, findings, and the steps of every node: first a canary, then the other workers, and the control plane last, with
/// the Pods that are evicted, the budgets that allow no eviction, and the capacity that is left.
///
/// A finding blocks the change, must be accepted by name (`--accept`), or is a note. The exit status is 3 if a finding blocks, or is not
/// accepted. netsurgeon does not run these steps. docs/cni.md describes every finding.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon cni plan --to calico/
  # new nodes instead of a change on each node
  netsurgeon cni plan --to calico/ --strategy roll
  # findings that you have read
  netsurgeon cni plan --to calico/ --accept local-data,network-policies
  netsurgeon cni plan --to calico/ -o json \\
      | jq -r '.findings[] | select(.effect == \"blocks\").remedy'")]
pub struct PlanArgs {
    /// Folder with the manifests of the new CNI, as for `kubectl apply -f` (files *.yaml, *.yml, *.json, without subfolders); or one
    /// file. Templates of a chart must be rendered
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// How the nodes change [default: as the plan proposes]
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<StrategyArg>,
    /// A finding that you accept, by its name; can be repeated, or a list separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    accept: Vec<String>,
    #[command(flatten)]
    kube: KubeArgs,
}

/// How the nodes change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StrategyArg {
    /// Each node is drained and changes its CNI
    InPlace,
    /// New nodes are added, and each old worker is drained and removed
    Roll,
}

impl From<StrategyArg> for Strategy {
    fn from(strategy: StrategyArg) -> Self {
        match strategy {
            StrategyArg::InPlace => Self::InPlace,
            StrategyArg::Roll => Self::Roll,
        }
    }
}

/// The document of `cni plan -o json`.
#[derive(Serialize)]
struct PlanOutput<'p> {
    version: u8,
    /// Whether a finding blocks, or is not accepted.
    is_open: bool,
    #[serde(flatten)]
    plan: &'p Plan,
}

/// Runs the command.
pub async fn run(context: &Context, args: &PlanArgs) -> Result<Outcome, Failure> {
    let names: Vec<&str> = finding_names().collect();
    if let Some(unknown) = args.accept.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Failure::usage(format!("there is no finding `{unknown}`"))
            .hint(format!("the findings are {}", names.join(", "))));
    }
    let new = newcomer(&args.to)?;
    let cluster = ReadOnly::new(args.kube.connect().await?);
    let view = ClusterView::read(&cluster, new.plugin).await?;
    let options = PlanOptions {
        strategy: args.strategy.map(Strategy::from),
        accepted: args.accept.iter().cloned().collect(),
        manifests: Some(&args.to),
    };
    let plan = plan::plan(&view, &new, &options);
    let is_open = plan.findings.iter().any(plan::Finding::is_open);
    context
        .output
        .data(&PlanOutput { version: 1, is_open, plan: &plan }, |output| describe(output, &plan))?;
    for name in args.accept.iter().filter(|name| is_blocking(&plan, name)) {
        context.output.warn(&format!("the finding `{name}` blocks the change, and cannot be accepted"));
    }
    context.output.progress(&summary(&plan));
    context.output.note(if is_open {
        "next: follow the remedies of the findings above, or accept them by name (`--accept`), and run this command again"
    } else {
        "next: run the steps above in this order; netsurgeon does not run them"
    });
    Ok(if is_open { Outcome::Findings } else { Outcome::Done })
}

/// Reads the new plug-in from its manifests.
fn newcomer(path: &Path) -> Result<Newcomer, Failure> {
    let objects =
        manifests::read(path).map_err(|error| Failure::refused(error.to_string()).hint("check `--to`"))?;
    recognise(&objects).map_err(|error| {
        let hint = match &error {
            NewcomerError::Missing => {
                "the folder must contain the DaemonSet of Cilium, Calico, Flannel, Antrea or another CNI that docs/cni.md lists"
            }
            NewcomerError::Operator(_) => {
                "give manifests without the operator, which have the DaemonSet; or save the DaemonSet that the operator creates in a test \
                 cluster"
            }
            NewcomerError::Several(_) => "give the manifests of one CNI",
            NewcomerError::Invalid { .. } => "the API server would refuse this object, too",
        };
        Failure::refused(error.to_string()).hint(hint)
    })
}

fn is_blocking(plan: &Plan, name: &str) -> bool {
    plan.findings.iter().any(|one| one.name == name && one.effect == Effect::Blocks)
}

fn summary(plan: &Plan) -> String {
    let count =
        |is_counted: fn(&plan::Finding) -> bool| plan.findings.iter().filter(|one| is_counted(one)).count();
    format!(
        "{} to {} by `{}`: {}, {} to accept, {} accepted, {}",
        if plan.from.plugins.is_empty() {
            "unknown CNI".to_string()
        } else {
            plan.from.plugins.join(" and ")
        },
        plan.to.plugin,
        plan.strategy.name.name(),
        counted(count(|one| one.effect == Effect::Blocks), "finding blocks", "findings block"),
        count(|one| one.effect == Effect::Accept && !one.accepted),
        count(|one| one.accepted),
        counted(count(|one| one.effect == Effect::Note), "note", "notes"),
    )
}
