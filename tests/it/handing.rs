//! An operation that was interrupted between handing addresses to the allocator and the flips of their Services, for so
//! long that a repair loop has deleted them: they are handed over anew, forward and back.

use netsurgeon::operation::{self, Mended, State};
use netsurgeon::renumber::handed::{Handed, handed};
use netsurgeon::store::ReadStore as _;
use netsurgeon::survey::Era;

use crate::harness::{Bench, CASES, Constant};
use crate::saboteur::{Fault, Saboteur};

async fn open(bench: &Bench, store: &Saboteur) -> Vec<Handed> {
    let journal = bench.journal(store).await;
    handed(&bench.plan.work, |step| journal.state(step))
}

/// Hands over anew what a repair loop has deleted, and the others for longer: every second one. Returns those that were
/// gone.
async fn lost_and_renewed(bench: &Bench, store: &Saboteur) -> Vec<String> {
    let mut gone = Vec::new();
    let mut journal = bench.journal(store).await;
    for (number, one) in open(bench, store).await.iter().enumerate() {
        let is_gone = number % 2 == 0;
        if is_gone {
            store.delete(&one.key).await;
            gone.push(one.key.to_string());
        }
        let mend = if is_gone { &one.again } else { &one.longer };
        let settled = operation::settle(store, &mut journal, (&[], State::Done), mend, &[], &Constant).await;
        assert_eq!(settled.expect("a commit"), Mended::Done, "{}: {}", bench.name, one.key);
        assert!(store.get(&one.key).await.expect("a read").is_some());
    }
    gone
}

#[tokio::test]
async fn forward_it_goes_on() {
    for (fixture, to) in CASES {
        let bench = Bench::of(fixture, to).await;
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
        if bench.plan.work.era == Era::Bitmap {
            assert_eq!(open(&bench, &store).await, [], "there is no such thing");
            continue;
        }
        let first = open(&bench, &store).await.first().expect("some are handed over").key.clone();
        store.delete(&first).await;
        let stopped = bench.run(&store, bench.no_return()).await.expect_err("its Service must not take it");
        assert!(stopped.to_string().contains(&first.to_string()), "{stopped}");
        // The same again, with its Service still where it was.
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
        lost_and_renewed(&bench, &store).await;
        bench.run(&store, bench.no_return()).await.expect("it goes on");
        assert_eq!(open(&bench, &store).await, [], "{}: all are taken", bench.name);
        bench.unwind(&store).await.expect("a way back");
        bench.assert_as_at_the_start(&store, "renewed forward").await;
    }
}

#[tokio::test]
async fn before_the_flips_it_goes_back() {
    for (fixture, to) in CASES {
        let bench = Bench::of(fixture, to).await;
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
        lost_and_renewed(&bench, &store).await;
        let report = bench.unwind(&store).await.expect("a way back");
        assert_eq!(report.stuck, [], "{}", bench.name);
        bench.assert_as_at_the_start(&store, "renewed, and undone").await;
    }
}

#[tokio::test]
async fn back_it_goes_on() {
    for (fixture, to) in CASES {
        let bench = Bench::of(fixture, to).await;
        // Until it is stopped just where old addresses are handed back.
        let mut points = 0;
        for at in 1..200 {
            let store = bench.fresh().await;
            bench.run(&store, bench.no_return()).await.expect("a run");
            store.arm(Fault::Stop(at));
            if bench.unwind(&store).await.is_ok() {
                break;
            }
            store.arm(Fault::None);
            if open(&bench, &store).await.is_empty() {
                continue;
            }
            points += 1;
            let gone = lost_and_renewed(&bench, &store).await;
            let report = bench.unwind(&store).await.expect("it goes on");
            assert_eq!(report.stuck, [], "{}", bench.name);
            // What was deleted comes back as an API server makes it today, without what others had written into it.
            let (mut differ, _) = bench.differences(&store).await;
            differ.retain(|key| !gone.contains(key));
            assert_eq!(differ, Vec::<String>::new(), "{}", bench.name);
            if points > 5 {
                break;
            }
        }
        assert!(points > 5 || bench.plan.work.era == Era::Bitmap, "{}: {points}", bench.name);
    }
}
