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
        let grown = |name: &str| {
            let of = |facts: &Facts| facts.conntrack.get(name).copied().unwrap_or_default();
            of(after).saturating_sub(of(before))
        };
        let [failed, dropped, early] = ["insert_failed", "drop", "early_drop"].map(grown);
        // Two packets that start one flow at the same moment count as a failed insertion and as a drop (`nf_ct_resolve_clash`,
        // net/netfilter/nf_conntrack_core.c, Linux 6.12): that happens on any busy node.
        for (name, growth, is_fault) in [
            ("insert_failed", failed, false),
            ("drop", dropped, dropped > failed),
            ("early_drop", early, true),
        ] {
            let text = format!("`{name}` of connection tracking grew by {growth}");
            match (growth, is_fault) {
                (0, _) => {}
                (_, true) => faults.push(text),
                (_, false) => notes.push(text),
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

#[cfg(test)]
mod tests {
    use super::super::cell::Verdict;
    use super::*;

    fn judged(before: &Facts, after: &Facts) -> (Verdict, String) {
        let member = Member { node: "a".into(), agents: BTreeMap::new(), pod_cidrs: Vec::new() };
        let mut cells = Cells::default();
        let of = |facts: &Facts| BTreeMap::from([(0, facts.clone())]);
        record(&[member], &of(before), &of(after), &mut cells);
        let (_, cell) = cells.iter().next().expect("a cell");
        (cell.verdict(), cell.last.as_ref().map_or(String::new(), |last| last.seen.clone()))
    }

    #[test]
    fn full_table_and_new_failures_of_connection_tracking_are_found() {
        let before = Facts {
            conntrack: BTreeMap::from([("drop".into(), 7), ("insert_failed".into(), 1)]),
            ..Facts::default()
        };
        let (verdict, seen) = judged(&before, &before);
        assert_eq!((verdict, seen.as_str()), (Verdict::Passed, "no growth"));
        let more = Facts {
            conntrack: BTreeMap::from([("drop".into(), 9), ("insert_failed".into(), 1)]),
            ..Facts::default()
        };
        let (verdict, seen) = judged(&before, &more);
        assert!(
            verdict == Verdict::Failed && seen.contains("`drop` of connection tracking grew by 2"),
            "{seen}"
        );
        let full = Facts { conntrack_usage: Some((260_000, 262_144)), ..before.clone() };
        let (verdict, seen) = judged(&before, &full);
        assert!(verdict == Verdict::Failed && seen.contains("260000 of 262144"), "{seen}");
        let drops = Facts { link_errors: BTreeMap::from([("eth0".into(), 3)]), ..before.clone() };
        let (verdict, seen) = judged(&before, &drops);
        assert_eq!((verdict, seen.as_str()), (Verdict::Passed, "3 errors or drops on `eth0`"));
    }
}
