//! Effects outside the store, by an operation of another kind than a renumbering: places with one value each. The journal keeps
//! the value before and what was created. The class of a fault decides: retry, look the outcome up, skip, or fail.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use netsurgeon::operation::{
    Action, Answer, Applied, Doing, Effect, Environment, Executor, Journal, LeaseHolder, Lock, Manual,
    NoWait, Observed, OperationError, OperationKind, Plan, Records, Report, RunFailure, Silent, Stage, State,
    Step, StepFault, StepId, Stop, StopSwitch, SystemAmbient, Wait, Waiver, Work,
};
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::store::{Guard, Revision};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Writes a value into a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Put {
    place: String,
    value: i64,
}

impl Effect for Put {
    type Wait = NoWait;
}

/// Values for places; the subject of each step is its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Puts {
    puts: Vec<Put>,
}

impl OperationKind for Puts {
    const NAME: &'static str = "puts";
    const VERSION: u32 = 1;
}

impl Work for Puts {
    type Effect = Put;

    fn stages(&self) -> Vec<Stage> {
        vec![Stage { index: 0, name: "put".into(), batch: None, title: "put the values".into() }]
    }

    fn steps(&self, _stage: &Stage) -> Vec<Step<Put>> {
        let step = |put: &Put| Step {
            id: step_of(&put.place),
            subject: put.place.clone(),
            action: Action::Do(put.clone()),
            independent: false,
            back_of: Vec::new(),
        };
        self.puts.iter().map(step).collect()
    }
}

fn step_of(place: &str) -> StepId {
    StepId(format!("put/{place}"))
}

/// The outcome of the next call.
enum Next {
    /// It fails, and nothing was changed.
    Fail(StepFault),
    /// It succeeds, and the answer is lost.
    Lose,
}

/// The places, and the outcomes of the next calls.
#[derive(Default)]
struct Places {
    there: Mutex<BTreeMap<String, i64>>,
    next: Mutex<VecDeque<Next>>,
    calls: Mutex<usize>,
    taken_back: Mutex<Vec<Value>>,
}

impl Places {
    fn of(there: &[(&str, i64)]) -> Self {
        let there = there.iter().map(|(place, value)| ((*place).to_string(), *value)).collect();
        Self { there: Mutex::new(there), ..Self::default() }
    }

    fn then(self, next: impl IntoIterator<Item = Next>) -> Self {
        self.next.lock().unwrap().extend(next);
        self
    }

    fn there(&self) -> Vec<(String, i64)> {
        self.there.lock().unwrap().clone().into_iter().collect()
    }

    fn calls(&self) -> usize {
        *self.calls.lock().unwrap()
    }

    fn change(&self, doing: &Doing<'_, Put>) {
        let Put { place, value } = doing.effect.clone();
        let mut there = self.there.lock().unwrap();
        match (doing.back, doing.before.as_i64()) {
            (false, _) => drop(there.insert(place, value)),
            (true, Some(before)) => drop(there.insert(place, before)),
            (true, None) => drop(there.remove(&place)),
        }
    }
}

#[async_trait]
impl Environment<Put> for Places {
    async fn before(&self, doing: &Doing<'_, Put>) -> Result<Value, StepFault> {
        Ok(json!(self.there.lock().unwrap().get(&doing.effect.place)))
    }

    async fn apply(&self, doing: &Doing<'_, Put>) -> Result<Applied, StepFault> {
        *self.calls.lock().unwrap() += 1;
        let next = self.next.lock().unwrap().pop_front();
        if let Some(Next::Fail(fault)) = next {
            return Err(fault);
        }
        self.change(doing);
        match next {
            Some(_) => Err(StepFault::InDoubt("the connection broke".into())),
            None => Ok(Applied::Made(json!({"id": doing.effect.value * 10}))),
        }
    }

    async fn observe(&self, doing: &Doing<'_, Put>) -> Result<Observed, StepFault> {
        let found = self.there.lock().unwrap().get(&doing.effect.place).copied();
        let (from, to) = (doing.before.as_i64(), Some(doing.effect.value));
        let (from, to) = if doing.back { (to, from) } else { (from, to) };
        Ok(if found == to {
            Observed::Done(json!({"id": doing.effect.value * 10}))
        } else if found == from {
            Observed::NotDone
        } else {
            Observed::Changed(format!("`{}` holds {found:?}", doing.effect.place))
        })
    }

