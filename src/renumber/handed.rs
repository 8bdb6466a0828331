//! Addresses that were handed to the allocator ahead of their Services when an operation was interrupted.
//!
//! The repair loop leaves such an IPAddress alone as long as it is dated ahead, some minutes; then it deletes it, since
//! its Service does not list it (`syncIPAddress`, `pkg/registry/core/service/ipallocator/controller/repairip.go`,
//! v1.36.3). Whoever goes on later hands it over anew, and has the API servers see that before the Service takes it.

use std::net::IpAddr;

use super::intention::{Move, Renumbering};
use super::steps::{Compiler, routed};
use crate::operation::{KeyEdit, Mend, State, StepId, Swap, Wait};
use crate::store::Key;
use crate::survey::{Era, Layout};

/// An address that is handed over, and not taken yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Handed {
    /// The key of its IPAddress.
    pub key: Key,
    /// The batch of its Service.
    pub batch: usize,
    /// Makes the IPAddress anew, where it is gone.
    pub again: Mend,
    /// Dates it ahead anew, where it is still there.
    pub longer: Mend,
}

/// Returns the addresses that are handed over in an operation, and not taken yet; `state` tells the state of a step.
pub fn handed(work: &Renumbering, state: impl Fn(&StepId) -> Option<State>) -> Vec<Handed> {
    if work.era == Era::Bitmap {
        return Vec::new();
    }
    let layout = Layout::new(&work.prefix);
    let compiler = Compiler { work, layout: &layout };
    let mut all = Vec::new();
    for (batch, range) in work.batches().into_iter().enumerate() {
        for candidate in work.moves.get(range).unwrap_or_default() {
            let found = open(candidate, &state);
            all.extend(found.map(|(address, parent)| Handed {
                key: layout.ip_address(address),
                batch,
                again: mend(candidate, address, compiler.hand_over_again(candidate, address, parent)),
                longer: mend(candidate, address, compiler.hand_over_longer(candidate, address, parent)),
            }));
        }
    }
    all
}

/// Returns what must be waited for then: as the batch itself does before its Services move.
pub fn seen(batch: usize) -> Wait {
    routed(batch)
}

/// Which address of a Service that is, and the name of the Service, its own or a shadow's, that is to have it.
fn open(candidate: &Move, state: impl Fn(&StepId) -> Option<State>) -> Option<(IpAddr, &str)> {
    let is_flipped = state(&candidate.step("flip")).is_some_and(State::is_in_force);
    let was = |step: &str, wanted| state(&candidate.step(step)) == Some(wanted);
    match &candidate.shadow {
        _ if is_flipped => {
            was("hand-back", State::UndoDone).then_some((candidate.old_address, candidate.name.as_str()))
        }
        None => was("hand-over", State::Done).then_some((candidate.new_address, candidate.name.as_str())),
        Some(shadow) => {
            was("lend", State::Done).then_some((candidate.new_address, shadow.warm_name.as_str()))
        }
    }
}

fn mend(candidate: &Move, address: IpAddr, edit: KeyEdit) -> Mend {
    Mend {
        subject: candidate.subject(),
        code: "handed-over-again",
        says: format!("`{address}` is handed to the allocator again"),
        swap: Swap { edits: vec![edit], checks: Vec::new() },
        steps: vec![candidate.step("flip")],
        guards: Vec::new(),
    }
}
