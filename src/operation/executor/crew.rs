//! Several steps at the same time, forward and back.
//!
//! They are futures of one task: what they wait for is the network, not the processor, and with one at a
//! time everything happens in the same order on every run.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::ahead;
use super::carry::Carrier;
use super::lock;
use super::schedule::{Schedule, groups};
use super::{Failure, Report, Stuck};
use crate::operation::OperationError;
use crate::operation::journal::{Noted, State};
use crate::operation::observer::Event;
use crate::operation::step::{Action, Effect, Step, Swap, Wait, WaitKind};
use crate::store::Revision;

/// In which direction steps are carried out.
pub(super) enum Way {
    Forward(Mutex<LeftAlone>),
    Back(Mutex<Unwinding>),
}

/// The things, by name, of which a step could not be carried out.
#[derive(Default)]
pub(super) struct LeftAlone {
    things: HashSet<String>,
    /// How many of them had not been left alone before.
    fresh: usize,
    /// When the last step of each batch was done, waits not counted: the waits of a batch are for its own steps.
    newest: HashMap<Option<usize>, Revision>,
}

impl LeftAlone {
    /// Leaves one more thing alone, if that may be.
    fn add<E: Effect>(&mut self, step: &Step<E>, before: Option<State>, most: usize) -> bool {
        let is_fresh = before != Some(State::Failed);
        if is_fresh && self.fresh >= most {
            return false;
        }
        self.fresh = self.fresh.saturating_add(usize::from(is_fresh));
        self.things.insert(step.about.clone())
    }
}

/// How far an unwinding has come.
pub(super) struct Unwinding {
    /// Whether anything was undone, now or before.
    begun: bool,
    /// What was waited for since something was undone last: names of waits, and what they were about.
    waited_for: HashSet<(&'static str, Option<String>)>,
    /// What the steps are about that could not be undone.
    stuck: HashSet<String>,
}

impl Unwinding {
    pub(super) fn new(begun: bool) -> Self {
        Self { begun, waited_for: HashSet::new(), stuck: HashSet::new() }
    }

    /// Whether something was undone since this was waited for last.
    fn owes<K: WaitKind>(&self, wait: &Wait<K>) -> bool {
        self.begun && !self.waited_for.contains(&awaited(wait))
    }

    /// Takes note of a step that was undone.
    fn undone<E: Effect>(&mut self, step: &Step<E>) {
        self.begun = true;
        match &step.action {
            Action::Wait(wait) => {
                self.waited_for.insert(awaited(wait));
            }
            _ => self.waited_for.clear(),
        }
    }

    /// Whether a step must stay because a later one, which builds on it, could not be undone.
    fn is_built_upon<E: Effect>(&self, step: &Step<E>) -> bool {
        match &step.action {
            Action::Wait(_) if step.about.is_empty() => false,
            _ if step.about.is_empty() => !self.stuck.is_empty(),
            _ => self.stuck.contains(&step.about),
        }
    }
}

fn awaited<K: WaitKind>(wait: &Wait<K>) -> (&'static str, Option<String>) {
    (wait.kind.name(), wait.subject.clone())
}

/// What came of a step.
enum Outcome {
    Done,
    /// It had been carried out, or undone, before.
    Skipped,
    /// There was nothing to undo, or it must stay.
    Nothing,
    /// It could not be carried out, or undone, and was left alone.
    Stuck(String),
}

/// Carries out the steps of a stage.
pub(super) struct Crew<'e, E: Effect> {
    pub(super) carrier: Carrier<'e, E>,
    /// How many at the same time; at least 1.
    pub(super) parallel: usize,
    /// How many things may be left alone on the way forward.
    pub(super) max_failures: usize,
}