    async fn take_back(&self, doing: &Doing<'_, Put>, _ended: Option<Revision>) -> Result<bool, StepFault> {
        self.taken_back.lock().unwrap().push(doing.made.clone());
        Ok(true)
    }

    async fn wait(&self, wait: &Wait<NoWait>, _: Records<'_>) -> Result<(), StepFault> {
        Err(StepFault::Halt(wait.until.clone()))
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(manual.what.clone()))
    }
}

struct Bench {
    store: Arc<MemoryStore>,
    plan: Plan<Puts>,
}

impl Bench {
    async fn new(values: &[(&str, i64)]) -> Self {
        let put = |(place, value): &(&str, i64)| Put { place: (*place).to_string(), value: *value };
        let plan = Plan::new("c", Revision(1), Puts { puts: values.iter().map(put).collect() });
        let store = Arc::new(MemoryStore::new());
        Journal::begin_plan(&*store, &plan, &claim(), Value::Null, &[]).await.expect("a journal");
        Self { store, plan }
    }

    async fn journal(&self) -> Journal {
        Journal::open(&*self.store, "c", "op").await.expect("a journal").0
    }

    async fn go(
        &self,
        places: &Places,
        back: bool,
        stop: Stop,
        guards: Vec<Guard>,
    ) -> Result<Report, RunFailure> {
        let (mut journal, mut silent) = (self.journal().await, Silent);
        let ledger = journal.in_store(&*self.store, &guards);
        let executor = Executor::new(&ledger, places, &SystemAmbient, &mut silent, &mut journal);
        let mut executor = Executor { stop, max_failures: 1, ..executor };
        let work = &self.plan.work;
        if back { executor.unwind(work).await } else { executor.run(work, None).await }
    }

    async fn run(&self, places: &Places) -> Result<Report, RunFailure> {
        self.go(places, false, Stop::never(), Vec::new()).await
    }

    async fn unwind(&self, places: &Places) -> Result<Report, RunFailure> {
        self.go(places, true, Stop::never(), Vec::new()).await
    }

    async fn state(&self, place: &str) -> Option<State> {
        self.journal().await.state(&step_of(place))
    }
}

fn throttled(seconds: Option<u64>) -> Next {
    Next::Fail(StepFault::Retry { why: "too many requests".into(), after: seconds.map(Duration::from_secs) })
}

#[tokio::test]
async fn journal_keeps_value_before_and_created_object() {
    let (bench, places) = (Bench::new(&[("a", 1), ("b", 2)]).await, Places::of(&[("a", 7)]));
    bench.run(&places).await.expect("a run");
    let journal = bench.journal().await;
    let record = journal.find(&step_of("a")).expect("a record");
    let found = (record.before.as_deref(), record.made.as_deref());
    assert_eq!(found, (Some(&json!(7)), Some(&json!({"id": 10}))));
    bench.unwind(&places).await.expect("a rollback");
    assert_eq!(
        places.there(),
        [("a".to_string(), 7)],
        "exactly as before: the missing place is missing again"
    );
    assert_eq!(bench.state("b").await, Some(State::UndoDone));
}

#[tokio::test(start_paused = true)]
async fn throttled_effect_is_retried_within_limits() {
    let bench = Bench::new(&[("a", 1)]).await;
    let places = Places::default().then([throttled(None), throttled(Some(60))]);
    let started = tokio::time::Instant::now();
    bench.run(&places).await.expect("a run");
    assert!(
        places.calls() == 3 && started.elapsed() >= Duration::from_mins(1),
        "it waits as long as requested"
    );

    let bench = Bench::new(&[("a", 1)]).await;
    let places = Places::default().then((0..100).map(|_| throttled(None)));
    let failure = bench.run(&places).await.expect_err("it gives up").to_string();
    assert_eq!(failure, "step `put/a`: too many requests; tried 9 times");
    assert_eq!(bench.state("a").await, Some(State::Started), "a resume retries it");
}

