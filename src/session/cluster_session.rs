//! A session for operations that are recorded in the cluster, through its API. These operations need no access to etcd.

use std::ops::Deref;

use serde_json::Value;

use super::base::SessionBase;
use super::exclusion::{Marks, unmark};
use super::execute::record_of_stop;
use super::gates::Gates;
use super::lease::{Taking, lock_cluster, release_cluster, words};
use super::ledger_place::LedgerPlace;
use super::progress::SharedProgress;
use super::recorded::damage;
use super::{Arrival, Failure, Heading, Recorded, Settings, Subject, Ui};
use crate::kube_api::Cluster;
use crate::operation::{
    self, Ambient, ClusterLedger, ClusterLock, ClusterRecord, Environment, Journal, LeaseHolder, Ledger,
    LedgerKind, Listed, Mark, OperationError, OperationKind, Plan, Report, RunEnd, Silence, Status, Summary,
    Terms, Waiver, Work, new_id,
};

/// A session for operations that are recorded in a cluster.
pub struct ClusterSession {
    base: SessionBase,
    /// The API of the cluster.
    pub api: Cluster,
}

impl Deref for ClusterSession {
    type Target = SessionBase;

    fn deref(&self) -> &SessionBase {
        &self.base
    }
}

/// The operation lease and the record of an operation, held by this process.
pub struct Holding {
    ui: Ui,
    api: Cluster,
    lock: ClusterLock,
    ledger: ClusterLedger,
}

/// What a kind of operation decides about the end of a run.
pub trait EndOfRun<W> {
    /// Returns the status of the operation after a run that reached its target.
    fn status_at_target(&self, recorded: &Recorded<W>, heading: Heading, report: &Report) -> Status;

    /// Returns the failure for a run that stopped before its target. `is_damaged`: whether the record of the operation is missing or
    /// damaged, so that no process can continue the operation.
    fn stopped(&self, recorded: &Recorded<W>, failure: operation::RunFailure, is_damaged: bool) -> Failure;
}

impl ClusterSession {
    /// Starts a session.
    pub async fn open(ui: Ui, api: Cluster, settings: Settings) -> Result<Self, Failure> {
        let id = api.identity().await?;
        Ok(Self { base: SessionBase::open(ui, id, settings).await?, api })
    }

    /// Adds gates between batches.
    #[must_use]
    pub fn with_gates(self, gates: Gates) -> Self {
        Self { base: self.base.with_gates(gates), ..self }
    }

    /// Limits the number of subjects that are processed at the same time.
    pub fn limit_parallel(&mut self, most: usize) {
        self.base.settings.parallel = self.base.settings.parallel.min(most);
    }

    /// Returns the time of the cluster, in seconds since 1970.
    pub fn now(&self) -> i64 {
        Ambient::now(self.api.clock())
    }

    /// Returns the operations of a kind that are recorded in the cluster.
    pub async fn listed(&self, kind: &str) -> Result<Vec<Listed>, Failure> {
        let all = ClusterRecord::list(&self.api).await?;
        Ok(all
            .into_iter()
            .filter(|listed| listed.cluster == self.id && listed.summary.kind == kind)
            .collect())
    }

    /// Returns the newest operation of this cluster with this plan.
    pub async fn of_plan<W>(&self, plan: &Plan<W>) -> Result<Option<Listed>, Failure> {
        let listed = self.listed(&plan.header.kind).await?;
        let of_plan = listed.into_iter().filter(|one| one.summary.digest == plan.digest);
        Ok(of_plan.max_by_key(|one| one.summary.started))
    }

    /// Reads an operation of this cluster.
    pub async fn read<W: OperationKind + Work>(&self, operation: &str) -> Result<Recorded<W>, Failure> {
        Recorded::read_of(&self.api, operation, &self.id).await
    }

    /// Starts an operation: acquires the operation lease of the cluster, and records the plan. Fails if the cluster has a record
    /// of another operation that has not ended.
    pub async fn begin<W: OperationKind + Work>(
        &self,
        plan: Plan<W>,
        gates: Value,
        purpose: &str,
    ) -> Result<(Recorded<W>, Holding), Failure> {
        self.begin_with(plan, purpose, |summary| Summary { gates, ..summary }).await
    }

