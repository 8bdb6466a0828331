//! One step, done or undone, with its record.
//!
//! Several may be under way at the same time: journal and observer are locked for a moment each, never while
//! a store or a port is waited for.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;

use super::ahead::Ahead;
use super::lock;
use super::pace::Pace;
use crate::operation::OperationError;
use crate::operation::environment::{Ambient, Answer, Environment, Fault};
use crate::operation::journal::{Journal, Noted, State};
use crate::operation::ledger::Ledger;
use crate::operation::observer::{Event, Observer};
use crate::operation::step::{Action, Effect, Manual, Step, StepId, Swap, Wait};
use crate::operation::stop::Stop;
use crate::operation::swap::prepare;
use crate::store::{CommitError, Revision, Transaction};

/// How often a step tries to change an object that others keep changing.
pub(super) const MOST_ATTEMPTS: u32 = 20;

/// What the steps of one run have in common.
pub(super) struct Carrier<'e, E: Effect> {
    pub(super) ledger: &'e dyn Ledger,
    pub(super) ahead: Ahead<'e>,
    pub(super) environment: &'e dyn Environment<E>,
    pub(super) ambient: &'e dyn Ambient,
    pub(super) observer: Mutex<&'e mut dyn Observer>,
    pub(super) journal: Mutex<&'e mut Journal>,
    pub(super) pace: Pace,
    pub(super) stop: &'e Stop,
}

