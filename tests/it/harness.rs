//! A renumbering of a fixture in memory, run by the product's own executor over a store that fails on request ([`Saboteur`]).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use netsurgeon::operation::{
    Ambient, Checkpoint, Environment, Executor, Journal, Ledger, Observer, Plan, Report, Returning,
    RunFailure, Silent, State, Stop, Summary, SystemAmbient, Work,
};
use netsurgeon::renumber::simulate::Simulation;
use netsurgeon::renumber::sweep::sweep;
use netsurgeon::renumber::without_api::{MovesBack, WithoutApi};
use netsurgeon::renumber::{Action, Effect, Move, PlanOptions, Renumbering, Step, plan};
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::overlay::Overlay;
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{Entry, Guard, Key, KeyRange, ReadStore, Record};
use netsurgeon::survey::{Layout, Survey};

use crate::saboteur::Saboteur;

/// The fixtures, and the ranges to which their Services move. The last ranges are parts of the old range, `10.96.0.0/16`.
pub const CASES: [(&str, &str); 9] = [
    ("objects", "10.200.0.0/16"),
    ("dualwrite", "10.200.0.0/16"),
    ("bitmap", "10.200.0.0/16"),
    ("json", "10.200.0.0/16"),
    ("dualstack", "10.200.0.0/16"),
    ("dualstack", "fd00:200::/112"),
    ("objects", "10.96.128.0/17"),
    ("dualwrite", "10.96.0.0/24"),
    ("bitmap", "10.96.0.0/24"),
];

/// Every case has several batches, and batches of several Services.
const BATCH_SIZE: usize = 7;
const SMALL_BATCH: usize = 3;

pub const OPERATION: &str = "loops";

/// The seed for the order of concurrent steps, if a test does not choose one.
const SEED: u64 = 7;

pub const LOCK: &str = "/netsurgeon/loops/lock";

/// A clock that stands still, and uids that are all equal: what is written twice is the same.
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

/// The settings of an executor.
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
    store.entries(&everything, None).await.expect("a fixture can be read").1
}

impl Bench {
    pub async fn of(fixture: &str, to: &str) -> Self {
        Self::in_batches(fixture, to, BATCH_SIZE).await
    }

    /// The same in smaller batches: at least three in every case.
    pub async fn in_small_batches(fixture: &str, to: &str) -> Self {
        let services = Self::of(fixture, to).await.plan.work.moves.len();
        Self::in_batches(fixture, to, (services / 3).clamp(1, SMALL_BATCH)).await
    }

    /// The same with a given batch size.
    pub async fn in_batches(fixture: &str, to: &str, batch_size: usize) -> Self {
        let base = Arc::new(MemoryStore::from_entries(entries(fixture).await));
        let survey = Survey::read(base.as_ref(), &Layout::default(), None).await.expect("a survey");
        let options = PlanOptions { batch_size, ..PlanOptions::new(to.parse().expect("a range")) };
        let plan = plan(&survey, &options).expect("a plan");
        let before = keys(base.as_ref(), "/registry/").await;
        Self { name: format!("{fixture} to {to}"), base, settings: Settings::default(), plan, before }
    }

    /// The same, with some of its Services not planned but swept, in two sweeps, as if they had been created since the plan.
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
            work.amend(found);
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

    /// The same with other settings of the executor.
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

    /// Returns all cases, each with one step at a time and with several.
    pub async fn all_ways() -> Vec<Self> {
        let several = Settings { parallel: 6, ..Settings::default() };
        let all = Self::all().await;
        let ways = all.into_iter().flat_map(|bench| [bench.with(several.clone()), bench]);
        ways.collect()
    }

    /// Returns a new store in which the operation is created.
    pub async fn fresh(&self) -> Saboteur {
        let overlay = Overlay::new(self.base.clone()).await.expect("an overlay");
        let summary = Summary {
            kind: "renumber".into(),
            digest: self.plan.digest.clone(),
            started: Constant.now(),
            ..Summary::default()
        };
        let cluster = &self.plan.header.cluster;
        // The plan itself is not tested here, and would be copied for every point of failure.
        Journal::begin(&overlay, cluster, OPERATION, b"", summary, &[]).await.expect("a journal");
        let store = Saboteur::over(overlay);
        if self.settings.parallel > 1 {
            store.unsettle(SEED);
        }
        store
    }

    /// The stage of the point of no return: a run up to it can be rolled back.
    pub fn no_return(&self) -> Option<usize> {
        self.plan.work.no_return_stage()
    }

    pub async fn journal(&self, store: &Saboteur) -> Journal {
        Journal::open(store, &self.plan.header.cluster, OPERATION).await.expect("the journal opens").0
    }

    /// Continues as a new process does: it knows only the journal.
    pub async fn run(&self, store: &Saboteur, until: Option<usize>) -> Result<Report, RunFailure> {
        self.run_with(store, until, &mut self.journal(store).await).await
    }

