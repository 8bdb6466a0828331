//! An operation that was interrupted for so long that API servers have deleted its reservations: IPAddress objects are
//! recreated and dated ahead again; in the bitmap era, freed bits are set again.

use netsurgeon::ip::{Item, Items};
use netsurgeon::operation::{self, Ambient as _, RepairOutcome, State};
use netsurgeon::renumber::Move;
use netsurgeon::renumber::creation_times::{IpAddressRepair, Taken, kept};
use netsurgeon::renumber::guard::given_up;
use netsurgeon::renumber::reserved_bits::{reserve_again, reserved};
use netsurgeon::store::{Key, ReadStore as _};
use netsurgeon::survey::{Era, Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit, Value};

use crate::harness::{Bench, CASES, Constant};
use crate::saboteur::{Sabotage, Saboteur};

const MONTH: i64 = 30 * 24 * 60 * 60;

/// Rolls back up to a commit; `None` if the rollback ends before it.
async fn stopped_on_the_way_back(bench: &Bench, at: usize) -> Option<Saboteur> {
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    store.arm(Sabotage::Stop(at));
    bench.unwind(&store).await.err()?;
    store.arm(Sabotage::None);
    Some(store)
}

/// What must be repaired so many seconds after the last write, and which addresses are lost.
async fn checked(bench: &Bench, store: &Saboteur, later: i64) -> (Vec<IpAddressRepair>, Vec<Taken>) {
    let (journal, survey) = (bench.journal(store).await, bits(store).await);
    kept(&bench.plan.work, &survey, |step| journal.state(step), Constant.now() + later)
}

/// Deletes every second reserved IPAddress, as an API server does that read objects in another order, and repairs all of them
/// a month later.
async fn lost_and_renewed(bench: &Bench, store: &Saboteur) -> usize {
    let (all, taken) = checked(bench, store, 2 * MONTH).await;
    assert_eq!(taken, [], "{}", bench.name);
    for one in all.iter().step_by(2) {
        store.delete(&one.key).await;
    }
    let (wrong, taken) = checked(bench, store, 2 * MONTH).await;
    assert_eq!((wrong.len(), taken), (all.len(), vec![]), "{}", bench.name);
    let mut journal = bench.journal(store).await;
    for (number, one) in wrong.iter().enumerate() {
        assert_eq!(one.is_news, number % 2 == 0, "{}: {}", bench.name, one.key);
        let none = (&[][..], State::Done);
        let settled =
            operation::settle(&journal.in_store(store, &[]), &mut journal, none, &one.repair, &Constant)
                .await;
        assert_eq!(settled.expect("a commit"), RepairOutcome::Done, "{}: {}", bench.name, one.key);
    }
    assert_eq!(checked(bench, store, 0).await, (vec![], vec![]), "{}", bench.name);
    all.len()
}

#[tokio::test]
async fn reservations_are_renewed_until_retirement() {
    for (fixture, to) in CASES {
        let bench = Bench::of(fixture, to).await;
        let (store, moves) = (bench.fresh().await, bench.plan.work.moves.len());
        let with_objects = usize::from(bench.plan.work.era != Era::Bitmap);
        bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
        let first = bench.plan.work.batches()[0].len();
        assert_eq!(checked(&bench, &store, 0).await, (vec![], vec![]), "{}", bench.name);
        let count = lost_and_renewed(&bench, &store).await;
        assert_eq!(count, (moves + first) * with_objects, "{}", bench.name);
        bench.run(&store, bench.no_return()).await.expect("it continues");
        assert_eq!(lost_and_renewed(&bench, &store).await, 2 * moves * with_objects, "{}", bench.name);
        bench.run(&store, None).await.expect("it is retired");
        assert_eq!(
            checked(&bench, &store, 3 * MONTH).await,
            (vec![], vec![]),
            "{}: no reservation is left",
            bench.name
        );
    }
}

#[tokio::test]
async fn recreated_reservations_are_rolled_back() {
    for (fixture, to) in CASES {
        let bench = Bench::of(fixture, to).await;
        for until in [bench.plan.work.flip_stage(0), bench.no_return()] {
            let store = bench.fresh().await;
            bench.run(&store, until).await.expect("a run");
            lost_and_renewed(&bench, &store).await;
            let report = bench.unwind(&store).await.expect("a rollback");
            assert_eq!(report.stuck, [], "{}", bench.name);
            bench.assert_as_at_the_start(&store, "recreated, and rolled back").await;
        }
    }
}

#[tokio::test]
async fn interrupted_rollback_renews_reservations() {
    for (fixture, to) in CASES {
        let bench = Bench::of(fixture, to).await;
        for at in [1, 3, 10, 30, 50] {
            let Some(store) = stopped_on_the_way_back(&bench, at).await else { break };
            lost_and_renewed(&bench, &store).await;
            let report = bench.unwind(&store).await.expect("it continues");
            assert_eq!(report.stuck, [], "{}", bench.name);
            bench.assert_as_at_the_start(&store, "recreated during the rollback").await;
        }
    }
}

