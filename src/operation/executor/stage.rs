//! Runs steps concurrently, forward and back.
//!
//! The steps are futures of one task, because they wait for the network, not for the processor. If only one step runs at a time,
//! the order is always the same.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::lock;
use super::read_ahead;
use super::schedule::{Schedule, groups};
use super::step::StepRunner;
use super::{Report, RunFailure, Stuck};
use crate::operation::OperationError;
use crate::operation::journal::{Noted, State};
use crate::operation::observer::Event;
use crate::operation::step::{Action, Effect, Step, Swap, Wait, WaitKind};
use crate::store::Revision;
use crate::words::brief;

/// The direction of a run.
pub(super) enum Direction {
    Forward(Mutex<Skipped>),
    Back(Mutex<Rollback>),
}

/// The subjects that were skipped, because one of their steps could not be executed.
#[derive(Default)]
pub(super) struct Skipped {
    subjects: HashSet<String>,
    /// Number of skipped subjects that no earlier run had skipped.
    new: usize,
    /// For each batch, the revision at which its last step was done: for all subjects (the empty text), and for each subject.
    /// Waits do not count. The waits of a batch apply only to the steps of this batch.
    newest: HashMap<(Option<usize>, String), Revision>,
}

impl Skipped {
    /// Records a skipped subject. Returns `false` if the subject is new and `most` new subjects are already skipped.
    fn add<E: Effect>(&mut self, step: &Step<E>, before: Option<State>, most: usize) -> bool {
        let is_new = before != Some(State::Failed);
        if is_new && self.new >= most {
            return false;
        }
        self.new = self.new.saturating_add(usize::from(is_new));
        self.subjects.insert(step.subject.clone())
    }

    /// Records the revision at which a step was done.
    fn done<E: Effect>(&mut self, step: &Step<E>, batch: Option<usize>, at: Revision) {
        for subject in [String::new(), step.subject.clone()] {
            let newest = self.newest.entry((batch, subject)).or_default();
            *newest = at.max(*newest);
        }
    }

    /// Returns the revision at which the last step was done that a wait applies to.
    fn newest<E: Effect>(&self, wait: &Step<E>, batch: Option<usize>) -> Option<Revision> {
        self.newest.get(&(batch, scope(wait).to_string())).copied()
    }
}

/// The progress of a rollback.
pub(super) struct Rollback {
    /// Whether any step was undone before this run, or a step without a subject in this run.
    begun: bool,
    /// The waits that ended since the last undo of a step, by name and subject, for each [`scope`]. Contains the scopes with an undo
    /// in this run.
    waited_for: HashMap<String, HashSet<(&'static str, Option<String>)>>,
    /// The subjects with a step that could not be undone.
    stuck: HashSet<String>,
    /// Those of them that the operator has given up. Steps without a subject do not wait for them.
    waived: HashSet<String>,
}

impl Rollback {
    pub(super) fn new(begun: bool) -> Self {
        Self { begun, waited_for: HashMap::new(), stuck: HashSet::new(), waived: HashSet::new() }
    }

    /// Returns whether a step that the wait applies to was undone since the last wait for this condition.
    fn needs_wait<E: Effect>(&self, step: &Step<E>, wait: &Wait<E::Wait>) -> bool {
        let waited_for = self.waited_for.get(scope(step));
        waited_for.map_or(self.begun, |waited_for| !waited_for.contains(&awaited(wait)))
    }

    /// Records that a step was undone.
    fn undone<E: Effect>(&mut self, step: &Step<E>) {
        if let Action::Wait(wait) = &step.action {
            self.waited_for.entry(scope(step).to_string()).or_default().insert(awaited(wait));
            return;
        }
        if step.subject.is_empty() {
            self.begun = true;
            self.waited_for.clear();
        }
        for subject in [String::new(), step.subject.clone()] {
            self.waited_for.insert(subject, HashSet::new());
        }
    }

    /// Returns whether a step must stay done, because a later step that depends on it could not be undone.
    fn is_built_upon<E: Effect>(&self, step: &Step<E>) -> bool {
        match &step.action {
            Action::Wait(_) if step.subject.is_empty() => false,
            _ if step.subject.is_empty() => !self.stuck.is_empty(),
            _ => self.stuck.contains(&step.subject) || self.waived.contains(&step.subject),
        }
    }
}

fn awaited<K: WaitKind>(wait: &Wait<K>) -> (&'static str, Option<String>) {
    (wait.kind.name(), wait.subject.clone())
}

/// Returns the subject that a wait applies to; empty if the wait applies to all subjects.
fn scope<E: Effect>(wait: &Step<E>) -> &str {
    if wait.is_wait_with_company() { &wait.subject } else { "" }
}

/// The outcome of a step.
enum Outcome {
    Done,
    /// The step was executed (or undone) before.
    Skipped,
    /// There was nothing to undo, the step must stay done, or its subject was skipped before.
    Nothing,
    /// The step could not be executed (or undone) and was skipped.
    Stuck(String),
}

/// Runs the steps of a stage.
pub(super) struct StageRunner<'e, E: Effect> {
    pub(super) step_runner: StepRunner<'e, E>,
    /// Maximum number of concurrent steps; at least 1.
    pub(super) parallel: usize,
    /// How many subjects a forward run can skip.
    pub(super) max_failures: usize,
}

