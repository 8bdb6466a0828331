//! The four loops that every kind of plan must pass, over the renumbering of every storage era and encoding: fail at each step
//! and roll back; run twice; roll back twice; stop after each journal record, or lose the answer to it, and resume.
//!
//! Everything is compared byte for byte: clock and uids stand still. `make soak` (`NETSURGEON_SOAK=1`) tests every commit,
//! `make test` a sample.

use std::collections::BTreeMap;

use netsurgeon::operation::{Event, Journal, Observer, OperationError, State, Status};
use netsurgeon::renumber::Hold;
use netsurgeon::store::ReadStore as _;
use netsurgeon::survey::{Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit, Value};

use crate::harness::{Bench, Keys, LOCK, Settings, keys};
use crate::saboteur::{Sabotage, Saboteur};

/// How many commits of an operation a sample tests, evenly spread.
const SAMPLE: usize = 5;

/// Returns the commits to test.
pub fn picks(total: usize) -> Vec<usize> {
    let all = std::env::var_os("NETSURGEON_SOAK").is_some_and(|value| value == "1");
    let step = if all { 1 } else { total.div_ceil(SAMPLE).max(1) };
    // An odd offset, so that a sample does not meet the same kind of step in every batch.
    let mut picks: Vec<usize> = (1..=total).step_by(step).collect();
    picks.push(total);
    picks.dedup();
    picks
}

/// The result of an undisturbed operation.
struct Reference {
    /// Commits of a run to the end.
    commits: usize,
    finished: Keys,
    finished_states: BTreeMap<String, Option<State>>,
    /// Commits of a run to the last point at which it can be rolled back.
    reversible: usize,
    /// Commits of that rollback.
    commits_back: usize,
    undone: Keys,
    undone_states: BTreeMap<String, Option<State>>,
}

async fn reference(bench: &Bench) -> Reference {
    let store = bench.fresh().await;
    bench.run(&store, None).await.expect("an undisturbed run");
    let (commits, finished) = (store.commits(), keys(&store, "/registry/").await);
    let finished_states = bench.states(&store).await;
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("an undisturbed run");
    let reversible = store.commits();
    store.arm(Sabotage::None);
    let report = bench.unwind(&store).await.expect("an undisturbed rollback");
    assert_eq!(report.stuck, [], "{}", bench.name);
    bench.assert_as_at_the_start(&store, "undisturbed").await;
    let commits_back = store.commits();
    let undone = keys(&store, "/registry/").await;
    let undone_states = bench.states(&store).await;
    Reference { commits, finished, finished_states, reversible, commits_back, undone, undone_states }
}

#[tokio::test]
async fn failure_at_each_step_can_be_rolled_back() {
    let mut points = 0;
    for bench in Bench::all().await {
        let total = reference(&bench).await.reversible;
        for at in picks(total) {
            let store = bench.fresh().await;
            store.arm(Sabotage::Stop(at));
            bench.run(&store, bench.no_return()).await.expect_err("it was stopped");
            store.arm(Sabotage::None);
            let context = format!("stopped at commit {at} of {total}");
            let report =
                bench.unwind(&store).await.unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
            assert_eq!(report.stuck, [], "{}, {context}", bench.name);
            bench.assert_as_at_the_start(&store, &context).await;
            points += 1;
        }
    }
    println!("{points} points of failure undone");
}

