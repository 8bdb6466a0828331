//! One step, done or undone, with its record.
//!
//! Several may be under way at the same time: journal and observer are locked for a moment each, never while
//! a store or a port is waited for.

use std::sync::Mutex;

use super::ahead::Ahead;
use super::crew::lock;
use super::pace::Pace;
use crate::operation::OperationError;
use crate::operation::journal::{Journal, Record, State};
use crate::operation::lock::lost_to;
use crate::operation::ports::{Ambient, Answer, Event, Fault, Observed, Observer, World};
use crate::operation::step::{Action, ApiChange, External, Step, StepId, Swap, Wait};
use crate::operation::stop::Stop;
use crate::operation::swap::prepare;
use crate::store::{CommitError, Guard, Key, Revision, Transaction, WriteStore};

/// How often a step tries to change an object that others keep changing.
const MOST_ATTEMPTS: u32 = 20;

/// What the steps of one run have in common.
pub(super) struct Carrier<'e> {
    pub(super) store: &'e dyn WriteStore,
    pub(super) ahead: Ahead<'e>,
    pub(super) world: &'e dyn World,
    pub(super) ambient: &'e dyn Ambient,
    pub(super) observer: Mutex<&'e mut dyn Observer>,
    pub(super) journal: Mutex<&'e mut Journal>,
    pub(super) guards: &'e [Guard],
    pub(super) pace: Pace,
    pub(super) stop: &'e Stop,
}

