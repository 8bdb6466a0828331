//! A renumbering of a fixture in memory, carried out by the product's own executor over a store that can be
//! told to fail at a given commit.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use netsurgeon::operation::{
    Ambient, Checkpoint, Claim, Executor, Failure, Journal, Observer, Plan, Report, Returning, Silent, State,
    Stop, Summary, Work,
};
use netsurgeon::renumber::simulate::Simulation;
use netsurgeon::renumber::sweep::sweep;
use netsurgeon::renumber::{Move, PlanOptions, Renumbering, plan};
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::overlay::Overlay;
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{
    Action, Change, CommitError, Entry, Expected, Guard, Key, KeyRange, ReadStore, Record, Revision,
    StoreError, Transaction, Visitor, WriteStore,
};
use netsurgeon::survey::{Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit, Value};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// The fixtures, and where their Services go.
pub const CASES: [(&str, &str); 6] = [
    ("objects", "10.200.0.0/16"),
    ("dualwrite", "10.200.0.0/16"),
    ("bitmap", "10.200.0.0/16"),
    ("json", "10.200.0.0/16"),
    ("dualstack", "10.200.0.0/16"),
    ("dualstack", "fd00:200::/112"),
];

/// So that every case has batches of several Services, and several of them.
const BATCH_SIZE: usize = 7;
const SMALL_BATCH: usize = 3;

const OPERATION: &str = "loops";

/// Of the disorder of those who do several steps at a time, where a test does not choose it.
const SEED: u64 = 7;

const LOCK: &str = "/netsurgeon/loops/lock";

/// A clock that stands still and uids that are all alike: what is written twice is the same.
pub struct Constant;

impl Ambient for Constant {
    fn now(&self) -> i64 {
        1_800_000_000
    }

    fn uid(&self) -> String {
        "00000000-0000-4000-8000-000000000000".to_string()
    }
}

/// Keys and their values.
pub type Keys = BTreeMap<Key, Vec<u8>>;

/// How an executor is set.
#[derive(Clone)]
pub struct Settings {
    pub parallel: usize,
    pub guards: Vec<Guard>,
    pub stop: Stop,
    pub rate: Option<NonZeroU32>,
    pub max_failures: usize,
    pub checkpoint: Option<Arc<dyn Checkpoint>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            parallel: 1,
            guards: Vec::new(),
            stop: Stop::never(),
            rate: None,
            max_failures: 0,
            checkpoint: None,
        }
    }
}

/// A fixture with the plan of its renumbering.
#[derive(Clone)]
pub struct Bench {
    pub name: String,
    base: Arc<MemoryStore>,
    pub settings: Settings,
    pub plan: Plan<Renumbering>,
    /// Everything that the API server has stored.
    pub before: Keys,
}

pub fn fixture_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/{name}.snapshot.db"))
}

/// Reads all entries of a fixture.
pub async fn entries(name: &str) -> Vec<Entry> {
    let everything = [KeyRange::everything()];
    let store = SnapshotStore::open(&fixture_file(name), &everything).expect("a fixture");
    let mut entries = Vec::new();
    let mut visitor = |record: Record<'_>| {
        entries.push(record.to_entry());
        ControlFlow::Continue(())
    };
    store.scan(&everything, None, &mut visitor).await.expect("a fixture can be read");
    entries
}

impl Bench {
    pub async fn of(fixture: &str, to: &str) -> Self {
        Self::in_batches(fixture, to, BATCH_SIZE).await
    }

    /// The same in smaller batches, so that every case has three and more.
    pub async fn in_small_batches(fixture: &str, to: &str) -> Self {
        let services = Self::of(fixture, to).await.plan.work.moves.len();
        Self::in_batches(fixture, to, (services / 3).clamp(1, SMALL_BATCH)).await
    }

