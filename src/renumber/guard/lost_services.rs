//! Services that a rollback cannot move back. A Service that was deleted or recreated after planning cannot get its old address
//! back. The guard removes the objects that netsurgeon created for the Service. After that, no step of the Service needs to be
//! undone.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Watch, is_the_planned};
use crate::operation::{KeyEdit, Repair, State, StepId, Swap, Work as _};
use crate::renumber::intention::{Move, Renumbering};
use crate::renumber::steps::Step;
use crate::survey::{Era, Layout, Survey};

/// Returns, for each deleted or recreated Service, the steps that can no longer be undone, and the repair that replaces these
/// steps. If the Service still has shadows, the repair removes only one shadow, and the list of steps is empty. In this case,
/// call this function again after the repair. `now` is in seconds since 1970.
pub fn given_up(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
    now: i64,
) -> Vec<(Vec<StepId>, Repair)> {
    let layout = Layout::new(&work.prefix);
    let watch = Watch::of(work, &layout, survey, now);
    let gone: Vec<(&Move, Settled)> =
        work.moves.iter().filter_map(|m| watch.given_up(m).map(|repair| (m, repair))).collect();
    if gone.is_empty() {
        return Vec::new();
    }
    let mut steps: HashMap<String, Vec<StepId>> = HashMap::new();
    for step in work.stages().iter().flat_map(|stage| work.steps(stage)) {
        if is_to_be_undone(&step, &state) {
            steps.entry(step.subject).or_default().push(step.id);
        }
    }
    let with_steps = |(candidate, repair): (&Move, Settled)| {
        let steps = steps.remove(&candidate.id())?;
        Some(match repair {
            Settled::Shadow(repair) => (Vec::new(), repair),
            Settled::Rest(repair) => (steps, repair),
        })
    };
    gone.into_iter().filter_map(with_steps).collect()
}

/// Returns whether a step was started and not undone. The executor uses the same condition.
fn is_to_be_undone(step: &Step, state: &impl Fn(&StepId) -> Option<State>) -> bool {
    // The linger step belongs to no Service.
    !step.is_for_the_way_back() && state(&step.id).is_some() && state(&step.id) != Some(State::UndoDone)
}

/// The repair for a deleted Service. Shadows are removed one at a time, because a transaction changes only one Service.
pub(super) enum Settled {
    /// Removes one of the shadows; a later repair removes the other shadow.
    Shadow(Repair),
    /// Removes everything else that netsurgeon created for the Service.
    Rest(Repair),
}

impl Watch<'_> {
    /// Returns the repair for the reservations and shadows of a deleted or recreated Service; `None` if the Service is still the
    /// planned Service.
    fn given_up(&self, candidate: &Move) -> Option<Settled> {
        let found = self.index.service(candidate);
        if found.is_some_and(|service| is_the_planned(candidate, service)) {
            return None;
        }
        if let Some(shadow) = self.shadow_given_up(candidate) {
            return Some(Settled::Shadow(shadow));
        }
        let new = candidate.new_address;
        let has = |address: &IpAddr| found.is_some_and(|service| service.addresses.contains(address));
        let addresses = [candidate.old_address, new];
        let mut edits = self.all_freed(candidate, addresses.into_iter().filter(|address| !has(address)));
        edits.extend(found.and_then(|service| self.let_go(candidate, service)));
        let says = format!("`{}` and `{new}` are no longer held for it", candidate.old_address);
        Some(Settled::Rest(self.settled(candidate, says, edits)))
    }

    /// Returns the repair that removes one of the Service's shadows; `None` if no shadow is left.
    pub(super) fn shadow_given_up(&self, candidate: &Move) -> Option<Repair> {
        let (name, edits) = self.first_shadow(candidate)?;
        Some(self.settled(candidate, format!("its shadow Service `{name}` was removed"), edits))
    }

    fn settled(&self, candidate: &Move, says: String, edits: Vec<KeyEdit>) -> Repair {
        Repair {
            subject: candidate.subject(),
            code: "given-up",
            says,
            swap: Swap { edits, checks: Vec::new() },
            steps: Vec::new(),
            guards: vec![self.as_it_was(candidate)],
        }
    }

    /// Returns the name of the first shadow that exists or still has a temporary address, and the edits that remove this shadow
    /// in etcd.
    pub(super) fn first_shadow<'m>(&self, candidate: &'m Move) -> Option<(&'m str, Vec<KeyEdit>)> {
        let shadow = candidate.shadow.as_deref()?;
        let names = [&shadow.hold_name, &shadow.warm_name];
        names.into_iter().zip(shadow.temporary).find_map(|(name, temporary)| {
            let found = self.index.named(candidate, name);
            let mut edits: Vec<KeyEdit> = Vec::new();
            edits.extend(found.map(|found| self.compiler.drop_shadow(candidate, name, &found.addresses)));
            let object = self.index.object(temporary);
            let is_its = object.is_some_and(|it| it.parent.0 == candidate.namespace && it.parent.1 == **name);
            edits.extend(is_its.then(|| self.compiler.free(candidate, temporary, name, None)));
            // An API server frees the bit of a Service that it deletes. This shadow is deleted in etcd, so its bit is freed here.
            if is_its || found.is_some_and(|found| found.addresses.contains(&temporary)) {
                match self.compiler.work.era {
                    Era::Objects => {}
                    Era::DualWrite => edits.extend(self.compiler.free_bits_now(&[temporary])),
                    Era::Bitmap => edits.push(self.compiler.free_bit_if_new(temporary)),
                }
            }
            (!edits.is_empty()).then_some((name.as_str(), edits))
        })
    }
}