impl Carrier<'_> {
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
    pub(super) async fn forward(&self, step: &Step, is_owed: bool) -> Result<bool, OperationError> {
        let state = self.state(&step.id);
        if state == Some(State::Done) && !is_owed {
            return Ok(false);
        }
        match &step.action {
            Action::Swap { forward, .. } => self.swap(step, Some(forward), State::Done).await?,
            Action::WayBack { .. } | Action::WaitBack { .. } => return Ok(false),
            Action::Api { forward, .. } => {
                self.api(step, forward, state, State::Started, State::Done).await?;
            }
            Action::Wait(wait) => {
                self.wait(wait).await?;
                self.note(step, State::Done, None).await?;
            }
            Action::External(external) => {
                let assumed = external.assumed.as_ref();
                self.external(step, external, assumed, (State::Started, State::Done)).await?;
            }
            Action::PointOfNoReturn => self.note(step, State::Done, None).await?,
        }
        Ok(true)
    }

    /// Undoes one step.
    pub(super) async fn backward(&self, step: &Step) -> Result<(), OperationError> {
        let state = self.state(&step.id);
        match &step.action {
            Action::Swap { backward, .. } => self.swap(step, backward.as_ref(), State::UndoDone).await,
            Action::WayBack { swap, .. } => self.swap(step, Some(swap), State::UndoDone).await,
            Action::Api { backward: Some(change), .. } => {
                self.api(step, change, state, State::UndoStarted, State::UndoDone).await
            }
            Action::Wait(wait) | Action::WaitBack { wait, .. } => {
                let may_be_cut_short = matches!(step.action, Action::WaitBack { .. });
                tokio::select! {
                    biased;
                    () = self.stop.asked(), if may_be_cut_short => return Err(OperationError::Stopped),
                    outcome = self.wait(wait) => outcome?,
                }
                if state == Some(State::UndoDone) {
                    Ok(())
                } else {
                    self.note(step, State::UndoDone, None).await
                }
            }
            Action::Api { backward: None, .. }
            | Action::External(External { undo: None, assumed_back: None, .. })
            | Action::PointOfNoReturn => self.note(step, State::UndoDone, None).await,
            Action::External(external) => {
                let assumed = external.assumed_back.as_ref();
                self.external(step, external, assumed, (State::UndoStarted, State::UndoDone)).await
            }
        }
    }

    /// A change through the API: the intention first, then the change, then the outcome. A change whose
    /// outcome is not in the journal is looked for before it is made again.
    async fn api(
        &self,
        step: &Step,
        change: &ApiChange,
        state: Option<State>,
        intention: State,
        outcome: State,
    ) -> Result<(), OperationError> {
        self.make_sure_of_guards().await?;
        let begun = matches!(state, Some(State::Started | State::UndoStarted));
        let observed = if begun { self.world.observe(change).await? } else { Observed::NotDone };
        match observed {
            Observed::Changed(reason) => return self.unless_lost(Err(Fault::Skip(reason).into())).await,
            Observed::Done => {}
            Observed::NotDone => {
                self.note(step, intention, None).await?;
                self.pace.turn().await;
                let outcome = self.world.api(change).await;
                self.unless_lost(outcome.map_err(OperationError::from)).await?;
            }
        }
        let noted = self.note(step, outcome, None).await;
        if matches!(noted, Err(OperationError::LockLost { .. }))
            && let Err(error) = self.take_back(step, change).await
        {
            tracing::warn!(%error, step = %step.id, "what was made after the lock was lost could not be taken back");
        }
        noted
    }

    /// Takes back a change that came too late. Where whoever has the lock has not come to the end of the step, it is
    /// left to them: they look for it before they make it.
    async fn take_back(&self, step: &Step, change: &ApiChange) -> Result<(), OperationError> {
        let key = lock(&self.journal).step_key(&step.id);
        let ended = match Journal::read_at::<Record>(self.store, &key).await? {
            None => None,
            Some((record, at)) if matches!(record.state, State::Done | State::UndoDone) => Some(at),
            Some(_) => return Ok(()),
        };
        if self.world.take_back(change, ended).await? {
            tracing::warn!(step = %step.id, "taken back: it was made after the lock was lost");
        }
        Ok(())
    }

    async fn wait(&self, wait: &Wait) -> Result<(), OperationError> {
        self.make_sure_of_guards().await?;
        let outcome = self.world.wait(wait).await.map_err(|error| self.given_up(error));
        self.unless_lost(outcome).await
    }

    /// What fails outside the store may do so because whoever has the lock by now is in the way: then that is the
    /// reason.
    async fn unless_lost<T>(&self, outcome: Result<T, OperationError>) -> Result<T, OperationError> {
        if outcome.is_err()
            && let Err(lost @ OperationError::LockLost { .. }) = self.make_sure_of_guards().await
        {
            return Err(lost);
        }
        outcome
    }

    /// Asks for a manual step. That it is asked for is recorded first: people act before they answer, or without an
    /// answer, and rollback must ask for the opposite then.
    async fn external(
        &self,
        step: &Step,
        external: &External,
        assumed: Option<&Swap>,
        (intention, outcome): (State, State),
    ) -> Result<(), OperationError> {
        self.make_sure_of_guards().await?;
        if self.state(&step.id) != Some(intention) {
            self.note(step, intention, None).await?;
        }
        let back = outcome == State::UndoDone;
        let mut last = None;
        for _ in 0..MOST_ATTEMPTS {
            let answer = self.world.external(external, back).await.map_err(|error| self.given_up(error));
            match self.unless_lost(answer).await? {
                Answer::Confirmed => return self.note(step, outcome, None).await,
                Answer::Open => {
                    let External { name, what, why, undo, .. } = external.clone();
                    let what = if back { undo.unwrap_or(what) } else { what };
                    return Err(OperationError::Paused { name, what, why });
                }
                Answer::Assumed => {
                    self.tell(Event::Assumed { external });
                    return self.swap(step, assumed, outcome).await;
                }
                // Others may have changed since what it was computed from: then it is computed anew.
                Answer::Changes(swap) => match self.swap(step, Some(&swap), outcome).await {
                    Err(error) if error.is_about_one_object() => last = Some(error),
                    done => return done,
                },
            }
        }
        Err(last.unwrap_or_else(|| self.contended(step)))
    }

    /// A port that waits for long gives up when it is asked to stop, which is no failure.
    fn given_up(&self, error: Fault) -> OperationError {
        if self.stop.is_asked() { OperationError::Stopped } else { error.into() }
    }

    /// What the store does not make sure of itself: a step outside it is not begun once the lock is lost.
    async fn make_sure_of_guards(&self) -> Result<(), OperationError> {
        for guard in self.guards {
            let entry = self.store.get(guard.key()).await?;
            if !guard.holds(entry.as_ref()) {
                return Err(lost_to(self.store, guard.key()).await);
            }
        }
        Ok(())
    }

    /// Writes a record alone.
    pub(super) async fn note(
        &self,
        step: &Step,
        to: State,
        error: Option<String>,
    ) -> Result<(), OperationError> {
        for _ in 0..MOST_ATTEMPTS {
            if self.commit(step, Transaction::default(), to, error.clone()).await? {
                return Ok(());
            }
        }
        Err(self.contended(step))
    }

    /// Changes keys and writes the record, in one transaction; reads anew and tries again when others were
    /// faster.
    async fn swap(&self, step: &Step, swap: Option<&Swap>, to: State) -> Result<(), OperationError> {
        for attempt in 0..MOST_ATTEMPTS {
            let is_ahead = attempt == 0;
            let transaction = match swap {
                Some(swap) if is_ahead => prepare(&self.ahead, swap, self.ambient).await,
                Some(swap) => prepare(self.store, swap, self.ambient).await,
                None => Ok(Transaction::default()),
            };
            let done = match transaction {
                // As it was a while ago, perhaps.
                Err(error) if is_ahead && error.is_about_one_object() => false,
                Ok(transaction) => self.commit(step, transaction, to, None).await?,
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
        Err(self.contended(step))
    }

    fn contended(&self, step: &Step) -> OperationError {
        OperationError::Contended { key: lock(&self.journal).step_key(&step.id), attempts: MOST_ATTEMPTS }
    }

    /// Reads the record of a step anew, after a commit whose answer was lost.
    async fn reread(&self, step: &Step) -> Result<(), OperationError> {
        let key = lock(&self.journal).step_key(&step.id);
        let found = Journal::read_at(self.store, &key).await?;
        lock(&self.journal).replace(&step.id, found);
        Ok(())
    }

    /// Commits a transaction with the step's record in it. Returns `false` when it must be made anew.
    async fn commit(
        &self,
        step: &Step,
        mut transaction: Transaction,
        to: State,
        error: Option<String>,
    ) -> Result<bool, OperationError> {
        self.pace.turn().await;
        let (change, record) = lock(&self.journal).record(&step.id, to, self.ambient.now(), error)?;
        transaction.changes.push(change);
        transaction.guards.extend(self.guards.iter().cloned());
        match self.store.commit(&transaction).await {
            Ok(revision) => {
                self.ahead.forget(&transaction);
                lock(&self.journal).recorded(&step.id, record, revision);
                Ok(true)
            }
            Err(CommitError::Conflict { key, .. }) if self.is_guarded(&key) => {
                Err(lost_to(self.store, &key).await)
            }
            // Others changed one of the objects; or an earlier commit of ours, whose answer was lost, came
            // through after all: then the record says so, as long as nobody else may have written it.
            Err(CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. }) => {
                self.reread(step).await?;
                self.make_sure_of_guards().await?;
                Ok(self.state(&step.id) == Some(to))
            }
            Err(other) => Err(other.into()),
        }
    }

    fn is_guarded(&self, key: &Key) -> bool {
        self.guards.iter().any(|guard| guard.key() == key)
    }
}
