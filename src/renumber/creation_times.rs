//! The IPAddress objects of Services that move. The operation keeps these objects until it ends. A resume or the guard repairs an
//! object if the object was changed, or if its creation timestamp is no longer far enough in the future.
//!
//! The operation sets their creation timestamps to the future, so that repair loops do not delete them (`syncIPAddress`,
//! `pkg/registry/core/service/ipallocator/controller/repairip.go`, v1.36.3). After some time, a timestamp is no longer far enough
//! in the future. An API server that has not yet observed the new timestamp can also change an object.

use std::net::IpAddr;

use super::index::Index;
use super::intention::{Move, Renumbering};
use super::steps::{AHEAD_SECONDS, Compiler};
use crate::operation::{KeyEdit, Repair, State, StepId, Swap};
use crate::store::{Guard, Key};
use crate::survey::{Era, Layout, Survey};
use crate::wire::objects::ALLOCATOR;

/// An IPAddress to repair.
#[derive(Debug, Clone, PartialEq)]
pub struct IpAddressRepair {
    /// Key of the IPAddress.
    pub key: Key,
    /// Batch of the Service that needs the IPAddress.
    pub batch: usize,
    /// Whether API servers must observe the repair before the Service moves; false if only the creation timestamp changes.
    pub is_news: bool,
    /// The repair.
    pub repair: Repair,
}

/// A kept address that was allocated to another Service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{address}` is kept for {whose}, but is now allocated to {by}")]
pub struct Taken {
    /// The address.
    pub address: IpAddr,
    /// The Service for which the address is kept, as `namespace/name`.
    pub whose: String,
    /// The Service that now has the address, as `namespace/name`.
    pub by: String,
}

/// Compares a survey with the IPAddress objects that must be kept. Returns the repairs, and the addresses that were allocated to
/// another Service. `state` returns the state of a step; `now` is in seconds since 1970.
pub fn kept(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
    now: i64,
) -> (Vec<IpAddressRepair>, Vec<Taken>) {
    let (mut all, mut lost) = (Vec::new(), Vec::new());
    if work.era == Era::Bitmap {
        return (all, lost);
    }
    let layout = Layout::new(&work.prefix);
    let looking = Looking { compiler: Compiler { work, layout: &layout }, index: Index::of(survey), now };
    for (batch, range) in work.batches().into_iter().enumerate() {
        for candidate in work.moves.get(range).unwrap_or_default() {
            let is_retired = state(&candidate.step("retire")) == Some(State::Done);
            for (address, step) in due(candidate, &state) {
                if !looking.is_needed(candidate, address, is_retired) {
                    continue;
                }
                match looking.look(candidate, address) {
                    Look::Fine => {}
                    Look::Taken(by) => {
                        lost.push(Taken { address, whose: candidate.subject(), by });
                    }
                    Look::Wrong { is_news, says, edit, guards } => all.push(IpAddressRepair {
                        key: layout.ip_address(address),
                        batch,
                        is_news,
                        repair: Repair {
                            subject: candidate.subject(),
                            code: "address-kept",
                            says,
                            swap: Swap { edits: vec![edit], checks: Vec::new() },
                            steps: vec![step, candidate.step("retire")],
                            guards,
                        },
                    }),
                }
            }
        }
    }
    (all, lost)
}

/// Returns the addresses of a Service that must be kept now, each with the step that created or changed its IPAddress.
fn due(candidate: &Move, state: impl Fn(&StepId) -> Option<State>) -> Vec<(IpAddr, StepId)> {
    let is_settled = state(&candidate.step("settle")) == Some(State::Done);
    let is_retired = state(&candidate.step("retire")) == Some(State::Done);
    let ends = [
        (candidate.new_address, candidate.step("reserve"), is_settled),
        (candidate.old_address, candidate.step("date"), is_retired),
    ];
    let is_due =
        |(_, step, ended): &(IpAddr, StepId, bool)| !ended && state(step).is_some_and(State::is_in_force);
    ends.into_iter().filter(is_due).map(|(address, step, _)| (address, step)).collect()
}

enum Look {
    Fine,
    Taken(String),
    Wrong { is_news: bool, says: String, edit: KeyEdit, guards: Vec<Guard> },
}

struct Looking<'a> {
    compiler: Compiler<'a>,
    index: Index<'a>,
    now: i64,
}

impl Looking<'_> {
    /// Returns whether an address must be kept for its Service.
    ///
    /// No address is kept for a deleted Service, or for a Service without an address. A hold refers to the Service by name. So a
    /// recreated Service needs the old address, unless the Service now has the old address itself. If the old address is retired,
    /// the Service needs only the address that it has, because no later step would free another kept address.
    fn is_needed(&self, candidate: &Move, address: IpAddr, is_retired: bool) -> bool {
        self.index.service(candidate).is_some_and(|service| {
            !service.addresses.is_empty()
                && (!is_retired || service.addresses.contains(&address))
                && (service.uid == candidate.uid
                    || (address == candidate.old_address && !service.addresses.contains(&address)))
        })
    }

    fn look(&self, candidate: &Move, address: IpAddr) -> Look {
        if let Some(other) = self.index.other_owner(candidate, address) {
            return Look::Taken(other.subject());
        }
        let wrong = |is_news, says: String, edit, guards| Look::Wrong { is_news, says, edit, guards };
        let Some(object) = self.index.object(address) else {
            let edit = self.compiler.reserve_again(candidate, address);
            return wrong(true, format!("IPAddress `{address}` was recreated"), edit, Vec::new());
        };
        let unchanged = vec![Guard::Unchanged(object.key.clone(), object.mod_revision)];
        let (namespace, parent) = (&object.parent.0, object.parent.1.as_str());
        let is_its = object.managed_by == ALLOCATOR && *namespace == candidate.namespace;
        if is_its && parent == candidate.name {
            let left = object.created.unwrap_or_default().saturating_sub(self.now);
            return if left >= AHEAD_SECONDS / 2 {
                Look::Fine
            } else {
                let edit = self.compiler.reserve_longer(candidate, address);
                wrong(
                    false,
                    format!("the creation time of IPAddress `{address}` was set to the future again"),
                    edit,
                    unchanged,
                )
            };
        }
        if is_its && candidate.has_shadow(parent) {
            let edit = self.compiler.reserve_back(candidate, address, parent);
            return wrong(
                true,
                format!("IPAddress `{address}` refers to its Service again"),
                edit,
                unchanged,
            );
        }
        Look::Taken(format!("{namespace}/{parent}"))
    }
}