    /// The same in batches of so many.
    pub async fn in_batches(fixture: &str, to: &str, batch_size: usize) -> Self {
        let base = Arc::new(MemoryStore::from_entries(entries(fixture).await));
        let survey = Survey::read(base.as_ref(), &Layout::default(), None).await.expect("a survey");
        let options = PlanOptions { batch_size, ..PlanOptions::new(to.parse().expect("a range")) };
        let plan = plan(&survey, &options).expect("a plan");
        let before = keys(base.as_ref(), "/registry/").await;
        Self { name: format!("{fixture} to {to}"), base, settings: Settings::default(), plan, before }
    }

    /// The same with some of its Services not planned but swept, in two sweeps: as if they had been born meanwhile.
    pub async fn swept(fixture: &str, to: &str) -> Self {
        let mut bench = Self::of(fixture, to).await;
        let survey = Survey::read(bench.base.as_ref(), &Layout::default(), None).await.expect("a survey");
        let work = &mut bench.plan.work;
        let (mut shadows, mut others) = (0, 0);
        let unknown: Vec<Move> = work
            .moves
            .extract_if(.., |candidate| {
                let count = if candidate.shadow.is_some() { &mut shadows } else { &mut others };
                *count += 1;
                candidate.turn.is_any() && *count <= 3
            })
            .collect();
        assert_eq!(unknown.len(), 6, "{fixture} has Services of both kinds");
        // The last one is found later than the others.
        let later = unknown.last().expect("there are six").clone();
        let services = |survey: &Survey| survey.services.clone();
        let earlier = Survey {
            services: services(&survey).into_iter().filter(|s| s.uid != later.uid).collect(),
            ..survey.clone()
        };
        for survey in [&earlier, &survey] {
            let found = sweep(work, survey).expect("a sweep").expect("some are found");
            work.add_sweep(found);
        }
        assert!(sweep(work, &survey).expect("a sweep").is_none(), "all are found");
        assert_eq!(work.moves.iter().map(|m| m.sweep).max(), Some(2));
        bench.name = format!("{}, swept", bench.name);
        bench
    }

    /// Returns the fixture's store, as it was before.
    pub fn base(&self) -> &MemoryStore {
        &self.base
    }

    /// The same with an executor that is set in another way.
    pub fn with(&self, settings: Settings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// Returns all cases.
    pub async fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (fixture, to) in CASES {
            all.push(Self::of(fixture, to).await);
        }
        for (fixture, to) in &CASES[..3] {
            all.push(Self::swept(fixture, to).await);
        }
        all
    }

    /// Returns all cases, each one step at a time and several.
    pub async fn all_ways() -> Vec<Self> {
        let several = Settings { parallel: 6, ..Settings::default() };
        let all = Self::all().await;
        let ways = all.into_iter().flat_map(|bench| [bench.with(several.clone()), bench]);
        ways.collect()
    }

    /// Returns a store of its own with the operation begun in it.
    pub async fn fresh(&self) -> Saboteur {
        let overlay = Overlay::new(self.base.clone()).await.expect("an overlay");
        let summary = Summary {
            kind: "renumber".into(),
            digest: self.plan.digest.clone(),
            started: Constant.now(),
            status: "running".into(),
            ..Summary::default()
        };
        let cluster = &self.plan.header.cluster;
        // The plan itself is not what is tested here, and would be copied for every point of failure.
        Journal::begin(&overlay, cluster, OPERATION, b"", summary, &[]).await.expect("a journal");
        let store = Saboteur {
            overlay,
            fault: Mutex::new(Fault::None),
            commits: AtomicUsize::new(0),
            late: Mutex::default(),
            unrest: Mutex::default(),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
        };
        if self.settings.parallel > 1 {
            store.unsettle(SEED);
        }
        store
    }

    /// The stage after which there is no way back: a run up to it can be undone.
    pub fn no_return(&self) -> Option<usize> {
        self.plan.work.no_return_stage()
    }

    pub async fn journal(&self, store: &Saboteur) -> Journal {
        Journal::open(store, &self.plan.header.cluster, OPERATION).await.expect("the journal opens").0
    }

