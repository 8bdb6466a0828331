//! `netsurgeon audit` with `--gather`: prints the nodes' evidence about clients of old addresses. Each Node's evidence is in a
//! ConfigMap with the name of the Node.

use clap::Args;

use super::AuditArgs;
use super::flows::rows;
use crate::audit::evidence::{Evidence, Gathered, VERSION, moment};
use crate::audit::evidence_document::{NAMESPACE, published};
use crate::cli::output::{counted, table};
use crate::cli::{Context, Outcome};
use crate::session::Failure;

/// Whether to read the evidence that the nodes published.
#[derive(Debug, Clone, Args)]
pub(super) struct GatherArgs {
    /// Only print the connections that the nodes have published (deploy/evidence.yaml)
    #[arg(long, conflicts_with_all = ["host", "snapshot", "at_revision"])]
    pub(super) gather: bool,
    /// With --gather or --publish: the namespace of the nodes' ConfigMaps
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE)]
    pub(super) evidence_namespace: String,
}

/// Runs `audit --gather`.
pub(super) async fn run(context: &Context, args: &AuditArgs) -> Result<Outcome, Failure> {
    let cluster = args.kube.connect().await?;
    let mut nodes: Vec<String> = cluster.nodes().await?.into_iter().map(|node| node.name).collect();
    nodes.sort();
    let mut documents = published(&context.ui(), &cluster, &args.gather.evidence_namespace).await?;
    documents.retain(|document| {
        nodes.contains(&document.node) && args.old.iter().all(|range| document.old.contains(range))
    });
    documents.sort_by(|one, other| one.node.cmp(&other.node));
    nodes.retain(|node| documents.iter().all(|document| document.node != *node));
    let found = Gathered { version: VERSION, documents, missing: nodes };
    context.output.data(&found, |_| text(&found))?;
    if let Some(first) = found.missing.first() {
        let count = counted(found.missing.len(), "Node has", "Nodes have");
        context.output.warn(&format!(
            "in namespace `{}`, {count} published no evidence that covers every `--old` range; the first is `{first}`; see deploy/evidence.yaml",
            args.gather.evidence_namespace
        ));
    }
    let used: usize = found.documents.iter().map(|document| document.used.len()).sum();
    context.output.progress(&format!(
        "{}: {} used",
        counted(found.documents.len(), "Node", "Nodes"),
        counted(used, "port of an old address", "ports of old addresses")
    ));
    let is_clean = used == 0 && found.missing.is_empty() && found.documents.iter().all(|one| one.complete);
    Ok(if is_clean { Outcome::Done } else { Outcome::Findings })
}

fn text(found: &Gathered) -> String {
    let node = |one: &Evidence| {
        let heard = if one.complete { "all connections" } else { "some connections" };
        let used = counted(one.used.len(), "port", "ports");
        [one.node.clone(), moment(one.began), moment(one.ended), heard.into(), used]
    };
    let nodes = table(["NODE", "SINCE", "UNTIL", "OBSERVED", "USED"], found.documents.iter().map(node));
    let used = found.documents.iter().flat_map(|one| {
        rows(one).map(|[address, port, client, open, started, last]| {
            [one.node.clone(), address, port, client, open, started, last]
        })
    });
    let used: Vec<_> = used.collect();
    if used.is_empty() {
        return nodes;
    }
    let used = table(["NODE", "ADDRESS", "PORT", "CLIENT", "OPEN", "STARTED", "LAST"], used);
    format!("{nodes}\n\n{used}")
}
