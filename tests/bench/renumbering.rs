//! Measures how fast Services move in a real etcd. Two comparisons: the minimum cost of the same writes, and deleting and
//! creating Services through the API, which is the usual way today.
//!
//! The operation uses the product's own plan, journal, lock and executor, with eight steps in flight. It does not wait for
//! kube-proxies, because a barrier takes as long as the slowest one, and it writes no events. *The floor* is a bare client of an
//! etcd that was filled in the same way: as many transactions with as many preconditions, of the same keys and sizes, eight in
//! flight, and no reads. Its preconditions compare a key that does not exist. *The same* is what that client needs when its
//! preconditions compare the same keys and its updates keep a key's lease. The difference between the two is etcd's time to
//! compare, which no careful client can avoid.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use futures_util::StreamExt as _;
use netsurgeon::operation::{
    Answer, Applied, Doing, Environment, Executor, Journal, LeaseHolder, Lock, Manual, Observed, Records,
    Silent, StepFault, SystemAmbient, Wait,
};
use netsurgeon::renumber::{Awaited, Effect, PlanOptions, plan};
use netsurgeon::store::etcd::{EtcdOptions as Options, EtcdStore};
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{
    Action, CommitError, Entry, Expected, Guard, Key, KeyRange, ReadStore, Record, Revision, StoreError,
    Transaction, Visitor, WriteStore,
};
use netsurgeon::survey::{Layout, Survey};
use serde::Serialize;
use serde_json::{Value, json};

use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::etcd::{Etcd, EtcdOptions};
use crate::snapshots;

/// Steps in flight: the default of `renumber apply --parallel`.
const PARALLEL: usize = 8;
/// The range of the snapshots, doubled: no Service moves.
const GROWN: &str = "10.96.0.0/11";
/// Services that are deleted and created through the API.
const SAMPLE: usize = 400;

/// The figures.
#[derive(Debug, Serialize)]
pub struct Moving {
    pub services: usize,
    pub transactions: usize,
    pub seconds: f64,
    pub floor_seconds: f64,
    pub to_floor: f64,
    pub same_seconds: f64,
    pub to_same: f64,
    pub microseconds_per_service: f64,
    /// Keys and bytes that are written to grow the range to twice its size, with the journal.
    pub growth_keys: usize,
    pub growth_bytes: usize,
}

/// A committed transaction, as far as it affects the cost.
struct Written {
    /// The keys of its preconditions.
    conditions: Vec<Key>,
    changes: Vec<(Key, What)>,
}

/// What the transaction did to a key.
#[derive(Clone, Copy)]
enum What {
    /// Created, with a value of so many bytes.
    Made(usize),
    /// Updated.
    Updated(usize),
    Removed,
}

impl What {
    fn size(self) -> usize {
        if let Self::Made(size) | Self::Updated(size) = self { size } else { 0 }
    }
}

/// How the bare client writes the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bare {
    Floor,
    Same,
}

/// A store that records what is written.
struct Recorder {
    store: Arc<EtcdStore>,
    written: Mutex<Vec<Written>>,
}

#[async_trait]
impl ReadStore for Recorder {
    fn describe(&self) -> String {
        self.store.describe()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.store.get(key).await
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, StoreError> {
        self.store.get_many(keys).await
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        self.store.scan(ranges, at, visitor).await
    }
}

#[async_trait]
impl WriteStore for Recorder {
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        let revision = self.store.commit(transaction).await?;
        let changes = transaction.changes.iter().map(|change| {
            let what = match (&change.action, change.expected) {
                (Action::Put(value), Expected::Absent) => What::Made(value.len()),
                (Action::Put(value), Expected::At(_)) => What::Updated(value.len()),
                (Action::Delete, _) => What::Removed,
            };
            (change.key.clone(), what)
        });
        let guards = transaction.guards.iter().map(|guard| match guard {
            Guard::Unchanged(key, _) | Guard::SameCreation(key, _) | Guard::Absent(key) => key,
        });
        let expectations = transaction.changes.iter().map(|change| &change.key);
        let conditions = guards.chain(expectations).cloned().collect();
        let written = Written { conditions, changes: changes.collect() };
        self.written.lock().expect("no thread panics").push(written);
        Ok(revision)
    }
}

