//! Runs the steps of an operation in one direction. At a closed gate, pauses, rolls the last batch back, or rolls everything
//! back.

use super::failure::{Failure, Kind};
use super::gates::{Gatekeeper, OnFailure};
use super::metrics::{Counted, Metrics};
use super::{Session, counted, vigil};
use crate::operation::{
    self, Checkpoint, Closed, ClusterLock, Environment, Executor, Journal, Lock, Observer, OperationError,
    Report, Returning, Stop, SystemAmbient, Work,
};
use crate::store::ReadStore as _;

/// The direction of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// Forward to the end, or to the stage with this index, which does not run.
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
    /// Runs a task that can be stopped: on request, or because another operation acquired the cluster's Lease.
    pub async fn until_stopped<T>(&self, lock: &Lock, run: impl AsyncFnOnce(&Stop) -> T) -> T {
        let (switch, stop) = Stop::new();
        let _listening = self.voice.listen(switch);
        let (alarm, lost) = Stop::new();
        let stop = stop.or(&lost);
        let alarmed = async {
            let reason = lock.until_lease_lost().await;
            let guard = lock.guard();
            // If another process took over this same operation, the operation lease is also lost: the next write fails.
            if self.store.get(guard.key()).await.is_ok_and(|entry| guard.holds(entry.as_ref())) {
                self.voice.warn(&format!("lost the Lease `{}`: {reason}; stopping", ClusterLock::LEASE));
                alarm.ask();
            }
            std::future::pending().await
        };
        tokio::select! {
            outcome = run(&stop) => outcome,
            never = alarmed => never,
        }
    }

    /// Runs the steps with the gates and limits of this session.
    pub async fn execute<W: Work>(
        &self,
        subject: Subject<'_, W>,
        environment: &dyn Environment<W::Effect>,
        observer: &mut dyn Observer,
        (lock, stop): (&Lock, &Stop),
        heading: Heading,
    ) -> Result<Arrival, operation::Failure> {
        let Subject { operation, work, journal } = subject;
        let vigil = tokio::spawn(vigil::keep(self.voice.clone(), self.store.clone()));
        let writes = self.metrics.as_ref().map(Metrics::writes).unwrap_or_default();
        let store = Counted { store: self.store.as_ref(), writes };
        let keeper = Gatekeeper::new(&self.gates, &self.voice, operation);
        let ledger = journal.in_store(&store, &[lock.guard()]);
        let mut executor = Executor {
            parallel: self.settings.parallel,
            stop: stop.clone(),
            rate: self.settings.rate,
            max_failures: self.settings.max_failures,
            checkpoint: self.gates.are_there().then_some(&keeper as &dyn Checkpoint),
            ..Executor::new(&ledger, environment, &SystemAmbient, observer, journal)
        };
        let outcome = go(&mut executor, work, heading, &keeper).await;
        vigil.abort();
        outcome
    }
}

/// Runs in one direction until a gate is closed.
async fn go<W: Work>(
    executor: &mut Executor<'_, W::Effect>,
    work: &W,
    heading: Heading,
    keeper: &Gatekeeper<'_>,
) -> Result<Arrival, operation::Failure> {
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
            keeper.warn("rolling everything back");
            Ok(Arrival::Gate(Closed { gate, reason }))
        }
        (OnFailure::Rollback, Some(batch)) => {
            keeper.warn(&format!("rolling batch {} back", batch.saturating_add(1)));
            let returning = Returning { batch, gate: gate.clone(), reason: reason.clone() };
            let source = OperationError::BatchRolledBack { batch, gate, reason };
            executor.unwind_batch(work, &returning).await?;
            Err(operation::Failure { source, ..failure })
        }
        (OnFailure::Pause, _) | (OnFailure::Rollback, None) => Err(failure),
    }
}

/// Returns the failure after a rollback at a closed gate, with the steps that could not be rolled back. `restored` describes the
/// result: `every Service has its old address`.
pub fn rolled_back(closed: &Closed, report: &Report, operation: &str, restored: &str) -> Failure {
    let Closed { gate, reason } = closed;
    let because = format!("gate `{gate}` is closed: {reason}");
    let Some(first) = report.stuck.first() else {
        let text = format!("{because}; everything was rolled back: {restored}");
        return Failure::of(Kind::RolledBack, text);
    };
    let text = format!(
        "{because}; everything was rolled back except {}; the first is `{}`: {}",
        counted(report.stuck.len(), "step", "steps"),
        first.step,
        first.reason
    );
    Failure::of(Kind::Stuck, text)
        .hint(format!("repair these objects, then run `netsurgeon operation rollback {operation}`"))
}
