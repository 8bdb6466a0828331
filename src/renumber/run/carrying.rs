//! Carrying the steps out, in one direction, again and again as long as a step that fails is explained by what became of its
//! Service, and recording how it went.

use std::collections::BTreeMap;

use super::approving::Confirmations;
use super::stopping::{left_open, status_after, stopped};
use super::watchers::Watchers;
use super::{Ongoing, RenumberSession, Way};
use crate::operation::{
    self, Ambient as _, Environment, Journal, Lock, OperationError, Report, Status, StepId, Stop,
    SystemAmbient,
};
use crate::renumber::live::{Approver, LiveEnvironment, LiveOptions};
use crate::renumber::without_api::{MovesBack, WithoutApi};
use crate::renumber::{Effect, Renumbering};
use crate::session::{Api, Arrival, Failure, Heading, Subject};

/// How often a step is tried that others make fail.
const MOST_ATTEMPTS: u32 = 3;

impl RenumberSession {
    pub(super) async fn carry(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Way,
    ) -> Result<Arrival, Failure> {
        self.until_stopped(lock, async |stop| self.carry_until(ongoing, lock, (way, stop)).await).await
    }

    async fn carry_until(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        (way, stop): (Way, &Stop),
    ) -> Result<Arrival, Failure> {
        self.set_out(ongoing, lock, way).await?;
        self.clear(ongoing, way).await?;
        if !ongoing.has_begun_to_retire() {
            let is_back = !way.is_forward() || ongoing.journal.returning().is_some();
            let again = self.replan(ongoing, lock, is_back).await;
            again.map_err(|failure| left_open(failure, ongoing, way))?;
        }
        let mut failed = BTreeMap::new();
        loop {
            let outcome = self.attempt(ongoing, lock, (way, stop)).await?;
            if let Err(failure) = &outcome
                && way.is_forward()
                && failure.source.is_about_one_object()
            {
                let times: &mut u32 = failed.entry(failure.step.clone()).or_default();
                *times = times.saturating_add(1);
                if *times <= MOST_ATTEMPTS && self.can_go_on(ongoing, lock, &failure.step).await {
                    continue;
                }
            }
            if way.is_forward()
                && let Err(failure) = self.settle_deleted(ongoing, lock).await
            {
                tracing::warn!(error = %failure.error, "what became of skipped Services is not known");
            }
            // What a process that was killed had on its way to the API may have arrived after the first look; and a barrier
            // that was given up has left something.
            if !is_lost(&outcome)
                && let Err(failure) = self.clear(ongoing, way).await
            {
                tracing::warn!(error = %failure.error, "what a killed process has left may be there still");
            }
            if has_got_on(&outcome)
                && let Err(failure) = self.end_all_deletions(&ongoing.plan.work).await
            {
                tracing::warn!(error = %failure.error, "what was deleted meanwhile may be there still");
            }
            return self.noted(ongoing, lock, way, outcome).await;
        }
    }