#[tokio::test(start_paused = true)]
async fn outcome_is_looked_up_after_lost_answer() {
    let bench = Bench::new(&[("a", 1)]).await;
    let places = Places::of(&[("a", 7)]).then([Next::Lose]);
    bench.run(&places).await.expect("a run");
    assert_eq!(places.calls(), 1, "it is not done twice");
    let places = places.then([Next::Fail(StepFault::InDoubt("the connection broke".into())), Next::Lose]);
    bench.unwind(&places).await.expect("a rollback");
    assert_eq!((places.calls(), places.there()), (3, vec![("a".to_string(), 7)]));
}

#[tokio::test]
async fn subject_changed_by_another_client_is_skipped() {
    let bench = Bench::new(&[("a", 1), ("b", 2)]).await;
    let places = Places::of(&[("a", 7)]);
    // The process was killed between the record of its intention and the call.
    let halted =
        bench.run(&Places::of(&[("a", 7)]).then([Next::Fail(StepFault::Halt("killed".into()))])).await;
    assert!(halted.is_err() && bench.state("a").await == Some(State::Started));
    places.there.lock().unwrap().insert("a".into(), 8);
    let report = bench.run(&places).await.expect("the other subjects are done");
    assert_eq!(report.stuck.len(), 1, "{report:?}");
    assert_eq!((bench.state("a").await, bench.state("b").await), (Some(State::Failed), Some(State::Done)));
    assert_eq!(places.there(), [("a".to_string(), 8), ("b".to_string(), 2)]);
}

/// Receives a stop request while the effect is running.
struct Stopping<'a> {
    places: &'a Places,
    switch: StopSwitch,
    /// Whether the effect takes hours, so that it ends at the stop request before it is complete.
    is_long: bool,
}

#[async_trait]
impl Environment<Put> for Stopping<'_> {
    async fn apply(&self, doing: &Doing<'_, Put>) -> Result<Applied, StepFault> {
        self.switch.ask();
        if !self.is_long {
            return self.places.apply(doing).await;
        }
        doing.stop.asked().await;
        let answer = self.places.apply(doing).await;
        answer.and(Err(StepFault::InDoubt("stopped before it was complete".into())))
    }

    async fn observe(&self, doing: &Doing<'_, Put>) -> Result<Observed, StepFault> {
        self.places.observe(doing).await
    }

    async fn wait(&self, wait: &Wait<NoWait>, records: Records<'_>) -> Result<(), StepFault> {
        self.places.wait(wait, records).await
    }

    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault> {
        self.places.manual(manual, back).await
    }
}

#[tokio::test]
async fn rejection_during_stop_is_recorded() {
    let (switch, stop) = Stop::new();
    let bench = Bench::new(&[("a", 1)]).await;
    let refused = Next::Fail(StepFault::Skip("a webhook refuses it".into()));
    let places = Places::default().then([refused]);
    let stopping = Stopping { places: &places, switch, is_long: false };
    let (mut journal, mut silent) = (bench.journal().await, Silent);
    let ledger = journal.in_store(&*bench.store, &[]);
    let executor = Executor::new(&ledger, &stopping, &SystemAmbient, &mut silent, &mut journal);
    let report = Executor { stop, max_failures: 1, ..executor }.run(&bench.plan.work, None).await;
    assert_eq!(report.expect("it was the last step").stuck.len(), 1);
    let record = bench.journal().await.find(&step_of("a")).cloned().expect("a record");
    assert_eq!((record.state, record.error.as_deref()), (State::Failed, Some("a webhook refuses it")));
}

#[tokio::test]
async fn value_before_is_observed_once() {
    let bench = Bench::new(&[("a", 1)]).await;
    // The call succeeded, but the process was killed before its answer.
    let places = Places::of(&[("a", 7)]).then([Next::Fail(StepFault::Halt("killed".into()))]);
    bench.run(&places).await.expect_err("it is killed");
    places.there.lock().unwrap().insert("a".into(), 1);
    bench.run(&places).await.expect("it is found done");
    assert_eq!(places.calls(), 1);
    bench.unwind(&places).await.expect("a rollback");
    assert_eq!(places.there(), [("a".to_string(), 7)], "the first observation counts");
}

