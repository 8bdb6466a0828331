//! Waits: concurrent with the next batch if no gate is between them; cancelled when the other side fails or a stop is requested.
//! A wait for a duration does not start again when the operation is resumed.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use netsurgeon::operation::{
    Action, Ambient as _, Answer, Applied, Checkpoint, Closed, Doing, Effect, Environment, Event, Executor,
    Journal, Manual, Observed, Observer, Records, Report, RunFailure, Silent, Stage, State, Step, StepFault,
    StepId, Stop, Summary, SystemAmbient, Wait, WaitKind, Work,
};
use netsurgeon::store::memory::MemoryStore;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::harness::Paused;

/// An effect that records its name.
#[derive(Debug, Clone, Serialize)]
struct Note(&'static str);

impl Effect for Note {
    type Wait = Awaited;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
enum Awaited {
    Barrier,
    Verify,
    Soak,
}

impl WaitKind for Awaited {
    fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Verify => "verify",
            Self::Soak => "soak",
        }
    }
}

/// Two batches: each is made ready, waited for, moved and waited for again.
struct Batches;

const STAGES: [(&str, usize); 8] = [
    ("ready", 0),
    ("barrier", 0),
    ("move", 0),
    ("verify", 0),
    ("ready", 1),
    ("barrier", 1),
    ("move", 1),
    ("verify", 1),
];

impl Work for Batches {
    type Effect = Note;

    fn stages(&self) -> Vec<Stage> {
        let stages = STAGES.iter().enumerate();
        let stage = |(index, (name, batch)): (usize, &(&str, usize))| Stage {
            index,
            name: (*name).to_string(),
            batch: Some(*batch),
            title: format!("{name} {batch}"),
        };
        stages.map(stage).collect()
    }

    fn steps(&self, stage: &Stage) -> Vec<Step<Note>> {
        let (name, _) = STAGES[stage.index];
        let batch = stage.batch;
        let wait =
            |kind| Action::Wait(Wait { kind, batch, subject: None, until: "the condition holds".into() });
        let action = match name {
            "barrier" => wait(Awaited::Barrier),
            "verify" => wait(Awaited::Verify),
            name => Action::Do(Note(name)),
        };
        let (id, about) = (StepId(format!("{name}/{}", batch.unwrap())), String::new());
        vec![Step { id, subject: about, action, independent: false, back_of: Vec::new() }]
    }

    fn may_be_beside(&self, waiting: &Stage, later: &Stage) -> bool {
        let is_next = later.batch == waiting.batch.map(|batch| batch + 1);
        waiting.name == "verify" && is_next && ["ready", "barrier"].contains(&later.name.as_str())
    }
}

/// What a wait of this environment does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verify {
    /// It ends at once.
    Over,
    /// It ends once the barrier of the next batch is waited for.
    Meets,
    /// It fails then.
    Fails,
    /// It never ends.
    Never,
}

struct World {
    verify: Verify,
    done: Mutex<Vec<String>>,
    /// Whether the barrier of the second batch is waited for.
    waits: watch::Sender<bool>,
}

impl World {
    fn new(verify: Verify) -> Self {
        Self { verify, done: Mutex::default(), waits: watch::Sender::new(false) }
    }

    fn note(&self, what: &str) {
        self.done.lock().unwrap().push(what.to_string());
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

#[async_trait]
impl Environment<Note> for World {
    async fn apply(&self, doing: &Doing<'_, Note>) -> Result<Applied, StepFault> {
        self.note(&doing.step.to_string());
        Ok(Applied::NOTHING)
    }

    async fn observe(&self, _doing: &Doing<'_, Note>) -> Result<Observed, StepFault> {
        Ok(Observed::NotDone)
    }

    async fn wait(&self, wait: &Wait<Awaited>, _: Records<'_>) -> Result<(), StepFault> {
        let is_second = wait.batch == Some(1);
        if wait.kind == Awaited::Barrier && is_second {
            self.waits.send_replace(true);
            if self.verify == Verify::Fails {
                std::future::pending::<()>().await;
            }
        }
        if wait.kind == Awaited::Verify && self.verify == Verify::Never {
            std::future::pending::<()>().await;
        }
        if wait.kind == Awaited::Verify && !is_second && self.verify != Verify::Over {
            self.waits.subscribe().wait_for(|waits| *waits).await.expect("the sender lives");
            if self.verify == Verify::Fails {
                return Err(StepFault::Halt("a node is silent".into()));
            }
        }
        self.note(&format!("{}/{}", wait.kind.name(), wait.batch.unwrap()));
        Ok(())
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(manual.what.clone()))
    }
}

struct Bench(MemoryStore);

impl Bench {
    async fn new() -> Self {
        let store = MemoryStore::new();
        Journal::begin(&store, "one", "op", b"", Summary::default(), &[]).await.expect("a journal");
        Self(store)
    }