/// Wherever and in whichever direction it was stopped: without an API server every Service gets its old address, and the rest
/// of the rollback follows later.
#[tokio::test]
async fn failure_at_each_step_can_be_rolled_back_without_api() {
    for bench in Bench::all().await {
        let work = &bench.plan.work;
        let reference = reference(&bench).await;
        let forward = picks(reference.reversible).into_iter().map(|at| (at, None));
        let back = picks(reference.commits_back).into_iter().map(|at| (reference.reversible, Some(at)));
        for (at, back) in forward.chain(back) {
            let context = format!("{}, stopped at commit {at}, and back at {back:?}", bench.name);
            let store = bench.fresh().await;
            store.arm(Sabotage::Stop(at));
            drop(bench.run(&store, bench.no_return()).await);
            if let Some(back) = back {
                store.arm(Sabotage::Stop(back));
                drop(bench.unwind(&store).await);
            }
            store.arm(Sabotage::None);
            let report = bench.move_back(&store).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_eq!(report.stuck, [], "{context}");
            let survey = Survey::read(&store, &Layout::new(&work.prefix), None).await.expect("a survey");
            for candidate in &work.moves {
                let found = survey.services.iter().find(|service| service.uid == candidate.uid);
                let addresses = found.map(|service| service.addresses.clone()).unwrap_or_default();
                assert!(addresses.contains(&candidate.old_address), "{context}: {addresses:?}");
            }
            let report = bench.unwind(&store).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_eq!(report.stuck, [], "{context}");
            bench.assert_as_at_the_start(&store, &context).await;
        }
    }
}

#[tokio::test]
async fn second_run_changes_nothing() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        let first = bench.run(&store, None).await.expect("a run");
        let once = keys(&store, "/").await;
        store.arm(Sabotage::None);
        let second = bench.run(&store, None).await.expect("a second run");
        assert_eq!((second.done, second.skipped), (0, first.done + first.skipped), "{}", bench.name);
        assert_eq!(store.commits(), 0, "{}", bench.name);
        assert_eq!(keys(&store, "/").await, once, "{}", bench.name);
    }
}

/// Two processes with one operation, which the lease normally prevents: the slower one does not know what the other one has
/// done, and finds out.
#[tokio::test]
async fn run_with_stale_journal_changes_nothing() {
    for bench in Bench::all().await {
        let total = reference(&bench).await.commits;
        for at in picks(total) {
            let store = bench.fresh().await;
            store.arm(Sabotage::Stop(at));
            bench.run(&store, None).await.expect_err("it was stopped");
            let mut old = bench.journal(&store).await;
            store.arm(Sabotage::None);
            bench.run(&store, None).await.expect("the faster process");
            let once = keys(&store, "/").await;
            let outcome = bench.run_with(&store, None, &mut old).await;
            // An API call cannot be part of a transaction: if the faster process has made it, the slower one is rejected,
            // but must not have changed anything.
            if let Err(failure) = outcome {
                let refused = matches!(
                    failure.source,
                    OperationError::Environment(_) | OperationError::IllegalTransition { .. }
                );
                assert!(refused, "{}, commit {at} of {total}: {failure}", bench.name);
            }
            let differ: Vec<_> = differing(&once, &keys(&store, "/").await);
            assert_eq!(differ, Vec::<String>::new(), "{}, commit {at} of {total}", bench.name);
        }
    }
}

#[tokio::test]
async fn second_rollback_changes_nothing() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        bench.run(&store, bench.no_return()).await.expect("a run");
        bench.unwind(&store).await.expect("a rollback");
        let once = keys(&store, "/").await;
        store.arm(Sabotage::None);
        let second = bench.unwind(&store).await.expect("a second rollback");
        assert_eq!(second.stuck, [], "{}", bench.name);
        assert_eq!(store.commits(), 0, "{}", bench.name);
        assert_eq!(keys(&store, "/").await, once, "{}", bench.name);
        let forward = bench.run(&store, None).await.expect_err("it is being rolled back");
        assert!(matches!(forward.source, OperationError::BeingUndone), "{forward}");
    }
}

#[tokio::test]
async fn kill_after_each_record_can_be_resumed() {
    for_every_fault(&[Sabotage::Stop]).await;
}

#[tokio::test]
async fn lost_answer_at_each_commit_changes_nothing() {
    for_every_fault(&[Sabotage::LostAfter, Sabotage::LostBefore, Sabotage::LostAndLate]).await;
}

#[tokio::test]
async fn conflict_at_each_commit_changes_nothing() {
    for_every_fault(&[Sabotage::Conflict]).await;
}

/// Everything that was read ahead is then out of date, too.
#[tokio::test]
async fn concurrent_rewrite_before_each_commit_changes_nothing() {
    for_every_fault(&[Sabotage::Touched]).await;
}

