//! Carries a plan out, goes on where it was left, and undoes it.

use std::collections::HashSet;

use super::OperationError;
use super::journal::{Journal, State};
use super::plan::{Stage, Work};
use super::ports::{Ambient, Answer, Event, Observed, Observer, World, WorldError};
use super::step::{Action, ApiChange, External, Step, StepId, Swap, Wait};
use super::swap::prepare;
use crate::store::{CommitError, Guard, Transaction, WriteStore};

/// How often a step tries to change an object that others keep changing.
const MOST_ATTEMPTS: u32 = 20;

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps carried out (or undone) now.
    pub done: usize,
    /// Steps found carried out (or undone) already.
    pub skipped: usize,
    /// Steps that could not be undone and were left alone.
    pub stuck: Vec<Stuck>,
}

/// A step that could not be undone.
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

/// How far an unwinding has come.
struct Unwinding {
    report: Report,
    /// Whether anything was undone, now or before.
    begun: bool,
    /// What was waited for since something was undone last.
    waited_for: HashSet<String>,
    /// What the steps are about that could not be undone.
    stuck: HashSet<String>,
}

impl Unwinding {
    /// Whether something was undone since this was waited for last.
    fn owes(&self, wait: &Wait) -> bool {
        self.begun && !self.waited_for.contains(&wait.name)
    }

    /// Takes note of a step that was undone.
    fn undone(&mut self, step: &Step) {
        self.begun = true;
        match &step.action {
            Action::Wait(wait) => drop(self.waited_for.insert(wait.name.clone())),
            _ => self.waited_for.clear(),
        }
    }

    /// Whether a step must stay because a later one, which builds on it, could not be undone.
    fn is_built_upon(&self, step: &Step) -> bool {
        match &step.action {
            Action::Wait(_) => false,
            _ if step.about.is_empty() => !self.stuck.is_empty(),
            _ => self.stuck.contains(&step.about),
        }
    }
}

/// The machinery for one operation.
pub struct Executor<'a> {
    /// The store that is changed, and that has the journal.
    pub store: &'a dyn WriteStore,
    /// Everything else that is changed.
    pub world: &'a dyn World,
    /// Time and randomness.
    pub ambient: &'a dyn Ambient,
    /// Is told what happens.
    pub observer: &'a mut dyn Observer,
    /// What was done so far.
    pub journal: &'a mut Journal,
    /// What must hold for every write, such as a lock still being ours.
    pub guards: Vec<Guard>,
}

