//! Failures that follow from a more basic one: where Pods do not reach each other at all, nothing that is built on it can pass.

use std::collections::BTreeSet;

use super::cell::{Cell, CellKey, FaultClass, Verdict};
use super::path::Path;
use super::result::Result;

/// Pairs of nodes whose Pods do not reach each other, in both orders: a reply that is lost breaks the other direction, too.
#[derive(Debug, Default)]
pub(super) struct DeadPairs<'a>(BTreeSet<(&'a str, &'a str)>);

impl<'a> DeadPairs<'a> {
    /// Returns the pairs between which no Pod gets an answer.
    pub(super) fn of(result: &'a Result) -> Self {
        let is_dead = |(key, cell): &(&CellKey, &Cell)| {
            key.path == Path::PodToPod && cell.verdict() == Verdict::Failed && cell.fault().is_some_and(is_silence)
        };
        let pairs = result.cells().filter(is_dead).map(|(key, _)| (key.from.as_str(), key.to.as_str()));
        Self(pairs.flat_map(|(from, to)| [(from, to), (to, from)]).collect())
    }

    /// Whether all failures of one kind follow from these pairs.
    pub(super) fn explain(&self, path: Path, fault: FaultClass, failed: &[&CellKey]) -> bool {
        let is_between = |key: &&CellKey| self.0.contains(&(key.from.as_str(), key.to.as_str()));
        let is_at = |key: &&CellKey| self.0.iter().any(|(node, _)| *node == key.from || *node == key.to);
        match path {
            Path::PodToNode | Path::FullSize | Path::Transfer | Path::StandingConnection => {
                is_silence(fault) && failed.iter().all(is_between)
            }
            Path::Loss => is_loss(fault) && failed.iter().all(is_between),
            // Some endpoints of the Service, or the Pods of the name server, may be on the other node.
            Path::PodToService | Path::NodeToService | Path::NodePort | Path::DnsUdp | Path::DnsTcp => {
                (is_silence(fault) || fault == FaultClass::Endpoints) && failed.iter().all(is_at)
            }
            _ => false,
        }
    }
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
        causes.iter().filter(|cause| cause.likely.ends_with("see `pod-to-pod`")).map(|cause| cause.path).collect()
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
        let mut paths = [[dead].as_slice(), &built_on].concat();
        assert_eq!(explained(&paths), kinds);
        // A wrong source address is no silence, and neither is a pair that passes.
        paths[0].3 = Some(FaultClass::SourceOfSender);
        assert_eq!(explained(&paths), []);
        paths[0].3 = None;
        assert_eq!(explained(&paths), []);
    }

    #[test]
    fn what_also_fails_elsewhere_or_otherwise_has_its_own_cause() {
        let dead = (Path::PodToPod, "a", "b", SILENT);
        assert_eq!(explained(&[dead, (Path::Transfer, "a", "b", SILENT), (Path::Transfer, "a", "c", SILENT)]), []);
        assert_eq!(explained(&[dead, (Path::FullSize, "a", "b", Some(FaultClass::TooLarge))]), []);
        assert_eq!(explained(&[dead, (Path::PodToService, "c", "10.96.0.7", Some(FaultClass::Endpoints))]), []);
        assert_eq!(explained(&[dead, (Path::NodeToNode, "a", "b", SILENT)]), []);
    }
}
