//! Executes an effect through the environment, for example a request to the Kubernetes API. Records the intention with the
//! previous state, runs the effect, then records the outcome with the result.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::lock;
use super::step::{MOST_ATTEMPTS, StepRunner, in_direction};
use crate::operation::OperationError;
use crate::operation::environment::{Applied, Doing, Fence, Observed, Records, StepFault};
use crate::operation::journal::{Journal, Noted, Record, State};
use crate::operation::ledger::Ledger;
use crate::operation::step::{Effect, Step, StepId};

/// Maximum number of retries after throttling or a lost answer.
const MOST_RETRIES: u32 = 8;
/// Exponential backoff: the first pause is doubled for each retry, up to the longest pause. Half of each pause is jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The number of retries so far.
#[derive(Default)]
struct Retries(u32);

/// The fencing token in the ledger.
struct InLedger<'a>(&'a dyn Ledger);

#[async_trait]
impl Fence for InLedger<'_> {
    async fn still_ours(&self) -> Result<(), StepFault> {
        self.0.still_ours().await.map_err(|error| match error {
            lost @ OperationError::LockLost { .. } => StepFault::Halt(lost.to_string()),
            error => StepFault::Retry { why: error.to_string(), after: None },
        })
    }
}

impl<E: Effect> StepRunner<'_, E> {
    /// Executes or undoes an effect. If the journal does not contain its outcome, first observes whether the effect is done.
    pub(super) async fn effect(&self, step: &Step<E>, effect: &E, back: bool) -> Result<(), OperationError> {
        let records = |step: &StepId| lock(&self.journal).find(step).cloned();
        let (state, record) = (self.state(&step.id), records(&step.id));
        let (before, made) = record.map(|Record { before, made, .. }| (before, made)).unwrap_or_default();
        let (before, made) =
            (before.map_or(Value::Null, |value| *value), made.map_or(Value::Null, |value| *value));
        let fence = InLedger(self.ledger);
        let known: Records<'_> = &records;
        let mut doing = Doing {
            step: &step.id,
            effect,
            back,
            before,
            made,
            records: known,
            fence: &fence,
            stop: self.stop,
        };
        if matches!(state, Some(State::Started | State::UndoStarted)) {
            // A new holder can have done the effect. This process must not take that for its own effect.
            self.make_sure_of_guards().await?;
            if let Some(made) = self.found(&doing).await? {
                return self.conclude(step, doing, made).await;
            }
        }
        let mut noted = Noted::default();
        if !back && state != Some(State::Started) {
            doing.made = Value::Null;
            doing.before = self.before(&doing).await?;
            noted = Noted { before: Some(doing.before.clone()), made: Some(Value::Null), error: None };
        }
        // This write fails if this process has lost the operation lease. A resume also writes this record, because the record must
        // show the latest time at which a request may have been sent.
        self.note(step, in_direction(back).0, noted).await?;
        self.attempt(step, doing).await
    }

    async fn attempt(&self, step: &Step<E>, doing: Doing<'_, E>) -> Result<(), OperationError> {
        let (begun, done) = in_direction(doing.back);
        let (mut retries, mut contended) = (Retries::default(), 0);
        loop {
            self.rate_limit.turn().await;
            match self.environment.apply(&doing).await {
                Ok(Applied::Made(made)) => return self.conclude(step, doing, made).await,
                // If another client changed the objects in the meantime, the change is computed again.
                Ok(Applied::Changes(swap)) => match self.swap(step, Some(&swap), done).await {
                    Err(error) if error.is_about_one_object() && contended < MOST_ATTEMPTS => {
                        contended = contended.saturating_add(1);
                    }
                    outcome => return outcome,
                },
                Err(StepFault::Retry { why, after }) => self.pause(&mut retries, why, after).await?,
                Err(StepFault::InDoubt(why)) => {
                    if let Some(made) = self.found(&doing).await? {
                        return self.conclude(step, doing, made).await;
                    }
                    self.pause(&mut retries, why, None).await?;
                }
                Err(fault) => return self.unless_lost(Err(fault.into())).await,
            }
            if retries.0 > 0 {
                self.note(step, begun, Noted::default()).await?;
            }
        }
    }

    /// Returns the state before the effect.
    async fn before(&self, doing: &Doing<'_, E>) -> Result<Value, OperationError> {
        let mut retries = Retries::default();
        loop {
            match self.environment.before(doing).await {
                Ok(before) => return Ok(before),
                Err(fault) => self.ask_again(&mut retries, fault).await?,
            }
        }
    }

    /// Returns the result of the effect, if the effect is done.
    async fn found(&self, doing: &Doing<'_, E>) -> Result<Option<Value>, OperationError> {
        let mut retries = Retries::default();
        loop {
            match self.environment.observe(doing).await {
                Ok(Observed::Done(made)) => return Ok(Some(made)),
                Ok(Observed::NotDone) => return Ok(None),
                Ok(Observed::Changed(reason)) => {
                    return self.unless_lost(Err(StepFault::Skip(reason).into())).await;
                }
                Err(fault) => self.ask_again(&mut retries, fault).await?,
            }
        }
    }

    /// Waits before a read is retried. Fails if the fault does not allow a retry.
    async fn ask_again(&self, retries: &mut Retries, fault: StepFault) -> Result<(), OperationError> {
        match fault {
            StepFault::Retry { why, after } => self.pause(retries, why, after).await,
            StepFault::InDoubt(why) => self.pause(retries, why, None).await,
            fault => self.unless_lost(Err(fault.into())).await,
        }
    }

    /// Waits before the next attempt; fails after too many attempts.
    async fn pause(
        &self,
        Retries(retries): &mut Retries,
        why: String,
        after: Option<Duration>,
    ) -> Result<(), OperationError> {
        *retries = retries.saturating_add(1);
        if *retries > MOST_RETRIES {
            let why = format!("{why}; tried {retries} times");
            return self.unless_lost(Err(StepFault::Halt(why).into())).await;
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << retries.saturating_sub(1));
        let pause = doubled.min(LONGEST_PAUSE).mul_f64(f64::midpoint(1.0, self.ambient.fraction()));
        let pause = pause.max(after.unwrap_or_default());
        tracing::debug!(pause = pause.as_secs_f64(), "retrying: {why}");
        tokio::select! {
            biased;
            () = self.stop.asked() => Err(OperationError::Stopped),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    async fn conclude(
        &self,
        step: &Step<E>,
        mut doing: Doing<'_, E>,
        made: Value,
    ) -> Result<(), OperationError> {
        let (_, outcome) = in_direction(doing.back);
        let noted = if doing.back {
            self.note_undone(step, &made).await
        } else {
            let noted = Noted { made: Some(made.clone()), ..Noted::default() };
            self.note(step, outcome, noted).await
        };
        if matches!(noted, Err(OperationError::LockLost { .. })) {
            doing.made = made;
            if let Err(error) = self.take_back(&doing).await {
                let message = "cannot revert a change that was made after the operation lease was lost";
                tracing::warn!(%error, step = %step.id, "{message}");
            }
        }
        noted
    }

    /// Reverts a change that this process made after it lost the operation lease. Does nothing if the new holder has not
    /// completed the step, because the new holder observes the effect before it executes the step.
    async fn take_back(&self, doing: &Doing<'_, E>) -> Result<(), OperationError> {
        let found = Journal::read_record(self.ledger, doing.step).await?;
        let ended = match &found {
            None => None,
            Some((record, at)) if matches!(record.state, State::Done | State::UndoDone) => Some(*at),
            Some(_) => return Ok(()),
        };
        // The environment sees the record of the new holder.
        lock(&self.journal).replace(doing.step, found);
        if self.environment.take_back(doing, ended).await? {
            let message = "reverted a change that was made after the operation lease was lost";
            tracing::warn!(step = %doing.step, "{message}");
        }
        Ok(())
    }
}
