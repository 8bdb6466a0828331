//! What `retire` asks for before it gives old addresses up: that on no node anybody has used one lately.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use time::OffsetDateTime;

use crate::audit::evidence::{Asked, judge};
use crate::cli::Context;
use crate::cli::audit::flows::read;
use crate::cli::failure::{Failure, Kind};
use crate::cli::live::Session;
use crate::cli::output::counted;
use crate::renumber::Renumbering;

/// Evidence from the nodes.
#[derive(Debug, Clone, Default, Args)]
pub struct EvidenceArgs {
    /// What `audit --host --flows --for SECONDS -o json` printed on the nodes: one file for all, or again for each. Every Node
    /// must be among them
    #[arg(long, value_name = "FILE")]
    evidence: Vec<PathBuf>,
    /// How long ago a node may have ended looking, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "900", requires = "evidence")]
    evidence_age: u64,
    /// For how long before that no old address may have been used, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "600", requires = "evidence")]
    quiet_for: u64,
}

impl EvidenceArgs {
    /// Refuses when the documents are no evidence; says so when there are none.
    pub(super) async fn check(
        &self,
        context: &Context,
        session: &Session,
        work: &Renumbering,
    ) -> Result<(), Failure> {
        let nodes = session.nodes().await?;
        if self.evidence.is_empty() {
            context.output.note(&format!(
                "nobody has looked who uses old addresses on {}: `--evidence`, docs/audit.md",
                counted(nodes.len(), "Node", "Nodes")
            ));
            return Ok(());
        }
        let documents: Vec<_> =
            self.evidence.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?.concat();
        let asked = Asked {
            old: work.from.clone(),
            nodes,
            now: OffsetDateTime::now_utc(),
            age: Duration::from_secs(self.evidence_age),
            quiet: Duration::from_secs(self.quiet_for),
        };
        judge(&documents, &asked).map_err(|lacking| {
            let ranges: Vec<String> = work.from.iter().map(|range| format!("--old {range}")).collect();
            let (ranges, quiet) = (ranges.join(" "), self.quiet_for);
            Failure::new(Kind::Refused, lacking)
                .hint(format!("on each node: `netsurgeon audit {ranges} --host --flows --for {quiet} -o json`"))
                .hint("whoever still uses an old address must be restarted; to retire all the same: `--without-evidence`")
        })
    }
}
