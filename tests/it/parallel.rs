//! The four loops over an executor that runs several steps concurrently, with reads and writes in any order: the result is the
//! same as with one step after the other.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::OnceLock;

use netsurgeon::operation::{
    self, Action, Event, Observer, OperationError, Record, State, Step, Stop, StopSwitch, Work,
};
use netsurgeon::renumber::Effect;
use netsurgeon::store::{Key, ReadStore as _, Revision};
use proptest::prelude::*;

use crate::harness::{Bench, CASES, Keys, Settings, keys};
use crate::saboteur::{Sabotage, Saboteur};

/// A case with its result of one step after the other.
struct Expected {
    bench: Bench,
    commits: usize,
    finished: Keys,
    states: BTreeMap<String, Option<State>>,
    reversible: usize,
    commits_back: usize,
    undone: Keys,
    undone_states: BTreeMap<String, Option<State>>,
}

impl Expected {
    async fn of(bench: Bench) -> Self {
        let store = bench.fresh().await;
        bench.run(&store, None).await.expect("an undisturbed run");
        let (commits, finished) = (store.commits(), keys(&store, "/registry/").await);
        let states = bench.states(&store).await;
        let store = bench.fresh().await;
        bench.run(&store, bench.no_return()).await.expect("an undisturbed run");
        let reversible = store.commits();
        store.arm(Sabotage::None);
        bench.unwind(&store).await.expect("an undisturbed rollback");
        let (commits_back, undone) = (store.commits(), keys(&store, "/registry/").await);
        let undone_states = bench.states(&store).await;
        Self { bench, commits, finished, states, reversible, commits_back, undone, undone_states }
    }
}

fn expected(case: usize) -> &'static Expected {
    static ALL: [OnceLock<Expected>; CASES.len()] = [const { OnceLock::new() }; CASES.len()];
    ALL[case].get_or_init(|| {
        let (fixture, to) = CASES[case];
        let build = move || run(async { Expected::of(Bench::of(fixture, to).await).await });
        // Not on this thread, which may have a runtime already.
        std::thread::spawn(build).join().expect("an undisturbed case")
    })
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// How a case is disturbed.
#[derive(Debug, Clone)]
struct Disturbance {
    case: usize,
    parallel: usize,
    seed: u64,
    fault: fn(usize) -> Sabotage,
    /// Which commit, as a fraction of all.
    at: f64,
}

