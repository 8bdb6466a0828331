//! The options for the evidence that `retire` requires. The evidence of every node must show that no client used an old address
//! recently.

use std::path::PathBuf;

use clap::Args;

use crate::audit::evidence_document::NAMESPACE;
use crate::renumber::run::evidence::{AGE, Evidence, QUIET};

/// Evidence from the nodes.
#[derive(Debug, Clone, Args)]
pub struct EvidenceArgs {
    /// Retire even if a client uses an old address, or if evidence is missing
    #[arg(long, conflicts_with = "evidence")]
    without_evidence: bool,
    /// File with evidence: the output of `audit --host --flows --for SECONDS -o json` from one or more nodes, or of `audit
    /// --gather -o json`; can be repeated. There must be evidence from every Node [default: the evidence that the nodes publish
    /// with deploy/evidence.yaml]
    #[arg(long, value_name = "FILE")]
    evidence: Vec<PathBuf>,
    /// Do not require evidence from this Node, for example because the Node is switched off or runs Windows; can be repeated
    #[arg(long, value_name = "NODE")]
    without_evidence_of: Vec<String>,
    /// Namespace in which the nodes publish evidence
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE)]
    evidence_namespace: String,
    /// Maximum age of a node's evidence: seconds since the node last checked its connections
    #[arg(long, value_name = "SECONDS", default_value_t = AGE)]
    evidence_age: u64,
    /// Refuse to retire if a client used an old address in this many seconds before the node last checked its connections, or if
    /// the evidence covers less time
    #[arg(long, value_name = "SECONDS", default_value_t = QUIET)]
    quiet_for: u64,
}

impl EvidenceArgs {
    /// Returns options that require no evidence. Used for a retirement that has started, because `retire` checks the evidence
    /// before the first step.
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

    /// Returns the requirements for the evidence.
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
