//! Decides which steps of a stage can run concurrently.
//!
//! Steps with the same subject keep their order. Steps that write the same key also keep their order, because concurrent writes
//! to one key would conflict. Some steps run alone: a step without a subject, a manual step, the point of no return, and a wait,
//! unless its kind permits company ([`WaitKind`](crate::operation::WaitKind)). A step that runs alone starts after every earlier
//! step has ended. No later step starts before that step has ended.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::operation::step::{Action, Effect, Step, Swap, WaitKind as _};
use crate::store::Key;

/// Splits steps into consecutive groups. A step that must run alone is its own group.
pub(super) fn groups<'s, E: Effect>(steps: &'s [&'s Step<E>]) -> impl Iterator<Item = &'s [&'s Step<E>]> {
    steps.chunk_by(|one, next| !is_alone(one) && !is_alone(next))
}

fn is_alone<E: Effect>(step: &Step<E>) -> bool {
    let has_company = match &step.action {
        Action::Swap { .. } | Action::Do(_) => true,
        Action::Wait(wait) => wait.kind.may_have_company(),
        Action::Manual(_) | Action::PointOfNoReturn => false,
    };
    step.subject.is_empty() || !has_company
}

/// A resource that only one step can use at a time.
#[derive(PartialEq, Eq, Hash)]
enum Claim<'s> {
    About(&'s str),
    Writes(&'s Key),
}

fn claims<E: Effect>(step: &Step<E>) -> impl Iterator<Item = Claim<'_>> {
    let swaps: [Option<&Swap>; 2] = match &step.action {
        Action::Swap { forward, backward } => [Some(forward), backward.as_ref()],
        _ => [None, None],
    };
    let written = swaps.into_iter().flatten().flat_map(|swap| &swap.edits);
    std::iter::once(Claim::About(&step.subject)).chain(written.map(|edit| Claim::Writes(&edit.key)))
}

/// The steps of a group that have not started yet.
pub(super) struct Schedule<'s, E: Effect> {
    steps: &'s [&'s Step<E>],
    places: Vec<Place>,
    /// Indices of the steps that can start, in the order of the plan.
    ready: BinaryHeap<Reverse<usize>>,
}

/// The dependencies of a step: how many steps it waits for, and which steps wait for it.
#[derive(Default)]
struct Place {
    waits_for: usize,
    followers: Vec<usize>,
}

