//! One batch rolled back and done anew: the loops of `loops.rs` for it. Whatever happens at whichever write, whoever
//! goes on finishes the batch's way back, and the end is that of an undisturbed operation; from any instant
//! everything can be undone.

use std::collections::BTreeMap;

use netsurgeon::operation::{Failure, OperationError, State, Work as _};
use netsurgeon::store::{Key, ReadStore as _};

use crate::harness::{Bench, CASES, Keys, Settings, differences, keys};
use crate::loops::{differing, picks};
use crate::saboteur::{Fault, Saboteur};

/// The batch that is rolled back: not the first, and not the last; where some are swept, the first of those.
fn batch_of(bench: &Bench) -> usize {
    let work = &bench.plan.work;
    let swept = |batch: &std::ops::Range<usize>| work.moves[batch.start].sweep > 0;
    work.batches().iter().position(swept).unwrap_or(1)
}

/// What an undisturbed operation does, of which a batch is rolled back once.
struct Reference {
    /// Commits of rolling the batch back.
    commits_back: usize,
    returned: Keys,
    returned_states: BTreeMap<String, Option<State>>,
    /// Commits of going on from there to the last moment at which everything can be undone.
    commits_on: usize,
    finished: Keys,
    finished_states: BTreeMap<String, Option<State>>,
}

/// All cases, with so many steps at a time.
async fn all(parallel: &[usize]) -> Vec<Bench> {
    let mut all = Vec::new();
    for (fixture, to) in CASES {
        all.push(Bench::in_small_batches(fixture, to).await);
    }
    for (fixture, to) in &CASES[..3] {
        all.push(Bench::swept(fixture, to).await);
    }
    let ways = |bench: Bench| {
        let settings = |parallel: &usize| Settings { parallel: *parallel, ..Settings::default() };
        parallel.iter().map(settings).map(move |settings| bench.with(settings)).collect::<Vec<_>>()
    };
    all.into_iter().flat_map(ways).collect()
}

fn first_stage(bench: &Bench, batch: usize) -> Option<usize> {
    let stages = bench.plan.work.stages();
    let found = stages.iter().position(|stage| stage.batch == Some(batch));
    assert!(found.is_some(), "{}", bench.name);
    found
}

/// Returns a store in which the batch has just been done.
async fn done(bench: &Bench) -> Saboteur {
    let store = bench.fresh().await;
    bench.run(&store, first_stage(bench, batch_of(bench) + 1)).await.expect("an undisturbed run");
    store.arm(Fault::None);
    store
}

async fn registry(store: &Saboteur) -> Keys {
    keys(store, "/registry/").await
}

async fn reference(bench: &Bench) -> Reference {
    let store = done(bench).await;
    bench.unwind_batch(&store, batch_of(bench)).await.expect("an undisturbed way back");
    let commits_back = store.commits();
    let (returned, returned_states) = (registry(&store).await, bench.states(&store).await);
    store.arm(Fault::None);
    bench.run(&store, bench.no_return()).await.expect("an undisturbed run");
    let commits_on = store.commits();
    bench.run(&store, None).await.expect("an undisturbed run");
    let (finished, finished_states) = (registry(&store).await, bench.states(&store).await);
    Reference { commits_back, returned, returned_states, commits_on, finished, finished_states }
}

fn is_rolled_back(bench: &Bench, failure: &Failure) -> bool {
    failure.source.is_pause()
        && matches!(&failure.source, OperationError::BatchRolledBack { batch, gate, reason }
            if *batch == batch_of(bench) && gate == "test" && reason == "as told")
}

impl Reference {
    async fn assert_returned(&self, bench: &Bench, store: &Saboteur, context: &str) {
        let differ = differing(&self.returned, &registry(store).await);
        assert_eq!(differ, Vec::<String>::new(), "{}, {context}", bench.name);
        let differ = differing(&self.returned_states, &bench.states(store).await);
        assert_eq!(differ, Vec::<String>::new(), "{}, {context}", bench.name);
        let journal = bench.journal(store).await;
        assert_eq!(journal.returning(), None, "{}, {context}", bench.name);
        assert!(!journal.is_being_undone(), "{}, {context}", bench.name);
    }

    async fn assert_finished(&self, bench: &Bench, store: &Saboteur, context: &str) {
        let differ = differing(&self.finished, &registry(store).await);
        assert_eq!(differ, Vec::<String>::new(), "{}, {context}", bench.name);
        let differ = differing(&self.finished_states, &bench.states(store).await);
        assert_eq!(differ, Vec::<String>::new(), "{}, {context}", bench.name);
    }
}

