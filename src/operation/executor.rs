//! Carries a plan out, goes on where it was left, and undoes it.
//!
//! The parts: [`schedule`] which steps may be under way at the same time, [`crew`] carries them out side by
//! side, [`ahead`] reads what they will look at, [`carry`] does or undoes one of them, [`effect`] what is outside the
//! store, [`beside`] what may be begun while others wait, [`pace`] keeps it from being too fast, [`gate`] asks between batches, [`batch`] rolls one back.

mod ahead;
mod batch;
mod beside;
mod carry;
mod crew;
mod effect;
mod gate;
mod pace;
mod schedule;

use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::ahead::Ahead;
use self::carry::Carrier;
use self::crew::{Crew, Unwinding, Way};
use self::pace::Pace;
use super::OperationError;
use super::environment::{Ambient, Checkpoint, Environment};
use super::journal::Journal;
use super::ledger::Ledger;
use super::observer::{Event, Observer};
use super::plan::{Stage, Work};
use super::step::{Action, Effect, StepId};
use super::stop::Stop;

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps carried out (or undone) now.
    pub done: usize,
    /// Steps found carried out (or undone) already.
    pub skipped: usize,
    /// Steps that could not be carried out, or undone, and were left alone.
    pub stuck: Vec<Stuck>,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.done = self.done.saturating_add(other.done);
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.stuck.extend(other.stuck);
    }
}

/// A step that could not be carried out, or undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The step.
    pub step: StepId,
    /// Why.
    pub reason: String,
}

/// A plan stopped at a step.
#[derive(Debug, thiserror::Error)]
#[error("step `{step}`: {source}")]
pub struct Failure {
    /// The step.
    pub step: StepId,
    /// Why.
    pub source: OperationError,
}

impl Failure {
    /// Whether nothing went wrong: it was asked to stop, and did. The same call goes on.
    pub fn is_stopped(&self) -> bool {
        matches!(self.source, OperationError::Stopped)
    }
}

/// The machinery for one operation. [`Executor::new`] gives one that does a step at a time, as fast as it
/// can, to the end.
pub struct Executor<'a, E: Effect> {
    /// Where what it does is recorded, together with what it changes in the store that this is in.
    pub ledger: &'a dyn Ledger,
    /// Everything else that is changed.
    pub environment: &'a dyn Environment<E>,
    /// Time and randomness.
    pub ambient: &'a dyn Ambient,
    /// Is told what happens.
    pub observer: &'a mut dyn Observer,
    /// What was done so far.
    pub journal: &'a mut Journal,
    /// How many steps may be under way at the same time: steps of one stage, about different things. With 1
    /// (or 0) they are carried out in the order of the plan.
    pub parallel: usize,
    /// Asks to stop: no step begins any more, those under way are finished, and the failure is
    /// [`OperationError::Stopped`].
    pub stop: Stop,
    /// How many of the things that steps are about may be left alone on the way forward, because someone else has
    /// changed or deleted an object: of each, no later step is carried out. With one more the operation stops. What
    /// was left alone before is tried again, and does not count.
    pub max_failures: usize,
    /// Writes a second at most, in the store and through the API.
    pub rate: Option<NonZeroU32>,
    /// Is asked between batches, on the way forward only, and may close: the failure is then
    /// [`OperationError::GateClosed`], and the same call asks again.
    pub checkpoint: Option<&'a dyn Checkpoint>,
}

impl<'a, E: Effect> Executor<'a, E> {
    /// Returns an executor that does one step at a time; the other fields are set as in
    /// `Executor { parallel: 8, ..Executor::new(…) }`.
    pub fn new(
        ledger: &'a dyn Ledger,
        environment: &'a dyn Environment<E>,
        ambient: &'a dyn Ambient,
        observer: &'a mut dyn Observer,
        journal: &'a mut Journal,
    ) -> Self {
        let stop = Stop::never();
        Self {
            ledger,
            environment,
            ambient,
            observer,
            journal,
            parallel: 1,
            stop,
            max_failures: 0,
            rate: None,
            checkpoint: None,
        }
    }

    fn crew<'s>(&'s mut self, stop: &'s Stop) -> Crew<'s, E> {
        let (parallel, max_failures) = (self.parallel.max(1), self.max_failures);
        let carrier = Carrier {
            ledger: self.ledger,
            ahead: Ahead::of(self.ledger.store()),
            environment: self.environment,
            ambient: self.ambient,
            observer: Mutex::new(&mut *self.observer),
            journal: Mutex::new(&mut *self.journal),
            pace: Pace::new(self.rate),
            stop,
        };
        Crew { carrier, parallel, max_failures }
    }

