//! The IPAddress objects of Services that move, kept until the end: found changed or running out of time, they are put
//! right by every resume and by the guard.
//!
//! They are dated ahead, which keeps repair loops from deleting them (`syncIPAddress`,
//! `pkg/registry/core/service/ipallocator/controller/repairip.go`, v1.36.3). A date comes nearer; and what an API server
//! did before it saw the date cannot be excluded.

use std::net::IpAddr;

use super::index::Index;
use super::intention::{Move, Renumbering};
use super::steps::{AHEAD_SECONDS, Compiler};
use crate::operation::{KeyEdit, Mend, State, StepId, Swap};
use crate::store::{Guard, Key};
use crate::survey::{Era, Layout, Manager, Survey};

/// What became of one address.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The key of its IPAddress.
    pub key: Key,
    /// The batch of its Service.
    pub batch: usize,
    /// Whether API servers must see the change before the Service moves: more changed than the date.
    pub is_news: bool,
    /// What puts it right.
    pub mend: Mend,
}

/// An address that another Service has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{address}`, which is kept for {whose}, is allocated to {by} by now")]
pub struct Taken {
    /// The address.
    pub address: IpAddr,
    /// The Service of the plan, as `namespace/name`.
    pub whose: String,
    /// The Service that has it, as `namespace/name`.
    pub by: String,
}

/// Compares the addresses that are to be kept with a survey; `state` tells the state of a step, `now` is in seconds
/// since 1970. Returns what is to be put right, and the addresses that are lost to another Service.
pub fn kept(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
    now: i64,
) -> (Vec<Kept>, Vec<Taken>) {
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
                    Look::Wrong { is_news, says, edit, guards } => all.push(Kept {
                        key: layout.ip_address(address),
                        batch,
                        is_news,
                        mend: Mend {
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

/// The addresses of a Service that are to be kept now, each with the step that began it.
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
    /// A Service that is deleted, or has no address any more, needs none of its addresses; one that was recreated is held
    /// by its name at the old one, unless that is its own. What is retired needs what it has: nothing else frees it again.
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
            return wrong(true, format!("IPAddress `{address}` is created again"), edit, Vec::new());
        };
        let unchanged = vec![Guard::Unchanged(object.key.clone(), object.mod_revision)];
        let (namespace, parent) = (&object.parent.0, object.parent.1.as_str());
        let is_its = object.managed_by == Manager::Allocator && *namespace == candidate.namespace;
        if is_its && parent == candidate.name {
            let left = object.created.unwrap_or_default().saturating_sub(self.now);
            return if left >= AHEAD_SECONDS / 2 {
                Look::Fine
            } else {
                let edit = self.compiler.reserve_longer(candidate, address);
                wrong(false, format!("IPAddress `{address}` is dated ahead again"), edit, unchanged)
            };
        }
        if is_its && candidate.has_shadow(parent) {
            let edit = self.compiler.reserve_back(candidate, address, parent);
            return wrong(true, format!("IPAddress `{address}` is for its Service again"), edit, unchanged);
        }
        Look::Taken(format!("{namespace}/{parent}"))
    }
}
