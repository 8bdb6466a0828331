//! Running the steps of an operation in one direction, and what is done at a gate that is closed: pause, roll the last batch
//! back, or everything.

use super::failure::{Failure, Kind};
use super::gates::{Gatekeeper, OnFailure};
use super::metrics::{Counted, Metrics};
use super::{Session, counted, vigil};
use crate::operation::{
    self, Checkpoint, Closed, ClusterLock, Environment, Executor, Journal, Lock, Observer, OperationError,
    Report, Returning, Stop, SystemAmbient, Work,
};
use crate::store::ReadStore as _;

/// Where to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// On, to the end, or to before this stage.
    Forward(Option<usize>),
    /// Back to the start.
    Back,
}

/// Where it came to.
pub enum Arrival {
    /// To where it was going.
    There(Report),
    /// To a gate because of which everything is to be rolled back.
    Gate(Closed),
}

/// An operation that is run: its id, its work and its journal.
pub struct Subject<'a, W> {
    /// Its id.
    pub operation: &'a str,
    /// What it compiles to steps.
    pub work: &'a W,
    /// Its journal.
    pub journal: &'a mut Journal,
}

impl Session {
    /// Does something that can be stopped: because somebody asks for it, or because another operation has taken the cluster's
    /// Lease.
    pub async fn until_stopped<T>(&self, lock: &Lock, run: impl AsyncFnOnce(&Stop) -> T) -> T {
        let (switch, stop) = Stop::new();
        let _listening = self.voice.listen(switch);
        let (alarm, lost) = Stop::new();
        let stop = stop.or(&lost);
        let alarmed = async {
            let reason = lock.until_lease_lost().await;
            let guard = lock.guard();
            // Whoever has taken over this very operation is heard of at the next write.
            if self.store.get(guard.key()).await.is_ok_and(|entry| guard.holds(entry.as_ref())) {
                self.voice.warn(&format!("the Lease `{}` is lost: {reason}; stopping", ClusterLock::LEASE));
                alarm.ask();
            }
            std::future::pending().await
        };
        tokio::select! {
            outcome = run(&stop) => outcome,
            never = alarmed => never,
        }
    }

    /// Runs the steps, with the gates and the limits of this session.
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

/// Goes there, unless a gate on the way is closed.
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

/// Words that everything was rolled back at a gate, or what of it was not; `restored`: what that means, `every Service has its
/// old address`.
pub fn rolled_back(closed: &Closed, report: &Report, operation: &str, restored: &str) -> Failure {
    let Closed { gate, reason } = closed;
    let because = format!("the gate `{gate}` was closed: {reason}");
    let Some(first) = report.stuck.first() else {
        let text = format!("{because}; everything was rolled back: {restored}");
        return Failure::of(Kind::RolledBack, text);
    };
    let text = format!(
        "{because}; everything was rolled back but {}; the first is `{}`: {}",
        counted(report.stuck.len(), "step", "steps"),
        first.step,
        first.reason
    );
    Failure::of(Kind::Stuck, text)
        .hint(format!("bring those objects in order, then `netsurgeon operation rollback {operation}`"))
}
