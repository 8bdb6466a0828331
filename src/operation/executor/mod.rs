//! Executes a plan, resumes it, and rolls it back.
//!
//! The executor consists of these modules: [`schedule`] decides which steps can run concurrently, [`stage`] runs them,
//! [`read_ahead`] reads the keys of the next steps, [`step`] executes or undoes one step, [`effect`] executes effects through the
//! environment, [`way_back`] orders the steps of a rollback, [`beside`] runs stages while another stage waits, [`rate_limit`]
//! limits the writes, [`gate`] checks the gates between batches, [`batch`] rolls one batch back.

mod batch;
mod beside;
mod effect;
mod gate;
mod rate_limit;
mod read_ahead;
mod schedule;
mod stage;
mod step;
mod way_back;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::rate_limit::RateLimit;
use self::read_ahead::ReadAhead;
use self::stage::{Direction, Rollback, StageRunner};
use self::step::StepRunner;
use super::OperationError;
use super::environment::{Ambient, Checkpoint, Environment};
use super::journal::Journal;
use super::ledger::Ledger;
use super::observer::{Event, Observer};
use super::plan::{Shortcut, Stage, Work};
use super::step::{Action, Effect, StepId};
use super::stop::Stop;

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of steps that this run executed (or undid).
    pub done: usize,
    /// Number of steps that were executed (or undone) before this run.
    pub skipped: usize,
    /// Steps that could not be executed (or undone) and were skipped.
    pub stuck: Vec<Stuck>,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.done = self.done.saturating_add(other.done);
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.stuck.extend(other.stuck);
    }
}

/// A step that could not be executed (or undone).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The step.
    pub step: StepId,
    /// Why the step could not be executed (or undone).
    pub reason: String,
}

/// An error that stopped a plan at a step.
#[derive(Debug, thiserror::Error)]
#[error("step `{step}`: {source}")]
pub struct RunFailure {
    /// The step.
    pub step: StepId,
    /// Why the plan stopped.
    pub source: OperationError,
}

impl RunFailure {
    /// Returns whether the plan stopped on request, without a failure. Running the plan again resumes it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.source, OperationError::Stopped)
    }
}

/// Executes one operation. [`Executor::new`] returns an executor that runs one step at a time, without a rate limit, to the end.
pub struct Executor<'a, E: Effect> {
    /// Stores the records of the steps. A record is written together with the changes that its step makes in the same store.
    pub ledger: &'a dyn Ledger,
    /// Executes effects, waits and manual steps.
    pub environment: &'a dyn Environment<E>,
    /// Source of time and random values.
    pub ambient: &'a dyn Ambient,
    /// Receives the events of the operation.
    pub observer: &'a mut dyn Observer,
    /// The journal, which records the steps that were executed so far.
    pub journal: &'a mut Journal,
    /// Maximum number of steps that run concurrently. Only steps of one stage with different subjects run concurrently. If this
    /// is 1 (or 0), the steps run in the order of the plan.
    pub parallel: usize,
    /// Receives the stop request. After a stop request, no further step starts and running steps finish. The run then fails with
    /// [`OperationError::Stopped`].
    pub stop: Stop,
    /// How many subjects a forward run can skip because another client changed or deleted an object. Later steps of a skipped
    /// subject do not run. If one more subject must be skipped, the operation stops. A subject that an earlier run skipped is
    /// retried and does not count.
    pub max_failures: usize,
    /// Maximum number of writes per second, in the store and through the API.
    pub rate: Option<NonZeroU32>,
    /// Checks the gates between batches, in a forward run only. If a gate is closed, the run fails with
    /// [`OperationError::GateClosed`]. The next run checks the gate again.
    pub checkpoint: Option<&'a dyn Checkpoint>,
}

impl<'a, E: Effect> Executor<'a, E> {
    /// Returns an executor that runs one step at a time. Set the other fields like this: `Executor { parallel: 8,
    /// ..Executor::new(…) }`.
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

    fn runner<'s>(&'s mut self, stop: &'s Stop) -> StageRunner<'s, E> {
        let (parallel, max_failures) = (self.parallel.max(1), self.max_failures);
        let step_runner = StepRunner {
            ledger: self.ledger,
            ahead: ReadAhead::of(self.ledger.store()),
            environment: self.environment,
            ambient: self.ambient,
            observer: Mutex::new(&mut *self.observer),
            journal: Mutex::new(&mut *self.journal),
            rate_limit: RateLimit::new(self.rate),
            stop,
            halt: Stop::new(),
            running: AtomicUsize::new(0),
            covered: HashMap::new(),
        };
        StageRunner { step_runner, parallel, max_failures }
    }

