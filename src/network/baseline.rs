//! An earlier result: a fault that it has is shown, but is not new.

use std::collections::{BTreeMap, BTreeSet};

use super::cell::{Cell, CellKey, FaultClass, Verdict};
use super::path::Path;
use super::result::Result;
use super::round::ALL_PAIRS;

/// The paths of an earlier result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline {
    nodes: Vec<String>,
    failed: BTreeMap<CellKey, Option<FaultClass>>,
    passed: BTreeSet<CellKey>,
}

impl Baseline {
    /// Returns the baseline of a result.
    pub fn of(result: &Result) -> Self {
        let of = |verdict| result.cells().filter(move |(_, cell)| cell.verdict() == verdict);
        Self {
            nodes: result.nodes.clone(),
            failed: of(Verdict::Failed).map(|(key, cell)| (lasting(key), cell.fault())).collect(),
            passed: of(Verdict::Passed).map(|(key, _)| without_partner(lasting(key))).collect(),
        }
    }

    /// Whether a path failed in the same way before. A rewritten source address that is now silence is another fault.
    pub fn has_failed(&self, key: &CellKey, cell: &Cell) -> bool {
        self.failed.get(&lasting(key)).is_some_and(|before| before.map(kind) == cell.fault().map(kind))
    }

    /// Returns the paths of the nodes and kinds of a result that passed before, and that the result did not test. Empty in a large
    /// cluster, where a round tests only a part. Agents are not compared: which ones a test starts depends on its paths, and those
    /// that do not start are failures.
    pub fn vanished(&self, result: &Result, is_skipped: impl Fn(Path) -> bool) -> Vec<CellKey> {
        if result.nodes.len() > ALL_PAIRS {
            return Vec::new();
        }
        let tested: BTreeSet<CellKey> = result
            .cells()
            .filter(|(_, cell)| cell.verdict() != Verdict::NotTested)
            .map(|(key, _)| without_partner(lasting(key)))
            .collect();
        let has_other_ring = result.nodes != self.nodes;
        let is_here = |name: &str| result.nodes.iter().any(|node| node == name);
        let is_due = |key: &&CellKey| {
            key.path != Path::Agent
                && !(has_other_ring && key.path == Path::Transfer)
                && is_here(&key.from)
                && (!key.path.is_pair() || is_here(&key.to))
                && !is_skipped(key.path)
        };
        self.passed.iter().filter(is_due).filter(|key| !tested.contains(*key)).cloned().collect()
    }
}

/// Returns one kind for the faults that differ only by chance from round to round.
fn kind(fault: FaultClass) -> FaultClass {
    match fault {
        FaultClass::LostThere | FaultClass::LostBack => FaultClass::Lost,
        other => other,
    }
}

/// Returns the path without its end, where that depends on the order of the nodes or on the addresses of the API servers.
fn without_partner(mut key: CellKey) -> CellKey {
    let has_partner = [Path::StandingConnection, Path::PolicyDeny, Path::PolicyAllow, Path::ApiServer];
    if has_partner.contains(&key.path) {
        key.to = "".into();
    }
    key
}

/// Returns the path without what differs between two runs on one cluster: names of Pods, and addresses of the test's Services.
fn lasting(key: &CellKey) -> CellKey {
    let mut lasting = key.clone();
    match key.path {
        Path::Agent | Path::PodToService | Path::NodeToService | Path::Hairpin => lasting.to = "".into(),
        Path::DnsUdp | Path::DnsTcp => {
            // The name of the test's own Service contains the run.
            if let Some((start, rest)) = key.variant.split_once('.')
                && start.starts_with("nt-")
            {
                lasting.variant = rest.into();
            }
        }
        _ => {}
    }
    lasting
}

#[cfg(test)]
mod tests {
    use super::super::result::fixture;
    use super::*;

    fn result(paths: &[(Path, Option<FaultClass>)]) -> Result {
        let paths: Vec<_> = paths.iter().map(|(path, fault)| (*path, "a", "b", *fault)).collect();
        fixture(&paths)
    }

    #[test]
    fn only_the_same_fault_is_known() {
        let before = Baseline::of(&result(&[
            (Path::PodToPod, Some(FaultClass::SourceOfSender)),
            (Path::Loss, Some(FaultClass::LostThere)),
        ]));
        let is_known = |path, fault| {
            let now = result(&[(path, Some(fault))]);
            let (key, cell) = now.cells().next().expect("a path");
            before.has_failed(key, cell)
        };
        assert!(is_known(Path::PodToPod, FaultClass::SourceOfSender));
        assert!(!is_known(Path::PodToPod, FaultClass::Silent));
        assert!(is_known(Path::Loss, FaultClass::LostBack));
        assert!(!is_known(Path::Loss, FaultClass::Silent));
    }

    #[test]
    fn path_that_is_no_longer_tested_is_named() {
        let before = Baseline::of(&result(&[(Path::PodToPod, None), (Path::HostPort, None)]));
        let now = result(&[(Path::PodToPod, None)]);
        let vanished = before.vanished(&now, |_| false);
        assert_eq!(vanished.iter().map(|key| key.path).collect::<Vec<_>>(), [Path::HostPort]);
        assert!(before.vanished(&now, |path| path == Path::HostPort).is_empty());
    }

    #[test]
    fn node_that_was_replaced_leaves_no_gap() {
        let paths = [Path::StandingConnection, Path::PolicyDeny, Path::ApiServer, Path::Transfer];
        let to = |node| paths.map(|path| (path, "a", node, None));
        let mut now = fixture(&to("c"));
        assert!(!Baseline::of(&fixture(&to("b"))).vanished(&now, |_| false).is_empty(), "the same nodes");
        now.nodes.remove(1);
        assert_eq!(Baseline::of(&fixture(&to("b"))).vanished(&now, |_| false), []);
    }

    /// Which agents a test starts depends on its paths, and an agent that does not start is a failure.
    #[test]
    fn agent_that_is_no_longer_needed_is_not_named() {
        let before = Baseline::of(&result(&[(Path::PodToPod, None), (Path::Agent, None)]));
        assert!(before.vanished(&result(&[(Path::PodToPod, None)]), |_| false).is_empty());
    }
}
