//! Checks the evidence that `retire` requires. The evidence must show that no client on any node has recently used an old
//! address.

use std::path::PathBuf;
use std::time::Duration;

use crate::audit::evidence_document::{NAMESPACE, published, read};
use crate::audit::judgement::{Asked, Lacking, judge};
use crate::ip::ServiceCidr;
use crate::renumber::Renumbering;
use crate::session::{ExitKind, Failure, Session};
use crate::words::pasted;

/// The default maximum age of a node's evidence, in seconds.
pub const AGE: u64 = 900;
/// The default time for which an old address must be unused, in seconds.
pub const QUIET: u64 = 600;

/// Requirements for the evidence of the nodes.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Whether no evidence is required.
    pub waived: bool,
    /// Files with the evidence of the nodes. If there are files, the published evidence is not read.
    pub files: Vec<PathBuf>,
    /// Nodes for which no evidence is required.
    pub without_nodes: Vec<String>,
    /// Namespace in which the nodes publish their evidence.
    pub namespace: String,
    /// Maximum age of a node's evidence, in seconds.
    pub age: u64,
    /// The quiet time before the end of the evidence, in seconds. If a client used an old address in this time, the check fails.
    pub quiet: u64,
}

impl Evidence {
    /// Returns these requirements as command-line options, each with a leading space. A command that continues the operation
    /// needs the same options.
    pub fn options(&self) -> String {
        let mut options = String::new();
        let mut add = |option: String| options = format!("{options} {option}");
        if self.waived {
            add("--without-evidence".to_string());
        }
        self.files.iter().for_each(|file| add(format!("--evidence {}", pasted(file))));
        self.without_nodes.iter().for_each(|node| add(format!("--without-evidence-of {node}")));
        if self.namespace != NAMESPACE {
            add(format!("--evidence-namespace {}", self.namespace));
        }
        let seconds = [("--evidence-age", self.age, AGE), ("--quiet-for", self.quiet, QUIET)];
        for (option, seconds, _) in seconds.into_iter().filter(|(_, seconds, usual)| seconds != usual) {
            if !self.waived {
                add(format!("{option} {seconds}"));
            }
        }
        options
    }

    /// Refuses unless the nodes' evidence shows that no client uses an old address.
    pub async fn check(&self, session: &Session, work: &Renumbering) -> Result<(), Failure> {
        // If no Service has moved, no client can use an address that is retired.
        let Some(cluster) = session.cluster().filter(|_| !work.moves.is_empty()) else { return Ok(()) };
        let documents = if self.files.is_empty() {
            published(&session.ui, cluster, &self.namespace).await?
        } else {
            self.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?.concat()
        };
        let mut nodes = session.nodes().await?;
        nodes.retain(|node| !self.without_nodes.contains(node));
        let asked = Asked {
            old: work.retired_ranges(),
            nodes,
            // Nodes date their evidence. Their clocks agree with the clock of the cluster, not necessarily with this host's clock.
            now: session.now(),
            age: Duration::from_secs(self.age),
            quiet: Duration::from_secs(self.quiet),
        };
        judge(&documents, &asked).map_err(|lacking| {
            let remedy = self.remedy(&lacking, &work.searched_ranges());
            Failure::new(ExitKind::Refused, lacking)
                .hint(remedy)
                .hint("to retire the old addresses anyway: `--without-evidence-of NODE`, or `--without-evidence` instead of other options for evidence")
        })
    }

    /// Returns a hint that explains how to get the missing evidence.
    fn remedy(&self, lacking: &Lacking, old: &[ServiceCidr]) -> String {
        let ranges: Vec<String> = old.iter().map(|range| format!("--old {range}")).collect();
        let ranges = ranges.join(" ");
        match lacking {
            Lacking::Used { .. } => format!(
                "restart that client, and wait {} s; `netsurgeon audit {ranges} --gather` lists all clients, if the nodes publish evidence",
                self.quiet
            ),
            Lacking::Old { node, .. } => format!(
                "check the evidence Pod on node `{node}` in namespace `{}`; if the node is permanently lost, delete its Node",
                self.namespace
            ),
            _ => format!(
                "apply deploy/evidence.yaml with `{ranges}` and wait {} s, or run on each node: `netsurgeon audit {ranges} --host --flows --for {} --node NAME -o json`",
                self.quiet, self.quiet
            ),
        }
    }
}
