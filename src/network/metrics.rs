//! A result as Prometheus metrics, for the textfile collector of the node exporter or for a push gateway.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::cell::Verdict;
use super::path::Path;
use super::result::Result;

/// Returns the text of the metrics (text format 0.0.4).
pub fn text(result: &Result) -> String {
    let mut counts: BTreeMap<(Path, &str), u64> = BTreeMap::new();
    let (mut sent, mut lost) = (0_u64, 0_u64);
    for (key, cell) in result.cells() {
        let verdict = match cell.verdict() {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::NotTested => "not_tested",
        };
        let count = counts.entry((key.path, verdict)).or_default();
        *count = count.saturating_add(1);
        sent = sent.saturating_add(cell.sent);
        lost = lost.saturating_add(cell.lost);
    }
    let mut text = String::from(
        "# HELP netsurgeon_network_paths Paths of the network test by their verdict.\n# TYPE netsurgeon_network_paths gauge\n",
    );
    // Writing to a String cannot fail.
    for ((path, verdict), count) in &counts {
        let _ = writeln!(text, "netsurgeon_network_paths{{path=\"{path}\",verdict=\"{verdict}\"}} {count}");
    }
    for (name, help, value) in [
        ("netsurgeon_network_datagrams_sent", "Datagrams that the loss probe sent.", sent),
        ("netsurgeon_network_datagrams_lost", "Datagrams of the loss probe without an answer.", lost),
        ("netsurgeon_network_rounds", "Complete rounds of the network test.", result.rounds.into()),
        (
            "netsurgeon_network_ended_early",
            "Whether a signal ended the network test before its last round.",
            result.ended_early.into(),
        ),
        (
            "netsurgeon_network_nodes",
            "Nodes of the network test.",
            result.nodes.len().try_into().unwrap_or(u64::MAX),
        ),
    ] {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    }
    let _ = write!(
        text,
        "# HELP netsurgeon_network_seconds Time of all rounds in seconds.\n# TYPE netsurgeon_network_seconds gauge\n\
         netsurgeon_network_seconds {:.3}\n",
        result.seconds
    );
    text
}
