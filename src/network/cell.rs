//! What the test knows about each path from one place to another.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::Path;

/// Which path from where to where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CellKey {
    /// The kind of path.
    pub path: Path,
    /// The node where it starts.
    pub from: CompactString,
    /// The node where it ends, or another place, for example `10.96.0.10`.
    pub to: CompactString,
    /// Protocol, family or what else tells probes of one path apart, for example `TCP IPv6`.
    pub variant: CompactString,
}

/// What a probe saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// From which address to which one, and what was sent.
    pub tried: String,
    /// What was seen.
    pub seen: String,
    /// What kind of fault it is; `None` if it passed.
    pub fault: Option<FaultClass>,
}

/// The kind of a fault, from which the likely cause follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultClass {
    /// No answer.
    Silent,
    /// The connection was refused.
    Refused,
    /// There is no path.
    Unreachable,
    /// The connection broke, or the answer was not usable.
    Broken,
    /// Another agent or another program answered.
    WrongServer,
    /// The source address is one of the sender's node.
    SourceOfSender,
    /// The source address is one of the receiver's node.
    SourceOfReceiver,
    /// The source address is another one.
    SourceOther,
    /// Some packets are lost on the way there.
    LostThere,
    /// Some packets are lost on the return path.
    LostBack,
    /// Some packets are lost; the direction is not known.
    Lost,
    /// Packets arrived twice, or several agents answered for one address.
    Duplicate,
    /// Large packets do not arrive.
    TooLarge,
    /// Not every endpoint answers.
    Endpoints,
    /// A name has wrong addresses.
    WrongAddress,
    /// Traffic passes that a policy denies.
    NotDenied,
    /// Traffic is blocked that a policy allows.
    NotAllowed,
    /// Something does not start.
    NotStarted,
    /// A condition or a taint of the Node.
    Condition,
    /// A counter of the kernel grew, or a table is full.
    Counter,
}

/// What is known about a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The number of rounds in which the path passed.
    pub passed: u32,
    /// The number of rounds in which it failed.
    pub failed: u32,
    /// The number of datagrams that were sent, for paths that count them.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub sent: u64,
    /// The number of datagrams without an answer.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub lost: u64,
    /// The latest observation, or the latest one that failed.
    pub last: Option<Box<Observation>>,
    /// The number of rounds in which it could not be tested.
    #[serde(skip_serializing_if = "is_none", default)]
    pub untested: u32,
    /// Why the path could not be tested in the latest of these rounds.
    pub not_tested: Option<Box<str>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

/// The verdict over all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every round passed.
    Passed,
    /// No round tested the path.
    NotTested,
    /// A round failed.
    Failed,
}

impl Cell {
    /// Returns the verdict.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self { failed: 1.., .. } => Verdict::Failed,
            Self { passed: 1.., .. } => Verdict::Passed,
            _ => Verdict::NotTested,
        }
    }

    /// Returns the kind of the latest fault.
    pub fn fault(&self) -> Option<FaultClass> {
        self.last.as_ref().and_then(|last| last.fault)
    }
}

/// All paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cells {
    cells: BTreeMap<CellKey, Cell>,
    /// Whether only faults are described. In a large cluster, the descriptions of millions of passed probes would take gigabytes.
    is_brief: bool,
}

/// The largest share of datagrams that may be lost over all rounds, as a divisor: one of 1000. One round of 100 datagrams shows a
/// loss of 5 %; a loss of 0.1 % shows after about 3,000.
const TOLERATED: u64 = 1000;

impl Cells {
    /// Returns an empty table; `is_brief`: without descriptions of what passed.
    pub fn new(is_brief: bool) -> Self {
        Self { cells: BTreeMap::new(), is_brief }
    }

    /// Records an observation of a round.
    pub fn record(&mut self, key: CellKey, observation: Observation) {
        let cell = self.cells.entry(key).or_default();
        if observation.fault.is_some() {
            cell.failed = cell.failed.saturating_add(1);
            cell.last = Some(Box::new(observation));
        } else {
            cell.passed = cell.passed.saturating_add(1);
            if cell.failed == 0 && !self.is_brief {
                cell.last = Some(Box::new(observation));
            }
        }
    }

