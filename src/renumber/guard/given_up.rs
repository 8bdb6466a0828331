//! What a rollback gives up: Services that were deleted, or made anew, since they were planned cannot get their old
//! address back. What netsurgeon has made for them goes, and nothing of them is left to be undone.

use std::collections::HashMap;

use super::{Watch, is_the_planned};
use crate::operation::{KeyEdit, Mend, State, StepId, Swap, Work as _};
use crate::renumber::intention::{Move, Renumbering};
use crate::renumber::steps::Step;
use crate::survey::{Era, Layout, Survey};

/// Returns, for each Service that is gone or is another one by now, the steps that cannot be undone any more, and what
/// is done in their place. Shadows go first, one at a time and without steps: it is to be looked again afterwards.
/// `now` is in seconds since 1970.
pub fn given_up(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
    now: i64,
) -> Vec<(Vec<StepId>, Mend)> {
    let layout = Layout::new(&work.prefix);
    let watch = Watch::of(work, &layout, survey, now);
    let gone: Vec<(&Move, Settled)> =
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
    let with_steps = |(candidate, mend): (&Move, Settled)| {
        let steps = steps.remove(&candidate.id())?;
        Some(match mend {
            Settled::Shadow(mend) => (Vec::new(), mend),
            Settled::Rest(mend) => (steps, mend),
        })
    };
    gone.into_iter().filter_map(with_steps).collect()
}

/// As the executor sees it: what was begun and not undone, and what matters on the way back of a step that was.
fn is_to_be_undone(step: &Step, state: &impl Fn(&StepId) -> Option<State>) -> bool {
    // The lingering is no Service's.
    !step.is_for_the_way_back() && state(&step.id).is_some() && state(&step.id) != Some(State::UndoDone)
}

/// What is done of a Service that is gone. Of its shadows one at a time is removed: a transaction changes one Service.
pub(super) enum Settled {
    /// One of its shadows is removed; the rest comes later.
    Shadow(Mend),
    /// Everything else.
    Rest(Mend),
}

impl Watch<'_> {
    /// What becomes of one Service's reservations and shadows; `None` if it is still the one that was planned.
    fn given_up(&self, candidate: &Move) -> Option<Settled> {
        let found = self.index.service(candidate);
        if found.is_some_and(|service| is_the_planned(candidate, service)) {
            return None;
        }
        if let Some(shadow) = self.shadow_given_up(candidate) {
            return Some(Settled::Shadow(shadow));
        }
        let new = candidate.new_address;
        let has = |address| found.is_some_and(|service| service.addresses.contains(&address));
        let mut edits = if has(candidate.old_address) { Vec::new() } else { self.old_freed(candidate) };
        if !has(new) {
            edits.extend(self.freed(candidate, new));
        }
        edits.extend(found.and_then(|service| self.let_go(candidate, service)));
        let says = format!("nothing holds `{}` and `{new}` for it any more", candidate.old_address);
        Some(Settled::Rest(self.settled(candidate, says, edits)))
    }

    /// What removes one of its shadows; `None` if there is none any more.
    pub(super) fn shadow_given_up(&self, candidate: &Move) -> Option<Mend> {
        let (name, edits) = self.first_shadow(candidate)?;
        Some(self.settled(candidate, format!("its shadow Service `{name}` is removed"), edits))
    }

    fn settled(&self, candidate: &Move, says: String, edits: Vec<KeyEdit>) -> Mend {
        Mend {
            subject: candidate.subject(),
            code: "given-up",
            says,
            swap: Swap { edits, checks: Vec::new() },
            steps: Vec::new(),
            guards: vec![self.as_it_was(candidate)],
        }
    }

    /// What removes the first of its shadows that is there, or is not but has a temporary address still, in etcd.
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
            // An API server frees a bit with the Service that it deletes, which is not how this one goes.
            if self.compiler.work.era != Era::Objects
                && (is_its || found.is_some_and(|found| found.addresses.contains(&temporary)))
            {
                edits.extend(self.compiler.if_of_the_new_range(self.compiler.free_bit(temporary)));
            }
            (!edits.is_empty()).then_some((name.as_str(), edits))
        })
    }
}