#[tokio::test(start_paused = true)]
async fn stop_request_ends_wait_for_retry() {
    let (switch, stop) = Stop::new();
    let bench = Bench::new(&[("a", 1)]).await;
    let places = Places::default().then([throttled(Some(3600))]);
    let started = tokio::time::Instant::now();
    let (outcome, ()) = tokio::join!(bench.go(&places, false, stop, Vec::new()), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        switch.ask();
    });
    assert!(outcome.expect_err("it stops").is_stopped());
    assert!(started.elapsed() < Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn stop_request_ends_long_effect() {
    let half_done = Next::Fail(StepFault::InDoubt("half done".into()));
    for (next, state, calls) in [(None, State::Done, 1), (Some(half_done), State::Started, 2)] {
        let (switch, stop) = Stop::new();
        let bench = Bench::new(&[("a", 1), ("b", 2)]).await;
        let places = Places::default().then(next);
        let slow = Stopping { places: &places, switch, is_long: true };
        let (mut journal, mut silent) = (bench.journal().await, Silent);
        let ledger = journal.in_store(&*bench.store, &[]);
        let executor = Executor::new(&ledger, &slow, &SystemAmbient, &mut silent, &mut journal);
        let failure = Executor { stop, ..executor }.run(&bench.plan.work, None).await.expect_err("stopped");
        assert!(failure.is_stopped(), "{failure}");
        assert_eq!((bench.state("a").await, bench.state("b").await), (Some(state), None));
        bench.run(&places).await.expect("it continues");
        assert_eq!(places.calls(), calls + 1, "nothing is done twice");
    }
}

/// Another process takes the operation lease over while an effect is running, and perhaps completes the step.
struct Late<'a> {
    places: &'a Places,
    bench: &'a Bench,
    goes_on: bool,
    /// Whether the effect checks the fence before its request.
    checks: bool,
}

fn claim() -> LeaseHolder {
    LeaseHolder { operation: "op".into(), ..LeaseHolder::default() }
}

#[async_trait]
impl Environment<Put> for Late<'_> {
    async fn apply(&self, doing: &Doing<'_, Put>) -> Result<Applied, StepFault> {
        let lock = Lock::take_over(self.bench.store.clone(), "c", &claim(), Duration::from_mins(1)).await;
        let guard = lock.expect("the lease").guard();
        if self.goes_on {
            self.bench
                .go(self.places, false, Stop::never(), vec![guard])
                .await
                .expect("the other process completes");
        }
        if self.checks {
            doing.fence.still_ours().await?;
        }
        self.places.apply(doing).await
    }

    async fn observe(&self, doing: &Doing<'_, Put>) -> Result<Observed, StepFault> {
        self.places.observe(doing).await
    }

    async fn take_back(&self, doing: &Doing<'_, Put>, ended: Option<Revision>) -> Result<bool, StepFault> {
        assert!(ended.is_some(), "only if the other process completed the step");
        self.places.take_back(doing, ended).await
    }

    async fn wait(&self, wait: &Wait<NoWait>, records: Records<'_>) -> Result<(), StepFault> {
        self.places.wait(wait, records).await
    }

    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault> {
        self.places.manual(manual, back).await
    }
}

#[tokio::test]
async fn object_created_after_lease_loss_is_taken_back() {
    for goes_on in [false, true] {
        let (bench, places) = (Bench::new(&[("a", 1)]).await, Places::default());
        let lock = Lock::acquire(bench.store.clone(), "c", &claim(), Duration::from_mins(1)).await;
        let guards = vec![lock.expect("the lease").guard()];
        let late = Late { places: &places, bench: &bench, goes_on, checks: false };
        let (mut journal, mut silent) = (bench.journal().await, Silent);
        let ledger = journal.in_store(&*bench.store, &guards);
        let mut executor = Executor::new(&ledger, &late, &SystemAmbient, &mut silent, &mut journal);
        let failure = executor.run(&bench.plan.work, None).await.expect_err("it is fenced");
        assert!(matches!(failure.source, OperationError::LockLost { .. }), "{failure}");
        // If the new holder has not completed the step, the object is left to it: it looks the outcome up first.
        let expected = if goes_on { vec![json!({"id": 10})] } else { Vec::new() };
        assert_eq!(*places.taken_back.lock().unwrap(), expected);
    }
}