    async fn journal(&self) -> Journal {
        Journal::open(&self.0, "one", "op").await.expect("a journal").0
    }

    async fn run(&self, world: &World, gate: Option<&dyn Checkpoint>) -> Result<Report, RunFailure> {
        self.run_until(world, gate, Stop::never()).await
    }

    async fn run_until(
        &self,
        world: &World,
        gate: Option<&dyn Checkpoint>,
        stop: Stop,
    ) -> Result<Report, RunFailure> {
        let (mut journal, mut silent) = (self.journal().await, Silent);
        let ledger = journal.in_store(&self.0, &[]);
        let executor = Executor::new(&ledger, world, &SystemAmbient, &mut silent, &mut journal);
        let mut executor = Executor { checkpoint: gate, stop, ..executor };
        let run = executor.run(&Batches, None);
        tokio::time::timeout(Duration::from_mins(1), run).await.expect("no wait for a later stage")
    }
}

#[tokio::test(start_paused = true)]
async fn next_batch_is_prepared_while_previous_one_is_verified() {
    let (bench, world) = (Bench::new().await, World::new(Verify::Meets));
    let report = bench.run(&world, None).await.expect("a run");
    assert_eq!((report.done, report.skipped), (8, 0));
    let done = world.done();
    let place =
        |name: &str| done.iter().position(|step| step == name).unwrap_or_else(|| panic!("{name}: {done:?}"));
    assert!(place("move/1") > place("verify/0") && place("move/1") > place("barrier/1"), "{done:?}");
    let again = bench.run(&World::new(Verify::Over), None).await.expect("a second run");
    assert_eq!((again.done, again.skipped), (0, 8));
}

#[tokio::test(start_paused = true)]
async fn failed_wait_cancels_concurrent_wait() {
    let (bench, world) = (Bench::new().await, World::new(Verify::Fails));
    let failure = bench.run(&world, None).await.expect_err("a node is silent");
    assert_eq!(failure.to_string(), "step `verify/0`: a node is silent");
    let journal = bench.journal().await;
    let state = |step: &str| journal.state(&StepId(step.into()));
    assert_eq!((state("ready/1"), state("barrier/1"), state("move/1")), (Some(State::Done), None, None));
    bench.run(&World::new(Verify::Meets), None).await.expect("it continues");
}

#[tokio::test(start_paused = true)]
async fn stop_request_cancels_waits() {
    let (bench, world) = (Bench::new().await, World::new(Verify::Never));
    let (switch, stop) = Stop::new();
    let asked = async {
        world.waits.subscribe().wait_for(|waits| *waits).await.expect("the sender lives");
        switch.ask();
    };
    let (outcome, ()) = tokio::join!(bench.run_until(&world, None, stop), asked);
    assert!(outcome.expect_err("a stop was requested").is_stopped());
    let journal = bench.journal().await;
    assert_eq!(journal.state(&StepId("verify/0".into())), None, "a wait has no record before its end");
    bench.run(&World::new(Verify::Over), None).await.expect("it continues");
}

/// Records when it is asked.
struct Gate<'a>(&'a World);

