//! An earlier result: a fault that it has is shown, but is not new.

use std::collections::BTreeSet;

use super::cell::{CellKey, Verdict};
use super::run::Result;

/// The failed paths of an earlier result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline {
    failed: BTreeSet<CellKey>,
    known: BTreeSet<CellKey>,
}

impl Baseline {
    /// Returns the baseline of a result.
    pub fn of(result: &Result) -> Self {
        // Names of Pods and addresses of Services are new in each run.
        let failed = result.cells().filter(|(_, cell)| cell.verdict() == Verdict::Failed);
        let known = result.cells().filter(|(_, cell)| cell.verdict() != Verdict::NotTested);
        Self {
            failed: failed.map(|(key, _)| lasting(key)).collect(),
            known: known.map(|(key, _)| lasting(key)).collect(),
        }
    }

    /// Whether a path failed before.
    pub fn has_failed(&self, key: &CellKey) -> bool {
        self.failed.contains(&lasting(key))
    }

    /// Whether a path was tested before.
    pub fn knows(&self, key: &CellKey) -> bool {
        self.known.contains(&lasting(key))
    }
}

/// Returns the path without what differs between two runs on one cluster.
fn lasting(key: &CellKey) -> CellKey {
    use super::path::Path;
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
