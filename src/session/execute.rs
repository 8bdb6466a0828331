//! Runs the steps of an operation in one direction. At a closed gate, pauses, rolls the last batch back, or rolls everything
//! back.

use super::base::SessionBase;
use super::failure::{ExitKind, Failure};
use super::gates::{Gatekeeper, OnFailure};
use super::metrics::Counted;
use super::refusals::status_hint;
use super::{Session, etcd_silence};
use crate::operation::{
    self, Ambient, Checkpoint, Closed, ClusterLock, Environment, Executor, Journal, Ledger, Lock, Observer,
    OperationError, Report, Returning, RunEnd, Status, Stop, Work,
};
use crate::store::ReadStore as _;
use crate::words::counted;

/// The direction of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// Forward to the end, or up to the stage with this index. That stage does not run.
    Forward(Option<usize>),
    /// Rollback to the start.
    Back,
}

/// Where the run ended.
pub enum Arrival {
    /// At the target of the run.
    There(Report),
    /// At a gate that requires a rollback of everything.
    Gate(Closed),
}

/// An operation to run: its id, its work and its journal.
pub struct Subject<'a, W> {
    /// Id of the operation.
    pub operation: &'a str,
    /// Work of the operation, which compiles to steps.
    pub work: &'a W,
    /// Journal of the operation.
    pub journal: &'a mut Journal,
}

impl Session {
    /// Runs a task that stops on request, or if another operation acquires the cluster's Lease.
    pub async fn until_stopped<T>(&self, lock: &Lock, run: impl AsyncFnOnce(&Stop) -> T) -> T {
        let lost = async {
            let reason = lock.until_lease_lost().await;
            let guard = lock.guard();
            // If another process took over this operation, the operation lease is also lost. The next write then fails, so the
            // task does not have to be stopped here.
            if self.store.get(guard.key()).await.is_ok_and(|entry| guard.holds(entry.as_ref())) {
                return reason;
            }
            std::future::pending().await
        };
        self.run_until(lost, run).await
    }

    /// Runs the steps with the gates and limits of this session.
    pub async fn execute<W: Work>(
        &self,
        subject: Subject<'_, W>,
        environment: &dyn Environment<W::Effect>,
        observer: &mut dyn Observer,
        (lock, stop): (&Lock, &Stop),
        heading: Heading,
    ) -> Result<Arrival, operation::RunFailure> {
        let Subject { operation, work, journal } = subject;
        let silence = tokio::spawn(etcd_silence::warn_when_silent(self.ui.clone(), self.store.clone()));
        let store = Counted { store: self.store.as_ref(), writes: self.writes() };
        let ledger = journal.in_store(&store, &[lock.guard()]);
        let subject = Subject { operation, work, journal };
        let ledger = (&ledger as &dyn Ledger, self.ambient());
        let outcome = self.run_steps(subject, ledger, environment, observer, (stop, heading)).await;
        silence.abort();
        outcome
    }
}

impl SessionBase {
    /// Runs a task that stops on request, or if the Lease of the cluster is lost. `lost` waits for the loss, and returns the reason.
    pub(super) async fn run_until<T>(
        &self,
        lost: impl Future<Output = String>,
        run: impl AsyncFnOnce(&Stop) -> T,
    ) -> T {
        let (switch, stop) = Stop::new();
        let _listening = self.ui.listen(switch);
        let (alarm, alarmed) = Stop::new();
        let stop = stop.or(&alarmed);
        let alarmed = async {
            let reason = lost.await;
            self.ui.warn(&format!("lost the Lease `{}`: {reason}; stopping", ClusterLock::LEASE));
            alarm.ask();
            std::future::pending().await
        };
        tokio::select! {
            outcome = run(&stop) => outcome,
            never = alarmed => never,
        }
    }

    /// Runs the steps with the gates and limits of this session, and records them in the ledger. The clock is for the times in the
    /// ledger, which processes on other machines compare.
    pub(super) async fn run_steps<W: Work>(
        &self,
        Subject { operation, work, journal }: Subject<'_, W>,
        (ledger, ambient): (&dyn Ledger, &dyn Ambient),
        environment: &dyn Environment<W::Effect>,
        observer: &mut dyn Observer,
        (stop, heading): (&Stop, Heading),
    ) -> Result<Arrival, operation::RunFailure> {
        let (gates, settings) = (&self.gates, &self.settings);
        let keeper = Gatekeeper::new(gates, &self.ui, operation);
        let mut executor = Executor {
            parallel: settings.parallel,
            stop: stop.clone(),
            rate: settings.rate,
            max_failures: settings.max_failures,
            checkpoint: gates.are_there().then_some(&keeper as &dyn Checkpoint),
            ..Executor::new(ledger, environment, ambient, observer, journal)
        };
        go(&mut executor, work, heading, &keeper).await
    }
}

