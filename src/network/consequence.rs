//! Failures that follow from a more basic one: where Pods do not reach each other at all, nothing that is built on it can pass.

use std::collections::BTreeSet;

use super::cell::{Cell, CellKey, FaultClass, Verdict};
use super::path::Path;
use super::result::Result;

/// Nodes whose Pods do not reach each other over any transport, in any round.
#[derive(Debug, Default)]
pub(super) struct UnreachablePods<'a> {
    /// The pairs, in both orders, and whether it is IPv6: a reply that is lost breaks the other direction, too.
    pairs: BTreeSet<(&'a str, &'a str, bool)>,
    /// The nodes from which no Pod reaches another node.
    cut_off: BTreeSet<&'a str>,
}

impl<'a> UnreachablePods<'a> {
    /// Returns the pairs between which no Pod gets an answer.
    pub(super) fn of(result: &'a Result) -> Self {
        let (mut pairs, mut reached, mut nodes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let is_tested = |(key, cell): &(&CellKey, &Cell)| {
            key.path == Path::PodToPod && cell.verdict() != Verdict::NotTested
        };
        for (key, cell) in result.cells().filter(is_tested) {
            let (from, to) = (key.from.as_str(), key.to.as_str());
            nodes.insert(from);
            let is_silent = cell.passed == 0 && cell.fault().is_some_and(is_silence);
            if is_silent { &mut pairs } else { &mut reached }.insert((from, to, is_ipv6(key)));
        }
        let pairs: Vec<_> = pairs.difference(&reached).copied().collect();
        let cut_off =
            nodes.into_iter().filter(|node| reached.iter().all(|(from, ..)| from != node)).collect();
        let both = pairs.into_iter().flat_map(|(from, to, six)| [(from, to, six), (to, from, six)]);
        Self { pairs: both.collect(), cut_off }
    }

    /// Whether all failures of one kind follow from these.
    pub(super) fn explain(&self, path: Path, fault: FaultClass, failed: &[&CellKey]) -> bool {
        let is_between =
            |key: &&CellKey| self.pairs.contains(&(key.from.as_str(), key.to.as_str(), is_ipv6(key)));
        let is_at = |key: &&CellKey| {
            let mut pairs = self.pairs.iter().filter(|(.., six)| *six == is_ipv6(key));
            pairs.any(|(node, ..)| *node == key.from || *node == key.to)
        };
        match path {
            Path::PodToNode | Path::FullSize | Path::Transfer | Path::StandingConnection => {
                is_silence(fault) && failed.iter().all(is_between)
            }
            Path::Loss => is_loss(fault) && failed.iter().all(is_between),
            // Endpoints on the other node do not answer. If no endpoint answers, not even that of the own node, there is another cause.
            Path::PodToService | Path::NodeToService | Path::NodePort => {
                fault == FaultClass::Endpoints && failed.iter().all(is_at)
            }
            Path::DnsUdp | Path::DnsTcp => {
                is_silence(fault) && failed.iter().all(|key| self.cut_off.contains(key.from.as_str()))
            }
            _ => false,
        }
    }
}

/// Whether the probe of a pair is one of IPv6. IPv4 has no suffix.
fn is_ipv6(key: &CellKey) -> bool {
    key.variant.ends_with("IPv6")
}

/// Whether nothing usable came back.
fn is_silence(fault: FaultClass) -> bool {
    matches!(fault, FaultClass::Silent | FaultClass::Unreachable | FaultClass::Broken)
}

fn is_loss(fault: FaultClass) -> bool {
    is_silence(fault) || matches!(fault, FaultClass::Lost | FaultClass::LostThere | FaultClass::LostBack)
}

#[cfg(test)]
mod tests {
    use super::super::cause::causes;
    use super::super::result::fixture;
    use super::*;

    const SILENT: Option<FaultClass> = Some(FaultClass::Silent);

    /// Returns the kinds of paths whose cause is `pod-to-pod`.
    fn explained(paths: &[(Path, &str, &str, Option<FaultClass>)]) -> Vec<Path> {
        let causes = causes(&fixture(paths));
        causes
            .iter()
            .filter(|cause| cause.likely.ends_with("see `pod-to-pod`"))
            .map(|cause| cause.path)
            .collect()
    }

    #[test]
    fn what_is_built_on_a_dead_pair_follows_from_it() {
        let built_on = [
            (Path::PodToNode, "b", "a", SILENT),
            (Path::Loss, "b", "a", Some(FaultClass::LostBack)),
            (Path::FullSize, "a", "b", SILENT),
            (Path::Transfer, "a", "b", SILENT),
            (Path::PodToService, "a", "10.96.0.7", Some(FaultClass::Endpoints)),
            (Path::NodePort, "c", "b", Some(FaultClass::Endpoints)),
            (Path::DnsUdp, "b", "resolv.conf", Some(FaultClass::Broken)),
            (Path::StandingConnection, "b", "a", SILENT),
        ];
        let kinds = built_on.map(|(path, ..)| path);
        let dead = (Path::PodToPod, "a", "b", SILENT);
        let mut paths = [[dead, (Path::PodToPod, "b", "a", SILENT)].as_slice(), &built_on].concat();
        assert_eq!(explained(&paths), kinds);
        // A wrong source address is no silence, and neither is a pair that passes.
        paths.remove(1);
        paths[0].3 = Some(FaultClass::SourceOfSender);
        assert_eq!(explained(&paths), []);
        paths[0].3 = None;
        assert_eq!(explained(&paths), []);
    }

    /// Only one family, only one transport, or only one round.
    #[test]
    fn pair_that_passes_in_another_way_explains_nothing() {
        let mut result = fixture(&[
            (Path::PodToPod, "a", "b", SILENT),
            (Path::PodToPod, "a", "b", None),
            (Path::Transfer, "a", "b", SILENT),
            (Path::DnsUdp, "a", "resolv.conf", SILENT),
        ]);
        let mut cause_of = |first: &str, second: &str, passed| {
            result.paths[0].key.variant = first.into();
            result.paths[1].key.variant = second.into();
            result.paths[0].cell.passed = passed;
            let keys: Vec<&CellKey> = result.paths.iter().map(|path| &path.key).collect();
            let unreachable = UnreachablePods::of(&result);
            let explains = |path, place: usize| unreachable.explain(path, FaultClass::Silent, &[keys[place]]);
            (explains(Path::Transfer, 2), explains(Path::DnsUdp, 3))
        };
        assert_eq!(cause_of("TCP", "UDP", 0), (false, false));
        assert_eq!(cause_of("TCP IPv6", "TCP", 0), (false, false));
        assert_eq!(cause_of("TCP", "TCP IPv6", 0), (true, false), "of this family");
        assert_eq!(cause_of("TCP", "TCP IPv6", 1), (false, false));
    }

    #[test]
    fn what_also_fails_elsewhere_or_otherwise_has_its_own_cause() {
        let dead = (Path::PodToPod, "a", "b", SILENT);
        assert_eq!(
            explained(&[dead, (Path::Transfer, "a", "b", SILENT), (Path::Transfer, "a", "c", SILENT)]),
            []
        );
        assert_eq!(explained(&[dead, (Path::FullSize, "a", "b", Some(FaultClass::TooLarge))]), []);
        assert_eq!(
            explained(&[dead, (Path::PodToService, "c", "10.96.0.7", Some(FaultClass::Endpoints))]),
            []
        );
        assert_eq!(explained(&[dead, (Path::PodToService, "a", "10.96.0.7", SILENT)]), []);
        assert_eq!(explained(&[dead, (Path::NodeToNode, "a", "b", SILENT)]), []);
    }
}