    /// Records a series of datagrams. The series fails if too many datagrams of all rounds together are lost.
    pub fn record_series(
        &mut self,
        key: CellKey,
        (sent, lost): (u64, u64),
        judge: impl FnOnce(u64, u64) -> Observation,
    ) {
        let cell = self.cells.entry(key.clone()).or_default();
        cell.sent = cell.sent.saturating_add(sent);
        cell.lost = cell.lost.saturating_add(lost);
        let (sent, lost) = (cell.sent, cell.lost);
        let mut observation = judge(sent, lost);
        let is_loss = matches!(
            observation.fault,
            Some(FaultClass::Lost | FaultClass::LostThere | FaultClass::LostBack)
        );
        // With few datagrams, a single lost one says nothing: a large test sends hundreds of thousands.
        if is_loss && (lost <= 1 || lost.saturating_mul(TOLERATED) <= sent) {
            observation.fault = None;
        }
        self.record(key, observation);
    }

    /// Records that a path could not be tested in a round.
    pub fn record_untested(&mut self, key: CellKey, reason: &str) {
        let cell = self.cells.entry(key).or_default();
        cell.untested = cell.untested.saturating_add(1);
        cell.not_tested = Some(reason.into());
    }

    /// Returns all paths in order.
    pub fn iter(&self) -> impl Iterator<Item = (&CellKey, &Cell)> {
        self.cells.iter()
    }

    /// Returns the cell of a path.
    pub fn get(&self, key: &CellKey) -> Option<&Cell> {
        self.cells.get(key)
    }

    /// Returns the failed paths in order.
    pub fn failed(&self) -> impl Iterator<Item = (&CellKey, &Cell)> {
        self.iter().filter(|(_, cell)| cell.verdict() == Verdict::Failed)
    }

    /// Removes paths that the user left out.
    pub fn drop_paths(&mut self, paths: &std::collections::BTreeSet<Path>) {
        self.cells.retain(|key, _| !paths.contains(&key.path));
    }

    /// Returns the number of probes of all rounds.
    pub fn probes(&self) -> u64 {
        self.cells.values().fold(0, |sum: u64, cell| {
            sum.saturating_add(cell.passed.into()).saturating_add(cell.failed.into())
        })
    }
}

impl IntoIterator for Cells {
    type Item = (CellKey, Cell);
    type IntoIter = std::collections::btree_map::IntoIter<CellKey, Cell>;

    fn into_iter(self) -> Self::IntoIter {
        self.cells.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: Path) -> CellKey {
        CellKey { path, from: "a".into(), to: "b".into(), variant: "UDP".into() }
    }

    fn seen(fault: Option<FaultClass>) -> Observation {
        Observation { tried: String::new(), seen: String::new(), fault }
    }

    #[test]
    fn one_failed_round_fails_the_path() {
        let mut cells = Cells::default();
        cells.record_untested(key(Path::PodToPod), "no agent");
        assert_eq!(cells.get(&key(Path::PodToPod)).unwrap().verdict(), Verdict::NotTested);
        cells.record(key(Path::PodToPod), seen(None));
        assert_eq!(cells.get(&key(Path::PodToPod)).unwrap().verdict(), Verdict::Passed);
        cells.record(key(Path::PodToPod), seen(Some(FaultClass::Silent)));
        cells.record(key(Path::PodToPod), seen(None));
        let cell = cells.get(&key(Path::PodToPod)).unwrap();
        assert_eq!((cell.verdict(), cell.fault()), (Verdict::Failed, Some(FaultClass::Silent)));
    }

    #[test]
    fn loss_counts_over_all_rounds() {
        let mut cells = Cells::default();
        let judge = |_: u64, lost: u64| seen((lost > 0).then_some(FaultClass::LostThere));
        for _ in 0..10 {
            cells.record_series(key(Path::Loss), (100, 0), judge);
        }
        cells.record_series(key(Path::Loss), (100, 1), judge);
        assert_eq!(cells.get(&key(Path::Loss)).unwrap().verdict(), Verdict::Passed, "1 of 1100 is tolerated");
        cells.record_series(key(Path::Loss), (100, 1), judge);
        assert_eq!(cells.get(&key(Path::Loss)).unwrap().verdict(), Verdict::Failed, "2 of 1200 are not");
        let mut cells = Cells::default();
        cells.record_series(key(Path::Loss), (100, 1), judge);
        assert_eq!(
            cells.get(&key(Path::Loss)).unwrap().verdict(),
            Verdict::Passed,
            "1 of 100 says nothing yet"
        );
    }
}