impl<'s, E: Effect> Schedule<'s, E> {
    /// Returns the schedule for a group of steps, which are given in sequential order.
    pub(super) fn new(steps: &'s [&'s Step<E>]) -> Self {
        let mut places: Vec<Place> = steps.iter().map(|_| Place::default()).collect();
        let mut last: HashMap<Claim<'s>, usize> = HashMap::new();
        let mut ready = BinaryHeap::new();
        for (index, step) in steps.iter().enumerate() {
            let mut before: Vec<usize> = claims(step).filter_map(|claim| last.insert(claim, index)).collect();
            before.sort_unstable();
            before.dedup();
            // Without this line, a step whose swaps contain the same key twice would wait for itself.
            before.retain(|other| *other != index);
            if before.is_empty() {
                ready.push(Reverse(index));
            }
            if let Some(place) = places.get_mut(index) {
                place.waits_for = before.len();
            }
            for other in before {
                if let Some(place) = places.get_mut(other) {
                    place.followers.push(index);
                }
            }
        }
        Self { steps, places, ready }
    }

    /// Removes and returns the next step that can start, with its index.
    pub(super) fn begin(&mut self) -> Option<(usize, &'s Step<E>)> {
        let Reverse(index) = self.ready.pop()?;
        self.steps.get(index).map(|step| (index, *step))
    }

    /// Records that a step ended, so that the steps that waited for it can start.
    pub(super) fn ended(&mut self, index: usize) {
        let followers = self.places.get_mut(index).map(|place| std::mem::take(&mut place.followers));
        for follower in followers.unwrap_or_default() {
            let Some(place) = self.places.get_mut(follower) else { continue };
            place.waits_for = place.waits_for.saturating_sub(1);
            if place.waits_for == 0 {
                self.ready.push(Reverse(follower));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    use crate::operation::step::{KeyChange, KeyEdit, Manual, StepId, Wait, WaitKind};

    type Step = super::Step<Word>;
    type Action = super::Action<Word>;

    #[derive(Debug, Clone, Serialize)]
    struct Word(&'static str);

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    struct Barrier;

    impl Effect for Word {
        type Wait = Barrier;
    }

    impl WaitKind for Barrier {
        fn name(self) -> &'static str {
            "barrier"
        }
    }

    fn step(id: &str, subject: &str, action: Action) -> Step {
        Step {
            id: StepId(id.into()),
            subject: subject.into(),
            action,
            independent: false,
            back_of: Vec::new(),
        }
    }

    fn writes(id: &str, subject: &str, keys: &[&str]) -> Step {
        let change = KeyChange::Delete { require: Vec::new() };
        let edits = keys.iter().map(|key| KeyEdit { key: Key::from(*key), change: change.clone() }).collect();
        let forward = Swap { edits, checks: Vec::new() };
        step(id, subject, Action::Swap { forward: forward.clone(), backward: Some(forward) })
    }

    fn names<'s>(steps: impl IntoIterator<Item = &'s &'s Step>) -> String {
        steps.into_iter().map(|step| step.id.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn step_that_runs_alone_is_its_own_group() {
        let wait = Wait { kind: Barrier, batch: None, subject: None, until: String::new() };
        let manual = Manual { name: String::new(), what: String::new(), why: String::new(), undo: None };
        let steps = [
            writes("a", "x", &[]),
            step("b", "y", Action::Do(Word("effect"))),
            writes("all", "", &[]),
            writes("c", "x", &[]),
            step("wait", "x", Action::Wait(wait)),
            step("manual", "x", Action::Manual(manual)),
            Step { back_of: vec![StepId("a".into())], ..writes("d", "z", &[]) },
            step("end", "z", Action::PointOfNoReturn),
        ];
        let steps: Vec<&Step> = steps.iter().collect();
        let found: Vec<String> = groups(&steps).map(names).collect();
        assert_eq!(found, ["a b", "all", "c", "wait", "manual", "d", "end"]);
    }

    #[test]
    fn sequential_schedule_keeps_plan_order() {
        let steps = [writes("1", "x", &["k"]), writes("2", "y", &["k"]), writes("3", "x", &[])];
        let steps: Vec<&Step> = steps.iter().collect();
        let mut schedule = Schedule::new(&steps);
        let mut order = Vec::new();
        while let Some((index, _)) = schedule.begin() {
            order.push(index);
            schedule.ended(index);
        }
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn steps_of_one_subject_or_key_run_in_order() {
        let steps = [
            writes("0", "x", &["/one", "/one"]),
            writes("1", "x", &["/two"]),
            writes("2", "y", &["/two"]),
            writes("3", "z", &["/three"]),
            writes("4", "z", &["/one", "/two"]),
        ];
        let steps: Vec<&Step> = steps.iter().collect();
        let mut schedule = Schedule::new(&steps);
        let mut begin = |ended: Option<usize>| {
            if let Some(ended) = ended {
                schedule.ended(ended);
            }
            let mut begun = Vec::new();
            while let Some((index, _)) = schedule.begin() {
                begun.push(index);
            }
            begun
        };
        assert_eq!(begin(None), [0, 3]);
        assert_eq!(begin(Some(3)), [] as [usize; 0]);
        assert_eq!(begin(Some(0)), [1]);
        assert_eq!(begin(Some(1)), [2]);
        assert_eq!(begin(Some(2)), [4]);
        assert_eq!(begin(Some(4)), [] as [usize; 0]);
    }
}
