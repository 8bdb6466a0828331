//! Waits with company: they run beside the steps of other subjects. Each concerns only its subject, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use netsurgeon::operation::{
    Action, Answer, Applied, Doing, Effect, Environment, Executor, Journal, Manual, Observed, Records,
    Report, RunFailure, Silent, Stage, State, Step, StepFault, StepId, Stop, Summary, Wait, WaitKind, Work,
};
use netsurgeon::store::memory::MemoryStore;
use proptest::prelude::*;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::Paused;

#[derive(Debug, Clone, Serialize)]
struct Change;

impl Effect for Change {
    type Wait = Awaited;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
enum Awaited {
    Ready,
    Gone,
    All,
}

impl WaitKind for Awaited {
    fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Gone => "gone",
            Self::All => "all",
        }
    }

    fn may_have_company(self) -> bool {
        self != Self::All
    }
}

/// Subjects: each is made, waited for and used. In a rollback, it is waited for twice. At the end, one wait for all of them.
struct Subjects(usize);

/// The steps of each subject, in the order of a run. In a rollback, the last one is first; only then `gone` runs.
const STEPS: [&str; 4] = ["gone", "make", "ready", "use"];

fn step_of(name: &str, subject: usize) -> StepId {
    StepId(format!("{name}/{subject}"))
}

impl Work for Subjects {
    type Effect = Change;

    fn stages(&self) -> Vec<Stage> {
        let stage = |index, name: &str| Stage { index, name: name.into(), batch: None, title: name.into() };
        vec![stage(0, "subjects"), stage(1, "all")]
    }

    fn steps(&self, stage: &Stage) -> Vec<Step<Change>> {
        let wait = |kind, subject| Action::Wait(Wait { kind, batch: None, subject, until: String::new() });
        let step =
            |id, subject: String, action, back_of| Step { id, subject, action, independent: false, back_of };
        if stage.index == 1 {
            return vec![step(StepId("all".into()), String::new(), wait(Awaited::All, None), Vec::new())];
        }
        let of = |subject: usize| {
            STEPS.map(|name| {
                let about = Some(subject.to_string());
                let (action, back_of) = match name {
                    "gone" => (wait(Awaited::Gone, about), vec![step_of("make", subject)]),
                    "ready" => (wait(Awaited::Ready, about), Vec::new()),
                    _ => (Action::Do(Change), Vec::new()),
                };
                step(step_of(name, subject), subject.to_string(), action, back_of)
            })
        };
        // The steps of different subjects alternate.
        let each: Vec<_> = (0..self.0).map(of).collect();
        (0..STEPS.len()).flat_map(|place| each.iter().map(move |steps| steps[place].clone())).collect()
    }
}

/// What happens to the wait for a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Skipped,
    Halted,
    Never,
}

/// Everything takes a random time.
#[derive(Default)]
struct World {
    seed: u64,
    fates: BTreeMap<usize, Fate>,
    /// The duration of the waits for a subject, if they last for a fixed time.
    lasts: Option<Duration>,
    /// Names and subjects of the steps, in the order of their ends.
    log: Mutex<Vec<(String, String)>>,
    waiting: Mutex<(usize, usize)>,
}

impl World {
    async fn take_time(&self, name: &str, subject: &str) {
        let text = format!("{} {name} {subject}", self.seed);
        let hash = text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        sleep(Duration::from_millis(hash % 97)).await;
    }

    fn note(&self, name: &str, subject: &str) {
        self.log.lock().unwrap().push((name.into(), subject.into()));
    }

    /// The steps of a subject that ended, in order.
    fn of(&self, subject: usize) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|(_, of)| *of == subject.to_string()).map(|(name, _)| name.clone()).collect()
    }

    fn count(&self, name: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|(found, _)| found == name).count()
    }
}

#[async_trait]
impl Environment<Change> for World {
    async fn apply(&self, doing: &Doing<'_, Change>) -> Result<Applied, StepFault> {
        let (name, subject) = doing.step.0.split_once('/').expect("an id");
        self.take_time(name, subject).await;
        self.note(&format!("{}{name}", if doing.back { "un" } else { "" }), subject);
        Ok(Applied::NOTHING)
    }

