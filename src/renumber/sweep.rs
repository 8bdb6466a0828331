//! Sweeps: moves of Services that were created in the old range after planning. These Services are moved and held like all other
//! Services. They have their own batches after all planned batches.
//!
//! Until the ServiceCIDR of the old range is closed, the allocator gives new Services addresses from either range
//! (`pkg/registry/core/service/ipallocator/cidrallocator.go`, v1.36.3).

use serde::{Deserialize, Serialize};

use super::drift::newcomers;
use super::hold::{Choice, Hold, choose};
use super::intention::{Move, RecordChange, Renumbering, Turn};
use super::plan::{PlanError, PlanOptions, give_temporaries, in_use, make_moves};
use super::stages::VERSION;
use crate::operation;
use crate::survey::{ServiceRecord, Survey};

/// The kind of an amendment to a plan, as written in the amendment's header.
const KIND: &str = "renumber-sweep";

/// The largest number of Services in one sweep. A sweep is stored as one value in etcd, which accepts 1.5 MiB per request
/// (`--max-request-bytes`). A sweep of this size fits into one request, even if each of its shadows has two hundred ports.
const AT_ONCE: usize = 100;

/// The reason why a sweep chooses shadows: at planning, the data plane could not hold addresses by external IPs.
pub(super) const AS_PLANNED: &str =
    "the data plane cannot hold addresses by external IPs (found at planning)";

/// An amendment to a plan during its execution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The moves of the Services that the sweep found. They follow all other moves.
    pub found: Vec<Move>,
    /// The new moves of planned Services that changed. Each new move replaces the previous move of the Service
    /// ([`super::replan`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Move>,
}

impl operation::OperationKind for Sweep {
    const NAME: &'static str = KIND;
    const VERSION: u32 = VERSION;
}

impl Renumbering {
    /// Returns the number of the last sweep; 0 if there was no sweep.
    pub fn sweeps(&self) -> usize {
        self.moves.last().map_or(0, |last| last.sweep)
    }

    /// Appends the moves that a sweep found, and replaces the moves that were planned again.
    pub fn amend(&mut self, sweep: Sweep) {
        self.amendments = self.amendments.saturating_add(1);
        for again in sweep.again {
            let is_before = |before: &&mut Move| before.uid == again.uid && before.id() == again.id();
            let Some(before) = self.moves.iter_mut().find(is_before) else { continue };
            // If the new address of the cluster's DNS changes, the recorded value for the kubelets must change to the same
            // address.
            let (former, address) = (before.new_address.to_string(), again.new_address.to_string());
            let is_its =
                |record: &&mut RecordChange| again.turn == Turn::ClusterDns && record.after == former;
            self.records.iter_mut().filter(is_its).for_each(|record| record.after.clone_from(&address));
            *before = again;
        }
        let number = self.sweeps().saturating_add(1);
        self.moves.extend(sweep.found.into_iter().map(|found| Move { sweep: number, ..found }));
    }
}

/// Plans the moves of Services that have an address in the old range and are not in the plan; `None` if there is no such Service.
/// Writes nothing. One sweep does not always contain all of these Services, and contains at most `AT_ONCE`. To plan the remaining
/// Services, add the moves of the sweep to the plan, and call this function again.
pub fn sweep(work: &Renumbering, survey: &Survey) -> Result<Option<Sweep>, PlanError> {
    let mut found: Vec<&ServiceRecord> = newcomers(work, survey);
    found.retain(|service| service.address(work.family).is_some());
    if found.is_empty() {
        return Ok(None);
    }
    let no_external_ip = work.shadows_only.then_some(AS_PLANNED);
    // Services that do not support the requested hold must not block other Services. A later sweep gives these Services shadows.
    let by = |hold: Option<Hold>| {
        move |service: &&ServiceRecord| matches!(choose(service, hold, no_external_ip), Choice::Hold(..))
    };
    let hold = work.hold_asked.filter(|_| found.iter().any(by(work.hold_asked)));
    if found.iter().any(by(hold)) {
        found.retain(by(hold));
    }
    found.truncate(AT_ONCE);
    let options = PlanOptions { hold, ..PlanOptions::new(work.to) };
    let mut taken = in_use(survey, &work.to);
    taken.extend(work.moves.iter().map(|planned| planned.new_address));
    let moves = make_moves(survey, &options, &found, no_external_ip, &taken)?;
    let moves = moves.into_iter().map(|found| Move { turn: Turn::Any, ..found }).collect();
    let mut part = Renumbering { moves, ..work.clone() };
    give_temporaries(&mut part, survey, taken)?;
    Ok(Some(Sweep { found: part.moves, again: Vec::new() }))
}