impl<E: Effect> Crew<'_, E> {
    /// Carries out the steps of one stage, given in the order in which they would be carried out one by one.
    pub(super) async fn carry_out(
        &self,
        steps: &[&Step<E>],
        batch: Option<usize>,
        way: &Way,
        report: &mut Report,
    ) -> Result<(), Failure> {
        for group in groups(steps) {
            let mut stuck = Vec::new();
            let outcome = self.carry_out_group(group, (way, batch), report, &mut stuck).await;
            stuck.sort_by_key(|(index, _)| *index);
            report.stuck.extend(stuck.into_iter().map(|(_, stuck)| stuck));
            outcome?;
        }
        Ok(())
    }

    async fn carry_out_group(
        &self,
        group: &[&Step<E>],
        (way, batch): (&Way, Option<usize>),
        report: &mut Report,
        stuck: &mut Vec<(usize, Stuck)>,
    ) -> Result<(), Failure> {
        let mut schedule = Schedule::new(group);
        let mut under_way = FuturesUnordered::new();
        let (mut failure, mut stopped) = (None, None);
        let mut windows = group.chunks(ahead::STEPS);
        let mut begun: usize = 0;
        loop {
            while failure.is_none() && stopped.is_none() && under_way.len() < self.parallel {
                let Some((index, step)) = schedule.begin() else { break };
                if begun.is_multiple_of(ahead::STEPS) {
                    self.read_ahead(windows.next().unwrap_or_default(), way).await;
                }
                begun = begun.saturating_add(1);
                if self.carrier.stop.is_asked() {
                    stopped = Some(Failure { step: step.id.clone(), source: OperationError::Stopped });
                } else {
                    under_way.push(self.one(index, step, (way, batch)));
                }
            }
            let Some((index, step, outcome)) = under_way.next().await else { break };
            schedule.ended(index);
            match outcome {
                Ok(Outcome::Stuck(reason)) => stuck.push((index, Stuck { step: step.id.clone(), reason })),
                Ok(outcome) => self.count(step, &outcome, report),
                Err(source) => {
                    self.carrier.tell(Event::StepFailed { step: step.into(), error: &source });
                    let later = Failure { step: step.id.clone(), source };
                    if failure.is_some() {
                        tracing::warn!(%later, "another step under way failed, too");
                    }
                    failure.get_or_insert(later);
                }
            }
        }
        failure.or(stopped).map_or(Ok(()), Err)
    }

    /// Reads what these steps look at, where that is more than one of them.
    async fn read_ahead(&self, steps: &[&Step<E>], way: &Way) {
        let is_open = |step: &&&Step<E>| self.is_to_be_carried_out(step, way);
        let swaps: Vec<&Swap> = steps
            .iter()
            .filter(is_open)
            .filter_map(|step| match (&step.action, way) {
                (Action::Swap { forward, .. }, Way::Forward(_)) => {
                    Some(forward).filter(|_| !step.is_for_the_way_back())
                }
                (Action::Swap { backward, .. }, Way::Back(_)) => backward.as_ref(),
                _ => None,
            })
            .collect();
        if swaps.len() > 1 {
            self.carrier.ahead.read(&swaps).await;
        }
    }

    async fn one<'s>(
        &self,
        index: usize,
        step: &'s Step<E>,
        (way, batch): (&Way, Option<usize>),
    ) -> (usize, &'s Step<E>, Result<Outcome, OperationError>) {
        let outcome = match way {
            Way::Forward(left) => self.carry(step, batch, left).await,
            Way::Back(unwinding) => self.undo(step, way, unwinding).await,
        };
        (index, step, outcome)
    }

    /// Carries out a step, unless one before it about the same thing could not be.
    async fn carry(
        &self,
        step: &Step<E>,
        batch: Option<usize>,
        left: &Mutex<LeftAlone>,
    ) -> Result<Outcome, OperationError> {
        if lock(left).things.contains(&step.about) {
            return Ok(Outcome::Nothing);
        }
        let is_wait = matches!(step.action, Action::Wait(_)) && !step.is_for_the_way_back();
        // A step that is retried is done later than the waits that those after it rely on: they are owed again.
        let is_owed = is_wait && self.carrier.done_at(&step.id) < lock(left).newest.get(&batch).copied();
        if !step.is_for_the_way_back() && (is_owed || self.carrier.state(&step.id) != Some(State::Done)) {
            self.carrier.tell_started(step, false);
        }
        let before = self.carrier.state(&step.id);
        let outcome = self.carrier.forward(step, is_owed).await;
        if !is_wait {
            let (mut left, done_at) = (lock(left), self.carrier.done_at(&step.id));
            let newest = left.newest.entry(batch).or_default();
            *newest = done_at.unwrap_or_default().max(*newest);
        }
        match outcome {
            Ok(true) => Ok(Outcome::Done),
            Ok(false) => Ok(Outcome::Skipped),
            Err(error) if error.is_about_one_object() && !step.about.is_empty() => {
                if !lock(left).add(step, before, self.max_failures) {
                    return Err(error);
                }
                self.leave_alone(step, &error, State::Failed).await.map(Outcome::Stuck)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes note of a step whose object someone else has changed, and returns the reason.
    async fn leave_alone(
        &self,
        step: &Step<E>,
        error: &OperationError,
        state: State,
    ) -> Result<String, OperationError> {
        let reason = error.to_string();
        self.carrier.tell(Event::LeftAlone { step: &step.id, reason: &reason });
        self.carrier.note(step, state, Noted::error(reason.clone())).await?;
        Ok(reason)
    }

    fn count(&self, step: &Step<E>, outcome: &Outcome, report: &mut Report) {
        match outcome {
            Outcome::Done => {
                report.done = report.done.saturating_add(1);
                self.carrier.tell(Event::StepDone { step: step.into() });
            }
            Outcome::Skipped => {
                report.skipped = report.skipped.saturating_add(1);
                self.carrier.tell(Event::StepSkipped { step: step.into() });
            }
            Outcome::Nothing | Outcome::Stuck(_) => {}
        }
    }

    /// Whether there is anything to do (or undo) of a step. On the way back a wait is repeated even if it was
    /// undone already, when something was undone since the last one for the same thing.
    pub(super) fn is_to_be_carried_out(&self, step: &Step<E>, way: &Way) -> bool {
        let state = self.carrier.state(&step.id);
        let Way::Back(unwinding) = way else { return state != Some(State::Done) };
        let was_begun = |state| !matches!(state, None | Some(State::UndoDone | State::Failed));
        let was_carried_out = |other| !matches!(self.carrier.state(other), None | Some(State::Failed));
        match (&step.action, step.is_for_the_way_back()) {
            (Action::Wait(wait), true) => {
                lock(unwinding).owes(wait) && step.back_of.iter().any(was_carried_out)
            }
            (_, true) => state != Some(State::UndoDone) && step.back_of.iter().any(was_carried_out),
            (Action::Wait(wait), false) => {
                (state.is_some() && lock(unwinding).owes(wait)) || was_begun(state)
            }
            (_, false) => was_begun(state),
        }
    }

    /// Returns the steps of a stage in the order of the way back, without waits that are over.
    pub(super) fn way_back<'s>(&self, steps: &'s [Step<E>], way: &Way) -> Vec<&'s Step<E>> {
        let mut order = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let (later, rest) = steps.split_at_checked(index).unwrap_or_default();
            let earlier = rest.get(1..).unwrap_or_default();
            if !self.is_over(step, (earlier, later), way) {
                order.push(step);
            }
        }
        order.reverse();
        order
    }

    /// Whether a wait need not be repeated on the way back, given the steps of its stage that are undone before it and after
    /// it. What it waits for may be deleted by the steps after it, so it must not be repeated once they are undone, or started
    /// to be, with nothing undone before it since.
    fn is_over(&self, wait: &Step<E>, (earlier, later): (&[Step<E>], &[Step<E>]), way: &Way) -> bool {
        // Those of the way back alone are looked at for themselves.
        let is_wait = |step: &&Step<E>| matches!(step.action, Action::Wait(_)) && !step.is_for_the_way_back();
        let was_waited_for = matches!(self.carrier.state(&wait.id), None | Some(State::UndoDone));
        if !is_wait(&wait) || !was_waited_for {
            return false;
        }
        let is_open = |step: &Step<E>| self.is_to_be_carried_out(step, way);
        let mut later = later.iter().filter(|step| !is_wait(step)).peekable();
        if later.peek().is_none() {
            return false;
        }
        let (mut open, mut begun) = (false, false);
        for step in later {
            open |= is_open(step);
            begun |= self.carrier.state(&step.id).is_some_and(State::is_of_the_way_back);
        }
        let waited_at = self.carrier.changed_at(&wait.id);
        let is_before = |step: &Step<E>| !is_open(step) && self.carrier.changed_at(&step.id) <= waited_at;
        !open || (begun && earlier.iter().filter(|step| !is_wait(step)).all(is_before))
    }

    async fn undo(
        &self,
        step: &Step<E>,
        way: &Way,
        unwinding: &Mutex<Unwinding>,
    ) -> Result<Outcome, OperationError> {
        if !self.is_to_be_carried_out(step, way) {
            let begun = self.carrier.state(&step.id).is_some();
            return Ok(if begun { Outcome::Skipped } else { Outcome::Nothing });
        }
        if lock(unwinding).is_built_upon(step) {
            return Ok(Outcome::Nothing);
        }
        self.carrier.tell_started(step, true);
        match self.carrier.backward(step).await {
            Ok(()) => {
                lock(unwinding).undone(step);
                Ok(Outcome::Done)
            }
            Err(error) if error.is_about_one_object() => {
                let reason = self.leave_alone(step, &error, State::UndoFailed).await?;
                if !step.apart {
                    lock(unwinding).stuck.insert(step.about.clone());
                }
                Ok(Outcome::Stuck(reason))
            }
            Err(error) => Err(error),
        }
    }
}