    /// Goes on as a process does that has just been started: all it knows is in the journal.
    pub async fn run(&self, store: &Saboteur, until: Option<usize>) -> Result<Report, Failure> {
        self.run_with(store, until, &mut self.journal(store).await).await
    }

    /// Goes on with what is known.
    pub async fn run_with(
        &self,
        store: &Saboteur,
        until: Option<usize>,
        journal: &mut Journal,
    ) -> Result<Report, Failure> {
        self.run_watched(store, until, journal, &mut Silent).await
    }

    /// The same, with somebody who is told.
    pub async fn run_watched(
        &self,
        store: &Saboteur,
        until: Option<usize>,
        journal: &mut Journal,
        observer: &mut dyn Observer,
    ) -> Result<Report, Failure> {
        let world = Simulation::new(store, &self.plan.work, &Constant);
        self.executor(store, &world, observer, journal).run(&self.plan.work, until).await
    }

    /// Undoes as a process does that has just been started.
    pub async fn unwind(&self, store: &Saboteur) -> Result<Report, Failure> {
        self.unwind_watched(store, &mut Silent).await
    }

    /// The same, with somebody who is told.
    pub async fn unwind_watched(
        &self,
        store: &Saboteur,
        observer: &mut dyn Observer,
    ) -> Result<Report, Failure> {
        let mut journal = self.journal(store).await;
        let world = Simulation::new(store, &self.plan.work, &Constant);
        self.executor(store, &world, observer, &mut journal).unwind(&self.plan.work).await
    }

    /// Rolls one batch back, as a process does that has just been started.
    pub async fn unwind_batch(&self, store: &Saboteur, batch: usize) -> Result<Report, Failure> {
        let mut journal = self.journal(store).await;
        let world = Simulation::new(store, &self.plan.work, &Constant);
        let returning = Returning { batch, gate: "test".into(), reason: "as told".into() };
        let mut silent = Silent;
        let mut executor = self.executor(store, &world, &mut silent, &mut journal);
        executor.unwind_batch(&self.plan.work, &returning).await
    }

    fn executor<'a>(
        &'a self,
        store: &'a Saboteur,
        world: &'a Simulation<'a>,
        observer: &'a mut dyn Observer,
        journal: &'a mut Journal,
    ) -> Executor<'a> {
        let Settings { parallel, guards, stop, rate, max_failures, .. } = self.settings.clone();
        let checkpoint = self.settings.checkpoint.as_deref();
        let executor = Executor::new(store, world, &Constant, observer, journal);
        Executor { parallel, guards, stop, rate, max_failures, checkpoint, ..executor }
    }

    /// The states of all steps that were begun.
    pub async fn states(&self, store: &Saboteur) -> BTreeMap<String, Option<State>> {
        let journal = self.journal(store).await;
        let work = &self.plan.work;
        let steps = work.stages().into_iter().flat_map(|stage| work.steps(&stage));
        steps.map(|step| (step.id.to_string(), journal.state(&step.id))).collect()
    }

    /// What differs from the start, IPAddress objects with a new uid or creation time only excepted; and
    /// those.
    pub async fn differences(&self, store: &Saboteur) -> (Vec<String>, Vec<String>) {
        differences(&self.before, &keys(store, "/registry/").await)
    }

    /// Fails unless everything is as at the start, but for uid and creation time of addresses that had moved.
    pub async fn assert_as_at_the_start(&self, store: &Saboteur, context: &str) {
        let (differ, recreated) = self.differences(store).await;
        assert_eq!(differ, Vec::<String>::new(), "{}, {context}", self.name);
        let layout = Layout::default();
        let moved: Vec<String> =
            self.plan.work.moves.iter().map(|m| layout.ip_address(m.old_address).to_string()).collect();
        assert!(recreated.iter().all(|key| moved.contains(key)), "{}, {context}: {recreated:?}", self.name);
    }
}

