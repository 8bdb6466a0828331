//! What `retire` asks for before it gives old addresses up: that on no node anybody has used one lately.

use std::path::PathBuf;

use clap::Args;

use crate::audit::published::NAMESPACE;
use crate::renumber::run::evidence::{AGE, Evidence, QUIET};

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

    /// Returns what was given.
    pub fn wanted(&self) -> Evidence {
        Evidence {
            waived: self.without_evidence,
            files: self.evidence.clone(),
            without_nodes: self.without_evidence_of.clone(),
            namespace: self.evidence_namespace.clone(),
            age: self.evidence_age,
            quiet: self.quiet_for,
        }
    }
}