#[async_trait]
impl Checkpoint for Gate<'_> {
    async fn pass(&self, next: &Stage) -> Result<(), Closed> {
        self.0.note(&format!("gate before {}", next.title));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn next_batch_does_not_start_before_its_gate() {
    let (bench, world) = (Bench::new().await, World::new(Verify::Over));
    bench.run(&world, Some(&Gate(&world))).await.expect("a run");
    let done = world.done();
    assert_eq!(done[3..6], ["verify/0", "gate before ready 1", "ready/1"], "{done:?}");
}

/// Steps may run beside a wait while there is no gate. A gate that is added later is still asked before the batch continues.
#[tokio::test(start_paused = true)]
async fn gate_added_later_is_asked_before_prepared_batch() {
    let bench = Bench::new().await;
    bench.run(&World::new(Verify::Fails), None).await.expect_err("a node is silent");
    let world = World::new(Verify::Over);
    bench.run(&world, Some(&Gate(&world))).await.expect("a run");
    let done = world.done();
    assert_eq!(done[..3], ["verify/0", "gate before ready 1", "barrier/1"], "{done:?}");
}

/// A duration to wait for, counted from the last change.
struct Soak;

impl Work for Soak {
    type Effect = Note;

    fn stages(&self) -> Vec<Stage> {
        let stage = |index, name: &str| Stage { index, name: name.into(), batch: None, title: name.into() };
        vec![stage(0, "move"), stage(1, "soak")]
    }

    fn steps(&self, stage: &Stage) -> Vec<Step<Note>> {
        let wait = Wait { kind: Awaited::Soak, batch: None, subject: None, until: "an hour is over".into() };
        let action = if stage.index == 0 { Action::Do(Note("move")) } else { Action::Wait(wait) };
        let (id, about) = (StepId(format!("{}/0", stage.name)), String::new());
        vec![Step { id, subject: about, action, independent: false, back_of: Vec::new() }]
    }
}

const HOUR: Duration = Duration::from_hours(1);

struct Patient;

#[async_trait]
impl Environment<Note> for Patient {
    async fn apply(&self, _doing: &Doing<'_, Note>) -> Result<Applied, StepFault> {
        Ok(Applied::NOTHING)
    }

    async fn observe(&self, _doing: &Doing<'_, Note>) -> Result<Observed, StepFault> {
        Ok(Observed::NotDone)
    }

    fn lasts(&self, _wait: &Wait<Awaited>) -> Option<Duration> {
        Some(HOUR)
    }

    async fn wait(&self, wait: &Wait<Awaited>, _: Records<'_>) -> Result<(), StepFault> {
        Err(StepFault::Halt(format!("nothing to observe: {}", wait.until)))
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(manual.what.clone()))
    }
}

/// Records the reported duration of each wait.
#[derive(Default)]
struct Told(Vec<u64>);

impl Observer for Told {
    fn event(&mut self, event: Event<'_>) {
        if let Event::StepStarted { left: Some(left), .. } = event {
            self.0.push(left.as_secs());
        }
    }
}

/// Resumes; returns the reported durations, in seconds.
async fn soak(bench: &Bench, clock: &Paused, stop: Stop) -> (Result<Report, RunFailure>, Vec<u64>) {
    let (mut journal, mut told) = (bench.journal().await, Told::default());
    let ledger = journal.in_store(&bench.0, &[]);
    let executor = Executor::new(&ledger, &Patient, clock, &mut told, &mut journal);
    let outcome = Executor { stop, ..executor }.run(&Soak, None).await;
    (outcome, told.0)
}

async fn stopped_after_20_minutes(bench: &Bench, clock: &Paused) -> Vec<u64> {
    let (switch, stop) = Stop::new();
    let asked = async {
        sleep(Duration::from_mins(20)).await;
        switch.ask();
    };
    let ((outcome, told), ()) = tokio::join!(soak(bench, clock, stop), asked);
    assert!(outcome.expect_err("a stop was requested").is_stopped());
    told
}

#[tokio::test(start_paused = true)]
async fn timed_wait_is_counted_from_the_journal() {
    let (bench, clock) = (Bench::new().await, Paused(Instant::now()));
    let told = stopped_after_20_minutes(&bench, &clock).await;
    assert_eq!((told, clock.0.elapsed().as_secs() / 60), (vec![3600], 20), "it stops at once");
    sleep(Duration::from_mins(15)).await;
    let (outcome, told) = soak(&bench, &clock, Stop::never()).await;
    outcome.expect("the wait ends");
    // The journal has whole seconds, so a second is added.
    assert_eq!((told, clock.0.elapsed().as_secs() / 60), (vec![25 * 60 + 1], 60), "an hour in all");
    let (outcome, told) = soak(&bench, &clock, Stop::never()).await;
    assert_eq!((outcome.expect("the wait ends").done, told), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn timed_wait_restarts_after_a_later_change() {
    let (bench, clock) = (Bench::new().await, Paused(Instant::now()));
    stopped_after_20_minutes(&bench, &clock).await;
    let mut journal = bench.journal().await;
    let ledger = journal.in_store(&bench.0, &[]);
    journal.fail(&ledger, &StepId("other/0".into()), "found out beside", clock.now()).await.expect("noted");
    let (outcome, told) = soak(&bench, &clock, Stop::never()).await;
    outcome.expect("the wait ends");
    assert_eq!(told, [3600]);
}