    /// Carries out the stages, up to but not including the one with index `until` if that is given. Steps
    /// that are done already are skipped, so the same call resumes.
    ///
    /// A batch that was being rolled back ([`Self::unwind_batch`]) is first rolled back to its end, and that is all.
    ///
    /// Stops at the first step that fails (but see [`Self::max_failures`]): none begins after it, and those
    /// under way are finished. Of each thing that steps are about, everything before the failure is done and
    /// nothing after it begun.
    pub async fn run(
        &mut self,
        work: &dyn Work<Effect = E>,
        until: Option<usize>,
    ) -> Result<Report, Failure> {
        let mut report = Report::default();
        if self.journal.is_being_undone() {
            return Err(Failure { step: StepId("(first)".into()), source: OperationError::BeingUndone });
        }
        self.finish_returning(work).await?;
        let checkpoint = self.checkpoint;
        let (halt, halted) = Stop::new();
        let stop = self.stop.or(&halted);
        let crew = self.crew(&stop);
        let way = Way::Forward(Mutex::default());
        let mut stages = work.stages();
        stages.retain(|stage| until.is_none_or(|until| stage.index < until));
        let (mut left, mut place) = (stages.as_slice(), gate::Place::default());
        while let [stage, rest @ ..] = left {
            if let Some(checkpoint) = checkpoint.filter(|_| place.is_between(stage)) {
                gate::ask(checkpoint, &crew, work, (&place, left)).await?;
            }
            // A gate is asked before anything of the next batch begins.
            let beside = if checkpoint.is_some() { 0 } else { beside::count(work, left) };
            let (others, later) = rest.split_at_checked(beside).unwrap_or((&[], rest));
            beside::carry_out(&crew, work, (stage, others), (&way, &halt), &mut report).await?;
            place.pass(others.last().unwrap_or(stage));
            left = later;
        }
        Ok(report)
    }

    /// Undoes everything that was done, last step first. A step whose object someone else has changed is
    /// left alone and reported, and what it builds on stays with it ([`super::Step::about`]); any other
    /// failure stops, as in [`Self::run`]. The same call tries again what was left.
    pub async fn unwind(&mut self, work: &dyn Work<Effect = E>) -> Result<Report, Failure> {
        let stages = work.way_back();
        self.refuse_past_no_return(work, &stages)?;
        if self.journal.returning().is_some() {
            // From here on everything is on its way back, not a batch.
            let failed = |source| Failure { step: StepId("(last)".into()), source };
            self.journal.set_returning(self.ledger, None).await.map_err(failed)?;
        }
        let begun = self.journal.is_being_undone();
        self.unwind_stages(work, &stages, begun).await
    }

    /// Undoes stages, given in the order of the way back, each last step first; `begun` tells whether anything of
    /// them was undone before.
    async fn unwind_stages(
        &mut self,
        work: &dyn Work<Effect = E>,
        stages: &[Stage],
        begun: bool,
    ) -> Result<Report, Failure> {
        let way = Way::Back(Mutex::new(Unwinding::new(begun)));
        let stop = self.stop.clone();
        let crew = self.crew(&stop);
        let mut report = Report::default();
        for stage in stages {
            let steps = work.steps(stage);
            let back = crew.way_back(&steps, &way);
            if !back.iter().any(|step| crew.is_to_be_carried_out(step, &way)) {
                continue;
            }
            crew.carrier.tell(Event::StageStarted { stage, steps: steps.len(), back: true });
            crew.carry_out(&back, stage.batch, &way, &mut report).await?;
        }
        Ok(report)
    }

    fn refuse_past_no_return(&self, work: &dyn Work<Effect = E>, stages: &[Stage]) -> Result<(), Failure> {
        for stage in stages {
            for step in work.steps(stage) {
                if matches!(step.action, Action::PointOfNoReturn) && self.journal.state(&step.id).is_some() {
                    let source = OperationError::PointOfNoReturn { step: step.id.clone() };
                    return Err(Failure { step: step.id, source });
                }
            }
        }
        Ok(())
    }
}

/// Nothing panics while it is locked, so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
