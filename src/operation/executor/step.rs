//! Executes or undoes one step, and writes its record.
//!
//! Several steps can run concurrently. So the journal and the observer are locked only for a moment, never while a step waits for
//! the store or the environment.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::lock;
use super::rate_limit::RateLimit;
use super::read_ahead::ReadAhead;
use crate::operation::OperationError;
use crate::operation::environment::{Ambient, Answer, Environment, StepFault};
use crate::operation::journal::{Journal, Noted, State};
use crate::operation::ledger::Ledger;
use crate::operation::observer::{Event, Observer};
use crate::operation::step::{Action, Effect, Manual, Step, StepId, Swap, Wait};
use crate::operation::stop::{Stop, StopSwitch};
use crate::operation::swap::prepare;
use crate::store::{CommitError, Revision, Transaction};

/// Maximum number of times that a step tries to change an object that other clients keep changing.
pub(super) const MOST_ATTEMPTS: u32 = 20;

/// The state that all steps of one run share.
pub(super) struct StepRunner<'e, E: Effect> {
    pub(super) ledger: &'e dyn Ledger,
    pub(super) ahead: ReadAhead<'e>,
    pub(super) environment: &'e dyn Environment<E>,
    pub(super) ambient: &'e dyn Ambient,
    pub(super) observer: Mutex<&'e mut dyn Observer>,
    pub(super) journal: Mutex<&'e mut Journal>,
    pub(super) rate_limit: RateLimit,
    pub(super) stop: &'e Stop,
    /// Cancels the waits that run beside a step that failed.
    pub(super) halt: (StopSwitch, Stop),
    /// Number of running steps, without waits.
    pub(super) running: AtomicUsize,
    /// The earlier steps that are undone together with a step ([`Shortcut`](crate::operation::Shortcut)).
    pub(super) covered: HashMap<StepId, Vec<StepId>>,
}