/// An environment in which everything outside etcd is done at once.
struct Ready;

#[async_trait]
impl Environment<Effect> for Ready {
    async fn apply(&self, _doing: &Doing<'_, Effect>) -> Result<Applied, StepFault> {
        Ok(Applied::NOTHING)
    }

    async fn observe(&self, _doing: &Doing<'_, Effect>) -> Result<Observed, StepFault> {
        Ok(Observed::NotDone)
    }

    async fn wait(&self, _wait: &Wait<Awaited>, _: Records<'_>) -> Result<(), StepFault> {
        Ok(())
    }

    async fn manual(&self, _manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Ok(Answer::Confirmed)
    }
}

/// Starts an etcd with everything from a snapshot.
async fn filled(file: &Path) -> Etcd {
    let everything = [KeyRange::everything()];
    let snapshot = SnapshotStore::open(file, &everything).expect("a snapshot");
    let mut pairs = Vec::new();
    let mut visitor = |record: Record<'_>| {
        pairs.push((Key::from(record.key).to_string(), record.value.to_vec()));
        ControlFlow::Continue(())
    };
    snapshot.scan(&everything, None, &mut visitor).await.expect("a snapshot");
    let etcd = Etcd::start(EtcdOptions::default()).await;
    snapshots::put(&mut etcd.client().await, &mut pairs).await;
    etcd
}

/// Moves every Service that an external IP holds, and makes as many writes without netsurgeon.
pub async fn measure(services: usize, target: &str) -> Moving {
    eprintln!("moving {services} Services");
    let file = snapshots::with_services(services).await;
    let etcd = filled(&file).await;
    let (moved, seconds, written) = run_all(&etcd, target).await;
    drop(etcd);
    let (growth_keys, growth_bytes) = grown(services).await;
    let floor_seconds = write_all(&filled(&file).await, &written, Bare::Floor).await;
    let same_seconds = write_all(&filled(&file).await, &written, Bare::Same).await;
    Moving {
        services: moved,
        transactions: written.len(),
        seconds,
        floor_seconds,
        to_floor: seconds / floor_seconds,
        same_seconds,
        to_same: seconds / same_seconds,
        microseconds_per_service: seconds * 1e6 / moved as f64,
        growth_keys,
        growth_bytes,
    }
}

/// Grows the range of so many Services to twice its size. Returns how many keys and bytes are written, with the journal.
pub async fn grown(services: usize) -> (usize, usize) {
    let etcd = filled(&snapshots::with_services(services).await).await;
    let (moved, _, written) = run_all(&etcd, GROWN).await;
    assert_eq!(moved, 0, "no Service moves");
    let sizes = written.iter().flat_map(|written| &written.changes).map(|(_, what)| what.size());
    (sizes.clone().count(), sizes.sum())
}

/// Changes the range until the old addresses are held. Returns how many Services moved, the seconds, and what was written. If a
/// Service moved, these are the writes after the start of the operation.
async fn run_all(etcd: &Etcd, target: &str) -> (usize, f64, Vec<Written>) {
    let store = Arc::new(EtcdStore::connect(Options::new(etcd.endpoints())).await.expect("etcd answers"));
    let survey = Survey::read(store.as_ref(), &Layout::default(), None).await.expect("a survey");
    let options = PlanOptions { accept_gap: true, ..PlanOptions::new(target.parse().expect("a range")) };
    let mut plan = plan(&survey, &options).expect("a plan");
    // An API server creates shadows, and there is none.
    plan.work.moves.retain(|candidate| candidate.shadow.is_none());
    let claim = LeaseHolder::of_this_process("bench", "measure", 0);
    let ttl = Duration::from_mins(10);
    let lock = Lock::acquire(store.clone(), &plan.header.cluster, &claim, ttl).await.expect("a lock");
    let guards = vec![lock.guard()];
    let recorder = Recorder { store, written: Mutex::default() };
    let mut journal =
        Journal::begin_plan(&recorder, &plan, &claim, Value::Null, &guards).await.expect("a journal");
    if !plan.work.moves.is_empty() {
        recorder.written.lock().expect("no thread panics").clear();
    }
    let (mut silent, until) = (Silent, plan.work.soak_stage());
    let ledger = journal.in_store(&recorder, &guards);
    let mut executor = Executor {
        parallel: PARALLEL,
        ..Executor::new(&ledger, &Ready, &SystemAmbient, &mut silent, &mut journal)
    };
    let started = Instant::now();
    executor.run(&plan.work, until).await.unwrap_or_else(|failure| panic!("{failure}"));
    let seconds = started.elapsed().as_secs_f64();
    lock.release().await.expect("the lock is released");
    (plan.work.moves.len(), seconds, recorder.written.into_inner().expect("no thread panics"))
}