impl Disturbance {
    fn parallel(&self) -> Bench {
        let settings = Settings { parallel: self.parallel, ..Settings::default() };
        expected(self.case).bench.with(settings)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand at most")]
    fn at(&self, commits: usize) -> usize {
        (self.at * f64::from(u32::try_from(commits).expect("few"))) as usize + 1
    }
}

fn disturbances() -> impl Strategy<Value = Disturbance> {
    let fault = prop::sample::select(vec![
        Sabotage::Stop as fn(usize) -> Sabotage,
        Sabotage::Conflict,
        Sabotage::Touched,
        Sabotage::LostAfter,
        Sabotage::LostBefore,
        Sabotage::LostAndLate,
    ]);
    (0..CASES.len(), 2..9_usize, any::<u64>(), fault, 0.0..1.0)
        .prop_map(|(case, parallel, seed, fault, at)| Disturbance { case, parallel, seed, fault, at })
}

fn differing(one: &Keys, other: &Keys) -> Vec<String> {
    let all = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
    all.filter(|key| one.get(*key) != other.get(*key)).map(ToString::to_string).collect()
}

/// Fails unless every record has passed only through legal transitions.
async fn assert_legal(store: &Saboteur) {
    for (key, value) in keys(store, "/netsurgeon/").await {
        if !key.to_string().contains("/steps/") {
            continue;
        }
        let record: Record = serde_json::from_slice(&value).expect("a record");
        let mut from = None;
        for (state, _) in &record.history {
            assert!(State::may_follow(from, *state), "{key}: {:?}", record.history);
            from = Some(*state);
        }
        assert_eq!(from, Some(record.state), "{key}");
    }
}

async fn assert_end(
    bench: &Bench,
    store: &Saboteur,
    registry: &Keys,
    states: &BTreeMap<String, Option<State>>,
) {
    assert_eq!(differing(registry, &keys(store, "/registry/").await), Vec::<String>::new(), "{}", bench.name);
    assert_eq!(&bench.states(store).await, states, "{}", bench.name);
    assert_legal(store).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Stop after each record or lose its answer, and resume; and run all of it twice.
    #[test]
    fn parallel_run_has_the_sequential_result(disturbance in disturbances()) {
        run(async {
            let (expected, bench) = (expected(disturbance.case), disturbance.parallel());
            let store = bench.fresh().await;
            store.unsettle(disturbance.seed);
            store.arm((disturbance.fault)(disturbance.at(expected.commits)));
            if bench.run(&store, None).await.is_err() {
                assert_legal(&store).await;
                store.arm(Sabotage::None);
                bench.run(&store, None).await.expect("it continues");
            }
            assert_end(&bench, &store, &expected.finished, &expected.states).await;
            store.arm(Sabotage::None);
            let again = bench.run(&store, None).await.expect("a second run");
            assert_eq!((again.done, store.commits()), (0, 0), "{}", bench.name);
        });
    }

    /// The same for the rollback; and roll back twice.
    #[test]
    fn parallel_rollback_has_the_sequential_result(disturbance in disturbances()) {
        run(async {
            let (expected, bench) = (expected(disturbance.case), disturbance.parallel());
            let store = bench.fresh().await;
            store.unsettle(disturbance.seed);
            bench.run(&store, bench.no_return()).await.expect("a run");
            store.arm((disturbance.fault)(disturbance.at(expected.commits_back)));
            let mut outcome = bench.unwind(&store).await;
            if outcome.is_err() {
                assert_legal(&store).await;
                store.arm(Sabotage::None);
                outcome = bench.unwind(&store).await;
            }
            let report = outcome.expect("it continues");
            assert_eq!(report.stuck, [], "{}", bench.name);
            assert_end(&bench, &store, &expected.undone, &expected.undone_states).await;
            bench.assert_as_at_the_start(&store, "in parallel").await;
            store.arm(Sabotage::None);
            bench.unwind(&store).await.expect("a second rollback");
            assert_eq!(store.commits(), 0, "{}", bench.name);
        });
    }

    #[test]
    fn fault_anywhere_can_be_rolled_back(disturbance in disturbances()) {
        run(async {
            let (expected, bench) = (expected(disturbance.case), disturbance.parallel());
            let store = bench.fresh().await;
            store.unsettle(disturbance.seed);
            store.arm(Sabotage::Stop(disturbance.at(expected.reversible)));
            bench.run(&store, bench.no_return()).await.expect_err("it was stopped");
            store.arm(Sabotage::None);
            let report = bench.unwind(&store).await.expect("a rollback");
            assert_eq!(report.stuck, [], "{}", bench.name);
            bench.assert_as_at_the_start(&store, "stopped in parallel").await;
            assert_legal(&store).await;
        });
    }

    /// Once the lease is lost nothing is written any more, and the error names its holder. The holder continues.
    #[test]
    fn lost_lease_stops_all_writes(disturbance in disturbances(), one_by_one in any::<bool>()) {
        run(async {
            let (expected, mut bench) = (expected(disturbance.case), disturbance.parallel());
            if one_by_one {
                bench.settings.parallel = 1;
            }
            let store = bench.fresh().await;
            store.unsettle(disturbance.seed);
            bench.settings.guards = vec![store.take_lock("alice@here").await];
            store.arm(Sabotage::LockLost(disturbance.at(expected.commits)));
            let failure = bench.run(&store, None).await.expect_err("the lease is lost");
            let words = failure.to_string();
            assert!(words.contains("the operation lease was lost: `bob@elsewhere`"), "{words}");
            assert_nothing_after_the_loss(&bench, &store).await;

            store.arm(Sabotage::None);
            let before = keys(&store, "/").await;
            let again = bench.run(&store, None).await.expect_err("the lease is still lost");
            assert!(matches!(again.source, OperationError::LockLost { .. }), "{again}");
            assert_eq!(differing(&before, &keys(&store, "/").await), Vec::<String>::new(), "{}", bench.name);
            bench.settings.guards = vec![store.take_lock("bob@elsewhere").await];
            bench.run(&store, None).await.expect("the new holder continues");
            assert_end(&bench, &store, &expected.finished, &expected.states).await;
        });
    }
}

/// Every key but those that the API writes was last written before the lease was recreated; and the API writes only for calls
/// that were already running.
async fn assert_nothing_after_the_loss(bench: &Bench, store: &Saboteur) {
    let lost = store.get(&"/netsurgeon/loops/lock".into()).await.expect("a read").expect("it is held");
    let mut late = 0;
    for key in keys(store, "/").await.into_keys().filter(|key| *key != lost.key) {
        let entry = store.get(&key).await.expect("a read").expect("it exists");
        if entry.mod_revision > lost.mod_revision {
            assert!(!key.to_string().starts_with("/netsurgeon/"), "{}: `{key}` after the loss", bench.name);
            late += 1;
        }
    }
    let started =
        bench.states(store).await.into_values().filter(|state| *state == Some(State::Started)).count();
    // A Service that is created through the API comes with its IPAddress and its bit.
    assert!(
        late <= 3 * started,
        "{}: {late} keys written after the loss, {started} calls started",
        bench.name
    );
}

/// The revisions of each step's first and last record.
async fn revisions(store: &Saboteur) -> HashMap<String, (Revision, Revision)> {
    let mut revisions = HashMap::new();
    for key in keys(store, "/netsurgeon/").await.into_keys() {
        let name = key.to_string();
        if let Some((_, step)) = name.split_once("/steps/") {
            let entry = store.get(&Key::from(name.as_str())).await.expect("a read").expect("it exists");
            revisions.insert(step.to_string(), (entry.create_revision, entry.mod_revision));
        }
    }
    revisions
}

fn must_be_alone<E: operation::Effect>(step: &Step<E>) -> bool {
    let kind = matches!(step.action, Action::Wait(_) | Action::Manual(_) | Action::PointOfNoReturn);
    step.subject.is_empty() || kind
}

#[tokio::test]
async fn dependent_steps_keep_their_order() {
    for case in 0..CASES.len() {
        let bench = expected(case).bench.with(Settings { parallel: 5, ..Settings::default() });
        let store = bench.fresh().await;
        bench.run(&store, None).await.expect("a run");
        assert_eq!(store.most_under_way(), 5, "{}", bench.name);
        let revisions = revisions(&store).await;
        let mut last: Option<Revision> = None;
        let mut newest = Revision(0);
        let mut of_each: HashMap<String, Revision> = HashMap::new();
        for stage in bench.plan.work.stages() {
            last = last.max(Some(newest));
            of_each.clear();
            for step in bench.plan.work.steps(&stage) {
                let Some((first, end)) = revisions.get(&step.id.to_string()).copied() else { continue };
                let alone = must_be_alone(&step);
                let floor = if alone { Some(newest) } else { last.max(of_each.get(&step.subject).copied()) };
                assert!(
                    floor.is_none_or(|floor| floor < first),
                    "{}: `{}` started too early",
                    bench.name,
                    step.id
                );
                newest = newest.max(end);
                of_each.insert(step.subject.clone(), end);
                if alone {
                    last = Some(newest);
                }
            }
        }
    }
}

#[tokio::test]
async fn parallel_one_runs_one_call_at_a_time() {
    let bench = &expected(0).bench;
    let store = bench.fresh().await;
    store.unsettle(7);
    bench.run(&store, None).await.expect("a run");
    assert_eq!(store.most_under_way(), 1);
}

/// Requests a stop after so many completed steps.
struct StopAfter(usize, StopSwitch);

impl Observer for StopAfter {
    fn event(&mut self, event: Event<'_>) {
        if matches!(event, Event::StepDone { .. }) {
            self.0 = self.0.saturating_sub(1);
            if self.0 == 0 {
                self.1.ask();
            }
        }
    }
}

#[tokio::test]
async fn stopped_run_completes_started_steps_and_resumes() {
    let all = expected(0);
    for (parallel, steps) in [(1, 1), (1, 40), (4, 1), (4, 25), (8, 60)] {
        let (switch, stop) = Stop::new();
        let bench = all.bench.with(Settings { parallel, stop, ..Settings::default() });
        let store = bench.fresh().await;
        let (mut journal, mut watch) = (bench.journal(&store).await, StopAfter(steps, switch));
        let failure = bench.run_watched(&store, None, &mut journal, &mut watch).await.expect_err("stopped");
        assert!(failure.is_stopped(), "{failure}");
        let states = bench.states(&store).await;
        let count = |wanted| states.values().filter(|state| **state == Some(wanted)).count();
        assert_eq!(count(State::Started), 0, "no step is half done");
        assert!((steps..steps + parallel).contains(&count(State::Done)), "{} of {steps}", count(State::Done));
        let refused = bench.run(&store, None).await.expect_err("a stop was requested");
        assert!(refused.is_stopped(), "{refused}");
        all.bench.run(&store, None).await.expect("it continues");
        assert_end(&bench, &store, &all.finished, &all.states).await;
    }
}

#[tokio::test]
async fn stop_request_stops_rollback() {
    let all = expected(0);
    let (switch, stop) = Stop::new();
    let store = all.bench.fresh().await;
    all.bench.run(&store, all.bench.no_return()).await.expect("a run");
    let bench = all.bench.with(Settings { parallel: 4, stop, ..Settings::default() });
    let failure = bench.unwind_watched(&store, &mut StopAfter(10, switch)).await.expect_err("stopped");
    assert!(failure.is_stopped(), "{failure}");
    all.bench.unwind(&store).await.expect("it continues");
    assert_end(&bench, &store, &all.undone, &all.undone_states).await;
}

/// The clock is the runtime's: it advances only when every task sleeps.
#[tokio::test(start_paused = true)]
async fn rate_limit_is_respected() {
    let all = expected(0);
    // An effect may write through the API; a rehearsal does so only for objects that it creates.
    let work = &all.bench.plan.work;
    let steps = work.stages().into_iter().flat_map(|stage| work.steps(&stage));
    let effects = steps.filter(|step| {
        let is_effect =
            matches!(&step.action, Action::Do(effect) if !matches!(effect, Effect::Create { .. }));
        is_effect && !step.is_for_the_way_back()
    });
    let turns = all.commits + effects.count();
    for parallel in [1, 8] {
        let rate = NonZeroU32::new(50);
        let bench = all.bench.with(Settings { parallel, rate, ..Settings::default() });
        let store = bench.fresh().await;
        let started = tokio::time::Instant::now();
        bench.run(&store, None).await.expect("a run");
        let expected = (turns as u128 - 1) * 20;
        let took = started.elapsed().as_millis();
        assert!((expected..expected + 20).contains(&took), "{} writes in {took} ms", all.commits);
        assert_end(&bench, &store, &all.finished, &all.states).await;
    }
}

/// An executor can move to another thread.
#[tokio::test]
async fn executor_can_move_to_another_thread() {
    let bench = expected(0).bench.with(Settings { parallel: 4, ..Settings::default() });
    tokio::spawn(async move {
        let store = bench.fresh().await;
        bench.run(&store, bench.no_return()).await.expect("a run");
        bench.unwind(&store).await.expect("a rollback");
    })
    .await
    .expect("the task");
}