impl<E: Effect> Carrier<'_, E> {
    pub(super) fn tell(&self, event: Event<'_>) {
        lock(&self.observer).event(event);
    }

    pub(super) fn state(&self, step: &StepId) -> Option<State> {
        lock(&self.journal).state(step)
    }

    /// The revision at which the record of a step changed last, `None` if it has none.
    pub(super) fn changed_at(&self, step: &StepId) -> Option<Revision> {
        lock(&self.journal).changed_at(step)
    }

    /// Whether a step is to be done anew, its batch having been rolled back.
    pub(super) fn was_reset(&self, step: &StepId) -> bool {
        lock(&self.journal).was_reset(step)
    }

    /// Returns the revision at which a step was done, `None` if it is not.
    pub(super) fn done_at(&self, step: &StepId) -> Option<Revision> {
        lock(&self.journal).done_at(step)
    }

    /// Carries out one step; one that is done only if it is owed again. Returns whether there was anything to do.
    pub(super) async fn forward(&self, step: &Step<E>, is_owed: bool) -> Result<bool, OperationError> {
        let is_done = self.state(&step.id) == Some(State::Done);
        if (is_done && !is_owed) || step.is_for_the_way_back() {
            return Ok(false);
        }
        match &step.action {
            Action::Swap { forward, .. } => self.swap(step, Some(forward), State::Done).await?,
            Action::Do(effect) => self.effect(step, effect, false).await?,
            Action::Wait(wait) => {
                self.wait(step, wait, false).await?;
                self.note(step, State::Done, Noted::default()).await?;
            }
            Action::Manual(manual) => self.manual(step, manual, false).await?,
            Action::PointOfNoReturn => self.note(step, State::Done, Noted::default()).await?,
        }
        Ok(true)
    }

    /// Undoes one step.
    pub(super) async fn backward(&self, step: &Step<E>) -> Result<(), OperationError> {
        match &step.action {
            Action::Swap { backward, .. } => self.swap(step, backward.as_ref(), State::UndoDone).await,
            Action::Do(effect) if effect.has_way_back() => self.effect(step, effect, true).await,
            Action::Wait(wait) => {
                self.wait(step, wait, true).await?;
                if self.state(&step.id) == Some(State::UndoDone) {
                    Ok(())
                } else {
                    self.note(step, State::UndoDone, Noted::default()).await
                }
            }
            Action::Manual(manual) if manual.undo.is_some() => self.manual(step, manual, true).await,
            Action::Do(_) | Action::Manual(_) | Action::PointOfNoReturn => {
                self.note(step, State::UndoDone, Noted::default()).await
            }
        }
    }

    /// Waits, unless it is asked to stop.
    async fn wait(&self, step: &Step<E>, wait: &Wait<E::Wait>, back: bool) -> Result<(), OperationError> {
        self.make_sure_of_guards().await?;
        let left = self.left(step, back);
        if left.is_some() {
            self.begin_to_wait(step, back).await?;
        }
        let waited = async {
            match left {
                Some(left) => {
                    sleep(left).await;
                    Ok(())
                }
                None => self.environment.wait(wait).await,
            }
        };
        let outcome = tokio::select! {
            biased;
            () = self.stop.asked() => return Err(OperationError::Stopped),
            outcome = waited => outcome.map_err(OperationError::from),
        };
        self.unless_lost(outcome).await
    }

    /// How long a step still takes, if it lets time pass.
    fn left(&self, step: &Step<E>, back: bool) -> Option<Duration> {
        let Action::Wait(wait) = &step.action else { return None };
        let lasts = self.environment.lasts(wait)?;
        let since = lock(&self.journal).begun_last(&step.id, in_direction(back).0);
        let passed = since.and_then(|since| u64::try_from(self.ambient.now().saturating_sub(since)).ok());
        Some(lasts.saturating_sub(Duration::from_secs(passed.unwrap_or_default())))
    }

    /// Records that a wait begins which lets time pass. One that was over before, and is owed again, is not recorded anew.
    async fn begin_to_wait(&self, step: &Step<E>, back: bool) -> Result<(), OperationError> {
        let (begun, over) = in_direction(back);
        let is_recorded = lock(&self.journal).begun_last(&step.id, begun).is_some();
        if is_recorded || self.state(&step.id) == Some(over) {
            return Ok(());
        }
        self.note(step, begun, Noted::default()).await
    }

    /// Tells that a step is about to be carried out, or undone.
    pub(super) fn tell_started(&self, step: &Step<E>, back: bool) {
        self.tell(Event::StepStarted { step: step.into(), left: self.left(step, back) });
    }

    /// What fails outside the store may do so because whoever has the lock by now is in the way: then that is the
    /// reason.
    pub(super) async fn unless_lost<T>(
        &self,
        outcome: Result<T, OperationError>,
    ) -> Result<T, OperationError> {
        if outcome.is_err()
            && let Err(lost @ OperationError::LockLost { .. }) = self.make_sure_of_guards().await
        {
            return Err(lost);
        }
        outcome
    }

    /// Asks for a manual step. That it is asked for is recorded first: people act before they answer, or without an
    /// answer, and rollback must ask for the opposite then.
    async fn manual(&self, step: &Step<E>, manual: &Manual, back: bool) -> Result<(), OperationError> {
        let (intention, outcome) = in_direction(back);
        self.make_sure_of_guards().await?;
        if self.state(&step.id) != Some(intention) {
            self.note(step, intention, Noted::default()).await?;
        }
        let answer = self.environment.manual(manual, back).await.map_err(|error| self.given_up(error));
        match self.unless_lost(answer).await? {
            Answer::Confirmed => self.note(step, outcome, Noted::default()).await,
            Answer::Changes(swap) => self.swap(step, Some(&swap), outcome).await,
            Answer::Open => {
                let Manual { name, what, why, undo } = manual.clone();
                let what = if back { undo.unwrap_or(what) } else { what };
                Err(OperationError::Paused { name, what, why })
            }
        }
    }

    /// An environment that waits for long gives up when it is asked to stop, which is no failure.
    fn given_up(&self, error: Fault) -> OperationError {
        if self.stop.is_asked() { OperationError::Stopped } else { error.into() }
    }

    /// What the store does not make sure of itself: a step outside it is not begun once the lock is lost.
    pub(super) async fn make_sure_of_guards(&self) -> Result<(), OperationError> {
        self.ledger.still_ours().await
    }

    /// Writes a record alone.
    pub(super) async fn note(&self, step: &Step<E>, to: State, noted: Noted) -> Result<(), OperationError> {
        for _ in 0..MOST_ATTEMPTS {
            if self.commit(step, Transaction::default(), to, noted.clone()).await? {
                return Ok(());
            }
        }
        Err(Self::contended(step))
    }

    /// Changes keys and writes the record, in one transaction; reads anew and tries again when others were
    /// faster.
    pub(super) async fn swap(
        &self,
        step: &Step<E>,
        swap: Option<&Swap>,
        to: State,
    ) -> Result<(), OperationError> {
        for attempt in 0..MOST_ATTEMPTS {
            let is_ahead = attempt == 0;
            let transaction = match swap {
                Some(swap) if is_ahead => prepare(&self.ahead, swap, self.ambient).await,
                Some(swap) => prepare(self.ledger.store(), swap, self.ambient).await,
                None => Ok(Transaction::default()),
            };
            let done = match transaction {
                // As it was a while ago, perhaps.
                Err(error) if is_ahead && error.is_about_one_object() => false,
                Ok(transaction) => self.commit(step, transaction, to, Noted::default()).await?,
                // The objects are not as they were before the change: perhaps because it was made, by a
                // commit of ours whose answer was lost or by another process. Then the record says so.
                // Or by whoever has the lock now, who may have changed it back, too.
                Err(error) if error.is_about_one_object() => {
                    self.reread(step).await?;
                    self.make_sure_of_guards().await?;
                    if self.state(&step.id) != Some(to) {
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
        Err(Self::contended(step))
    }

    fn contended(step: &Step<E>) -> OperationError {
        OperationError::Contended {
            what: format!("the record of step `{}`", step.id),
            attempts: MOST_ATTEMPTS,
        }
    }

    /// Reads the record of a step anew, after a commit whose answer was lost.
    async fn reread(&self, step: &Step<E>) -> Result<(), OperationError> {
        let found = Journal::read_record(self.ledger, &step.id).await?;
        lock(&self.journal).replace(&step.id, found);
        Ok(())
    }

    /// Commits a transaction with the step's record in it. Returns `false` when it must be made anew.
    async fn commit(
        &self,
        step: &Step<E>,
        transaction: Transaction,
        to: State,
        noted: Noted,
    ) -> Result<bool, OperationError> {
        self.pace.turn().await;
        let (change, record) = lock(&self.journal).record(&step.id, to, self.ambient.now(), noted)?;
        self.ahead.forget(&transaction);
        match self.ledger.write(vec![change], transaction).await {
            Ok(revision) => {
                lock(&self.journal).recorded(&step.id, record, revision);
                Ok(true)
            }
            // Others changed one of the objects; or an earlier commit of ours, whose answer was lost, came
            // through after all: then the record says so, as long as nobody else may have written it.
            Err(OperationError::Commit(
                CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. },
            )) => {
                self.reread(step).await?;
                self.make_sure_of_guards().await?;
                Ok(self.state(&step.id) == Some(to))
            }
            Err(other) => Err(other),
        }
    }
}

/// The states of a step that is begun, and that is done, in a direction.
pub(super) fn in_direction(back: bool) -> (State, State) {
    if back { (State::UndoStarted, State::UndoDone) } else { (State::Started, State::Done) }
}