/// The cluster is as it was before the batch, the journal says that it was never begun, and the end is that of an
/// operation without any of this.
#[tokio::test]
async fn it_is_as_before_the_batch_and_ends_as_without() {
    for bench in all(&[1, 6]).await {
        let store = bench.fresh().await;
        bench.run(&store, first_stage(&bench, batch_of(&bench))).await.expect("a run");
        let (before, states) = (registry(&store).await, bench.states(&store).await);
        bench.run(&store, None).await.expect("a run");
        let (end, end_states) = (registry(&store).await, bench.states(&store).await);
        let with = reference(&bench).await;
        let differ = differences(&before, &with.returned);
        assert_eq!(differ, Vec::<String>::new(), "{}", bench.name);
        assert_eq!(differing(&states, &with.returned_states), Vec::<String>::new(), "{}", bench.name);
        let differ = differences(&end, &with.finished);
        assert_eq!(differ, Vec::<String>::new(), "{}", bench.name);
        assert_eq!(differing(&end_states, &with.finished_states), Vec::<String>::new(), "{}", bench.name);
    }
}

#[tokio::test]
async fn twice_is_the_same_as_once() {
    for bench in all(&[1]).await {
        let reference = reference(&bench).await;
        let store = done(&bench).await;
        bench.unwind_batch(&store, batch_of(&bench)).await.expect("a way back");
        store.arm(Fault::None);
        let again = bench.unwind_batch(&store, batch_of(&bench)).await.expect("nothing to undo");
        assert_eq!((again.done, again.stuck.len()), (0, 0), "{}", bench.name);
        assert_eq!(store.commits(), 2, "{}: the mark, and the mark gone", bench.name);
        reference.assert_returned(&bench, &store, "twice").await;
        // Done anew, and rolled back anew.
        bench.run(&store, first_stage(&bench, batch_of(&bench) + 1)).await.expect("a run");
        bench.unwind_batch(&store, batch_of(&bench)).await.expect("a second way back");
        reference.assert_returned(&bench, &store, "anew").await;
        bench.unwind(&store).await.expect("a rollback");
        bench.assert_as_at_the_start(&store, "undone").await;
    }
}

/// As somebody who resumes: first the batch's way back to its end, and no further.
async fn resume_back(bench: &Bench, store: &Saboteur, context: &str) {
    if bench.journal(store).await.returning().is_none() {
        // Nothing of it was begun, or all of it done: the gate says what is to be done.
        bench
            .unwind_batch(store, batch_of(bench))
            .await
            .unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
        return;
    }
    let failure = bench.run(store, None).await.expect_err("it pauses before the batch");
    assert!(is_rolled_back(bench, &failure), "{}, {context}: {failure}", bench.name);
}

#[tokio::test]
async fn a_fault_at_each_write_of_its_way_back_changes_nothing() {
    let faults: [fn(usize) -> Fault; 5] =
        [Fault::Stop, Fault::LostAfter, Fault::LostBefore, Fault::LostAndLate, Fault::Conflict];
    let mut points = 0;
    for bench in all(&[1, 6]).await {
        let reference = reference(&bench).await;
        for fault in faults {
            for at in picks(reference.commits_back) {
                let store = done(&bench).await;
                store.arm(fault(at));
                let outcome = bench.unwind_batch(&store, batch_of(&bench)).await;
                let context = format!("{:?} of {}", fault(at), reference.commits_back);
                assert!(outcome.is_err() || fault(at) != Fault::Stop(at), "{context}");
                store.arm(Fault::None);
                if outcome.is_err() {
                    resume_back(&bench, &store, &context).await;
                }
                reference.assert_returned(&bench, &store, &context).await;
                bench.run(&store, None).await.unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
                reference.assert_finished(&bench, &store, &context).await;
                points += 1;
            }
        }
    }
    println!("{points} points of failure passed");
}

#[tokio::test]
async fn killed_at_each_write_of_its_way_back_everything_can_be_undone() {
    for bench in all(&[1, 6]).await {
        let reference = reference(&bench).await;
        for at in picks(reference.commits_back) {
            let store = done(&bench).await;
            store.arm(Fault::Stop(at));
            bench.unwind_batch(&store, batch_of(&bench)).await.expect_err("it was stopped");
            store.arm(Fault::None);
            let context = format!("stopped at commit {at} of {}", reference.commits_back);
            let report =
                bench.unwind(&store).await.unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
            assert_eq!(report.stuck, [], "{}, {context}", bench.name);
            bench.assert_as_at_the_start(&store, &context).await;
            assert_eq!(bench.journal(&store).await.returning(), None, "{}, {context}", bench.name);
            let failure = bench.run(&store, None).await.expect_err("it is being undone");
            assert!(matches!(failure.source, OperationError::BeingUndone), "{context}: {failure}");
        }
    }
}

