//! Services that were deleted, or recreated, since the plan: what was created for them is deleted, and nothing else.

use std::collections::BTreeSet;

use netsurgeon::ip::{Family, Item, Items};
use netsurgeon::operation::{self, Ambient as _, RepairOutcome, State, Work as _};
use netsurgeon::renumber::creation_times::kept;
use netsurgeon::renumber::guard::{given_up, strays};
use netsurgeon::renumber::verify::verify;
use netsurgeon::renumber::{Hold, Move};
use netsurgeon::store::{Guard, Key};
use netsurgeon::survey::{Era, Layout, Survey};
use netsurgeon::wire::bitmap::Bitmap;
use netsurgeon::wire::edit;
use netsurgeon::wire::{Field, Value};

use crate::guard::{delete, held_by, service_of, set, settle, soaking, text, watched};
use crate::harness::{Bench, Constant, keys};
use crate::saboteur::{Sabotage, Saboteur};

/// Retires what has no owner any more, as `renumber retire` does first, until nothing is left; returns the subjects.
async fn settle_strays(bench: &Bench, store: &Saboteur, guards: &[Guard]) -> BTreeSet<String> {
    let mut subjects = BTreeSet::new();
    loop {
        let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
        let mut journal = bench.journal(store).await;
        let found = strays(&bench.plan.work, &survey, |step| journal.state(step), Constant.now());
        if found.is_empty() {
            return subjects;
        }
        for (step, one) in found {
            let steps = (step.as_slice(), State::Done);
            let settled =
                operation::settle(&journal.in_store(store, guards), &mut journal, steps, &one, &Constant)
                    .await;
            assert_eq!(settled.expect("a repair"), RepairOutcome::Done);
            subjects.insert(one.subject);
        }
    }
}

/// Deleted and recreated Services do not prevent the others from being retired, and leave nothing behind.
#[tokio::test]
async fn deleted_and_recreated_services_can_be_retired() {
    for bench in Bench::all().await {
        let layout = Layout::default();
        let [gone, recreated] = [0, 1].map(|index| {
            let mut by_itself =
                bench.plan.work.moves.iter().filter(|m| m.hold == Hold::ExternalIp && m.turn.is_any());
            by_itself.nth(index).expect("such a move")
        });
        let shadowed = bench.plan.work.moves.iter().find(|m| m.hold == Hold::Shadow);
        let store = soaking(&bench).await;
        for one in [Some(gone), shadowed].into_iter().flatten() {
            delete(&store, &service_of(one)).await;
        }
        set(&store, &service_of(recreated), &[(Field::uid(), text("another"))]).await;
        let guard = store.take_lock("alice@cp-1").await;
        let expected: BTreeSet<String> =
            [Some(gone), Some(recreated), shadowed].into_iter().flatten().map(Move::subject).collect();
        assert_eq!(settle_strays(&bench, &store, &[guard]).await, expected, "{}", bench.name);
        bench.run(&store, None).await.expect("the rest is retired");
        let left = keys(&store, "/registry/").await;
        for one in [Some(gone), Some(recreated), shadowed].into_iter().flatten() {
            assert!(!left.contains_key(&layout.ip_address(one.old_address)), "{}", one.subject());
        }
        let is_shadow = |key: &Key| key.to_string().contains("/netsurgeon-hold-");
        assert!(!left.keys().any(is_shadow), "{}", bench.name);
        let value = &left[&service_of(recreated)];
        for field in [Field::external_ips(), Field::external_traffic_policy()] {
            assert_eq!(edit::read(value, &field).unwrap(), Value::Absent, "{}", bench.name);
        }
    }
}

/// Deleted Services do not prevent the rollback of the others, and leave nothing behind, at any stage.
#[tokio::test]
async fn rollback_gives_up_deleted_services() {
    for bench in Bench::all().await.into_iter().filter(|bench| !bench.name.starts_with("bitmap")) {
        let stages = bench.plan.work.stages();
        let middle = bench.plan.work.flip_stage(0).expect("a batch");
        for until in [middle, middle + 1, bench.no_return().expect("an end")] {
            let store = bench.fresh().await;
            bench.run(&store, Some(until)).await.expect("a run");
            let batch = &bench.plan.work.moves[bench.plan.work.batches()[0].clone()];
            let lost: Vec<&Move> = [Hold::ExternalIp, Hold::Shadow]
                .iter()
                .filter_map(|hold| batch.iter().find(|candidate| candidate.hold == *hold))
                .collect();
            for one in &lost {
                // Through the API, which releases the Service's addresses.
                let has = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
                let has = has.services.into_iter().find(|s| s.uid == one.uid).expect("it exists");
                delete(&store, &service_of(one)).await;
                for address in has.addresses {
                    let address = Layout::default().ip_address(address);
                    if keys(&store, "/registry/").await.contains_key(&address) {
                        delete(&store, &address).await;
                    }
                }
            }
            let guard = store.take_lock("alice@cp-1").await;
            let context = format!("{}, at {}", bench.name, stages[until].name);
            let mut looks = 0;
            // Its shadows one after the other, then the rest.
            while settle_given_up(&bench, &store, std::slice::from_ref(&guard)).await > 0 {
                looks += 1;
                assert!(looks <= 3, "{context}");
            }
            assert!(looks > 0 || lost.is_empty(), "{context}");
            let report = bench.unwind(&store).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(report.stuck, [], "{context}");
            let layout = Layout::default();
            let theirs: Vec<String> = lost
                .iter()
                .flat_map(|one| {
                    let addresses =
                        one.old.iter().map(|text| layout.ip_address(text.parse().expect("an address")));
                    addresses.chain([service_of(one)]).collect::<Vec<_>>()
                })
                .map(|key| key.to_string())
                .collect();
            let differ = bench.differences(&store).await;
            let mut others: Vec<&String> = differ.iter().filter(|key| !theirs.contains(key)).collect();
            if bench.plan.work.era == Era::DualWrite && !others.is_empty() {
                // Their bits were freed with them.
                assert_eq!(others, ["/registry/ranges/serviceips"], "{context}");
                let before = old_bits(&bench, &bench.fresh().await).await;
                assert_eq!(old_bits(&bench, &store).await, without(&bench, &before, &lost), "{context}");
                others.clear();
            }
            assert_eq!(others, Vec::<&String>::new(), "{context}");
        }
    }
}