impl<E: Effect> StepRunner<'_, E> {
    pub(super) fn tell(&self, event: Event<'_>) {
        lock(&self.observer).event(event);
    }

    /// Counts a step that starts. A wait does not count, because it can take long.
    pub(super) fn started(&self, step: &Step<E>) {
        if !matches!(step.action, Action::Wait(_)) {
            self.ledger.set_running(self.running.fetch_add(1, Ordering::SeqCst).saturating_add(1));
        }
    }

    /// Counts a step that ended.
    pub(super) fn ended(&self, step: &Step<E>) {
        if !matches!(step.action, Action::Wait(_)) {
            self.ledger.set_running(self.running.fetch_sub(1, Ordering::SeqCst).saturating_sub(1));
        }
    }

    pub(super) fn state(&self, step: &StepId) -> Option<State> {
        lock(&self.journal).state(step)
    }

    /// Returns whether the operator has given up the subject of a step. Contains whether the waiver was given in a rollback.
    pub(super) fn waived(&self, step: &Step<E>) -> Option<bool> {
        lock(&self.journal).waiver_of(step).map(|waiver| waiver.back)
    }

    /// Returns the revision at which the record of a step last changed; `None` if the step has no record.
    pub(super) fn changed_at(&self, step: &StepId) -> Option<Revision> {
        lock(&self.journal).changed_at(step)
    }

    /// Returns whether a step must run again because it was reset.
    pub(super) fn was_reset(&self, step: &StepId) -> bool {
        lock(&self.journal).was_reset(step)
    }

    /// Returns the revision at which a step was done; `None` if the step is not done.
    pub(super) fn done_at(&self, step: &StepId) -> Option<Revision> {
        lock(&self.journal).done_at(step)
    }

    /// Executes one step. A step that is already done runs only if `is_owed` is set. Returns whether the step ran.
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
                let made = tokio::select! {
                    biased;
                    () = self.stop.asked() => Value::Null,
                    found = self.environment.found(wait) => found,
                };
                let noted = Noted { made: (!made.is_null()).then_some(made), ..Noted::default() };
                self.note(step, State::Done, noted).await?;
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

    /// Waits until the condition holds or a stop is requested. A wait that lasts for a fixed time counts only after the environment
    /// is ready ([`Environment::ready`]).
    async fn wait(&self, step: &Step<E>, wait: &Wait<E::Wait>, back: bool) -> Result<(), OperationError> {
        self.make_sure_of_guards().await?;
        let records = |step: &StepId| lock(&self.journal).find(step).cloned();
        if self.environment.lasts(wait).is_none() {
            return self.unless_stopped(self.environment.wait(wait, &records)).await;
        }
        if self.waits_since(step, back).is_none() {
            self.unless_stopped(self.environment.ready(wait, &records)).await?;
            self.begin_to_wait(step, back).await?;
        }
        let left = self.left(step, back);
        self.tell(Event::StepStarted { step: step.into(), left });
        let waited = async {
            sleep(left.unwrap_or_default()).await;
            Ok(())
        };
        self.unless_stopped(waited).await
    }

    /// Returns the outcome of a call to the environment that only waits, unless a stop is requested before.
    async fn unless_stopped(
        &self,
        waited: impl Future<Output = Result<(), StepFault>>,
    ) -> Result<(), OperationError> {
        let outcome = tokio::select! {
            biased;
            () = self.stop.asked() => return Err(OperationError::Stopped),
            () = self.halt.1.asked() => return Err(OperationError::Stopped),
            outcome = waited => outcome.map_err(OperationError::from),
        };
        self.unless_lost(outcome).await
    }

    /// Returns the remaining time of a wait that lasts for a fixed time; `None` for any other step.
    fn left(&self, step: &Step<E>, back: bool) -> Option<Duration> {
        let Action::Wait(wait) = &step.action else { return None };
        let lasts = self.environment.lasts(wait)?;
        let Some(since) = self.waits_since(step, back) else { return Some(lasts) };
        // The journal has whole seconds, so the wait can have started almost a second later than the recorded time.
        let passed = self.ambient.now().saturating_sub(since).saturating_sub(1);
        Some(lasts.saturating_sub(Duration::from_secs(u64::try_from(passed).unwrap_or_default())))
    }

    /// Returns the start of a wait that lasts for a fixed time; `None` if the journal does not contain it, or if the wait cannot be
    /// continued because another step has changed since.
    fn waits_since(&self, step: &Step<E>, back: bool) -> Option<i64> {
        let (journal, (begun, _)) = (lock(&self.journal), in_direction(back));
        if step.is_wait_with_company() {
            journal.begun(&step.id, begun)
        } else {
            journal.begun_last(&step.id, begun)
        }
    }

    /// Records the start of a wait that lasts for a fixed time. Records nothing if the wait has already ended and is only
    /// repeated.
    async fn begin_to_wait(&self, step: &Step<E>, back: bool) -> Result<(), OperationError> {
        let (begun, over) = in_direction(back);
        if self.state(&step.id) == Some(over) {
            return Ok(());
        }
        self.note(step, begun, Noted::default()).await
    }

    /// Reports the start of a step, or of its undo. The start of a wait that lasts for a fixed time is reported once its time
    /// counts ([`Self::wait`]).
    pub(super) fn tell_started(&self, step: &Step<E>) {
        if !matches!(&step.action, Action::Wait(wait) if self.environment.lasts(wait).is_some()) {
            self.tell(Event::StepStarted { step: step.into(), left: None });
        }
    }

    /// Returns the outcome of a request that does not go to the store. If the request failed and the operation lease is lost,
    /// returns the error for the lost lease, because the new holder may have caused the failure.
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

    /// Requests a manual step from the operator. Records the request first, because the operator can complete the step without
    /// confirming it. In this case, a rollback must request the undo of the step.
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

    /// Returns the error of a call to the environment. If a stop was requested, returns [`OperationError::Stopped`], because an
    /// interrupted wait is not a failure.
    fn given_up(&self, error: StepFault) -> OperationError {
        if self.stop.is_asked() { OperationError::Stopped } else { error.into() }
    }

    /// Fails if the operation lease is lost. The store checks this only for its own writes, not for requests to other systems.
    pub(super) async fn make_sure_of_guards(&self) -> Result<(), OperationError> {
        self.ledger.still_ours().await
    }

    /// Writes only the record of a step.
    pub(super) async fn note(&self, step: &Step<E>, to: State, noted: Noted) -> Result<(), OperationError> {
        for _ in 0..MOST_ATTEMPTS {
            if self.commit(step, Transaction::default(), to, noted.clone()).await? {
                return Ok(());
            }
        }
        Err(Self::contended(step))
    }

    /// Records that a step is undone, together with the steps that it covers. A ledger in the cluster can write these records one
    /// after the other. If the process is killed in between, the next rollback finds that the subject is already back. `made`: the
    /// result of the rollback; `null` keeps the recorded result of the step.
    pub(super) async fn note_undone(&self, step: &Step<E>, made: &Value) -> Result<(), OperationError> {
        let covered = self.covered.get(&step.id).map(Vec::as_slice).unwrap_or_default();
        for _ in 0..MOST_ATTEMPTS {
            self.rate_limit.turn().await;
            let (mut changes, mut records) = (Vec::new(), Vec::new());
            for id in std::iter::once(&step.id).chain(covered) {
                let made = (*id == step.id && !made.is_null()).then(|| made.clone());
                if self.state(id) == Some(State::UndoDone) {
                    continue;
                }
                let now = self.ambient.now();
                let (change, record) = lock(&self.journal).record(
                    id,
                    State::UndoDone,
                    now,
                    Noted { made, ..Noted::default() },
                )?;
                changes.push(change);
                records.push((id, record));
            }
            if records.is_empty() {
                return Ok(());
            }
            match self.ledger.write(changes, Transaction::default()).await {
                Ok(revision) => {
                    for (id, record) in records {
                        lock(&self.journal).recorded(id, record, revision);
                    }
                    return Ok(());
                }
                Err(OperationError::Commit(
                    CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. },
                )) => {
                    for (step, _) in records {
                        self.reread(step).await?;
                    }
                    self.make_sure_of_guards().await?;
                }
                Err(other) => return Err(other),
            }
        }
        Err(Self::contended(step))
    }

    /// Changes keys and writes the record in one transaction. On a conflict, reads the keys again and retries.
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
                // The cached keys may be out of date.
                Err(error) if is_ahead && error.is_about_one_object() => false,
                Ok(transaction) => self.commit(step, transaction, to, Noted::default()).await?,
                // The objects differ from the expected state. There are two cases. In the first case, this process committed the
                // change and the answer was lost, or another process made the change. The record then shows that the step is
                // done. In the second case, a new holder of the operation lease changed the objects, and may have changed them
                // back.
                Err(error) if error.is_about_one_object() => {
                    self.reread(&step.id).await?;
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

    /// Reads the record of a step again, for example after the answer to a commit was lost.
    async fn reread(&self, step: &StepId) -> Result<(), OperationError> {
        let found = Journal::read_record(self.ledger, step).await?;
        lock(&self.journal).replace(step, found);
        Ok(())
    }

    /// Commits a transaction that includes the step's record. Returns `false` if the transaction must be computed again.
    async fn commit(
        &self,
        step: &Step<E>,
        transaction: Transaction,
        to: State,
        noted: Noted,
    ) -> Result<bool, OperationError> {
        self.rate_limit.turn().await;
        let (change, record) = lock(&self.journal).record(&step.id, to, self.ambient.now(), noted)?;
        self.ahead.forget(&transaction);
        match self.ledger.write(vec![change], transaction).await {
            Ok(revision) => {
                lock(&self.journal).recorded(&step.id, record, revision);
                Ok(true)
            }
            // There are two cases: another client changed one of the objects, or an earlier commit of this process succeeded and
            // its answer was lost. In the second case the record shows the success, as long as this process holds the operation
            // lease.
            Err(OperationError::Commit(
                CommitError::Conflict { .. } | CommitError::OutcomeUnknown { .. },
            )) => {
                self.reread(&step.id).await?;
                self.make_sure_of_guards().await?;
                Ok(self.state(&step.id) == Some(to))
            }
            Err(other) => Err(other),
        }
    }
}

/// Returns the states for a started step and for a completed step in one direction.
pub(super) fn in_direction(back: bool) -> (State, State) {
    if back { (State::UndoStarted, State::UndoDone) } else { (State::Started, State::Done) }
}
