//! Runs the steps in one direction and records the result. Retries if a step failed because its Service was changed or deleted.

use std::collections::BTreeMap;

use super::manual_step_checks::Confirmations;
use super::stop_reason::{left_open, stopped};
use super::watchers::Watchers;
use super::{Direction, Ongoing, RenumberSession};
use crate::operation::{
    self, Environment, Journal, Lock, OperationError, Report, RunEnd, Status, StepId, Stop,
};
use crate::renumber::environment::{Approver, LiveEnvironment, LiveOptions};
use crate::renumber::plan::KIND;
use crate::renumber::without_api::{MovesBack, WithoutApi};
use crate::renumber::{Effect, Renumbering};
use crate::session::{Api, Arrival, Failure, Heading, Subject, record_of_stop};

/// Maximum number of retries of a step that fails because of concurrent changes.
const MOST_ATTEMPTS: u32 = 3;

impl RenumberSession {
    pub(super) async fn carry(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Direction,
    ) -> Result<Arrival, Failure> {
        let outcome =
            self.until_stopped(lock, async |stop| self.carry_until(ongoing, lock, (way, stop)).await).await;
        if let Err(failure) = &outcome {
            self.note_failure(ongoing, lock, failure).await;
        }
        outcome
    }

    async fn carry_until(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        (way, stop): (Direction, &Stop),
    ) -> Result<Arrival, Failure> {
        self.check_clocks(&ongoing.plan.work, way).await?;
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
                tracing::warn!(error = %failure.error, "cannot tell whether skipped Services were deleted");
            }
            // Cleans up again. Requests of a killed process may arrive after the first cleanup, and a failed barrier can leave
            // objects in the cluster.
            if !is_lost(&outcome)
                && let Err(failure) = self.clear(ongoing, way).await
            {
                tracing::warn!(error = %failure.error, "objects of a killed process may still exist");
            }
            if has_got_on(&outcome)
                && let Err(failure) = self.end_all_deletions(&ongoing.plan.work).await
            {
                tracing::warn!(error = %failure.error, "Services that were deleted during the run may still exist");
            }
            return self.noted(ongoing, lock, way, outcome).await;
        }
    }

    /// Removes the sentinel Services that remain from barriers of killed processes.
    async fn clear(&self, ongoing: &Ongoing, way: Direction) -> Result<(), Failure> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        let removed = cluster.remove_sentinels("kube-system").await;
        removed.map_err(|error| left_open(error.into(), ongoing, way))
    }

    /// Returns true if a step failed because its Service was changed or deleted. The caller then retries the run. If the cause
    /// cannot be determined, returns false, and the caller reports the failure of the step.
    async fn can_go_on(&self, ongoing: &mut Ongoing, lock: &Lock, step: &StepId) -> bool {
        let explained = self.explain(ongoing, lock, step).await;
        explained.unwrap_or_else(|failure| {
            tracing::warn!(error = %failure.error, %step, "cannot tell whether its Service was deleted or changed");
            false
        })
    }

    /// Skips a failed step if its Service is deleted. Plans the move again if the Service has changed. Returns false if the
    /// Service is neither deleted nor changed.
    async fn explain(&self, ongoing: &mut Ongoing, lock: &Lock, step: &StepId) -> Result<bool, Failure> {
        Ok(self.skip_deleted(ongoing, lock, step).await?
            || (!ongoing.has_begun_to_retire() && self.replan(ongoing, lock, false).await?))
    }

    async fn attempt(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        (way, stop): (Direction, &Stop),
    ) -> Result<Result<Arrival, operation::RunFailure>, Failure> {
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
        let outcome = if way == Direction::MovesBack {
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

    /// Returns the confirmations of manual steps. `moved` is the time of the last move, in seconds since 1970.
    fn approver<'a>(&'a self, work: &'a Renumbering, moved: Option<i64>) -> Confirmations<'a> {
        let given = self.settings.confirm.iter().cloned().collect();
        let (ui, store) = (&self.ui, self.store.as_ref());
        Confirmations { ui, given, cluster: self.cluster(), store, work, moved }
    }

    /// Returns the environment for effects and waits: the live cluster, or an environment without the API.
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
            Api::Silent { pause, .. } => Box::new(WithoutApi { pause: *pause }),
        }
    }

    /// Records the direction of this run, so that the journal contains the current direction if the process is killed. A
    /// direction that the executor refuses is not recorded.
    async fn set_out(&self, ongoing: &mut Ongoing, lock: &Lock, way: Direction) -> Result<(), Failure> {
        let is_forward = way.is_forward();
        let is_refused =
            if is_forward { ongoing.journal.is_being_undone() } else { ongoing.has_begun_to_retire() };
        if is_refused || ongoing.summary.status.has_ended() {
            return Ok(());
        }
        self.mark(&ongoing.operation, KIND, !is_forward).await?;
        let (ledger, now) = (self.ledger(&ongoing.journal, lock), self.ambient().now());
        let recorded = ongoing.journal.set_out(&ledger, !is_forward, now).await;
        recorded.map_err(|error| left_open(error.into(), ongoing, way))?;
        ongoing.summary.set_out(!is_forward, now);
        Ok(())
    }

    /// Records the result of a run. Returns the result, or a failure with its message.
    async fn noted(
        &self,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Direction,
        outcome: Result<Arrival, operation::RunFailure>,
    ) -> Result<Arrival, Failure> {
        let record = match &outcome {
            Ok(Arrival::Gate(closed)) => {
                let (gate, reason) = (&closed.gate, &closed.reason);
                let why = format!("gate `{gate}` is closed: {reason}; rolling back the operation");
                Some((Status::RollingBack, RunEnd { why: Some(why), ..RunEnd::default() }))
            }
            Ok(Arrival::There(report)) => {
                let exit = Some(exit_of(ongoing, way, report));
                Some((there(ongoing, way, report), RunEnd { exit, ..RunEnd::default() }))
            }
            // Another process runs the operation now, or the run was refused: the status does not change.
            Err(failure) => record_of_stop(failure),
        };
        if let Some((status, end)) = &record {
            ongoing.summary.status = *status;
            ongoing.summary.manual_step.clone_from(&end.manual_step);
        }
        let arrival = outcome.map_err(|failure| stopped(failure, ongoing, way));
        let Some((status, end)) = record else { return arrival };
        let noted = self.note(ongoing, lock, status, &end).await;
        if let (Err(_), Err(unnoted)) = (&arrival, &noted) {
            // The caller gets the reason why the run stopped, which is more useful than the error of the failed write.
            tracing::warn!(error = %unnoted.error, "the status could not be written to the journal");
        }
        let arrival = arrival?;
        noted.map_err(|failure| left_open(failure, ongoing, way))?;
        if status.has_ended() {
            self.unmark(&ongoing.operation).await;
        }
        Ok(arrival)
    }

    /// Records the status of an operation, and how the run ended.
    async fn note(
        &self,
        ongoing: &Ongoing,
        lock: &Lock,
        status: Status,
        end: &RunEnd,
    ) -> Result<(), Failure> {
        let (ledger, now) = (self.ledger(&ongoing.journal, lock), self.ambient().now());
        if status.is_at_work() {
            return Ok(ongoing.journal.end_run(&ledger, end, now).await?);
        }
        // One write records both the end of the operation and the start of the removal of its journal. If the removal is
        // interrupted, the next `retire` removes the remaining part of the journal.
        let is_removed = status == Status::Done && ongoing.summary.removes_journal;
        let status = if is_removed { Status::Removing } else { status };
        Ok(ongoing.journal.conclude(&ledger, status, end, now).await?)
    }

    /// Records why a run ended outside of a step. Does nothing if the end of the run is already recorded.
    async fn note_failure(&self, ongoing: &Ongoing, lock: &Lock, failure: &Failure) {
        let end = RunEnd::because(format!("{:#}", failure.error), failure.kind.code());
        let (ledger, now) = (self.ledger(&ongoing.journal, lock), self.ambient().now());
        if let Err(unnoted) = ongoing.journal.end_run(&ledger, &end, now).await {
            tracing::warn!(error = %unnoted, "the end of the run could not be written to the journal");
        }
    }
}