/// An effect that checks something for a long time, for example because the process was suspended, and then checks the fence.
#[tokio::test]
async fn effect_changes_nothing_after_lease_loss_during_its_check() {
    let (bench, places) = (Bench::new(&[("a", 1)]).await, Places::default());
    let lock = Lock::acquire(bench.store.clone(), "c", &claim(), Duration::from_mins(1)).await;
    let guards = vec![lock.expect("the lease").guard()];
    let late = Late { places: &places, bench: &bench, goes_on: false, checks: true };
    let (mut journal, mut silent) = (bench.journal().await, Silent);
    let ledger = journal.in_store(&*bench.store, &guards);
    let mut executor = Executor::new(&ledger, &late, &SystemAmbient, &mut silent, &mut journal);
    let failure = executor.run(&bench.plan.work, None).await.expect_err("it is fenced");
    assert!(matches!(failure.source, OperationError::LockLost { .. }), "{failure}");
    assert_eq!((places.calls(), places.there()), (0, Vec::new()));
}

async fn give_up(bench: &Bench, place: &str, back: bool) {
    let mut journal = bench.journal().await;
    let ledger = journal.in_store(&*bench.store, &[]);
    let waiver = Waiver::of(place, back, "8", 1_800_000_000);
    journal.give_up(&ledger, &[waiver]).await.expect("a record");
}

#[tokio::test]
async fn operation_ends_in_both_directions_without_a_subject_that_was_given_up() {
    let bench = Bench::new(&[("a", 1), ("b", 2)]).await;
    let places = Places::of(&[("a", 7)]);
    let set = |value| places.there.lock().unwrap().insert("a".into(), value);
    bench
        .run(&Places::of(&[("a", 7)]).then([Next::Fail(StepFault::Halt("killed".into()))]))
        .await
        .unwrap_err();
    // Another client changed it, so it is skipped. Without the waiver, the next run tries it again.
    set(8);
    assert_eq!(bench.run(&places).await.expect("a run").stuck.len(), 1);
    give_up(&bench, "a", false).await;
    assert_eq!(bench.run(&places).await.expect("a run").stuck, []);
    assert_eq!(places.there(), [("a".to_string(), 8), ("b".to_string(), 2)]);
    let journal = bench.journal().await;
    let waiver = journal.waiver("a").expect("a waiver");
    assert_eq!((waiver.back, waiver.observed.as_str(), waiver.at), (false, "8", 1_800_000_000));
    assert!(bench.unwind(&places).await.expect("a rollback").stuck.is_empty());
    assert_eq!(places.there(), [("a".to_string(), 8)]);
}

#[tokio::test]
async fn rollback_leaves_a_subject_that_was_given_up_and_undoes_others() {
    let bench = Bench::new(&[("a", 1), ("b", 2), ("c", 3)]).await;
    let places = Places::of(&[("a", 7)]);
    bench.run(&places).await.expect("a run");
    for place in ["a", "b"] {
        places.there.lock().unwrap().insert(place.into(), 9);
    }
    let refused = || Places::of(&[]).then([Next::Fail(StepFault::Skip("it was changed".into()))]);
    assert_eq!(bench.unwind(&refused()).await.expect("a rollback").stuck.len(), 1);
    // A waiver of the forward direction: the rollback tries to undo the step, and the subject does not count if that fails.
    give_up(&bench, "c", false).await;
    assert_eq!(bench.unwind(&refused()).await.expect("a rollback").stuck, []);
    let bench = Bench::new(&[("a", 1), ("b", 2), ("c", 3)]).await;
    let places = Places::default();
    bench.run(&places).await.expect("a run");
    give_up(&bench, "b", true).await;
    assert_eq!(bench.unwind(&places).await.expect("a rollback").stuck, []);
    assert_eq!(places.there(), [("b".to_string(), 2)], "it is not touched");
}