/// Commits the same transactions, with preconditions that always hold.
async fn write_all(etcd: &Etcd, written: &[Written], bare: Bare) -> f64 {
    let client = etcd.client().await;
    let sizes = written.iter().flat_map(|written| &written.changes).map(|(_, what)| what.size());
    let filling = vec![b'x'; sizes.max().unwrap_or_default()];
    let commit = async |mut client: Client, written: &Written| {
        let conditions = written.conditions.iter().map(|key| {
            let key = if bare == Bare::Floor { "none".as_bytes() } else { key.as_bytes() };
            Compare::version(key, CompareOp::Greater, -1)
        });
        let operations = written.changes.iter().map(|(key, what)| {
            let keeps_lease = bare == Bare::Same && matches!(what, What::Updated(_));
            match what {
                What::Made(size) | What::Updated(size) => {
                    let options = keeps_lease.then(|| PutOptions::new().with_ignore_lease());
                    TxnOp::put(key.as_bytes(), &filling[..*size], options)
                }
                What::Removed => TxnOp::delete(key.as_bytes(), None),
            }
        });
        let transaction =
            Txn::new().when(conditions.collect::<Vec<_>>()).and_then(operations.collect::<Vec<_>>());
        client.txn(transaction).await.expect("etcd accepts a transaction");
    };
    let in_turn = async |written: Vec<&Written>| {
        for written in written {
            commit(client.clone(), written).await;
        }
    };
    let steps = futures_util::stream::iter(by_step(written));
    let started = Instant::now();
    steps.for_each_concurrent(PARALLEL, in_turn).await;
    started.elapsed().as_secs_f64()
}

/// Returns the writes of each step, in order: an update must not overtake the creation of its key.
fn by_step(written: &[Written]) -> Vec<Vec<&Written>> {
    let mut steps: Vec<Vec<&Written>> = Vec::new();
    let mut places: HashMap<&Key, usize> = HashMap::new();
    for written in written {
        let record =
            written.changes.iter().map(|(key, _)| key).find(|key| key.to_string().contains("/steps/"));
        let record = record.expect("every transaction of an operation writes the record of its step");
        let place = *places.entry(record).or_insert(steps.len());
        if place == steps.len() {
            steps.push(Vec::new());
        }
        steps[place].push(written);
    }
    steps
}

/// Deletes Services through the API of a real cluster and creates them again, as many in flight; returns the seconds for each.
pub async fn recreate_each() -> f64 {
    eprintln!("deleting and creating {SAMPLE} Services through the API");
    let cluster = Cluster::start(ClusterOptions::new(Era::Objects)).await;
    let api = &cluster.api;
    let name = |number: usize| format!("service-{number}");
    let create = async |number: usize| {
        let spec = json!({"ports": [{"port": 80}], "selector": {"app": name(number)}});
        api.create_service("default", &name(number), spec).await;
    };
    let numbers = || futures_util::stream::iter(0..SAMPLE);
    numbers().for_each_concurrent(PARALLEL, create).await;
    let started = Instant::now();
    numbers()
        .for_each_concurrent(PARALLEL, async |number| {
            api.delete(&format!("/api/v1/namespaces/default/services/{}", name(number))).await;
            create(number).await;
        })
        .await;
    started.elapsed().as_secs_f64() / SAMPLE as f64
}