    async fn observe(&self, _doing: &Doing<'_, Change>) -> Result<Observed, StepFault> {
        Ok(Observed::NotDone)
    }

    fn lasts(&self, wait: &Wait<Awaited>) -> Option<Duration> {
        self.lasts.filter(|_| wait.kind == Awaited::Ready)
    }

    async fn wait(&self, wait: &Wait<Awaited>, _: Records<'_>) -> Result<(), StepFault> {
        let subject = wait.subject.clone().unwrap_or_default();
        {
            let mut waiting = self.waiting.lock().unwrap();
            waiting.0 += 1;
            waiting.1 = waiting.1.max(waiting.0);
        }
        self.take_time(wait.kind.name(), &subject).await;
        let fate = subject.parse().ok().and_then(|subject: usize| self.fates.get(&subject));
        if fate == Some(&Fate::Never) {
            std::future::pending::<()>().await;
        }
        self.waiting.lock().unwrap().0 -= 1;
        match fate {
            Some(Fate::Skipped) => Err(StepFault::Skip("it does not become ready".into())),
            Some(_) => Err(StepFault::Halt("the node is gone".into())),
            None => {
                self.note(wait.kind.name(), &subject);
                Ok(())
            }
        }
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(manual.what.clone()))
    }
}

struct Bench {
    store: MemoryStore,
    clock: Paused,
    work: Subjects,
    parallel: usize,
}

impl Bench {
    async fn new(subjects: usize, parallel: usize) -> Self {
        let store = MemoryStore::new();
        Journal::begin(&store, "one", "op", b"", Summary::default(), &[]).await.expect("a journal");
        Self { store, clock: Paused(Instant::now()), work: Subjects(subjects), parallel }
    }

    async fn journal(&self) -> Journal {
        Journal::open(&self.store, "one", "op").await.expect("a journal").0
    }

    async fn state(&self, name: &str, subject: usize) -> Option<State> {
        self.journal().await.state(&step_of(name, subject))
    }