/// Meets each fault at each commit, forward and back. Another process resumes, and the result is that of an undisturbed
/// operation.
async fn for_every_fault(faults: &[fn(usize) -> Sabotage]) {
    let mut points = 0;
    for bench in Bench::all().await {
        let reference = reference(&bench).await;
        for fault in faults {
            for at in picks(reference.commits) {
                let store = bench.fresh().await;
                store.arm(fault(at));
                forward(&bench, &store, None, fault(at)).await;
                let context = format!("{}, forward, {:?} of {}", bench.name, fault(at), reference.commits);
                let end = keys(&store, "/registry/").await;
                assert_eq!(differing(&reference.finished, &end), Vec::<String>::new(), "{context}");
                let states = bench.states(&store).await;
                assert_eq!(differing(&reference.finished_states, &states), Vec::<String>::new(), "{context}");
                points += 1;
            }
            for at in picks(reference.commits_back) {
                let store = bench.fresh().await;
                bench.run(&store, bench.no_return()).await.expect("a run");
                store.arm(fault(at));
                back(&bench, &store, fault(at)).await;
                let context = format!("{}, back, {:?} of {}", bench.name, fault(at), reference.commits_back);
                let end = keys(&store, "/registry/").await;
                assert_eq!(differing(&reference.undone, &end), Vec::<String>::new(), "{context}");
                let states = bench.states(&store).await;
                assert_eq!(differing(&reference.undone_states, &states), Vec::<String>::new(), "{context}");
                points += 1;
            }
        }
    }
    println!("{points} points of failure passed");
}

/// Runs forward; if the fault stops the run, resumes without it.
async fn forward(bench: &Bench, store: &Saboteur, until: Option<usize>, fault: Sabotage) {
    if bench.run(store, until).await.is_err() {
        store.arm(Sabotage::None);
        bench.run(store, until).await.unwrap_or_else(|e| panic!("{}, {fault:?}, again: {e}", bench.name));
    }
}

async fn back(bench: &Bench, store: &Saboteur, fault: Sabotage) {
    let report = if let Ok(report) = bench.unwind(store).await {
        report
    } else {
        store.arm(Sabotage::None);
        bench.unwind(store).await.unwrap_or_else(|e| panic!("{}, {fault:?}, again: {e}", bench.name))
    };
    assert_eq!(report.stuck, [], "{}, {fault:?}", bench.name);
}

/// Returns the keys that differ.
pub fn differing<K, V>(one: &BTreeMap<K, V>, other: &BTreeMap<K, V>) -> Vec<String>
where
    K: Ord + ToString,
    V: PartialEq,
{
    let all = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
    all.filter(|key| one.get(*key) != other.get(*key)).map(ToString::to_string).collect()
}

/// The order in which steps were rolled back.
#[derive(Default)]
struct Undone(Vec<String>);

impl Observer for Undone {
    fn event(&mut self, event: Event<'_>) {
        if let Event::StepDone { step } = event {
            self.0.push(step.id.to_string());
        }
    }
}

/// The rollback recreates a warming shadow. Before its Service gives the new address up, the shadow must have endpoints, and
/// every node must know them.
#[tokio::test]
async fn rollback_waits_for_recreated_shadow() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    let mut undone = Undone::default();
    bench.unwind_watched(&store, &mut undone).await.expect("a rollback");
    let place = |wanted: &str| undone.0.iter().position(|step| step.starts_with(wanted));
    let unwarm = place("unwarm/shop/checkout").expect("the shadow is recreated");
    let after = |wanted: &str, from: usize| {
        undone.0.iter().skip(from).position(|step| step.starts_with(wanted)).map(|found| found + from)
    };
    let endpoints = after("endpoints-back/", unwarm).expect("a wait for its endpoints");
    let barrier = after("verify/", endpoints).expect("a wait for the nodes");
    assert!(barrier < after("flip/shop/checkout", unwarm).unwrap(), "{:#?}", undone.0);
}