/// Returns the number of Services for which something was given up.
async fn settle_given_up(bench: &Bench, store: &Saboteur, guards: &[Guard]) -> usize {
    let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
    let mut journal = bench.journal(store).await;
    let given_up = given_up(&bench.plan.work, &survey, |step| journal.state(step), Constant.now());
    let count = given_up.len();
    for (steps, repair) in given_up {
        let steps = (steps.as_slice(), State::UndoDone);
        let settled =
            operation::settle(&journal.in_store(store, guards), &mut journal, steps, &repair, &Constant)
                .await;
        assert_eq!(settled.expect("a repair"), RepairOutcome::Done, "{repair:?}");
    }
    count
}

/// An API server creates the IPAddress of a Service before the Service: an IPAddress that was just created stays.
#[tokio::test]
async fn address_that_was_just_allocated_is_not_freed() {
    for bench in Bench::all().await.into_iter().filter(|bench| bench.plan.work.era != Era::Bitmap) {
        let middle = bench.plan.work.flip_stage(0);
        for until in [middle, bench.no_return()] {
            let first = &bench.plan.work.moves[bench.plan.work.batches()[0].clone()];
            let one = first.iter().find(|m| m.hold == Hold::ExternalIp).expect("such a move");
            let addresses = [one.old_address, one.new_address].map(|it| Layout::default().ip_address(it));
            for way in ["guarded", "retired", "given up"] {
                let store = bench.fresh().await;
                bench.run(&store, until).await.expect("a run");
                delete(&store, &service_of(one)).await;
                for address in &addresses {
                    set(&store, address, &[(Field::creation_timestamp(), Value::Time(Constant.now()))]).await;
                }
                let before = keys(&store, "/registry/ipaddresses/").await;
                let guard = [store.take_lock("alice@cp-1").await];
                match way {
                    "guarded" => assert_eq!(watched(&bench, &store).await.repairs, []),
                    "retired" => {
                        assert!(settle_strays(&bench, &store, &guard).await.contains(&one.subject()));
                    }
                    _ => assert_eq!(settle_given_up(&bench, &store, &guard).await, 1),
                }
                assert_eq!(keys(&store, "/registry/ipaddresses/").await, before, "{}: {way}", bench.name);
            }
        }
    }
}

/// In a rollback under dual write, the RangeAllocation has the bits of the old addresses before every Service has moved back.
/// If a Service is deleted in between, its bit is freed with it.
#[tokio::test]
async fn bit_of_service_deleted_before_it_moves_back_is_freed() {
    let bench = Bench::of("dualwrite", "10.200.0.0/16").await;
    let store = soaking(&bench).await;
    let restore = operation::StepId("restore-bitmap/10.200.0.0-16".into());
    for _ in 0..1000 {
        if bench.journal(&store).await.state(&restore) == Some(State::UndoDone) {
            break;
        }
        // An effect is two commits: its intention, and its change.
        store.arm(Sabotage::Stop(3));
        bench.unwind(&store).await.expect_err("it stops");
        store.arm(Sabotage::None);
    }
    let journal = bench.journal(&store).await;
    assert_eq!(journal.state(&restore), Some(State::UndoDone));
    let one = held_by(&bench, Hold::ExternalIp);
    assert_eq!(journal.state(&one.step("flip")), Some(State::Done), "it has yet to move back");
    let before = old_bits(&bench, &store).await;
    delete(&store, &service_of(one)).await;
    let guard = store.take_lock("alice@cp-1").await;
    assert_eq!(settle_given_up(&bench, &store, &[guard]).await, 1);
    assert_eq!(old_bits(&bench, &store).await, without(&bench, &before, &[one]));
}