impl<E: Effect> StageRunner<'_, E> {
    /// Runs the steps of one stage, given in sequential order.
    pub(super) async fn carry_out(
        &self,
        steps: &[&Step<E>],
        batch: Option<usize>,
        direction: &Direction,
        report: &mut Report,
    ) -> Result<(), RunFailure> {
        for group in groups(steps) {
            let mut stuck = Vec::new();
            let outcome = self.carry_out_group(group, (direction, batch), report, &mut stuck).await;
            stuck.sort_by_key(|(index, _)| *index);
            report.stuck.extend(stuck.into_iter().map(|(_, stuck)| stuck));
            outcome?;
        }
        Ok(())
    }

    async fn carry_out_group(
        &self,
        group: &[&Step<E>],
        (direction, batch): (&Direction, Option<usize>),
        report: &mut Report,
        stuck: &mut Vec<(usize, Stuck)>,
    ) -> Result<(), RunFailure> {
        let mut schedule = Schedule::new(group);
        let mut under_way = FuturesUnordered::new();
        let (mut failure, mut stopped) = (None, None);
        let mut windows = group.chunks(read_ahead::STEPS);
        let mut begun: usize = 0;
        loop {
            while failure.is_none() && stopped.is_none() && under_way.len() < self.parallel {
                let Some((index, step)) = schedule.begin() else { break };
                if begun.is_multiple_of(read_ahead::STEPS) {
                    self.read_ahead(windows.next().unwrap_or_default(), direction).await;
                }
                begun = begun.saturating_add(1);
                if self.step_runner.stop.is_asked() {
                    stopped = Some(RunFailure { step: step.id.clone(), source: OperationError::Stopped });
                } else {
                    self.step_runner.started(step);
                    under_way.push(self.one(index, step, (direction, batch)));
                }
            }
            let Some((index, step, outcome)) = under_way.next().await else { break };
            self.step_runner.ended(step);
            schedule.ended(index);
            match outcome {
                Ok(Outcome::Stuck(reason)) => stuck.push((index, Stuck { step: step.id.clone(), reason })),
                Ok(outcome) => self.count(step, &outcome, report),
                Err(source) => {
                    self.step_runner.tell(Event::StepFailed { step: step.into(), error: &source });
                    self.step_runner.halt.0.ask();
                    let later = RunFailure { step: step.id.clone(), source };
                    if failure.is_some() && !later.is_stopped() {
                        tracing::warn!(%later, "another running step failed, too");
                    }
                    failure.get_or_insert(later);
                }
            }
        }
        failure.or(stopped).map_or(Ok(()), Err)
    }

    /// Reads the keys of the given steps in one request, if more than one of the steps changes keys.
    async fn read_ahead(&self, steps: &[&Step<E>], direction: &Direction) {
        let is_open = |step: &&&Step<E>| self.is_to_be_carried_out(step, direction);
        let swaps: Vec<&Swap> = steps
            .iter()
            .filter(is_open)
            .filter_map(|step| match (&step.action, direction) {
                (Action::Swap { forward, .. }, Direction::Forward(_)) => {
                    Some(forward).filter(|_| !step.is_for_the_way_back())
                }
                (Action::Swap { backward, .. }, Direction::Back(_)) => backward.as_ref(),
                _ => None,
            })
            .collect();
        if swaps.len() > 1 {
            self.step_runner.ahead.read(&swaps).await;
        }
    }

    async fn one<'s>(
        &self,
        index: usize,
        step: &'s Step<E>,
        (direction, batch): (&Direction, Option<usize>),
    ) -> (usize, &'s Step<E>, Result<Outcome, OperationError>) {
        let outcome = match direction {
            Direction::Forward(left) => self.carry(step, batch, left).await,
            Direction::Back(rollback) => self.undo(step, direction, rollback).await,
        };
        (index, step, outcome)
    }

    /// Executes a step, unless its subject is given up, or was skipped in this run.
    async fn carry(
        &self,
        step: &Step<E>,
        batch: Option<usize>,
        left: &Mutex<Skipped>,
    ) -> Result<Outcome, OperationError> {
        if self.step_runner.waived(step).is_some() || lock(left).subjects.contains(&step.subject) {
            return Ok(Outcome::Nothing);
        }
        let is_wait = matches!(step.action, Action::Wait(_)) && !step.is_for_the_way_back();
        // A retried step can finish after a wait that the next steps depend on. In this case the wait runs again.
        let is_owed = is_wait && self.step_runner.done_at(&step.id) < lock(left).newest(step, batch);
        if !step.is_for_the_way_back() && (is_owed || self.step_runner.state(&step.id) != Some(State::Done)) {
            self.step_runner.tell_started(step);
        }
        let before = self.step_runner.state(&step.id);
        let outcome = self.step_runner.forward(step, is_owed).await;
        if !is_wait {
            lock(left).done(step, batch, self.step_runner.done_at(&step.id).unwrap_or_default());
        }
        match outcome {
            Ok(true) => Ok(Outcome::Done),
            Ok(false) => Ok(Outcome::Skipped),
            Err(error) if error.is_about_one_object() && !step.subject.is_empty() => {
                if !lock(left).add(step, before, self.max_failures) {
                    return Err(error);
                }
                self.leave_alone(step, &error, State::Failed).await.map(Outcome::Stuck)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports and records that a step was skipped, and returns the reason.
    async fn leave_alone(
        &self,
        step: &Step<E>,
        error: &OperationError,
        state: State,
    ) -> Result<String, OperationError> {
        let reason = brief(&error.to_string()).into_owned();
        self.step_runner.tell(Event::LeftAlone { step: &step.id, reason: &reason });
        self.step_runner.note(step, state, Noted::error(&reason)).await?;
        Ok(reason)
    }

    fn count(&self, step: &Step<E>, outcome: &Outcome, report: &mut Report) {
        match outcome {
            Outcome::Done => {
                report.done = report.done.saturating_add(1);
                self.step_runner.tell(Event::StepDone { step: step.into() });
            }
            Outcome::Skipped => {
                report.skipped = report.skipped.saturating_add(1);
                self.step_runner.tell(Event::StepSkipped { step: step.into() });
            }
            Outcome::Nothing | Outcome::Stuck(_) => {}
        }
    }

    /// Returns whether a step must be executed (or undone). The steps of a subject that was given up stay as they are, but a
    /// rollback tries to undo the steps of a subject that was given up in the forward direction. A rollback repeats a wait if a step was undone after the last wait
    /// for the same condition.
    pub(super) fn is_to_be_carried_out(&self, step: &Step<E>, direction: &Direction) -> bool {
        let (state, waived) = (self.step_runner.state(&step.id), self.step_runner.waived(step));
        let Direction::Back(rollback) = direction else {
            return waived.is_none() && state != Some(State::Done);
        };
        if waived == Some(true) {
            return false;
        }
        let was_begun = |state| !matches!(state, None | Some(State::UndoDone | State::Failed));
        let was_carried_out = |other| !matches!(self.step_runner.state(other), None | Some(State::Failed));
        match (&step.action, step.is_for_the_way_back()) {
            (Action::Wait(wait), true) => {
                lock(rollback).needs_wait(step, wait) && step.back_of.iter().any(was_carried_out)
            }
            (_, true) => state != Some(State::UndoDone) && step.back_of.iter().any(was_carried_out),
            (Action::Wait(wait), false) => {
                (state.is_some() && lock(rollback).needs_wait(step, wait)) || was_begun(state)
            }
            (_, false) => was_begun(state),
        }
    }

    async fn undo(
        &self,
        step: &Step<E>,
        direction: &Direction,
        rollback: &Mutex<Rollback>,
    ) -> Result<Outcome, OperationError> {
        if !self.is_to_be_carried_out(step, direction) {
            let begun = self.step_runner.state(&step.id).is_some();
            return Ok(if begun { Outcome::Skipped } else { Outcome::Nothing });
        }
        if lock(rollback).is_built_upon(step) {
            return Ok(Outcome::Nothing);
        }
        self.step_runner.tell_started(step);
        match self.step_runner.backward(step).await {
            Ok(()) => {
                lock(rollback).undone(step);
                Ok(Outcome::Done)
            }
            Err(error) if error.is_about_one_object() => {
                let reason = self.leave_alone(step, &error, State::UndoFailed).await?;
                let is_waived = self.step_runner.waived(step).is_some();
                if !step.independent {
                    let mut rollback = lock(rollback);
                    let left = if is_waived { &mut rollback.waived } else { &mut rollback.stuck };
                    left.insert(step.subject.clone());
                }
                Ok(if is_waived { Outcome::Nothing } else { Outcome::Stuck(reason) })
            }
            Err(error) => Err(error),
        }
    }
}
