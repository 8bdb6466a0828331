//! Services that were born in the old range after the plan was made: they are moved and held like the others,
//! as batches of their own after everything that was planned.
//!
//! Until the API servers' own ServiceCIDR has the new range, the allocator goes on giving addresses of the old
//! one to new Services, beside those of the new one (`pkg/registry/core/service/ipallocator/cidrallocator.go`,
//! v1.36.3).

use serde::{Deserialize, Serialize};

use super::current::newcomers;
use super::hold::{Choice, Hold, choose};
use super::intention::{Move, RecordChange, Renumbering, Turn};
use super::plan::{PlanError, PlanOptions, give_temporaries, in_use, make_moves};
use super::stages::VERSION;
use crate::operation;
use crate::survey::{ServiceRecord, Survey};

/// The kind of what is added to a plan, as its header says.
const KIND: &str = "renumber-sweep";

/// Services swept at once: what they add to the plan is one value in etcd (1.5 MiB a request,
/// `--max-request-bytes`), a shadow's specification with two hundred ports included.
const AT_ONCE: usize = 100;

/// Why a data plane for which the plan chose shadows alone gets them here, too.
pub(super) const AS_PLANNED: &str = "the plan found that the data plane can hold nothing by an external IP";

/// What is added to a plan while it is carried out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The Services that were found: they move after all others.
    pub found: Vec<Move>,
    /// Services of the plan that have changed: their moves, each in the place of the one before
    /// ([`super::replan`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Move>,
}

impl operation::Kind for Sweep {
    const NAME: &'static str = KIND;
    const VERSION: u32 = VERSION;
}

impl Renumbering {
    /// Returns the number of the last sweep, 0 if there was none.
    pub fn sweeps(&self) -> usize {
        self.moves.last().map_or(0, |last| last.sweep)
    }

    /// Takes in what a sweep has found, behind everything that is there, and what was planned again, in its place.
    pub fn amend(&mut self, sweep: Sweep) {
        self.amendments = self.amendments.saturating_add(1);
        for again in sweep.again {
            let is_before = |before: &&mut Move| before.uid == again.uid && before.id() == again.id();
            let Some(before) = self.moves.iter_mut().find(is_before) else { continue };
            // kubelets are told the address that the cluster's DNS has in the end.
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

/// Plans the moves of Services with an address of the old range of which the plan knows nothing; `None` if there is
/// none. Changes nothing. Where there are many it finds some; once these are taken in, the next ones.
pub fn sweep(work: &Renumbering, survey: &Survey) -> Result<Option<Sweep>, PlanError> {
    let mut found: Vec<&ServiceRecord> = newcomers(work, survey);
    found.retain(|service| service.address(work.family).is_some());
    if found.is_empty() {
        return Ok(None);
    }
    let no_external_ip = work.shadows_only.then_some(AS_PLANNED);
    // Those that the hold asked for does not suit must not keep the others in the old range; they get shadows afterwards.
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