    /// Continues with a journal that was read before.
    pub async fn run_with(
        &self,
        store: &Saboteur,
        until: Option<usize>,
        journal: &mut Journal,
    ) -> Result<Report, RunFailure> {
        self.run_watched(store, until, journal, &mut Silent).await
    }

    /// The same with an observer.
    pub async fn run_watched(
        &self,
        store: &Saboteur,
        until: Option<usize>,
        journal: &mut Journal,
        observer: &mut dyn Observer,
    ) -> Result<Report, RunFailure> {
        let world = Simulation::new(store, &self.plan.work, &Constant);
        let ledger = journal.in_store(store, &self.settings.guards);
        self.executor(&ledger, &world, observer, journal).run(&self.plan.work, until).await
    }

    /// Rolls back as a new process does.
    pub async fn unwind(&self, store: &Saboteur) -> Result<Report, RunFailure> {
        self.unwind_watched(store, &mut Silent).await
    }

    /// The same with an observer.
    pub async fn unwind_watched(
        &self,
        store: &Saboteur,
        observer: &mut dyn Observer,
    ) -> Result<Report, RunFailure> {
        let mut journal = self.journal(store).await;
        let world = Simulation::new(store, &self.plan.work, &Constant);
        let ledger = journal.in_store(store, &self.settings.guards);
        self.executor(&ledger, &world, observer, &mut journal).unwind(&self.plan.work).await
    }

    /// Rolls back while no API server answers, as far as that is possible.
    pub async fn move_back(&self, store: &Saboteur) -> Result<Report, RunFailure> {
        let (mut journal, world) = (self.journal(store).await, WithoutApi { pause: Duration::ZERO });
        let mut silent = Silent;
        let ledger = journal.in_store(store, &self.settings.guards);
        self.executor(&ledger, &world, &mut silent, &mut journal).unwind(&MovesBack(&self.plan.work)).await
    }

    /// Rolls one batch back, as a new process does.
    pub async fn unwind_batch(&self, store: &Saboteur, batch: usize) -> Result<Report, RunFailure> {
        let mut journal = self.journal(store).await;
        let world = Simulation::new(store, &self.plan.work, &Constant);
        let returning = Returning { batch, gate: "test".into(), reason: "as requested".into() };
        let mut silent = Silent;
        let ledger = journal.in_store(store, &self.settings.guards);
        let mut executor = self.executor(&ledger, &world, &mut silent, &mut journal);
        executor.unwind_batch(&self.plan.work, &returning).await
    }

    fn executor<'a>(
        &'a self,
        ledger: &'a dyn Ledger,
        world: &'a dyn Environment<Effect>,
        observer: &'a mut dyn Observer,
        journal: &'a mut Journal,
    ) -> Executor<'a, Effect> {
        let Settings { parallel, stop, rate, max_failures, .. } = self.settings.clone();
        let checkpoint = self.settings.checkpoint.as_deref();
        let executor = Executor::new(ledger, world, &Constant, observer, journal);
        Executor { parallel, stop, rate, max_failures, checkpoint, ..executor }
    }

    /// The states of all started steps, without waits of the rollback: a resumed rollback waits once for all batches that still
    /// need it, and not for each.
    pub async fn states(&self, store: &Saboteur) -> BTreeMap<String, Option<State>> {
        let journal = self.journal(store).await;
        let work = &self.plan.work;
        let steps = work.stages().into_iter().flat_map(|stage| work.steps(&stage));
        let is_told = |step: &Step| step.back_of.is_empty() || !matches!(step.action, Action::Wait(_));
        steps.filter(is_told).map(|step| (step.id.to_string(), journal.state(&step.id))).collect()
    }

    /// The keys that differ from the start.
    pub async fn differences(&self, store: &Saboteur) -> Vec<String> {
        differences(&self.before, &keys(store, "/registry/").await)
    }

    /// Fails unless every byte is as at the start.
    pub async fn assert_as_at_the_start(&self, store: &Saboteur, context: &str) {
        let differ = self.differences(store).await;
        assert_eq!(differ, Vec::<String>::new(), "{}, {context}", self.name);
    }
}

/// The keys whose values differ.
pub fn differences(before: &Keys, after: &Keys) -> Vec<String> {
    let all = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
    all.filter(|key| before.get(*key) != after.get(*key)).map(ToString::to_string).collect()
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

/// The clock of the runtime, which advances only when every task sleeps.
pub struct Paused(pub tokio::time::Instant);

impl Ambient for Paused {
    fn now(&self) -> i64 {
        1_800_000_000 + i64::try_from(self.0.elapsed().as_secs()).unwrap()
    }

    fn uid(&self) -> String {
        SystemAmbient.uid()
    }
}