    /// Starts the rollback of an operation whose record is lost, like [`Self::begin`]. Every step of the plan can have run.
    pub async fn begin_recovered<W: OperationKind + Work>(
        &self,
        plan: Plan<W>,
        purpose: &str,
    ) -> Result<(Recorded<W>, Holding), Failure> {
        self.begin_with(plan, purpose, |summary| Summary { back: true, is_recovered: true, ..summary }).await
    }

    async fn begin_with<W: OperationKind + Work>(
        &self,
        plan: Plan<W>,
        purpose: &str,
        change: impl FnOnce(Summary) -> Summary,
    ) -> Result<(Recorded<W>, Holding), Failure> {
        let operation = format!("{}-{}", W::NAME, new_id());
        let taking = Taking { operation: &operation, purpose };
        let (claim, lock) = self.lock(&taking).await?;
        let begun = async {
            self.refuse_beside_another(W::NAME).await?;
            let (text, summary) = Journal::of_plan(&plan, &claim, Value::Null)?;
            let summary = change(summary);
            let steps = plan.work.stages().iter().map(|stage| plan.work.steps(stage).len()).sum();
            let ledger = ClusterLedger::begin(&self.api, &plan.header.cluster, &claim, steps).await?;
            let journal = Journal::begin_in(&ledger, &text, summary.clone()).await?;
            Ok((ledger, journal, summary))
        };
        let (lock, (ledger, journal, summary)) = keep(lock, begun.await).await?;
        let recorded = Recorded { operation: claim.operation, plan, journal, summary };
        Ok((recorded, self.holding(lock, ledger)))
    }

    /// Takes over an operation, to continue it or to roll it back. Waits until the lease of an ended process expires.
    pub async fn take<W: OperationKind + Work>(
        &self,
        taking: &Taking<'_>,
    ) -> Result<(Recorded<W>, Holding), Failure> {
        let (claim, lock) = self.lock(taking).await?;
        let taken = async {
            let ledger = ClusterLedger::take(&self.api, &claim).await?;
            Ok((Recorded::open_to_change(taking.operation, &ledger, &self.id).await?, ledger))
        };
        let (lock, (recorded, ledger)) = keep(lock, taken.await).await?;
        Ok((recorded, self.holding(lock, ledger)))
    }

    fn holding(&self, lock: ClusterLock, ledger: ClusterLedger) -> Holding {
        let ledger = ledger.counting(self.writes().counter());
        Holding { ui: self.ui.clone(), api: self.api.clone(), lock, ledger }
    }

    async fn lock(&self, taking: &Taking<'_>) -> Result<(LeaseHolder, ClusterLock), Failure> {
        let claim = LeaseHolder::of_this_process(taking.operation, taking.purpose, self.now());
        let lease = self.settings.lease;
        let terms = Terms { ttl: lease.ttl, silence: Silence::Loses, take_over: lease.take_over };
        let lock = lock_cluster(&self.ui, &self.api, &claim, terms).await;
        Ok((claim, lock.map_err(|error| words(error, taking))?))
    }

