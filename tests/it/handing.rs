//! An operation that was interrupted between handing addresses to the allocator and the flips of their Services, for so
//! long that a repair loop has deleted them: they are handed over anew, forward and back. Where allocations are bits,
//! those that were freed are set again.

use netsurgeon::ip::{Item, Items};
use netsurgeon::operation::{self, Mended, State};
use netsurgeon::renumber::Move;
use netsurgeon::renumber::guard::given_up;
use netsurgeon::renumber::handed::{Handed, handed};
use netsurgeon::renumber::reserved::{reserve_again, reserved};
use netsurgeon::store::{Key, ReadStore as _};
use netsurgeon::survey::{Era, Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit};

use crate::harness::{Bench, CASES, Constant};
use crate::saboteur::{Fault, Saboteur};

/// Undoes everything up to a commit; `None` if it comes to the end before.
async fn stopped_on_the_way_back(bench: &Bench, at: usize) -> Option<Saboteur> {
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    store.arm(Fault::Stop(at));
    bench.unwind(&store).await.err()?;
    store.arm(Fault::None);
    Some(store)
}

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
            let Some(store) = stopped_on_the_way_back(&bench, at).await else { break };
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

async fn bits(store: &Saboteur) -> Survey {
    Survey::read(store, &Layout::default(), None).await.expect("a survey")
}

/// The Services whose bits alone are reserved.
async fn waiting<'b>(bench: &'b Bench, store: &Saboteur) -> Vec<&'b Move> {
    let journal = bench.journal(store).await;
    reserved(&bench.plan.work, |step| journal.state(step))
}

/// Frees bits, as an API server does that has seen them without a Service three times.
async fn freed(bench: &Bench, store: &Saboteur, moves: &[&Move]) {
    let items = Items::Addresses(bench.plan.work.to);
    let bit = |candidate: &&Move| items.bit(Item::Address(candidate.new_address)).expect("in the range");
    let clear = moves.iter().map(bit).collect();
    let change = FieldChange::Bits { capacity: items.capacity(), set: Vec::new(), clear };
    let key = Key::from("/registry/ranges/serviceips");
    let entry = store.get(&key).await.expect("a read").expect("the bitmap");
    let value = edit::apply(&entry.value, &[FieldEdit { field: Field::data(), change }]).expect("an edit");
    store.meddle(&key, value).await;
}

async fn set_again(bench: &Bench, store: &Saboteur) {
    let (moves, mut journal) = (waiting(bench, store).await, bench.journal(store).await);
    let mend = reserve_again(&bench.plan.work, &bits(store).await, &moves).expect("nobody has them");
    let mend = mend.expect("they were freed");
    let settled = operation::settle(store, &mut journal, (&[], State::Done), &mend, &[], &Constant).await;
    assert_eq!(settled.expect("a commit"), Mended::Done);
    assert_eq!(reserve_again(&bench.plan.work, &bits(store).await, &moves), Ok(None), "they are set");
}

#[tokio::test]
async fn bits_that_were_freed_are_set_again() {
    let bench = Bench::of("bitmap", "10.200.0.0/16").await;
    for set in [false, true] {
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
        let moves = waiting(&bench, &store).await;
        assert_eq!(moves.len(), bench.plan.work.batches()[0].len());
        assert_eq!(
            reserve_again(&bench.plan.work, &bits(&store).await, &moves),
            Ok(None),
            "nothing is amiss"
        );
        freed(&bench, &store, &moves).await;
        if !set {
            bench.run(&store, bench.no_return()).await.expect_err("an address that may be given away");
            continue;
        }
        set_again(&bench, &store).await;
        bench.run(&store, bench.no_return()).await.expect("it goes on");
        assert_eq!(waiting(&bench, &store).await, Vec::<&Move>::new(), "all are taken");
        bench.unwind(&store).await.expect("a way back");
        bench.assert_as_at_the_start(&store, "set again").await;
    }
}

/// On the way back, after a moved Service has its old address again, and its bit is free.
#[tokio::test]
async fn bits_that_were_freed_on_the_way_back_are_set_again() {
    let bench = Bench::of("bitmap", "10.200.0.0/16").await;
    let mut points = 0;
    for at in 1..400 {
        let Some(store) = stopped_on_the_way_back(&bench, at).await else { break };
        let moves = waiting(&bench, &store).await;
        if moves.is_empty() {
            continue;
        }
        points += 1;
        freed(&bench, &store, &moves).await;
        set_again(&bench, &store).await;
        let report = bench.unwind(&store).await.expect("it goes on");
        assert_eq!(report.stuck, []);
        bench.assert_as_at_the_start(&store, "set again on the way back").await;
    }
    assert!(points > 20, "{points}");
}

/// A Service that was deleted has freed its bit with it; the rest of its batch is rolled back all the same.
#[tokio::test]
async fn a_deleted_service_does_not_keep_the_bits_of_its_batch_from_being_freed() {
    let bench = Bench::of("bitmap", "10.200.0.0/16").await;
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    let gone = bench.plan.work.moves.iter().find(|candidate| candidate.shadow.is_none()).expect("one");
    store.delete(&Layout::default().service(&gone.namespace, &gone.name)).await;
    freed(&bench, &store, &[gone]).await;
    let mut journal = bench.journal(&store).await;
    let given_up = given_up(&bench.plan.work, &bits(&store).await, |step| journal.state(step));
    for (steps, mend) in given_up {
        let steps = (steps.as_slice(), State::UndoDone);
        let settled = operation::settle(&store, &mut journal, steps, &mend, &[], &Constant).await;
        assert_eq!(settled.expect("a commit"), Mended::Done);
    }
    set_again(&bench, &store).await;
    let report = bench.unwind(&store).await.expect("a way back");
    assert_eq!(report.stuck, []);
    let (differ, _) = bench.differences(&store).await;
    assert_eq!(differ, [Layout::default().service(&gone.namespace, &gone.name).to_string()]);
}

/// A bit does not say whose it is: an address that was given to somebody else is not taken from them.
#[tokio::test]
async fn an_address_that_was_given_away_meanwhile_is_named() {
    let bench = Bench::of("bitmap", "10.200.0.0/16").await;
    let store = bench.fresh().await;
    bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
    let moves = waiting(&bench, &store).await;
    let mut survey = bits(&store).await;
    let other = survey.services.iter_mut().find(|service| service.uid != moves[0].uid).expect("another");
    other.addresses.push(moves[0].new_address);
    let by = other.subject();
    let taken = reserve_again(&bench.plan.work, &survey, &moves).expect_err("it is taken");
    let words = taken.to_string();
    for part in [moves[0].new_address.to_string(), moves[0].subject(), by] {
        assert!(words.contains(&part), "{part}: {words}");
    }
}
