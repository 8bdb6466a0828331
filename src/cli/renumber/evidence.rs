//! What `retire` asks for before it gives old addresses up: that on no node anybody has used one lately.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use time::OffsetDateTime;

use crate::audit::judgement::{Asked, Lacking, judge};
use crate::cli::audit::flows::read;
use crate::cli::audit::gathered::{NAMESPACE, published};
use crate::cli::failure::{Failure, Kind};
use crate::cli::live::Session;
use crate::ip::ServiceCidr;
use crate::renumber::Renumbering;

/// How long ago a node may have ended looking, and for how long nothing may have used an old address, in seconds,
/// where nothing else is said.
const AGE: u64 = 900;
const QUIET: u64 = 600;

/// Evidence from the nodes.
#[derive(Debug, Clone, Args)]
pub struct EvidenceArgs {
    /// Even if somebody uses an old address, or nobody knows
    #[arg(long, conflicts_with = "evidence")]
    without_evidence: bool,
    /// What `audit --host --flows --for SECONDS -o json` printed on the nodes, or `audit --gather -o json`: one file for all, or again
    /// for each. Every Node must be among them [default: what the nodes publish, deploy/evidence.yaml]
    #[arg(long, value_name = "FILE")]
    evidence: Vec<PathBuf>,
    /// A Node that nothing can be seen of, as one that is switched off or that runs Windows; again for another one
    #[arg(long, value_name = "NODE")]
    without_evidence_of: Vec<String>,
    /// In which namespace the nodes publish it
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE)]
    evidence_namespace: String,
    /// How long ago a node may have ended looking, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = AGE)]
    evidence_age: u64,
    /// For how long before it ended no old address may have been used, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = QUIET)]
    quiet_for: u64,
}

impl EvidenceArgs {
    /// None is asked for: of a retirement that has begun it was.
    pub fn waived() -> Self {
        Self {
            without_evidence: true,
            evidence: Vec::new(),
            without_evidence_of: Vec::new(),
            evidence_namespace: NAMESPACE.to_string(),
            evidence_age: 0,
            quiet_for: 0,
        }
    }

    /// Returns the options by which this was asked for, each after a space: a command that continues needs them again.
    pub(super) fn options(&self) -> String {
        let mut options = String::new();
        let mut add = |option: String| options = format!("{options} {option}");
        if self.without_evidence {
            add("--without-evidence".to_string());
        }
        self.evidence.iter().for_each(|file| add(format!("--evidence {}", file.display())));
        self.without_evidence_of.iter().for_each(|node| add(format!("--without-evidence-of {node}")));
        if self.evidence_namespace != NAMESPACE {
            add(format!("--evidence-namespace {}", self.evidence_namespace));
        }
        let seconds = [("--evidence-age", self.evidence_age, AGE), ("--quiet-for", self.quiet_for, QUIET)];
        for (option, seconds, _) in seconds.into_iter().filter(|(_, seconds, usual)| seconds != usual) {
            if !self.without_evidence {
                add(format!("{option} {seconds}"));
            }
        }
        options
    }

    /// Whether nothing has to show that nobody uses an old address.
    pub(super) fn is_waived(&self) -> bool {
        self.without_evidence
    }

    /// Refuses when what the nodes have seen does not show that nobody uses an old address.
    pub(super) async fn check(&self, session: &Session, work: &Renumbering) -> Result<(), Failure> {
        let Some(cluster) = session.cluster() else { return Ok(()) };
        let documents = if self.evidence.is_empty() {
            published(cluster, &self.evidence_namespace).await?
        } else {
            self.evidence.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?.concat()
        };
        let mut nodes = session.nodes().await?;
        nodes.retain(|node| !self.without_evidence_of.contains(node));
        let asked = Asked {
            old: work.from.clone(),
            nodes,
            now: OffsetDateTime::now_utc(),
            age: Duration::from_secs(self.evidence_age),
            quiet: Duration::from_secs(self.quiet_for),
        };
        judge(&documents, &asked).map_err(|lacking| {
            let todo = self.todo(&lacking, &work.from);
            Failure::new(Kind::Refused, lacking)
                .hint(todo)
                .hint("to retire the old addresses all the same: `--without-evidence-of NODE`, or `--without-evidence` for all")
        })
    }

    /// What brings the evidence that is lacking.
    fn todo(&self, lacking: &Lacking, old: &[ServiceCidr]) -> String {
        let ranges: Vec<String> = old.iter().map(|range| format!("--old {range}")).collect();
        let ranges = ranges.join(" ");
        match lacking {
            Lacking::Used { .. } => format!(
                "restart that client, and wait {} s; `netsurgeon audit {ranges} --gather` lists all where the nodes publish it",
                self.quiet_for
            ),
            Lacking::Old { node, .. } => format!(
                "look at the Pod of `{node}` in `{}`; if the node is gone for good, delete its Node",
                self.evidence_namespace
            ),
            _ => format!(
                "apply deploy/evidence.yaml for {ranges} and wait {} s, or on each node: `netsurgeon audit {ranges} --host --flows --for {} --node NAME -o json`",
                self.quiet_for, self.quiet_for
            ),
        }
    }
}