#[tokio::test]
async fn killed_at_each_write_of_doing_it_anew() {
    for bench in all(&[1, 6]).await {
        let reference = reference(&bench).await;
        for at in picks(reference.commits_on) {
            let context = format!("stopped at commit {at} of {}", reference.commits_on);
            let anew = async || {
                let store = done(&bench).await;
                bench.unwind_batch(&store, batch_of(&bench)).await.expect("a way back");
                store.arm(Fault::Stop(at));
                bench.run(&store, bench.no_return()).await.expect_err("it was stopped");
                store.arm(Fault::None);
                store
            };
            let store = anew().await;
            bench.run(&store, None).await.unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
            reference.assert_finished(&bench, &store, &context).await;
            let store = anew().await;
            let report =
                bench.unwind(&store).await.unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
            assert_eq!(report.stuck, [], "{}, {context}", bench.name);
            bench.assert_as_at_the_start(&store, &context).await;
        }
    }
}

/// A batch whose records are reset in several transactions: in between some of its steps count as never begun, and
/// some are undone.
#[tokio::test]
async fn killed_between_the_transactions_that_reset_a_great_batch() {
    for (fixture, to) in CASES {
        let bench = Bench::in_batches(fixture, to, 100).await;
        let last = bench.plan.work.stages().iter().rposition(|stage| stage.batch == Some(0)).unwrap();
        let after = Some(last + 1);
        let done = async || {
            let store = bench.fresh().await;
            bench.run(&store, after).await.expect("an undisturbed run");
            store.arm(Fault::None);
            store
        };
        let store = done().await;
        bench.unwind_batch(&store, 0).await.expect("an undisturbed way back");
        let total = store.commits();
        for at in total.saturating_sub(6)..=total {
            let context = format!("{}, stopped at commit {at} of {total}", bench.name);
            let stopped = async || {
                let store = done().await;
                store.arm(Fault::Stop(at));
                bench.unwind_batch(&store, 0).await.expect_err("it was stopped");
                store.arm(Fault::None);
                store
            };
            let store = stopped().await;
            let failure = bench.run(&store, None).await.expect_err("it pauses before the batch");
            let is_rolled_back = matches!(failure.source, OperationError::BatchRolledBack { batch: 0, .. });
            assert!(is_rolled_back, "{context}: {failure}");
            bench.run(&store, bench.no_return()).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            let store = stopped().await;
            let report = bench.unwind(&store).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_eq!(report.stuck, [], "{context}");
            bench.assert_as_at_the_start(&store, &context).await;
        }
    }
}

/// Somebody has deleted a Service of the batch: the rest of the batch goes back, the operation says what is wrong,
/// does nothing else until that is put right, and then finishes.
#[tokio::test]
async fn what_cannot_be_undone_is_named_and_tried_again() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = done(&bench).await;
    let stages = bench.plan.work.stages();
    let flip =
        stages.iter().find(|stage| stage.batch == Some(batch_of(&bench)) && stage.name == "flip").unwrap();
    let about = bench.plan.work.steps(flip).first().unwrap().about.clone();
    let key = Key::from(format!("/registry/services/specs/{about}"));
    let service = store.get(&key).await.unwrap().unwrap().value;
    store.delete(&key).await;
    for attempt in 0..2 {
        let failure = if attempt == 0 {
            bench.unwind_batch(&store, batch_of(&bench)).await.expect_err("a Service is gone")
        } else {
            bench.run(&store, None).await.expect_err("a Service is still gone")
        };
        let OperationError::BatchStuck { batch: 1, .. } = &failure.source else { panic!("{failure}") };
        assert!(failure.step.to_string().ends_with(&about), "{failure}");
        assert!(!failure.source.is_pause(), "{failure}");
        let journal = bench.journal(&store).await;
        assert!(journal.returning().is_some() && !journal.is_being_undone());
    }
    store.create(&key, service).await;
    let failure = bench.run(&store, None).await.expect_err("it pauses before the batch");
    assert!(is_rolled_back(&bench, &failure), "{failure}");
    bench.run(&store, None).await.expect("a run to the end");
}