/// What differs, IPAddress objects with another uid or creation time only excepted; and those.
pub fn differences(before: &Keys, after: &Keys) -> (Vec<String>, Vec<String>) {
    let (mut differ, mut recreated) = (Vec::new(), Vec::new());
    for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
        match (before.get(key), after.get(key)) {
            (was, is) if was == is => {}
            (Some(was), Some(is)) if is_address(key) && anonymous(was) == anonymous(is) => {
                recreated.push(key.to_string());
            }
            _ => differ.push(key.to_string()),
        }
    }
    (differ, recreated)
}

fn is_address(key: &Key) -> bool {
    key.as_bytes().starts_with(b"/registry/ipaddresses/")
}

fn anonymous(value: &[u8]) -> Vec<u8> {
    let edits = [
        FieldEdit { field: Field::uid(), change: FieldChange::Set(Value::Text(String::new())) },
        FieldEdit { field: Field::creation_timestamp(), change: FieldChange::Set(Value::Time(0)) },
    ];
    edit::apply(value, &edits).expect("an IPAddress can be edited")
}

/// Returns everything under a prefix.
pub async fn keys(store: &dyn ReadStore, prefix: &str) -> Keys {
    let mut keys = Keys::new();
    let mut visitor = |record: Record<'_>| {
        keys.insert(Key::from(record.key), record.value.to_vec());
        ControlFlow::Continue(())
    };
    store.scan(&[KeyRange::prefix(prefix)], None, &mut visitor).await.expect("a scan");
    keys
}

/// What goes wrong, at which commit, counted from 1 since the last [`Saboteur::arm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// This commit and all later ones are refused: the process can do nothing more.
    Stop(usize),
    /// Someone else was faster, this once.
    Conflict(usize),
    /// It happened, and the answer is lost.
    LostAfter(usize),
    /// It did not happen, and the answer is lost.
    LostBefore(usize),
    /// The answer is lost, and it happens only when the outcome has been looked for already.
    LostAndLate(usize),
    /// Just before it, the lock goes to somebody else.
    LockLost(usize),
}