    /// Removes what processes that were killed have left of their barriers.
    async fn clear(&self, ongoing: &Ongoing, way: Way) -> Result<(), Failure> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        let removed = cluster.remove_sentinels("kube-system").await;
        removed.map_err(|error| left_open(error.into(), ongoing, way))
    }

    /// Whether a step that failed is explained by what became of its Service. That this cannot be found out is not what is
    /// told then.
    async fn can_go_on(&self, ongoing: &mut Ongoing, lock: &Lock, step: &StepId) -> bool {
        let explained = self.explain(ongoing, lock, step).await;
        explained.unwrap_or_else(|failure| {
            tracing::warn!(error = %failure.error, %step, "what became of its Service is not known");
            false
        })
    }

    /// Deleted, it is skipped; changed, its move is planned again.
    async fn explain(&self, ongoing: &mut Ongoing, lock: &Lock, step: &StepId) -> Result<bool, Failure> {
        Ok(self.skip_deleted(ongoing, lock, step).await?
            || (!ongoing.has_begun_to_retire() && self.replan(ongoing, lock, false).await?))
    }

    async fn attempt(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        (way, stop): (Way, &Stop),
    ) -> Result<Result<Arrival, operation::Failure>, Failure> {
        let (work, journal) = (&ongoing.plan.work, &mut ongoing.journal);
        let approver = self.approver(work, last_move(work, journal));
        let boxed = self.environment(&ongoing.operation, work, &approver, lock);
        let environment = boxed.as_ref();
        if let Err(failure) = self.renew(environment, work, journal, lock).await {
            drop(boxed);
            return Err(left_open(failure, ongoing, way));
        }
        let operation = ongoing.operation.as_str();
        let mut watchers = Watchers::new(self, (operation, work, journal), way);
        let (holds, heading) = ((lock, stop), way.heading(work));
        let outcome = if way == Way::MovesBack {
            let subject = Subject { operation, work: &MovesBack(work), journal };
            self.execute(subject, environment, &mut watchers, holds, heading).await
        } else {
            let subject = Subject { operation, work, journal };
            self.execute(subject, environment, &mut watchers, holds, heading).await
        };
        watchers.finish().await;
        drop(boxed);
        Ok(outcome)
    }

    /// Returns who says that others have done what they have to; `moved`: when the last Service moved.
    fn approver<'a>(&'a self, work: &'a Renumbering, moved: Option<i64>) -> Confirmations<'a> {
        let given = self.settings.confirm.iter().cloned().collect();
        Confirmations { voice: &self.voice, given, cluster: self.cluster(), work, moved }
    }

    /// Returns what steps and waits act on.
    fn environment<'a>(
        &'a self,
        operation: &str,
        work: &'a Renumbering,
        approver: &'a dyn Approver,
        lock: &Lock,
    ) -> Box<dyn Environment<Effect> + 'a> {
        let store = self.store.as_ref();
        match self.api() {
            Api::Answers(cluster) => {
                let mut options = LiveOptions::new(operation);
                options.reach = self.choices.barrier;
                options.linger = self.linger_of(work);
                options.guards = vec![lock.guard()];
                options.without_api_servers.clone_from(&self.choices.without_api_servers);
                Box::new(LiveEnvironment { cluster, store, work, approver, options })
            }
            Api::Silent(pause) => Box::new(WithoutApi { pause: *pause }),
        }
    }

    /// Records in which direction a process is at work, so that the journal of one that is killed does not say what was
    /// true before it. What the executor refuses is not recorded.
    async fn set_out(&self, ongoing: &mut Ongoing, lock: &Lock, way: Way) -> Result<(), Failure> {
        let is_forward = way.is_forward();
        let is_refused =
            if is_forward { ongoing.journal.is_being_undone() } else { ongoing.has_begun_to_retire() };
        if is_refused || ongoing.summary.status.has_ended() {
            return Ok(());
        }
        let (ledger, now) = (self.ledger(&ongoing.journal, lock), SystemAmbient.now());
        let recorded = ongoing.journal.set_out(&ledger, !is_forward, now).await;
        recorded.map_err(|error| left_open(error.into(), ongoing, way))?;
        ongoing.summary.set_out(!is_forward, now);
        Ok(())
    }

    /// Records how it went, and words it.
    async fn noted(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Way,
        outcome: Result<Arrival, operation::Failure>,
    ) -> Result<Arrival, Failure> {
        let noted = self.note(ongoing, lock, way, &outcome).await;
        if let (Err(_), Err(unnoted)) = (&outcome, &noted) {
            // What stopped it says more than that this could not be written down.
            tracing::warn!(error = %unnoted.error, "the journal could not be told how the operation stands");
        }
        let arrival = outcome.map_err(|failure| stopped(failure, ongoing, way))?;
        noted.map_err(|failure| left_open(failure, ongoing, way))?;
        Ok(arrival)
    }

    /// Records how an operation stands, unless the lease is another process's by now.
    async fn note(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Way,
        outcome: &Result<Arrival, operation::Failure>,
    ) -> Result<(), Failure> {
        let (status, manual_step) = match (way, outcome) {
            (_, Ok(Arrival::Gate(_))) => return Ok(()),
            (_, Err(failure)) => match status_after(failure) {
                Some(status) => status,
                None => return Ok(()),
            },
            (_, Ok(Arrival::There(report))) => (there(ongoing, way, report), None),
        };
        ongoing.summary.status = status;
        ongoing.summary.manual_step.clone_from(&manual_step);
        let (ledger, now) = (self.ledger(&ongoing.journal, lock), SystemAmbient.now());
        // In one write with its end: a command that is interrupted in between leaves what the next `retire` removes.
        let status = if status == Status::Done && ongoing.journal_goes { Status::Removing } else { status };
        let noted = match manual_step {
            Some(step) => ongoing.journal.set_waiting(&ledger, &step, now).await,
            None => ongoing.journal.set_status(&ledger, status, now).await,
        };
        Ok(noted?)
    }
}

impl Way {
    /// Where its steps lead.
    fn heading(self, work: &Renumbering) -> Heading {
        match self {
            Self::Forward => Heading::Forward(work.soak_stage()),
            Self::Retire => Heading::Forward(None),
            Self::Back | Self::MovesBack => Heading::Back,
        }
    }
}

/// Whether another process has the operation by now.
fn is_lost(outcome: &Result<Arrival, operation::Failure>) -> bool {
    matches!(outcome, Err(failure) if matches!(failure.source, OperationError::LockLost { .. }))
}

/// Whether it has come to an end or a pause, or to an object that it cannot change: not if the cluster does not answer.
fn has_got_on(outcome: &Result<Arrival, operation::Failure>) -> bool {
    outcome.as_ref().map_or_else(|it| it.source.is_pause() || it.source.is_about_one_object(), |_| true)
}

/// How an operation stands that has come to where it was going.
fn there(ongoing: &Ongoing, way: Way, report: &Report) -> Status {
    let is_stuck = match way {
        Way::Back | Way::MovesBack => !report.stuck.is_empty(),
        Way::Retire => !ongoing.still_held(report).is_empty(),
        Way::Forward => false,
    };
    match way {
        _ if is_stuck => Status::Stuck,
        Way::Back => Status::RolledBack,
        Way::MovesBack => Status::Paused,
        Way::Forward => Status::Soaking,
        Way::Retire => Status::Done,
    }
}

/// When the last Service moved, in seconds since 1970.
fn last_move(work: &Renumbering, journal: &Journal) -> Option<i64> {
    let flips = work.moves.iter().filter_map(|candidate| journal.find(&candidate.step("flip")));
    flips.filter_map(|record| record.history.last().map(|(_, time)| *time)).max()
}
