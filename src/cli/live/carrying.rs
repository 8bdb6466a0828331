//! Carrying the steps out, in one direction, again and again as long as a step that fails is explained by what became of its
//! Service, and recording how it went.

use std::collections::BTreeMap;

use super::renewing::renew;
use super::stopping::{left_open, listen, status_after, stopped};
use super::turning::{Arrival, go};
use super::watchers::Watchers;
use super::{LiveArgs, Ongoing, Session, Way, vigil};
use crate::cli::Context;
use crate::cli::failure::Failure;
use crate::cli::gates::Gatekeeper;
use crate::cli::metrics::{Counted, Metrics};
use crate::operation::{
    self, Ambient as _, Checkpoint, ClusterLock, Executor, Journal, Lock, OperationError, Report, Status,
    StepId, Stop, SystemAmbient,
};
use crate::renumber::Renumbering;
use crate::store::ReadStore as _;

/// How often a step is tried that others make fail.
const MOST_ATTEMPTS: u32 = 3;

impl Session {
    pub(super) async fn carry(
        &self,
        context: &Context,
        args: &LiveArgs,
        ongoing: &mut Ongoing,
        lock: &Lock,
        way: Way,
    ) -> Result<Arrival, Failure> {
        let (switch, stop) = Stop::new();
        let listener = tokio::spawn(listen(context.output.clone(), switch));
        let (alarm, lost) = Stop::new();
        let stop = stop.or(&lost);
        let alarmed = async {
            let reason = lock.until_lease_lost().await;
            let guard = lock.guard();
            // Whoever has taken over this very operation is heard of at the next write.
            if self.store.get(guard.key()).await.is_ok_and(|entry| guard.holds(entry.as_ref())) {
                context
                    .output
                    .warn(&format!("the Lease `{}` is lost: {reason}; stopping", ClusterLock::LEASE));
                alarm.ask();
            }
            std::future::pending().await
        };
        let arrival = tokio::select! {
            arrival = self.carry_until(context, args, ongoing, lock, (way, &stop)) => arrival,
            never = alarmed => never,
        };
        listener.abort();
        arrival
    }

    async fn carry_until(
        &self,
        context: &Context,
        args: &LiveArgs,
        ongoing: &mut Ongoing,
        lock: &Lock,
        (way, stop): (Way, &Stop),
    ) -> Result<Arrival, Failure> {
        self.set_out(ongoing, lock, way).await?;
        self.clear(ongoing, way).await?;
        if !ongoing.has_begun_to_retire() {
            let is_back = !way.is_forward() || ongoing.journal.returning().is_some();
            let again = self.replan(context, args, ongoing, lock, is_back).await;
            again.map_err(|failure| left_open(failure, ongoing, way))?;
        }
        let mut failed = BTreeMap::new();
        loop {
            let outcome = self.attempt(context, args, ongoing, lock, (way, stop)).await?;
            if let Err(failure) = &outcome
                && way.is_forward()
                && failure.source.is_about_one_object()
            {
                let times: &mut u32 = failed.entry(failure.step.clone()).or_default();
                *times = times.saturating_add(1);
                if *times <= MOST_ATTEMPTS
                    && self.can_go_on(context, args, ongoing, lock, &failure.step).await
                {
                    continue;
                }
            }
            if way.is_forward()
                && let Err(failure) = self.settle_deleted(context, args, ongoing, lock).await
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
                && let Err(failure) = self.end_all_deletions(context, args, &ongoing.plan.work).await
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
    async fn can_go_on(
        &self,
        context: &Context,
        args: &LiveArgs,
        ongoing: &mut Ongoing,
        lock: &Lock,
        step: &StepId,
    ) -> bool {
        let explained = self.explain(context, args, ongoing, lock, step).await;
        explained.unwrap_or_else(|failure| {
            tracing::warn!(error = %failure.error, %step, "what became of its Service is not known");
            false
        })
    }

    /// Deleted, it is skipped; changed, its move is planned again.
    async fn explain(
        &self,
        context: &Context,
        args: &LiveArgs,
        ongoing: &mut Ongoing,
        lock: &Lock,
        step: &StepId,
    ) -> Result<bool, Failure> {
        Ok(self.skip_deleted(context, args, ongoing, lock, step).await?
            || (!ongoing.has_begun_to_retire() && self.replan(context, args, ongoing, lock, false).await?))
    }

    async fn attempt(
        &self,
        context: &Context,
        args: &LiveArgs,
        ongoing: &mut Ongoing,
        lock: &Lock,
        (way, stop): (Way, &Stop),
    ) -> Result<Result<Arrival, operation::Failure>, Failure> {
        let (work, journal) = (&ongoing.plan.work, &mut ongoing.journal);
        let approver = self.approver(context, args, work, last_move(work, journal));
        let boxed = self.environment(args, &ongoing.operation, work, &approver, lock);
        let environment = boxed.as_ref();
        let renewed = renew(&context.output, &self.store, environment, work, journal, lock).await;
        if let Err(failure) = renewed {
            drop(boxed);
            return Err(left_open(failure, ongoing, way));
        }
        let vigil = tokio::spawn(vigil::keep(context.output.clone(), self.store.clone()));
        let about = (ongoing.operation.as_str(), work, &*journal);
        let mut watchers = Watchers::new(&context.output, self, args, about, way);
        let writes = self.metrics.as_ref().map(Metrics::writes).unwrap_or_default();
        let store = Counted { store: self.store.as_ref(), writes };
        let keeper = Gatekeeper::new(&self.gates, &context.output, &ongoing.operation);
        let ledger = journal.in_store(&store, &[lock.guard()]);
        let mut executor = Executor {
            parallel: args.parallel.into(),
            stop: stop.clone(),
            rate: args.rate,
            max_failures: args.most_failures(),
            checkpoint: self.gates.are_there().then_some(&keeper as &dyn Checkpoint),
            ..Executor::new(&ledger, environment, &SystemAmbient, &mut watchers, journal)
        };
        let outcome = go(&mut executor, work, way, &keeper).await;
        vigil.abort();
        watchers.finish().await;
        drop(boxed);
        Ok(outcome)
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