/// An overlay that fails when it is told to.
pub struct Saboteur {
    overlay: Overlay,
    fault: Mutex<Fault>,
    commits: AtomicUsize,
    /// A commit under way, with the number of reads that it still takes.
    late: Mutex<Option<(Transaction, usize)>>,
    /// How long each call takes, at random, if it is not done at once.
    unrest: Mutex<Option<StdRng>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl Saboteur {
    /// Chooses the next fault and counts from 0 again.
    pub fn arm(&self, fault: Fault) {
        *lock(&self.fault) = fault;
        self.commits.store(0, Ordering::SeqCst);
    }

    /// Returns the number of commits that were tried since the last fault was chosen.
    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// From now on calls take a while, at random, so that others come in between.
    pub fn unsettle(&self, seed: u64) {
        *lock(&self.unrest) = Some(StdRng::seed_from_u64(seed));
    }

    /// Returns how many calls were under way at the same time at most.
    pub fn most_under_way(&self) -> usize {
        self.most_under_way.load(Ordering::SeqCst)
    }

    /// Takes a while.
    async fn tarry(&self) {
        let turns = lock(&self.unrest).as_mut().map_or(0, |random| random.random_range(0..4));
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    async fn slowly<T>(&self, call: impl Future<Output = T>) -> T {
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
        self.tarry().await;
        let outcome = call.await;
        self.tarry().await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Makes the lock's key, as the one who holds it; returns what guards every write then.
    pub async fn take_lock(&self, holder: &str) -> Guard {
        let key = Key::from(LOCK);
        if let Some(entry) = self.overlay.get(&key).await.expect("a read") {
            let expected = Expected::At(entry.mod_revision);
            let change = Change { key: key.clone(), expected, action: Action::Delete };
            let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
            self.overlay.commit(&transaction).await.expect("a commit");
        }
        let claim = Claim {
            holder: holder.into(),
            pid: 1,
            operation: OPERATION.into(),
            purpose: "a test".into(),
            since: Constant.now(),
        };
        let value = serde_json::to_vec(&claim).expect("JSON");
        let change = Change { key: key.clone(), expected: Expected::Absent, action: Action::Put(value) };
        let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
        let created = self.overlay.commit(&transaction).await.expect("a commit");
        Guard::SameCreation(key, created)
    }

    /// Changes a key as somebody else would.
    pub async fn meddle(&self, key: &Key, value: Vec<u8>) {
        self.meddle_with(key, Action::Put(value)).await;
    }

    /// Makes a key as somebody else would.
    pub async fn create(&self, key: &Key, value: Vec<u8>) {
        let change = Change { key: key.clone(), expected: Expected::Absent, action: Action::Put(value) };
        let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
        self.overlay.commit(&transaction).await.expect("a commit");
    }

    /// Deletes a key as somebody else would.
    pub async fn delete(&self, key: &Key) {
        self.meddle_with(key, Action::Delete).await;
    }

    async fn meddle_with(&self, key: &Key, action: Action) {
        let entry = self.overlay.get(key).await.expect("a read").expect("the key exists");
        let expected = Expected::At(entry.mod_revision);
        let change = Change { key: key.clone(), expected, action };
        let transaction = Transaction { guards: Vec::new(), changes: vec![change] };
        self.overlay.commit(&transaction).await.expect("a commit");
    }

    /// Lets a commit that is under way arrive, once enough was read or if it cannot wait.
    async fn arrive(&self, now: bool) {
        let due = {
            let mut late = lock(&self.late);
            if let Some((_, reads)) = late.as_mut() {
                *reads = reads.saturating_sub(1);
            }
            if late.as_ref().is_some_and(|(_, reads)| now || *reads == 0) { late.take() } else { None }
        };
        if let Some((transaction, _)) = due {
            self.overlay.commit(&transaction).await.expect("it would have gone through at once");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lost() -> CommitError {
    CommitError::OutcomeUnknown { reason: "the test lost it".into() }
}

#[async_trait]
impl ReadStore for Saboteur {
    fn describe(&self) -> String {
        self.overlay.describe()
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.overlay.revision().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.slowly(async {
            self.arrive(false).await;
            self.overlay.get(key).await
        })
        .await
    }

    async fn scan(
        &self,
        ranges: &[KeyRange],
        at: Option<Revision>,
        visitor: &mut Visitor<'_>,
    ) -> Result<Revision, StoreError> {
        self.overlay.scan(ranges, at, visitor).await
    }
}

#[async_trait]
impl WriteStore for Saboteur {
    async fn commit(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        self.slowly(self.commit_or_fail(transaction)).await
    }
}

impl Saboteur {
    async fn commit_or_fail(&self, transaction: &Transaction) -> Result<Revision, CommitError> {
        self.arrive(true).await;
        let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = *lock(&self.fault);
        match fault {
            Fault::Stop(at) if number >= at => Err(CommitError::Store(StoreError::Server {
                endpoints: "test".into(),
                reason: "stopped".into(),
            })),
            Fault::Conflict(at) if number == at => {
                let change = transaction.changes.first().expect("a change");
                let (key, expected) = (change.key.clone(), change.expected);
                Err(CommitError::Conflict { key, expected, found: None })
            }
            Fault::LostBefore(at) if number == at => Err(lost()),
            Fault::LostAfter(at) if number == at => {
                self.overlay.commit(transaction).await?;
                Err(lost())
            }
            Fault::LostAndLate(at) if number == at => {
                // The first read looks for the record; the second one begins the next attempt.
                *lock(&self.late) = Some((transaction.clone(), 2));
                Err(lost())
            }
            Fault::LockLost(at) if number == at => {
                self.take_lock("bob@elsewhere").await;
                self.overlay.commit(transaction).await
            }
            _ => self.overlay.commit(transaction).await,
        }
    }
}
