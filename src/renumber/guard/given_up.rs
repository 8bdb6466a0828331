//! What a rollback gives up: Services that were deleted, or made anew, since they were planned cannot get their old
//! address back. What netsurgeon has made for them goes, and nothing of them is left to be undone.

use std::collections::HashMap;

use super::{Watch, is_the_planned};
use crate::operation::{Action, KeyEdit, Mend, State, Step, StepId, Swap, Work as _};
use crate::renumber::intention::{Move, Renumbering};
use crate::survey::{Layout, Survey};

/// Returns, for each Service that is gone or is another one by now, the steps that cannot be undone any more, and what
/// is done in their place.
pub fn given_up(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
) -> Vec<(Vec<StepId>, Mend)> {
    let layout = Layout::new(&work.prefix);
    let watch = Watch::of(work, &layout, survey);
    let gone: Vec<(&Move, Mend)> =
        work.moves.iter().filter_map(|m| watch.given_up(m).map(|mend| (m, mend))).collect();
    if gone.is_empty() {
        return Vec::new();
    }
    let mut steps: HashMap<String, Vec<StepId>> = HashMap::new();
    for step in work.stages().iter().flat_map(|stage| work.steps(stage)) {
        if is_to_be_undone(&step, &state) {
            steps.entry(step.about).or_default().push(step.id);
        }
    }
    gone.into_iter().filter_map(|(candidate, mend)| Some((steps.remove(&candidate.id())?, mend))).collect()
}

/// As the executor sees it: what was begun and not undone, and what matters on the way back of a step that was.
fn is_to_be_undone(step: &Step, state: &impl Fn(&StepId) -> Option<State>) -> bool {
    let begun = match &step.action {
        Action::WayBack { of, .. } => state(of).is_some(),
        // It is no Service's.
        Action::WaitBack { .. } => return false,
        _ => state(&step.id).is_some(),
    };
    begun && state(&step.id) != Some(State::UndoDone)
}

impl Watch<'_> {
    /// What becomes of one Service's reservations and shadows; `None` if it is still the one that was planned.
    fn given_up(&self, candidate: &Move) -> Option<Mend> {
        let found = self.service(candidate);
        if found.is_some_and(|service| is_the_planned(candidate, service)) {
            return None;
        }
        let mut edits = self.shadows_of(candidate);
        let new = candidate.new_address;
        for address in [candidate.old_address, new] {
            if !found.is_some_and(|service| service.addresses.contains(&address)) {
                edits.extend(self.freed(candidate, address));
            }
        }
        edits.extend(found.and_then(|service| self.held_no_more(candidate, service)));
        Some(Mend {
            subject: candidate.subject(),
            code: "given-up",
            says: format!("nothing holds `{}` and `{new}` for it any more", candidate.old_address),
            swap: Swap { edits, checks: Vec::new() },
            steps: Vec::new(),
            guards: vec![self.as_it_was(candidate)],
        })
    }

    /// Removes its shadows, and their temporary addresses, in etcd.
    pub(super) fn shadows_of(&self, candidate: &Move) -> Vec<KeyEdit> {
        let Some(shadow) = &candidate.shadow else { return Vec::new() };
        let mut edits = Vec::new();
        for (name, temporary) in [&shadow.hold_name, &shadow.warm_name].into_iter().zip(shadow.temporary) {
            let found = self.named(candidate, name);
            edits.extend(found.map(|found| self.compiler.drop_shadow(candidate, name, &found.addresses)));
            let object = self.objects.get(&temporary);
            let is_its = object.is_some_and(|it| it.parent.0 == candidate.namespace && it.parent.1 == **name);
            edits.extend(is_its.then(|| self.compiler.free(candidate, temporary, name)));
        }
        edits
    }
}