/// The address was allocated to another Service during the interruption: neither that Service nor the moving one loses anything.
#[tokio::test]
async fn address_allocated_to_another_service_is_not_taken() {
    for (fixture, to) in [("objects", "10.200.0.0/16"), ("dualwrite", "10.200.0.0/16")] {
        let bench = Bench::of(fixture, to).await;
        let (layout, moves) = (Layout::default(), &bench.plan.work.moves);
        let (ours, thief) = (&moves[0], moves.last().expect("several"));
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
        let key = layout.ip_address(ours.new_address);
        let entry = store.get(&key).await.expect("a read").expect("reserved");
        let theirs = [(Field::parent_namespace(), &thief.namespace), (Field::parent_name(), &thief.name)];
        let edits = theirs.map(|(field, name)| FieldEdit {
            field,
            change: FieldChange::Set(Value::Text(name.to_string())),
        });
        store.meddle(&key, edit::apply(&entry.value, &edits).expect("an edit")).await;
        let before = store.get(&key).await.expect("a read");
        let (wrong, taken) = checked(&bench, &store, 0).await;
        assert_eq!(wrong, [], "{fixture}");
        let said: Vec<String> = taken.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{fixture}");
        for part in [ours.new_address.to_string(), ours.subject(), thief.subject()] {
            assert!(said[0].contains(&part), "{part}: {}", said[0]);
        }
        let failure =
            bench.run(&store, bench.no_return()).await.expect_err("the Service must not get the address");
        assert!(failure.step.0.starts_with("flip/"), "{failure}");
        let report = bench.unwind(&store).await.expect("a rollback");
        assert_eq!(report.stuck, [], "{fixture}");
        assert_eq!(
            store.get(&key).await.expect("a read").map(|e| e.value),
            before.map(|e| e.value),
            "{fixture}"
        );
    }
}

async fn bits(store: &Saboteur) -> Survey {
    Survey::read(store, &Layout::default(), None).await.expect("a survey")
}

/// The Services for which only bits are reserved.
async fn waiting<'b>(bench: &'b Bench, store: &Saboteur) -> Vec<&'b Move> {
    let journal = bench.journal(store).await;
    reserved(&bench.plan.work, |step| journal.state(step))
}

/// Frees bits, as an API server does that found them without a Service three times.
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
    let repair = reserve_again(&bench.plan.work, &bits(store).await, &moves).expect("they are free");
    let repair = repair.expect("they were freed");
    let settled = operation::settle(
        &journal.in_store(store, &[]),
        &mut journal,
        (&[], State::Done),
        &repair,
        &Constant,
    )
    .await;
    assert_eq!(settled.expect("a commit"), RepairOutcome::Done);
    assert_eq!(reserve_again(&bench.plan.work, &bits(store).await, &moves), Ok(None), "they are set");
}

#[tokio::test]
async fn freed_bits_are_set_again() {
    let bench = Bench::of("bitmap", "10.200.0.0/16").await;
    for set in [false, true] {
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
        let moves = waiting(&bench, &store).await;
        assert_eq!(moves.len(), bench.plan.work.batches()[0].len());
        assert_eq!(
            reserve_again(&bench.plan.work, &bits(&store).await, &moves),
            Ok(None),
            "all bits are set"
        );
        freed(&bench, &store, &moves).await;
        if !set {
            bench.run(&store, bench.no_return()).await.expect_err("the address is not reserved");
            continue;
        }
        set_again(&bench, &store).await;
        bench.run(&store, bench.no_return()).await.expect("it continues");
        assert_eq!(waiting(&bench, &store).await, Vec::<&Move>::new(), "no reservation is left");
        bench.unwind(&store).await.expect("a rollback");
        bench.assert_as_at_the_start(&store, "set again").await;
    }
}

/// During a rollback, once a moved Service has its old address again, its new address's bit is without a Service.
#[tokio::test]
async fn bits_freed_during_rollback_are_set_again() {
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
        let report = bench.unwind(&store).await.expect("it continues");
        assert_eq!(report.stuck, []);
        bench.assert_as_at_the_start(&store, "set again during the rollback").await;
    }
    assert!(points > 20, "{points}");
}

/// The bit of a deleted Service is freed with it; the rest of its batch is rolled back all the same.
#[tokio::test]
async fn deleted_service_does_not_stop_rollback_of_its_batch() {
    let bench = Bench::of("bitmap", "10.200.0.0/16").await;
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    let gone = bench.plan.work.moves.iter().find(|candidate| candidate.shadow.is_none()).expect("one");
    store.delete(&Layout::default().service(&gone.namespace, &gone.name)).await;
    freed(&bench, &store, &[gone]).await;
    let mut journal = bench.journal(&store).await;
    let given_up =
        given_up(&bench.plan.work, &bits(&store).await, |step| journal.state(step), Constant.now());
    for (steps, repair) in given_up {
        let steps = (steps.as_slice(), State::UndoDone);
        let settled =
            operation::settle(&journal.in_store(&store, &[]), &mut journal, steps, &repair, &Constant).await;
        assert_eq!(settled.expect("a commit"), RepairOutcome::Done);
    }
    // Its bit is not set again.
    let moves = waiting(&bench, &store).await;
    assert!(moves.iter().any(|moved| moved.uid == gone.uid));
    assert_eq!(reserve_again(&bench.plan.work, &bits(&store).await, &moves), Ok(None));
    let report = bench.unwind(&store).await.expect("a rollback");
    assert_eq!(report.stuck, []);
    let differ = bench.differences(&store).await;
    assert_eq!(differ, [Layout::default().service(&gone.namespace, &gone.name).to_string()]);
}

/// A bit does not name its owner: an address that was allocated to another Service is not taken from it.
#[tokio::test]
async fn address_allocated_meanwhile_is_reported() {
    let bench = Bench::of("bitmap", "10.200.0.0/16").await;
    let store = bench.fresh().await;
    bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
    let moves = waiting(&bench, &store).await;
    let mut survey = bits(&store).await;
    let other = survey.services.iter_mut().find(|service| service.uid != moves[0].uid).expect("another");
    other.addresses.push(moves[0].new_address);
    let by = other.subject();
    let taken =
        reserve_again(&bench.plan.work, &survey, &moves).expect_err("it is allocated to another Service");
    let words = taken.to_string();
    for part in [moves[0].new_address.to_string(), moves[0].subject(), by] {
        assert!(words.contains(&part), "{part}: {words}");
    }
}