/// The status of an operation is written once, even if the answer is lost, and never after the lease is lost.
#[tokio::test]
async fn status_is_looked_up_after_lost_answer() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    for fault in
        [Sabotage::LostBefore(1), Sabotage::LostAfter(1), Sabotage::LostAndLate(1), Sabotage::Conflict(1)]
    {
        let store = bench.fresh().await;
        let guards = [store.take_lock("alice@here").await];
        store.arm(fault);
        let journal = bench.journal(&store).await;
        let ledger = journal.in_store(&store, &guards);
        journal.set_status(&ledger, Status::Soaking, 7).await.expect("it is written");
        let listed = Journal::list(&store, None).await.expect("a list").remove(0);
        assert_eq!((listed.summary.status, listed.summary.ended), (Status::Soaking, Some(7)), "{fault:?}");
        let (commits, expected) = (store.commits(), if fault == Sabotage::LostAfter(1) { 1 } else { 2 });
        assert_eq!(commits, expected, "{fault:?}");
        store.arm(Sabotage::LockLost(1));
        let lost = journal.set_status(&ledger, Status::Done, 8).await;
        assert!(matches!(lost, Err(OperationError::LockLost { .. })), "{lost:?}");
    }
}

/// A process that lost the lease before an answer arrived reports the loss and calls no API: the new holder may have written
/// the record of the step.
#[tokio::test]
async fn late_answer_after_lost_lease_stops_process() {
    for bench in Bench::all().await {
        let total = reference(&bench).await.commits;
        for at in picks(total) {
            let (mut bench, store) = (bench.with(Settings::default()), bench.fresh().await);
            bench.settings.guards = vec![store.take_lock("alice@here").await];
            store.arm(Sabotage::LostToAnother(at));
            let failure = bench.run(&store, None).await.expect_err("the lease is lost");
            let context = format!("{}, commit {at} of {total}", bench.name);
            assert!(matches!(failure.source, OperationError::LockLost { .. }), "{context}: {failure}");
            let lock = store.get(&LOCK.into()).await.expect("a read").expect("it is held");
            assert_eq!(
                store.revision().await.expect("a read"),
                lock.mod_revision,
                "{context}: it wrote after the loss"
            );
        }
    }
}

/// A Service that was skipped before the barrier of its batch, and is retried after it, passes that barrier: perhaps not all
/// nodes route its new address yet.
#[tokio::test]
async fn retried_service_waits_for_its_nodes() {
    for bench in Bench::all().await {
        let batch = &bench.plan.work.moves[bench.plan.work.batches()[0].clone()];
        let Some(skipped) = batch.iter().find(|one| one.hold == Hold::ExternalIp) else { continue };
        let bench = bench.with(Settings { max_failures: 1, ..Settings::default() });
        let store = bench.fresh().await;
        let key = Layout::default().service(&skipped.namespace, &skipped.name);
        let value = store.get(&key).await.expect("a read").expect("it exists").value;
        let theirs = FieldChange::Set(Value::Texts(vec!["203.0.113.7".into()]));
        let edits = [FieldEdit { field: Field::external_ips(), change: theirs }];
        store.meddle(&key, edit::apply(&value, &edits).expect("an edit")).await;
        let verified = bench.plan.work.flip_stage(0).map(|stage| stage + 2);
        let report = bench.run(&store, verified).await.expect("a run");
        assert_eq!(report.stuck.len(), 1, "{}: {report:?}", bench.name);
        store.meddle(&key, value).await;
        let mut done = Undone::default();
        bench
            .run_watched(&store, verified, &mut bench.journal(&store).await, &mut done)
            .await
            .expect("a run");
        let place = |step: &str| {
            done.0.iter().position(|done| done == step).unwrap_or_else(|| panic!("{step}: {:?}", done.0))
        };
        let places =
            [&skipped.step("prewarm").0, "barrier/00000", &skipped.step("flip").0, "verify/00000"].map(place);
        assert!(places.is_sorted(), "{}: {:?}", bench.name, done.0);
    }
}