/// Runs in one direction, to the end or until a gate is closed.
async fn go<W: Work>(
    executor: &mut Executor<'_, W::Effect>,
    work: &W,
    heading: Heading,
    keeper: &Gatekeeper<'_>,
) -> Result<Arrival, operation::RunFailure> {
    let until = match heading {
        Heading::Forward(until) => until,
        Heading::Back => return executor.unwind(work).await.map(Arrival::There),
    };
    let failure = match executor.run(work, until).await {
        Err(failure) => failure,
        Ok(report) => return Ok(Arrival::There(report)),
    };
    let OperationError::GateClosed { gate, reason, after } = &failure.source else { return Err(failure) };
    let (gate, reason) = (gate.clone(), reason.clone());
    match (keeper.on_failure(&gate), *after) {
        (OnFailure::RollbackAll, _) => {
            keeper.warn("rolling back the whole operation");
            Ok(Arrival::Gate(Closed { gate, reason }))
        }
        (OnFailure::Rollback, Some(batch)) => {
            keeper.warn(&format!("rolling batch {} back", batch.saturating_add(1)));
            let returning = Returning { batch, gate: gate.clone(), reason: reason.clone() };
            let source = OperationError::BatchRolledBack { batch, gate, reason };
            executor.unwind_batch(work, &returning).await?;
            Err(operation::RunFailure { source, ..failure })
        }
        (OnFailure::Pause, _) | (OnFailure::Rollback, None) => Err(failure),
    }
}

/// Returns the failure after a rollback at a closed gate, with the steps that could not be rolled back. `restored` describes the
/// result, for example `every Service has its old address`. `again` is the command that rolls back the remaining steps.
pub fn rolled_back(closed: &Closed, report: &Report, again: &str, restored: &str) -> Failure {
    let Closed { gate, reason } = closed;
    let because = format!("gate `{gate}` is closed: {reason}");
    let Some(first) = report.stuck.first() else {
        let text = format!("{because}; everything was rolled back: {restored}");
        return Failure::of(ExitKind::RolledBack, text);
    };
    let text = format!(
        "{because}; everything was rolled back except {}; the first is `{}`: {}",
        counted(report.stuck.len(), "step", "steps"),
        first.step,
        first.reason
    );
    Failure::of(ExitKind::Stuck, text).hint(format!("repair the objects of these steps, then run `{again}`"))
}

/// Returns what the journal records about a run that stopped before its target: the status of the operation, and how the run ended.
/// `None` if the record does not change, because another process runs the operation now, or the run was refused.
pub fn record_of_stop(failure: &operation::RunFailure) -> Option<(Status, RunEnd)> {
    let (status, manual_step) = status_after(failure)?;
    let exit = exit_of_stop(failure);
    Some((status, RunEnd { manual_step, ..RunEnd::because(why_stopped(failure), exit.code()) }))
}

/// Returns the error for an operation that stopped before its end, with the hint how to continue.
pub fn stopped_before_end(failure: operation::RunFailure, operation: &str) -> Failure {
    let kind = exit_of_stop(&failure);
    Failure::from(failure).kind(kind).hint(status_hint(operation))
}

fn exit_of_stop(failure: &operation::RunFailure) -> ExitKind {
    if failure.source.is_pause() { ExitKind::Paused } else { ExitKind::Stuck }
}

/// Returns why a run stopped before its target, as text for the journal.
fn why_stopped(failure: &operation::RunFailure) -> String {
    match &failure.source {
        OperationError::Paused { name, .. } => format!("manual step `{name}` is open"),
        OperationError::GateClosed { gate, reason, .. } => format!("gate `{gate}` is closed: {reason}"),
        OperationError::BatchRolledBack { batch, gate, reason } => {
            format!("gate `{gate}` is closed: {reason}; batch {} was rolled back", batch.saturating_add(1))
        }
        OperationError::Stopped => "stopped on request".to_string(),
        _ => failure.to_string(),
    }
}

/// Returns the status after a failure, and the open manual step if there is one; `None` if the status does not change.
fn status_after(failure: &operation::RunFailure) -> Option<(Status, Option<String>)> {
    match &failure.source {
        // Another process runs the operation now, or the run was refused before its first step.
        OperationError::LockLost { .. }
        | OperationError::Locked(_)
        | OperationError::PointOfNoReturn { .. }
        | OperationError::BeingUndone => None,
        OperationError::Paused { name, .. } => Some((Status::WaitingForManualStep, Some(name.clone()))),
        source if source.is_pause() => Some((Status::Paused, None)),
        OperationError::BatchStuck { .. } => Some((Status::Stuck, None)),
        _ => Some((Status::Stopped, None)),
    }
}
