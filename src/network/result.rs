//! The result of a test: what `-o json`, `--save` and the pages show.

use serde::{Deserialize, Serialize};

use super::cell::{Cell, CellKey, Verdict};
use super::isolation::ForeignPolicy;
#[cfg(test)]
use super::{
    Path,
    cell::{FaultClass, Observation},
};

/// The result of a test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Result {
    /// The version of the format.
    pub version: u8,
    /// When the test started, in the form of RFC 3339.
    pub started: String,
    /// How long the rounds took, in seconds.
    pub seconds: f64,
    /// The nodes, in the order of the matrix.
    pub nodes: Vec<String>,
    /// The number of complete rounds.
    pub rounds: u32,
    /// Whether a signal ended the test before all rounds were done. The result is that of the complete rounds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_early: bool,
    /// The number of rounds after which every pair of nodes was asked.
    pub rounds_to_cover: usize,
    /// Policies of others that may block traffic of the test; only read if a path failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<ForeignPolicy>,
    /// All paths.
    pub paths: Vec<PathResult>,
}

/// What the test knows about one path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathResult {
    /// The path.
    #[serde(flatten)]
    pub key: CellKey,
    /// The verdict over all rounds.
    pub verdict: Verdict,
    /// What was seen.
    #[serde(flatten)]
    pub cell: Cell,
}

impl Result {
    /// Returns all paths with what is known about them.
    pub fn cells(&self) -> impl Iterator<Item = (&CellKey, &Cell)> {
        self.paths.iter().map(|path| (&path.key, &path.cell))
    }
}

/// Returns a result of one round on the nodes `a`, `b` and `c`: for each path, where it starts and ends, and its fault.
#[cfg(test)]
pub(super) fn fixture(paths: &[(Path, &str, &str, Option<FaultClass>)]) -> Result {
    let path = |(path, from, to, fault): &(Path, &str, &str, Option<FaultClass>)| {
        let key = CellKey { path: *path, from: (*from).into(), to: (*to).into(), variant: "".into() };
        let last = Some(Box::new(Observation { tried: String::new(), seen: String::new(), fault: *fault }));
        let failed = u32::from(fault.is_some());
        let cell = Cell { passed: 1 - failed, failed, last, ..Cell::default() };
        PathResult { key, verdict: cell.verdict(), cell }
    };
    Result {
        version: 1,
        started: String::new(),
        seconds: 1.0,
        nodes: ["a", "b", "c"].map(str::to_string).into(),
        rounds: 1,
        ended_early: false,
        rounds_to_cover: 1,
        policies: Vec::new(),
        paths: paths.iter().map(path).collect(),
    }
}