    fn marks(&self) -> Marks<'_> {
        Marks { api: &self.api, etcd: None }
    }

    async fn refuse_beside_another(&self, kind: &str) -> Result<(), Failure> {
        let listing = ClusterRecord::listing(&self.api).await?;
        listing.unreadable.iter().for_each(|text| self.ui.warn(text));
        let place = LedgerPlace::Cluster(Box::new(self.api.clone()));
        place.refuse_beside(&self.ui, &self.id, listing.operations).await?;
        self.marks().refuse_beside(&self.ui, kind).await
    }

    /// Returns why no process can continue an operation; `None` if its record is not damaged ([`damage`]).
    pub async fn damage(&self, operation: &str) -> Result<Option<OperationError>, Failure> {
        damage(&self.api, operation).await
    }

    /// Runs the steps with the gates and limits of this session, and shows the progress. Records the direction first, so that the
    /// journal contains the direction even if the process is killed. At the end, records the status of the operation and the end of
    /// the run.
    pub async fn execute<W: Work>(
        &self,
        recorded: &mut Recorded<W>,
        holding: &Holding,
        (environment, progress): (&dyn Environment<W::Effect>, SharedProgress),
        heading: Heading,
        kind: &impl EndOfRun<W>,
    ) -> Result<Arrival, Failure> {
        self.set_out(recorded, holding, heading == Heading::Back).await?;
        self.show(progress.clone());
        let outcome = self.run_until(holding.lock.until_lost(), async |stop| {
            let mut watched = self.ui.watch(progress);
            let Recorded { operation, plan, journal, .. } = &mut *recorded;
            let subject = Subject { operation, work: &plan.work, journal };
            let ledger = (&holding.ledger as &dyn Ledger, self.api.clock() as &dyn Ambient);
            self.run_steps(subject, ledger, environment, watched.as_mut(), (stop, heading)).await
        });
        match outcome.await {
            Ok(Arrival::There(report)) => {
                let status = kind.status_at_target(recorded, heading, &report);
                holding.conclude(recorded, status, &RunEnd::default()).await?;
                Ok(Arrival::There(report))
            }
            Ok(gate) => Ok(gate),
            Err(failure) => Err(self.record_stop(recorded, holding, failure, kind).await),
        }
    }

    /// Marks an operation, and records that this process runs it.
    async fn set_out<W>(
        &self,
        recorded: &mut Recorded<W>,
        holding: &Holding,
        is_back: bool,
    ) -> Result<(), Failure> {
        let (operation, kind) = (recorded.operation.clone(), recorded.summary.kind.clone());
        let mark = Mark { operation, kind, ledger: LedgerKind::Cluster };
        self.marks().claim(&self.ui, &mark, is_back).await?;
        let now = self.now();
        recorded.journal.set_out(&holding.ledger, is_back, now).await?;
        recorded.summary.set_out(is_back, now);
        Ok(())
    }

    /// Records that a run stopped before its target, and returns the failure.
    async fn record_stop<W>(
        &self,
        recorded: &mut Recorded<W>,
        holding: &Holding,
        failure: operation::RunFailure,
        kind: &impl EndOfRun<W>,
    ) -> Failure {
        if let Some((status, end)) = record_of_stop(&failure)
            && let Err(unnoted) = holding.conclude(recorded, status, &end).await
        {
            // The caller gets the reason for the stop, which is more useful than the write error.
            tracing::warn!(error = %unnoted.error, "the end of the run could not be written to the journal");
        }
        let is_damaged = self.damage(&recorded.operation).await.is_ok_and(|damage| damage.is_some());
        kind.stopped(recorded, failure, is_damaged)
    }
}

impl Holding {
    /// Records the status of the operation, and how the run ended.
    async fn conclude<W>(
        &self,
        recorded: &mut Recorded<W>,
        status: Status,
        end: &RunEnd,
    ) -> Result<(), Failure> {
        let now = Ambient::now(self.api.clock());
        recorded.journal.conclude(&self.ledger, status, end, now).await?;
        recorded.summary.status = status;
        recorded.summary.manual_step.clone_from(&end.manual_step);
        if status.has_ended() {
            unmark(&self.ui, &self.api, &recorded.operation).await;
        }
        Ok(())
    }

    /// Records the gates for the remaining batches.
    pub async fn set_gates<W>(&self, recorded: &mut Recorded<W>, gates: &Value) -> Result<(), Failure> {
        Ok(recorded.journal.set_gates(&self.ledger, gates).await?)
    }

    /// Records the subjects that the operator gives up.
    pub async fn give_up<W>(&self, recorded: &mut Recorded<W>, waivers: &[Waiver]) -> Result<(), Failure> {
        recorded.journal.give_up(&self.ledger, waivers).await?;
        recorded.summary.give_up(waivers);
        Ok(())
    }

    /// Records that the operator gives these subjects up, in one direction. Nothing is written if there are none.
    pub async fn give_up_subjects<W>(
        &self,
        recorded: &mut Recorded<W>,
        subjects: &[String],
        back: bool,
    ) -> Result<(), Failure> {
        let now = Ambient::now(self.api.clock());
        let waivers: Vec<Waiver> =
            subjects.iter().map(|subject| Waiver::of(subject, back, "", now)).collect();
        if waivers.is_empty() { Ok(()) } else { self.give_up(recorded, &waivers).await }
    }

    /// Releases the operation lease, and returns the outcome unchanged.
    pub async fn release<T>(self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        release_cluster(self.lock).await;
        outcome
    }
}

/// Keeps the operation lease after a success, and releases it after a failure.
async fn keep<T>(lock: ClusterLock, outcome: Result<T, Failure>) -> Result<(ClusterLock, T), Failure> {
    match outcome {
        Ok(done) => Ok((lock, done)),
        Err(failure) => {
            release_cluster(lock).await;
            Err(failure)
        }
    }
}