impl Direction {
    /// Returns the target of a run in this direction.
    fn heading(self, work: &Renumbering) -> Heading {
        match self {
            Self::Forward => Heading::Forward(work.soak_stage()),
            Self::Retire => Heading::Forward(None),
            Self::Back | Self::MovesBack => Heading::Back,
        }
    }
}

/// Returns whether the run ended because this process lost the operation lease.
fn is_lost(outcome: &Result<Arrival, operation::RunFailure>) -> bool {
    matches!(outcome, Err(failure) if matches!(failure.source, OperationError::LockLost { .. }))
}

/// Returns whether the run ended, paused, or stopped at an object that it cannot change. Returns false if the cluster does not
/// answer.
fn has_got_on(outcome: &Result<Arrival, operation::RunFailure>) -> bool {
    outcome.as_ref().map_or_else(|it| it.source.is_pause() || it.source.is_about_one_object(), |_| true)
}

/// Returns the status of an operation after a run that reached its target.
fn there(ongoing: &Ongoing, way: Direction, report: &Report) -> Status {
    let is_stuck = match way {
        Direction::Back | Direction::MovesBack => !report.stuck.is_empty(),
        Direction::Retire => !ongoing.still_held(report).is_empty(),
        Direction::Forward => false,
    };
    match way {
        _ if is_stuck => Status::Stuck,
        Direction::Back => Status::RolledBack,
        Direction::MovesBack => Status::Paused,
        Direction::Forward => Status::Soaking,
        Direction::Retire => Status::Done,
    }
}

/// Returns the exit status of a command whose run reached its target: 3 if subjects were skipped, 5 if steps are stuck, 6 if the
/// remaining part needs the API.
fn exit_of(ongoing: &Ongoing, way: Direction, report: &Report) -> u8 {
    match there(ongoing, way, report) {
        Status::Stuck => 5,
        Status::Paused => 6,
        _ if way == Direction::Forward && !report.stuck.is_empty() => 3,
        _ => 0,
    }
}

/// Returns the time of the last move, in seconds since 1970.
fn last_move(work: &Renumbering, journal: &Journal) -> Option<i64> {
    let flips = work.moves.iter().filter_map(|candidate| journal.find(&candidate.step("flip")));
    flips.filter_map(|record| record.history.last().map(|(_, time)| *time)).max()
}
