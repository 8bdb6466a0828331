//! Orders the steps of a stage for a rollback.

use std::collections::HashMap;

use super::stage::{Direction, StageRunner};
use crate::operation::journal::State;
use crate::operation::step::{Action, Effect, Step};
use crate::store::Revision;

/// The steps of a part of a stage, without its waits.
#[derive(Debug, Clone, Copy, Default)]
struct Steps {
    count: usize,
    /// Number of steps that still have to be undone.
    open: usize,
    /// Number of steps whose undo has started.
    begun: usize,
    /// The revision of the last change of a step.
    newest: Option<Revision>,
}

impl Steps {
    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.open = self.open.saturating_add(other.open);
        self.begun = self.begun.saturating_add(other.begun);
        self.newest = self.newest.max(other.newest);
    }
}

/// The steps of a part of a stage, for all subjects and for each subject.
#[derive(Default)]
struct Part<'s> {
    all: Steps,
    of_each: HashMap<&'s str, Steps>,
}

impl<'s> Part<'s> {
    fn add(&mut self, subject: &'s str, step: Steps) {
        self.all.add(step);
        self.of_each.entry(subject).or_default().add(step);
    }

    /// Returns the steps that a wait applies to.
    fn of<E: Effect>(&self, wait: &Step<E>) -> Steps {
        if !wait.is_wait_with_company() {
            return self.all;
        }
        let mut of = Steps::default();
        for subject in ["", &wait.subject] {
            of.add(self.of_each.get(subject).copied().unwrap_or_default());
        }
        of
    }
}

/// Returns whether a step is a wait. Waits that run only in a rollback are checked separately.
fn is_wait<E: Effect>(step: &Step<E>) -> bool {
    matches!(step.action, Action::Wait(_)) && !step.is_for_the_way_back()
}

impl<E: Effect> StageRunner<'_, E> {
    /// Returns the steps of a stage in the order of the rollback. Omits waits that do not have to be repeated.
    pub(super) fn way_back<'s>(&self, steps: &'s [Step<E>], direction: &Direction) -> Vec<&'s Step<E>> {
        if !steps.iter().any(|step| self.may_be_over(step)) {
            return steps.iter().rev().collect();
        }
        let (mut all, mut earlier) = (Part::default(), Part::default());
        for step in steps.iter().filter(|step| !is_wait(step)) {
            all.add(&step.subject, self.counted(step, direction));
        }
        let mut order = Vec::with_capacity(steps.len());
        for step in steps.iter().rev() {
            if !self.may_be_over(step) || !self.is_over(step, earlier.of(step), all.of(step)) {
                order.push(step);
            }
            if !is_wait(step) {
                earlier.add(&step.subject, self.counted(step, direction));
            }
        }
        order
    }

    fn counted(&self, step: &Step<E>, direction: &Direction) -> Steps {
        let begun = self.step_runner.state(&step.id).is_some_and(State::is_of_the_way_back);
        Steps {
            count: 1,
            open: self.is_to_be_carried_out(step, direction).into(),
            begun: begun.into(),
            newest: self.step_runner.changed_at(&step.id),
        }
    }

    /// Returns whether a step is a wait that has already run in a rollback, or never ran.
    fn may_be_over(&self, step: &Step<E>) -> bool {
        is_wait(step) && matches!(self.step_runner.state(&step.id), None | Some(State::UndoDone))
    }

    /// Returns whether a rollback can skip such a wait. `earlier` are the steps of the same stage that are undone before the wait;
    /// `all` also contains the steps that are undone after the wait.
    ///
    /// The undo of a later step can delete the object that the wait checks. So a rollback does not repeat a wait if one of these
    /// conditions holds:
    /// * Every later step is undone.
    /// * The undo of a later step has started, and no earlier step was undone after the wait.
    fn is_over(&self, wait: &Step<E>, earlier: Steps, all: Steps) -> bool {
        if all.count == earlier.count {
            return false;
        }
        let waited_at = self.step_runner.changed_at(&wait.id);
        let is_before = earlier.open == 0 && earlier.newest <= waited_at;
        all.open == earlier.open || (all.begun > earlier.begun && is_before)
    }
}
