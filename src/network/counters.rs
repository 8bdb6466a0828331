//! Counters of the kernel that show packets lost without a trace.

use std::collections::BTreeMap;

use super::cell::{CellKey, Cells, FaultClass, Observation};
use super::member::Member;
use super::path::Path;
use crate::agent::Facts;

/// The share of the table of connections from which it counts as full, in per cent.
const FULL: u64 = 95;

/// Records whether counters of the nodes grew since the test started, and whether a table of connections is nearly full.
///
/// Errors of links are only reported: on many links, packets of unknown protocols count as dropped.
pub(super) fn record(
    members: &[Member],
    before: &BTreeMap<usize, Facts>,
    after: &BTreeMap<usize, Facts>,
    cells: &mut Cells,
) {
    for (index, member) in members.iter().enumerate() {
        let key = CellKey {
            path: Path::Counters,
            from: member.node.as_str().into(),
            to: "".into(),
            variant: "".into(),
        };
        let (Some(before), Some(after)) = (before.get(&index), after.get(&index)) else {
            cells.record_untested(key, "the agent on the host network does not report");
            continue;
        };
        let (mut faults, mut notes) = (Vec::new(), Vec::new());
        for (name, now) in &after.conntrack {
            let grown = now.saturating_sub(before.conntrack.get(name).copied().unwrap_or_default());
            if grown > 0 {
                faults.push(format!("`{name}` of connection tracking grew by {grown}"));
            }
        }
        if let Some((used, most)) = after.conntrack_usage
            && used.saturating_mul(100) >= most.saturating_mul(FULL)
            && most > 0
        {
            faults.push(format!("{used} of {most} tracked connections are in use"));
        }
        for (link, now) in &after.link_errors {
            let grown = now.saturating_sub(before.link_errors.get(link).copied().unwrap_or_default());
            if grown > 0 {
                notes.push(format!("{grown} errors or drops on `{link}`"));
            }
        }
        let fault = (!faults.is_empty()).then_some(FaultClass::Counter);
        faults.extend(notes);
        let seen = if faults.is_empty() { "no growth".to_string() } else { faults.join("; ") };
        let tried = "`/proc/net/stat/nf_conntrack` and `/proc/net/dev` of the node".to_string();
        cells.record(key, Observation { tried, seen, fault });
    }
}
