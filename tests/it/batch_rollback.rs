//! One batch rolled back and run again: the loops of `loops.rs` for it. Whichever write fails, the next process completes the
//! rollback of the batch, and the result is that of an undisturbed operation. At any instant everything can be rolled back.

use std::collections::BTreeMap;

use netsurgeon::operation::{OperationError, RunFailure, State, Work as _};
use netsurgeon::store::{Key, ReadStore as _};

use crate::harness::{Bench, CASES, Keys, Settings, differences, keys};
use crate::loops::{differing, picks};
use crate::saboteur::{Sabotage, Saboteur};

/// The batch that is rolled back: not the first, and not the last; if some Services are swept, their first batch.
fn batch_of(bench: &Bench) -> usize {
    let work = &bench.plan.work;
    let swept = |batch: &std::ops::Range<usize>| work.moves[batch.start].sweep > 0;
    work.batches().iter().position(swept).unwrap_or(1)
}

/// The result of an undisturbed operation with one rollback of a batch.
struct Reference {
    /// Commits of the rollback of the batch.
    commits_back: usize,
    returned: Keys,
    returned_states: BTreeMap<String, Option<State>>,
    /// Commits from there to the last point at which everything can be rolled back.
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

/// Returns a store in which the batch is just complete.
async fn done(bench: &Bench) -> Saboteur {
    let store = bench.fresh().await;
    bench.run(&store, first_stage(bench, batch_of(bench) + 1)).await.expect("an undisturbed run");
    store.arm(Sabotage::None);
    store
}

async fn registry(store: &Saboteur) -> Keys {
    keys(store, "/registry/").await
}

async fn reference(bench: &Bench) -> Reference {
    let store = done(bench).await;
    bench.unwind_batch(&store, batch_of(bench)).await.expect("an undisturbed rollback");
    let commits_back = store.commits();
    let (returned, returned_states) = (registry(&store).await, bench.states(&store).await);
    store.arm(Sabotage::None);
    bench.run(&store, bench.no_return()).await.expect("an undisturbed run");
    let commits_on = store.commits();
    bench.run(&store, None).await.expect("an undisturbed run");
    let (finished, finished_states) = (registry(&store).await, bench.states(&store).await);
    Reference { commits_back, returned, returned_states, commits_on, finished, finished_states }
}

fn is_rolled_back(bench: &Bench, failure: &RunFailure) -> bool {
    failure.source.is_pause()
        && matches!(&failure.source, OperationError::BatchRolledBack { batch, gate, reason }
            if *batch == batch_of(bench) && gate == "test" && reason == "as requested")
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

/// The cluster is as it was before the batch, in the journal the batch is not started, and the result is that of an operation
/// without the rollback.
#[tokio::test]
async fn rolled_back_batch_leaves_no_trace() {
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
async fn second_batch_rollback_changes_nothing() {
    for bench in all(&[1]).await {
        let reference = reference(&bench).await;
        let store = done(&bench).await;
        bench.unwind_batch(&store, batch_of(&bench)).await.expect("a rollback");
        store.arm(Sabotage::None);
        let again = bench.unwind_batch(&store, batch_of(&bench)).await.expect("nothing to undo");
        assert_eq!((again.done, again.stuck.len()), (0, 0), "{}", bench.name);
        assert_eq!(store.commits(), 2, "{}: one commit sets the mark, one removes it", bench.name);
        reference.assert_returned(&bench, &store, "twice").await;
        // Run again, and rolled back again.
        bench.run(&store, first_stage(&bench, batch_of(&bench) + 1)).await.expect("a run");
        bench.unwind_batch(&store, batch_of(&bench)).await.expect("a second rollback");
        reference.assert_returned(&bench, &store, "a second time").await;
        bench.unwind(&store).await.expect("a rollback");
        bench.assert_as_at_the_start(&store, "undone").await;
    }
}

/// Resumes: first the rollback of the batch to its end, and no further.
async fn resume_back(bench: &Bench, store: &Saboteur, context: &str) {
    if bench.journal(store).await.returning().is_none() {
        // Nothing of it is started, or all of it is complete: the gate decides what to do.
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
async fn fault_at_each_write_of_batch_rollback_changes_nothing() {
    let faults: [fn(usize) -> Sabotage; 5] = [
        Sabotage::Stop,
        Sabotage::LostAfter,
        Sabotage::LostBefore,
        Sabotage::LostAndLate,
        Sabotage::Conflict,
    ];
    let mut points = 0;
    for bench in all(&[1, 6]).await {
        let reference = reference(&bench).await;
        for fault in faults {
            for at in picks(reference.commits_back) {
                let store = done(&bench).await;
                store.arm(fault(at));
                let outcome = bench.unwind_batch(&store, batch_of(&bench)).await;
                let context = format!("{:?} of {}", fault(at), reference.commits_back);
                assert!(outcome.is_err() || fault(at) != Sabotage::Stop(at), "{context}");
                store.arm(Sabotage::None);
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
async fn kill_at_each_write_of_batch_rollback_is_recoverable() {
    for bench in all(&[1, 6]).await {
        let reference = reference(&bench).await;
        for at in picks(reference.commits_back) {
            let store = done(&bench).await;
            store.arm(Sabotage::Stop(at));
            bench.unwind_batch(&store, batch_of(&bench)).await.expect_err("it was stopped");
            store.arm(Sabotage::None);
            let context = format!("stopped at commit {at} of {}", reference.commits_back);
            let report =
                bench.unwind(&store).await.unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
            assert_eq!(report.stuck, [], "{}, {context}", bench.name);
            bench.assert_as_at_the_start(&store, &context).await;
            assert_eq!(bench.journal(&store).await.returning(), None, "{}, {context}", bench.name);
            let failure = bench.run(&store, None).await.expect_err("it is being rolled back");
            assert!(matches!(failure.source, OperationError::BeingUndone), "{context}: {failure}");
        }
    }
}

#[tokio::test]
async fn kill_at_each_write_of_second_run_is_recoverable() {
    for bench in all(&[1, 6]).await {
        let reference = reference(&bench).await;
        for at in picks(reference.commits_on) {
            let context = format!("stopped at commit {at} of {}", reference.commits_on);
            let stopped_again = async || {
                let store = done(&bench).await;
                bench.unwind_batch(&store, batch_of(&bench)).await.expect("a rollback");
                store.arm(Sabotage::Stop(at));
                bench.run(&store, bench.no_return()).await.expect_err("it was stopped");
                store.arm(Sabotage::None);
                store
            };
            let store = stopped_again().await;
            bench.run(&store, None).await.unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
            reference.assert_finished(&bench, &store, &context).await;
            let store = stopped_again().await;
            let report =
                bench.unwind(&store).await.unwrap_or_else(|e| panic!("{}, {context}: {e}", bench.name));
            assert_eq!(report.stuck, [], "{}, {context}", bench.name);
            bench.assert_as_at_the_start(&store, &context).await;
        }
    }
}

/// A batch whose records are reset in several transactions: in between, some of its steps are not started, and some are rolled
/// back.
#[tokio::test]
async fn kill_between_resets_of_large_batch_is_recoverable() {
    for (fixture, to) in CASES {
        let bench = Bench::in_batches(fixture, to, 100).await;
        let last = bench.plan.work.stages().iter().rposition(|stage| stage.batch == Some(0)).unwrap();
        let after = Some(last + 1);
        let done = async || {
            let store = bench.fresh().await;
            bench.run(&store, after).await.expect("an undisturbed run");
            store.arm(Sabotage::None);
            store
        };
        let store = done().await;
        bench.unwind_batch(&store, 0).await.expect("an undisturbed rollback");
        let total = store.commits();
        for at in total.saturating_sub(6)..=total {
            let context = format!("{}, stopped at commit {at} of {total}", bench.name);
            let stopped = async || {
                let store = done().await;
                store.arm(Sabotage::Stop(at));
                bench.unwind_batch(&store, 0).await.expect_err("it was stopped");
                store.arm(Sabotage::None);
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

/// Another client has deleted a Service of the batch. The rest of the batch is rolled back, the operation reports the error,
/// does nothing else until the Service is recreated, and then completes.
#[tokio::test]
async fn stuck_batch_rollback_is_reported_and_retried() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = done(&bench).await;
    let stages = bench.plan.work.stages();
    let flip =
        stages.iter().find(|stage| stage.batch == Some(batch_of(&bench)) && stage.name == "flip").unwrap();
    let subject = bench.plan.work.steps(flip).first().unwrap().subject.clone();
    let key = Key::from(format!("/registry/services/specs/{subject}"));
    let service = store.get(&key).await.unwrap().unwrap().value;
    store.delete(&key).await;
    for attempt in 0..2 {
        let failure = if attempt == 0 {
            bench.unwind_batch(&store, batch_of(&bench)).await.expect_err("a Service is deleted")
        } else {
            bench.run(&store, None).await.expect_err("a Service is still deleted")
        };
        let OperationError::BatchStuck { batch: 1, .. } = &failure.source else { panic!("{failure}") };
        assert!(failure.step.to_string().ends_with(&subject), "{failure}");
        assert!(!failure.source.is_pause(), "{failure}");
        let journal = bench.journal(&store).await;
        assert!(journal.returning().is_some() && !journal.is_being_undone());
    }
    store.create(&key, service).await;
    let failure = bench.run(&store, None).await.expect_err("it pauses before the batch");
    assert!(is_rolled_back(&bench, &failure), "{failure}");
    bench.run(&store, None).await.expect("a run to the end");
}
