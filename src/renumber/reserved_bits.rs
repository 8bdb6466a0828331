//! In the bitmap era, restores the reserved bits of an interrupted operation. These bits are for Services that have not moved
//! yet.
//!
//! An API server frees a bit without a Service in the third round of its repair loop, after six to nine minutes. After that, an
//! API server can allocate the address (`runOnce`, `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2). A bit
//! does not record its owner, so a resume checks the Services. If another Service has the address, the resume is refused.
//! Otherwise the resume sets the bit again.

use std::net::IpAddr;

use super::guard::is_the_planned;
use super::index::Index;
use super::intention::{Move, Renumbering};
use super::steps::{Compiler, bits_step};
use crate::operation::{Repair, State, StepId, Swap};
use crate::store::Guard;
use crate::survey::{Era, Layout, Survey};
use crate::wire::bitmap::Bitmap;
use crate::words::counted;

/// A reserved address that was allocated to another Service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{address}`, reserved for {whose}, was allocated to {by} while the operation was interrupted")]
pub struct Taken {
    /// The address.
    pub address: IpAddr,
    /// The planned Service, as `namespace/name`.
    pub whose: String,
    /// The Service that now has the address.
    pub by: String,
}

/// Returns the moves of an operation whose new address is reserved only by a bit, according to the journal. `state` returns the
/// state of a step.
pub fn reserved(work: &Renumbering, state: impl Fn(&StepId) -> Option<State>) -> Vec<&Move> {
    let was = |step: &StepId| state(step).is_some_and(State::is_in_force);
    let mut all = Vec::new();
    for (batch, range) in work.batches().into_iter().enumerate() {
        if work.era == Era::Bitmap && was(&bits_step(batch)) {
            let moves = work.moves.get(range).unwrap_or_default();
            all.extend(moves.iter().filter(|candidate| !candidate.has_moved(&state)));
        }
    }
    all
}

/// Returns the repair that sets the freed bits again; `None` if no bit was freed. Fails if another Service has one of the
/// addresses.
pub fn reserve_again(work: &Renumbering, survey: &Survey, moves: &[&Move]) -> Result<Option<Repair>, Taken> {
    // A Service that was deleted, or has another address, does not need its bit.
    let index = Index::of(survey);
    let is_there =
        |moved: &&&Move| index.service(moved).is_some_and(|service| is_the_planned(moved, service));
    let moves: Vec<&Move> = moves.iter().filter(is_there).copied().collect();
    for candidate in &moves {
        let has_it = survey.services.iter().find(|service| {
            service.addresses.contains(&candidate.new_address)
                && service.uid != candidate.uid
                && !(service.namespace == candidate.namespace && candidate.has_shadow(&service.name))
        });
        if let Some(service) = has_it {
            let (address, whose) = (candidate.new_address, candidate.subject());
            return Err(Taken { address, whose, by: service.subject() });
        }
    }
    let layout = Layout::new(&work.prefix);
    let compiler = Compiler { work, layout: &layout };
    let bitmap = survey.address_bitmap(work.family).filter(|bitmap| bitmap.cidr() == Some(work.to));
    let Some(bitmap) = bitmap else { return Ok(None) };
    let Ok(bits) = Bitmap::from_bytes(&bitmap.data, compiler.bitmap_capacity()) else { return Ok(None) };
    let freed: Vec<u64> = moves
        .iter()
        .map(|candidate| compiler.bit(candidate.new_address))
        .filter(|bit| !bits.is_set(*bit))
        .collect();
    Ok((!freed.is_empty()).then(|| Repair {
        subject: "bits".to_string(),
        code: "reserved-again",
        says: format!("{} set again", counted(freed.len(), "bit is", "bits are")),
        swap: Swap { edits: compiler.bits(freed, Vec::new()), checks: Vec::new() },
        steps: Vec::new(),
        guards: vec![Guard::Unchanged(bitmap.key.clone(), bitmap.mod_revision)],
    }))
}