    /// Runs the stages. If `until` is given, stops before the stage with that index. Skips steps that are already done, so the
    /// same call resumes the operation.
    ///
    /// If a rollback of a batch was interrupted ([`Self::unwind_batch`]), completes only that rollback.
    ///
    /// Stops at the first step that fails, except for skipped subjects ([`Self::max_failures`]). No further step starts, and
    /// running steps finish. For each subject, every step before the failed step is done and no step after it has started.
    pub async fn run(
        &mut self,
        work: &dyn Work<Effect = E>,
        until: Option<usize>,
    ) -> Result<Report, RunFailure> {
        let mut report = Report::default();
        if self.journal.is_being_undone() {
            return Err(RunFailure { step: StepId("(first)".into()), source: OperationError::BeingUndone });
        }
        self.finish_returning(work).await?;
        let checkpoint = self.checkpoint;
        let (halt, halted) = Stop::new();
        let stop = self.stop.or(&halted);
        let runner = self.runner(&stop);
        let direction = Direction::Forward(Mutex::default());
        let mut stages = work.stages();
        stages.retain(|stage| until.is_none_or(|until| stage.index < until));
        let (mut left, mut place) = (stages.as_slice(), gate::Place::default());
        while let [stage, rest @ ..] = left {
            if let Some(checkpoint) = checkpoint.filter(|_| place.is_between(stage)) {
                gate::ask(checkpoint, &runner, work, (&place, left)).await?;
            }
            // A gate is checked before any step of the next batch starts.
            let beside = if checkpoint.is_some() { 0 } else { beside::count(work, left) };
            let (others, later) = rest.split_at_checked(beside).unwrap_or((&[], rest));
            beside::carry_out(&runner, work, (stage, others), (&direction, &halt), &mut report).await?;
            place.pass(others.last().unwrap_or(stage));
            left = later;
        }
        Ok(report)
    }

    /// Undoes every step that was done: first the steps that take a subject straight back ([`Work::straight_back`]), then the
    /// others, last step first. If another client changed the object of a step, skips and reports the
    /// step. The steps on which the skipped step depends also stay done ([`super::Step::subject`]). Any other failure stops the
    /// rollback, as in [`Self::run`]. Another call retries the skipped steps.
    pub async fn unwind(&mut self, work: &dyn Work<Effect = E>) -> Result<Report, RunFailure> {
        let stages = work.way_back();
        self.refuse_past_no_return(work, &stages)?;
        if self.journal.returning().is_some() {
            // From here on, the rollback is for the whole operation, not only for a batch.
            let failed = |source| RunFailure { step: StepId("(last)".into()), source };
            self.journal.set_returning(self.ledger, None).await.map_err(failed)?;
        }
        let begun = self.journal.is_being_undone();
        let straight = work.straight_back(&|step| self.journal.state(step));
        self.unwind_stages(work, straight, &stages, begun).await
    }

    /// Undoes the steps of `straight`, then stages in the given order. In each stage, the last step is undone first. `begun` is
    /// true if any of these steps was undone before.
    async fn unwind_stages(
        &mut self,
        work: &dyn Work<Effect = E>,
        straight: Option<(Stage, Vec<Shortcut<E>>)>,
        stages: &[Stage],
        begun: bool,
    ) -> Result<Report, RunFailure> {
        let direction = Direction::Back(Mutex::new(Rollback::new(begun)));
        let stop = self.stop.clone();
        let mut runner = self.runner(&stop);
        let mut report = Report::default();
        if let Some((stage, shortcuts)) = straight.filter(|(_, shortcuts)| !shortcuts.is_empty()) {
            let (steps, covers): (Vec<_>, Vec<_>) =
                shortcuts.into_iter().map(|shortcut| (shortcut.step, shortcut.covers)).unzip();
            runner.step_runner.covered = steps.iter().map(|step| step.id.clone()).zip(covers).collect();
            runner.step_runner.tell(Event::StageStarted { stage: &stage, steps: steps.len(), back: true });
            let steps: Vec<_> = steps.iter().collect();
            runner.carry_out(&steps, stage.batch, &direction, &mut report).await?;
        }
        for stage in stages {
            let steps = work.steps(stage);
            let back = runner.way_back(&steps, &direction);
            if !back.iter().any(|step| runner.is_to_be_carried_out(step, &direction)) {
                continue;
            }
            runner.step_runner.tell(Event::StageStarted { stage, steps: steps.len(), back: true });
            runner.carry_out(&back, stage.batch, &direction, &mut report).await?;
        }
        Ok(report)
    }

    fn refuse_past_no_return(&self, work: &dyn Work<Effect = E>, stages: &[Stage]) -> Result<(), RunFailure> {
        for stage in stages {
            for step in work.steps(stage) {
                if matches!(step.action, Action::PointOfNoReturn) && self.journal.state(&step.id).is_some() {
                    let source = OperationError::PointOfNoReturn { step: step.id.clone() };
                    return Err(RunFailure { step: step.id, source });
                }
            }
        }
        Ok(())
    }
}

/// Locks a mutex, even if it is poisoned. Its data is consistent, because no code panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