    /// Runs in one direction. Requests a stop after some time, if given.
    async fn go(
        &self,
        world: &World,
        back: bool,
        stop_after: Option<Duration>,
    ) -> Result<Report, RunFailure> {
        let (mut journal, mut silent) = (self.journal().await, Silent);
        let ledger = journal.in_store(&self.store, &[]);
        let (switch, stop) = Stop::new();
        let executor = Executor::new(&ledger, world, &self.clock, &mut silent, &mut journal);
        let (parallel, max_failures) = (self.parallel, self.work.0);
        let mut executor = Executor { parallel, max_failures, stop, ..executor };
        let stopping = async {
            sleep(stop_after.unwrap_or(Duration::from_hours(100))).await;
            switch.ask();
            std::future::pending::<()>().await;
        };
        let run = async {
            if back { executor.unwind(&self.work).await } else { executor.run(&self.work, None).await }
        };
        tokio::select! {
            outcome = run => outcome,
            () = stopping => unreachable!("it is pending"),
        }
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().expect("a runtime").block_on(future)
}

proptest! {
    /// Whatever runs at the same time, whichever waits fail, and whenever it stops: each subject has its steps in order, and the
    /// failure of a wait concerns its subject only.
    #[test]
    fn each_subject_passes_through_its_steps_in_both_directions(
        (subjects, parallel, seed) in (1..7_usize, 1..9_usize, any::<u64>()),
        skipped in prop::collection::btree_set(0..7_usize, 0..4),
        stops in prop::collection::vec(1..400_u64, 2),
    ) {
        let [stop, stop_back] = [0, 1].map(|place| Some(Duration::from_millis(stops[place])));
        let skipped: BTreeSet<usize> = skipped.into_iter().filter(|subject| *subject < subjects).collect();
        run(async {
            let bench = Bench::new(subjects, parallel).await;
            let fates = skipped.iter().map(|subject| (*subject, Fate::Skipped)).collect();
            let world = World { seed, fates, ..World::default() };
            let _ = bench.go(&world, false, stop).await;
            let report = bench.go(&world, false, None).await.expect("it continues");
            let stuck: BTreeSet<StepId> = report.stuck.into_iter().map(|stuck| stuck.step).collect();
            assert_eq!(stuck, skipped.iter().map(|subject| step_of("ready", *subject)).collect());
            for subject in 0..subjects {
                let steps: &[&str] = if skipped.contains(&subject) { &["make"] } else { &["make", "ready", "use"] };
                assert_eq!(world.of(subject), steps, "{subject}");
            }
            let world = World { seed, ..World::default() };
            bench.go(&world, false, None).await.expect("nothing fails");
            for subject in 0..subjects {
                let steps: &[&str] = if skipped.contains(&subject) { &["ready", "use"] } else { &[] };
                assert_eq!(world.of(subject), steps, "no step of another subject is repeated");
            }
            let _ = bench.go(&world, true, stop_back).await;
            let report = bench.go(&world, true, None).await.expect("a rollback");
            assert_eq!(report.stuck, []);
            for subject in 0..subjects {
                let mut back = world.of(subject).split_off(if skipped.contains(&subject) { 2 } else { 0 });
                // An interrupted rollback can repeat a wait, because the journal does not know for which subject it was begun.
                back.dedup();
                assert_eq!(back, ["unuse", "ready", "unmake", "gone"], "{subject}");
                for name in ["make", "ready", "use"] {
                    assert_eq!(bench.state(name, subject).await, Some(State::UndoDone), "{name}/{subject}");
                }
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn waits_of_different_subjects_run_at_the_same_time() {
    let (bench, world) = (Bench::new(5, 5).await, World::default());
    bench.go(&world, false, None).await.expect("a run");
    assert_eq!(world.waiting.lock().unwrap().1, 5);
    assert_eq!((world.count("all"), world.log.lock().unwrap().last().unwrap().0.as_str()), (1, "all"));
}

#[tokio::test(start_paused = true)]
async fn failure_cancels_waits_of_other_subjects() {
    for back in [false, true] {
        let bench = Bench::new(3, 3).await;
        let fates = BTreeMap::from([(0, Fate::Never), (1, Fate::Halted)]);
        let world = World { fates, ..World::default() };
        if back {
            bench.go(&World::default(), false, None).await.expect("a run");
        }
        let outcome = timeout(Duration::from_secs(10), bench.go(&world, back, None)).await;
        let failure = outcome.expect("no wait without an end").expect_err("a node is gone");
        assert_eq!(failure.to_string(), "step `ready/1`: the node is gone");
        bench.go(&World::default(), back, None).await.expect("it continues");
    }
}

#[tokio::test(start_paused = true)]
async fn rollback_skips_only_the_subject_whose_wait_fails() {
    let (bench, world) = (Bench::new(3, 3).await, World::default());
    bench.go(&world, false, None).await.expect("a run");
    let fates = BTreeMap::from([(1, Fate::Skipped)]);
    let report = bench.go(&World { fates, ..World::default() }, true, None).await.expect("a rollback");
    assert_eq!(report.stuck.len(), 1, "{report:?}");
    let mut states = Vec::new();
    for subject in 0..3 {
        states.push(bench.state("make", subject).await);
    }
    assert_eq!(states, [Some(State::UndoDone), Some(State::Done), Some(State::UndoDone)]);
    let report = bench.go(&World::default(), true, None).await.expect("it continues");
    assert_eq!((report.stuck.len(), bench.state("make", 1).await), (0, Some(State::UndoDone)));
}

/// The records of other subjects do not start a timed wait again.
#[tokio::test(start_paused = true)]
async fn timed_wait_of_a_subject_continues_after_a_stop() {
    let hour = Duration::from_hours(1);
    let world = World { lasts: Some(hour), ..World::default() };
    let bench = Bench::new(4, 2).await;
    // Two at a time: two are over, and two have waited for half an hour.
    let stopped = bench.go(&world, false, Some(hour + hour / 2)).await.expect_err("it stops");
    assert!(stopped.is_stopped(), "{stopped}");
    bench.go(&world, false, None).await.expect("it continues");
    let minutes = bench.clock.0.elapsed().as_secs() / 60;
    assert_eq!((minutes, world.count("use")), (120, 4));
}