/// The bits of the RangeAllocation, which has the old range.
async fn old_bits(bench: &Bench, store: &Saboteur) -> Vec<u64> {
    let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
    let bitmap = survey.address_bitmap(Family::V4).expect("a bitmap");
    assert_eq!(bitmap.cidr(), Some(bench.plan.work.from[0]));
    let capacity = Items::Addresses(bench.plan.work.from[0]).capacity();
    Bitmap::from_bytes(&bitmap.data, capacity).expect("a bitmap").iter_set().collect()
}

/// The bits without those of the old addresses of some Services, all of which must be among them.
fn without(bench: &Bench, bits: &[u64], lost: &[&Move]) -> Vec<u64> {
    let of = |one: &&Move| Items::Addresses(bench.plan.work.from[0]).bit(Item::Address(one.old_address));
    let gone: Vec<u64> = lost.iter().filter_map(of).collect();
    assert!(gone.len() == lost.len() && gone.iter().all(|bit| bits.contains(bit)));
    bits.iter().copied().filter(|bit| !gone.contains(bit)).collect()
}

/// If a Service is deleted before it moves, its shadows are deleted with it: the API server has released its old address, and
/// may allocate it to another Service.
#[tokio::test]
async fn shadows_of_deleted_unmoved_service_are_deleted() {
    let mut seen = 0;
    for bench in Bench::all().await {
        let Some(one) = bench.plan.work.moves.iter().find(|m| m.hold == Hold::Shadow && m.turn.is_any())
        else {
            continue;
        };
        let batch = bench
            .plan
            .work
            .batches()
            .iter()
            .position(|range| bench.plan.work.moves[range.clone()].contains(one));
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.flip_stage(batch.expect("a batch"))).await.expect("a run");
        assert_eq!(settle(&bench, &store).await, (vec![], vec![]), "{}", bench.name);
        delete(&store, &service_of(one)).await;
        let gone = format!("hold-given-up {}", one.subject());
        assert_eq!(settle(&bench, &store).await, (vec![gone.clone(), gone], vec![]), "{}", bench.name);
        for key in keys(&store, "/registry/services/specs/").await.keys() {
            let shadow = one.shadow.as_deref().expect("a shadow");
            assert!(
                !key.to_string().contains(&*shadow.hold_name)
                    && !key.to_string().contains(&*shadow.warm_name)
            );
        }
        seen += 1;
    }
    assert!(seen > 0, "some case has such a Service");
}

/// No shadow gets the address of a deleted Service.
#[tokio::test]
async fn shadow_gets_no_address_of_deleted_service() {
    let mut seen = 0;
    for bench in Bench::all().await {
        let Some(one) = bench.plan.work.moves.iter().find(|m| m.hold == Hold::Shadow && m.turn.is_any())
        else {
            continue;
        };
        let store = bench.fresh().await;
        delete(&store, &service_of(one)).await;
        let stopped = bench.run(&store, bench.no_return()).await.expect_err("it stops");
        assert!(stopped.step.0.starts_with("pin/"), "{}: {stopped:?}", bench.name);
        assert!(stopped.source.is_about_one_object(), "{}: {stopped:?}", bench.name);
        seen += 1;
    }
    assert!(seen > 0, "some case has such a Service");
}

/// Nothing waits for a Service at a third address: it cannot move.
#[tokio::test]
async fn service_at_third_address_does_not_block_retirement() {
    for bench in Bench::all().await {
        let one = bench.plan.work.moves.iter().find(|m| m.turn.is_any()).expect("such a move");
        let store = bench.fresh().await;
        let mut survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
        let all = verify(&bench.plan.work, &survey, |_| None).counts[0];
        let elsewhere = bench.plan.work.to.nth(bench.plan.work.to.capacity() / 2).expect("an address");
        let found = survey.services.iter_mut().find(|service| service.uid == one.uid).expect("it exists");
        for address in found.addresses.iter_mut().filter(|address| **address == one.old_address) {
            *address = elsewhere;
        }
        assert_eq!(verify(&bench.plan.work, &survey, |_| None).counts[0], all - 1, "{}", bench.name);
        let journal = bench.journal(&store).await;
        let (stray, _) =
            strays(&bench.plan.work, &survey, |step| journal.state(step), Constant.now()).remove(0);
        assert_eq!(stray, [one.step("retire")], "{}", bench.name);
        if bench.plan.work.era == Era::Bitmap {
            continue;
        }
        // Its reservation is kept until it is retired, and not repaired afterwards: nothing would free it.
        let lost = |done: &[&str]| {
            let state = |step: &operation::StepId| {
                done.iter().any(|name| *step == one.step(name)).then_some(State::Done)
            };
            let (kept, _) = kept(&bench.plan.work, &survey, state, Constant.now());
            kept.iter().filter(|it| it.repair.subject == one.subject()).count()
        };
        assert_eq!([lost(&["reserve"]), lost(&["reserve", "retire"])], [1, 0], "{}", bench.name);
    }
}