impl Executor<'_> {
    /// Carries out the stages, up to but not including the one with index `until` if that is given. Steps
    /// that are done already are skipped, so the same call resumes.
    ///
    /// Stops at the first step that fails, with everything before it done and nothing after it begun.
    pub async fn run(&mut self, work: &dyn Work, until: Option<usize>) -> Result<Report, Failure> {
        let mut report = Report::default();
        if self.journal.is_being_undone() {
            return Err(Failure { step: StepId("(first)".into()), source: OperationError::BeingUndone });
        }
        for stage in work.stages() {
            if until.is_some_and(|until| stage.index >= until) {
                break;
            }
            self.run_stage(work, &stage, &mut report).await?;
        }
        Ok(report)
    }

    async fn run_stage(
        &mut self,
        work: &dyn Work,
        stage: &Stage,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let steps = work.steps(stage);
        self.observer.event(Event::StageStarted { stage, steps: steps.len(), back: false });
        for step in &steps {
            let done =
                self.forward(step).await.map_err(|source| Failure { step: step.id.clone(), source })?;
            self.count(step, done, report);
        }
        Ok(())
    }

    fn count(&mut self, step: &Step, done: bool, report: &mut Report) {
        if done {
            report.done = report.done.saturating_add(1);
            self.observer.event(Event::StepDone { step });
        } else {
            report.skipped = report.skipped.saturating_add(1);
            self.observer.event(Event::StepSkipped { step });
        }
    }

    /// Undoes everything that was done, last step first. A step whose object someone else has changed is
    /// left alone and reported, and what it builds on stays with it ([`Step::about`]); any other failure
    /// stops. The same call tries again what was left.
    pub async fn unwind(&mut self, work: &dyn Work) -> Result<Report, Failure> {
        let stages = work.stages();
        self.refuse_past_no_return(work, &stages)?;
        let mut unwinding = Unwinding {
            report: Report::default(),
            begun: self.journal.is_being_undone(),
            waited_for: HashSet::new(),
            stuck: HashSet::new(),
        };
        for stage in stages.iter().rev() {
            let steps = work.steps(stage);
            if !steps.iter().any(|step| self.is_to_be_undone(step, &unwinding)) {
                continue;
            }
            self.observer.event(Event::StageStarted { stage, steps: steps.len(), back: true });
            for step in steps.iter().rev() {
                self.undo(step, &mut unwinding).await?;
            }
        }
        Ok(unwinding.report)
    }

    /// Whether there is anything to undo of a step. A wait is repeated even if it was undone already, when
    /// something was undone since the last one for the same thing.
    fn is_to_be_undone(&self, step: &Step, unwinding: &Unwinding) -> bool {
        let was_begun = |state| !matches!(state, None | Some(State::UndoDone | State::Failed));
        let state = self.journal.state(&step.id);
        match &step.action {
            Action::Wait(wait) => unwinding.owes(wait) || was_begun(state),
            Action::WayBack { of, .. } => {
                let other = self.journal.state(of);
                state != Some(State::UndoDone) && !matches!(other, None | Some(State::Failed))
            }
            _ => was_begun(state),
        }
    }

    fn refuse_past_no_return(&self, work: &dyn Work, stages: &[Stage]) -> Result<(), Failure> {
        for stage in stages {
            for step in work.steps(stage) {
                if step.action == Action::PointOfNoReturn && self.journal.state(&step.id).is_some() {
                    let source = OperationError::PointOfNoReturn { step: step.id.clone() };
                    return Err(Failure { step: step.id, source });
                }
            }
        }
        Ok(())
    }

    async fn undo(&mut self, step: &Step, unwinding: &mut Unwinding) -> Result<(), Failure> {
        if !self.is_to_be_undone(step, unwinding) {
            if self.journal.state(&step.id).is_some() {
                self.count(step, false, &mut unwinding.report);
            }
            return Ok(());
        }
        if unwinding.is_built_upon(step) {
            return Ok(());
        }
        match self.backward(step).await {
            Ok(()) => {
                unwinding.undone(step);
                self.count(step, true, &mut unwinding.report);
                Ok(())
            }
            Err(error) if error.is_about_one_object() => {
                let reason = error.to_string();
                self.observer.event(Event::LeftAlone { step: &step.id, reason: &reason });
                self.note(step, State::UndoFailed, Some(reason.clone()))
                    .await
                    .map_err(|source| Failure { step: step.id.clone(), source })?;
                unwinding.stuck.insert(step.about.clone());
                unwinding.report.stuck.push(Stuck { step: step.id.clone(), reason });
                Ok(())
            }
            Err(source) => Err(Failure { step: step.id.clone(), source }),
        }
    }

    /// Carries out one step. Returns whether there was anything to do.
    async fn forward(&mut self, step: &Step) -> Result<bool, OperationError> {
        let state = self.journal.state(&step.id);
        if state == Some(State::Done) {
            return Ok(false);
        }
        match &step.action {
            Action::Swap { forward, .. } => self.swap(step, Some(forward), State::Done).await?,
            Action::WayBack { .. } => return Ok(false),
            Action::Api { forward, .. } => {
                self.api(step, forward, state, State::Started, State::Done).await?;
            }
            Action::Wait(wait) => {
                self.world.wait(wait).await?;
                self.note(step, State::Done, None).await?;
            }
            Action::External(external) => {
                let assumed = external.assumed.as_ref();
                self.external(step, external, assumed, State::Done).await?;
            }
            Action::PointOfNoReturn => self.note(step, State::Done, None).await?,
        }
        Ok(true)
    }

    /// Undoes one step.
    async fn backward(&mut self, step: &Step) -> Result<(), OperationError> {
        let state = self.journal.state(&step.id);
        match &step.action {
            Action::Swap { backward, .. } => self.swap(step, backward.as_ref(), State::UndoDone).await,
            Action::WayBack { swap, .. } => self.swap(step, Some(swap), State::UndoDone).await,
            Action::Api { backward: Some(change), .. } => {
                self.api(step, change, state, State::UndoStarted, State::UndoDone).await
            }
            Action::Wait(wait) => {
                self.world.wait(wait).await?;
                if state == Some(State::UndoDone) {
                    Ok(())
                } else {
                    self.note(step, State::UndoDone, None).await
                }
            }
            Action::External(external) => {
                let assumed = external.assumed_back.as_ref();
                self.external(step, external, assumed, State::UndoDone).await
            }
            Action::Api { backward: None, .. } | Action::PointOfNoReturn => {
                self.note(step, State::UndoDone, None).await
            }
        }
    }

    /// A change through the API: the intention first, then the change, then the outcome. A change whose
    /// outcome is not in the journal is looked for before it is made again.
    async fn api(
        &mut self,
        step: &Step,
        change: &ApiChange,
        state: Option<State>,
        intention: State,
        outcome: State,
    ) -> Result<(), OperationError> {
        let begun = matches!(state, Some(State::Started | State::UndoStarted));
        let observed = if begun { self.world.observe(change).await? } else { Observed::NotDone };
        match observed {
            Observed::Changed(reason) => return Err(WorldError(reason).into()),
            Observed::Done => {}
            Observed::NotDone => {
                self.note(step, intention, None).await?;
                self.world.api(change).await?;
            }
        }
        self.note(step, outcome, None).await
    }

    async fn external(
        &mut self,
        step: &Step,
        external: &External,
        assumed: Option<&Swap>,
        outcome: State,
    ) -> Result<(), OperationError> {
        match self.world.external(external).await? {
            Answer::Confirmed => self.note(step, outcome, None).await,
            Answer::Open => {
                Err(OperationError::Paused { what: external.what.clone(), why: external.why.clone() })
            }
            Answer::Assumed => {
                self.observer.event(Event::Assumed { external });
                self.swap(step, assumed, outcome).await
            }
        }
    }

    /// Writes a record alone.
    async fn note(&mut self, step: &Step, to: State, error: Option<String>) -> Result<(), OperationError> {
        for _ in 0..MOST_ATTEMPTS {
            if self.commit(step, Transaction::default(), to, error.clone()).await? {
                return Ok(());
            }
        }
        Err(self.contended(step))
    }

    /// Changes keys and writes the record, in one transaction; reads anew and tries again when others were
    /// faster.
    async fn swap(&mut self, step: &Step, swap: Option<&Swap>, to: State) -> Result<(), OperationError> {
        for _ in 0..MOST_ATTEMPTS {
            let transaction = match swap {
                Some(swap) => prepare(self.store, swap, self.ambient).await,
                None => Ok(Transaction::default()),
            };
            let done = match transaction {
                Ok(transaction) => self.commit(step, transaction, to, None).await?,
                // The objects are not as they were before the change: perhaps because it was made, by a
                // commit of ours whose answer was lost or by another process. Then the record says so.
                Err(error) if error.is_about_one_object() => {
                    self.journal.reread(self.store, &step.id).await?;
                    if self.journal.state(&step.id) != Some(to) {
                        return Err(error);
                    }
                    true
                }
                Err(error) => return Err(error),
            };
            if done {
                return Ok(());
            }
        }
        Err(self.contended(step))
    }

    fn contended(&self, step: &Step) -> OperationError {
        OperationError::Contended { key: self.journal.step_key(&step.id), attempts: MOST_ATTEMPTS }
    }

    fn lost_the_lock(&self, conflict: &CommitError) -> bool {
        let CommitError::Conflict { key, .. } = conflict else { return false };
        self.guards.iter().any(|guard| match guard {
            Guard::SameCreation(guarded, _) | Guard::Unchanged(guarded, _) | Guard::Absent(guarded) => {
                guarded == key
            }
        })
    }

    /// Commits a transaction with the step's record in it. Returns `false` when it must be made anew.
    async fn commit(
        &mut self,
        step: &Step,
        mut transaction: Transaction,
        to: State,
        error: Option<String>,
    ) -> Result<bool, OperationError> {
        let (change, record) = self.journal.record(&step.id, to, self.ambient.now(), error)?;
        transaction.changes.push(change);
        transaction.guards.extend(self.guards.iter().cloned());
        match self.store.commit(&transaction).await {
            Ok(revision) => {
                self.journal.recorded(&step.id, record, revision);
                Ok(true)
            }
            Err(conflict @ CommitError::Conflict { .. }) if self.lost_the_lock(&conflict) => {
                Err(conflict.into())
            }
            // Others changed one of the objects; or an earlier commit of ours, whose answer was lost, came
            // through after all: then the record says so.
            Err(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }) => {
                self.journal.reread(self.store, &step.id).await?;
                Ok(self.journal.state(&step.id) == Some(to))
            }
            Err(other) => Err(other.into()),
        }
    }
}
