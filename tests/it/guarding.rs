//! The soak's guard: silent while everything stands, and what clients undo is put right, once, by whoever comes
//! first, and never while somebody carries the operation out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use netsurgeon::ip::{Family, Item, Items};
use netsurgeon::operation::{self, Ambient as _, Mend, Mended, State, Work as _, mend};
use netsurgeon::renumber::dates::kept;
use netsurgeon::renumber::guard::{Watched, given_up, strays, watch};
use netsurgeon::renumber::verify::verify;
use netsurgeon::renumber::{Hold, Move};
use netsurgeon::store::{Action, Change, Expected, Guard, Key, ReadStore as _, Transaction, WriteStore as _};
use netsurgeon::survey::{Era, Layout, Survey};
use netsurgeon::wire::bitmap::Bitmap;
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::field::{FieldKind, Segment};
use netsurgeon::wire::{Field, FieldEdit, Value};

use crate::harness::{Bench, Constant, keys};
use crate::saboteur::{Fault, Saboteur};

async fn watched(bench: &Bench, store: &Saboteur) -> Watched {
    let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
    let journal = bench.journal(store).await;
    watch(&bench.plan.work, &survey, |step| journal.state(step), Constant.now())
}

async fn carry_out(bench: &Bench, store: &Saboteur, one: &Mend) -> Mended {
    let journal = bench.journal(store).await;
    mend(store, &bench.plan.header.cluster, &journal, one, &Constant).await.expect("a mend")
}

fn codes(watched: &Watched) -> Vec<String> {
    let mends = watched.mends.iter().map(|one| format!("{} {}", one.code, one.subject));
    mends.chain(watched.findings.iter().map(|found| format!("{} {}", found.code, found.subject))).collect()
}

/// Everything has moved and is held.
async fn soaking(bench: &Bench) -> Saboteur {
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    store
}

async fn objects() -> Bench {
    Bench::of("objects", "10.200.0.0/16").await
}

fn held_by(bench: &Bench, hold: Hold) -> &Move {
    bench.plan.work.moves.iter().find(|m| m.hold == hold && m.turn.is_any()).expect("such a move")
}

fn service_of(one: &Move) -> Key {
    Layout::default().service(&one.namespace, &one.name)
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// Changes an object as somebody else would.
async fn set(store: &Saboteur, key: &Key, fields: &[(Field, Value)]) {
    let value = store.get(key).await.expect("a read").unwrap_or_else(|| panic!("no `{key}`")).value;
    let edits: Vec<FieldEdit> = fields
        .iter()
        .map(|(field, value)| FieldEdit { field: field.clone(), change: FieldChange::Set(value.clone()) })
        .collect();
    store.meddle(key, edit::apply(&value, &edits).expect("an edit")).await;
}

async fn commit(store: &Saboteur, key: &Key, expected: Expected, action: Action) {
    let change = Change { key: key.clone(), expected, action };
    store.commit(&Transaction { guards: Vec::new(), changes: vec![change] }).await.expect("a commit");
}

async fn delete(store: &Saboteur, key: &Key) {
    let entry = store.get(key).await.expect("a read").unwrap_or_else(|| panic!("no `{key}`"));
    commit(store, key, Expected::At(entry.mod_revision), Action::Delete).await;
}

fn dropped() -> [(Field, Value); 2] {
    [(Field::external_ips(), Value::Absent), (Field::external_traffic_policy(), Value::Absent)]
}

fn kind() -> Field {
    let path = [(2, "spec"), (4, "type")].map(|(number, name)| Segment::Member(number, Cow::Borrowed(name)));
    Field { path: path.to_vec(), kind: FieldKind::Text }
}

/// Mends until there is nothing more; returns what was done and what is left.
async fn settle(bench: &Bench, store: &Saboteur) -> (Vec<String>, Vec<String>) {
    let mut done = Vec::new();
    for _ in 0..5 {
        let found = watched(bench, store).await;
        if found.mends.is_empty() {
            return (done, codes(&found));
        }
        for one in &found.mends {
            assert_eq!(carry_out(bench, store, one).await, Mended::Done, "{one:?}");
            done.push(format!("{} {}", one.code, one.subject));
        }
    }
    panic!("there is no end to it: {done:?}");
}

#[tokio::test]
async fn nothing_is_done_wherever_a_renumbering_stops() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        let stages = netsurgeon::operation::Work::stages(&bench.plan.work).len();
        let mut most = 0;
        for until in 0..=stages {
            bench.run(&store, Some(until)).await.expect("a run");
            let found = watched(&bench, &store).await;
            assert_eq!(codes(&found), Vec::<String>::new(), "{}, before stage {until}", bench.name);
            most = most.max(found.held);
        }
        assert_eq!(most, bench.plan.work.moves.len(), "{}", bench.name);
        assert_eq!(watched(&bench, &store).await.held, 0, "{}: retired", bench.name);
    }
}

/// A `replace` without an address drops the hold and its policy; what comes back is what was there, to the byte.
#[tokio::test]
async fn a_dropped_hold_comes_back() {
    for bench in Bench::all().await {
        let one = held_by(&bench, Hold::ExternalIp);
        let store = soaking(&bench).await;
        let before = keys(&store, "/registry/").await;
        set(&store, &service_of(one), &dropped()).await;
        assert_eq!(settle(&bench, &store).await, (vec![format!("hold-put-back {}", one.subject())], vec![]));
        assert_eq!(keys(&store, "/registry/").await, before, "{}", bench.name);
        set(&store, &service_of(one), &[(Field::external_traffic_policy(), text("Cluster"))]).await;
        settle(&bench, &store).await;
        assert_eq!(keys(&store, "/registry/").await, before, "{}", bench.name);
        let record = format!("/netsurgeon/{}/loops/mended/{}", bench.plan.header.cluster, one.subject());
        let record = store.get(&Key::from(record)).await.expect("a read").expect("it is in the journal");
        let record: serde_json::Value = serde_json::from_slice(&record.value).expect("JSON");
        assert_eq!((&record["count"], &record["last"][1][1]), (&2.into(), &"hold-put-back".into()));
        bench.unwind(&store).await.expect("a rollback");
        bench.assert_as_at_the_start(&store, "after two mends").await;
    }
}

#[tokio::test]
async fn a_lost_reservation_is_made_again() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let key = Layout::default().ip_address(one.old_address);
    let store = soaking(&bench).await;
    delete(&store, &key).await;
    set(&store, &service_of(one), &dropped()).await;
    let both = ["address-kept", "hold-put-back"].map(|code| format!("{code} {}", one.subject()));
    assert_eq!(settle(&bench, &store).await, (both.to_vec(), vec![]));
    // Time goes by.
    set(&store, &key, &[(Field::creation_timestamp(), Value::Time(Constant.now()))]).await;
    assert_eq!(settle(&bench, &store).await, (vec![format!("address-kept {}", one.subject())], vec![]));
    let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
    let journal = bench.journal(&store).await;
    let verified = verify(&bench.plan.work, &survey, |step| journal.state(step));
    assert_eq!(verified.findings, []);
    set(&store, &key, &[(Field::parent_name(), text("thief"))]).await;
    let about = ["kept", "held"].map(|what| format!("{what}-address-taken Service {}", one.subject()));
    assert_eq!(settle(&bench, &store).await, (vec![], about.to_vec()));
}

/// `replace --force`: deleted, refused because of our reservation, and after that is given up made again, by
/// whichever uid and address; then held again by its name.
#[tokio::test]
async fn a_service_that_is_gone_frees_its_old_address_and_is_held_again_by_name() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let (layout, name) = (Layout::default(), one.subject());
    let (service, old) = (service_of(one), layout.ip_address(one.old_address));
    let store = soaking(&bench).await;
    let value = store.get(&service).await.unwrap().unwrap().value;
    delete(&store, &service).await;
    assert_eq!(settle(&bench, &store).await, (vec![format!("hold-given-up {name}")], vec![]));
    assert_eq!(store.get(&old).await.unwrap(), None, "it can be made anew at its old address");

    commit(&store, &service, Expected::Absent, Action::Put(value)).await;
    let elsewhere = [
        (Field::uid(), text("another")),
        (Field::cluster_ip(), text("10.96.77.77")),
        (Field::cluster_ips(), Value::Texts(vec!["10.96.77.77".into()])),
    ];
    set(&store, &service, &elsewhere).await;
    set(&store, &service, &dropped()).await;
    let both = ["address-kept", "hold-by-name"].map(|code| format!("{code} {name}"));
    assert_eq!(settle(&bench, &store).await, (both.to_vec(), vec![]));
    let held = store.get(&service).await.unwrap().unwrap().value;
    let address = one.old_address.to_string();
    assert_eq!(edit::read(&held, &Field::external_ips()).unwrap(), Value::Texts(vec![address.clone()]));
    assert!(store.get(&old).await.unwrap().is_some(), "and reserved");

    // Made anew with the old address pinned: it is its own, and somebody must know.
    let pinned =
        [(Field::cluster_ip(), text(&address)), (Field::cluster_ips(), Value::Texts(vec![address.clone()]))];
    set(&store, &service, &pinned).await;
    let told = format!("held-service-at-old-address Service {name}");
    assert_eq!(settle(&bench, &store).await, (vec![], vec![told]));
}

#[tokio::test]
async fn an_external_name_gives_its_old_address_up() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let store = soaking(&bench).await;
    let named = [
        (kind(), text("ExternalName")),
        (Field::cluster_ip(), Value::Absent),
        (Field::cluster_ips(), Value::Absent),
    ];
    set(&store, &service_of(one), &named).await;
    assert_eq!(settle(&bench, &store).await, (vec![format!("hold-given-up {}", one.subject())], vec![]));
    assert_eq!(store.get(&Layout::default().ip_address(one.old_address)).await.unwrap(), None);
}

/// What a client has decided otherwise is named, and stays.
#[tokio::test]
async fn what_a_client_wants_is_left_alone() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let told = |code: &str| (Vec::<String>::new(), vec![format!("{code} Service {}", one.subject())]);
    let own = (Field::external_ips(), Value::Texts(vec!["203.0.113.7".into()]));
    let policy = (Field::external_traffic_policy(), text("Cluster"));
    for (code, changes) in
        [("hold-missing", vec![own]), ("hold-masquerades", vec![(kind(), text("NodePort")), policy])]
    {
        let store = soaking(&bench).await;
        set(&store, &service_of(one), &changes).await;
        let before = keys(&store, "/").await;
        assert_eq!(settle(&bench, &store).await, told(code), "{changes:?}");
        assert_eq!(keys(&store, "/").await, before, "nothing is written");
    }
    let store = soaking(&bench).await;
    let elsewhere = Value::Texts(vec!["10.200.77.77".into()]);
    set(
        &store,
        &service_of(one),
        &[(Field::cluster_ip(), text("10.200.77.77")), (Field::cluster_ips(), elsewhere)],
    )
    .await;
    assert_eq!(settle(&bench, &store).await, told("moved-service-elsewhere"));
}

/// A shadow that was deleted through the API, which releases its address, comes back in two transactions: the
/// address first, dated ahead, then the Service.
#[tokio::test]
async fn a_shadow_comes_back_and_goes_with_its_service() {
    for bench in Bench::all().await {
        let Some(one) = bench.plan.work.moves.iter().find(|m| m.hold == Hold::Shadow) else { continue };
        let shadow = one.shadow.as_ref().expect("a shadow");
        let (layout, store) = (Layout::default(), soaking(&bench).await);
        let (key, old) =
            (layout.service(&one.namespace, &shadow.hold_name), layout.ip_address(one.old_address));
        let with_objects = store.get(&old).await.unwrap().is_some();
        delete(&store, &key).await;
        if with_objects {
            delete(&store, &old).await;
        }
        let (done, left) = settle(&bench, &store).await;
        assert_eq!(done.len(), 1 + usize::from(with_objects), "{}: {done:?}", bench.name);
        assert_eq!(left, Vec::<String>::new(), "{}", bench.name);
        let survey = Survey::read(&store, &layout, None).await.expect("a survey");
        let journal = bench.journal(&store).await;
        let verified = verify(&bench.plan.work, &survey, |step| journal.state(step));
        assert_eq!(verified.findings, [], "{}", bench.name);

        delete(&store, &service_of(one)).await;
        assert_eq!(settle(&bench, &store).await.0, [format!("hold-given-up {}", one.subject())]);
        assert_eq!(store.get(&key).await.unwrap(), None, "{}", bench.name);
        assert_eq!(store.get(&old).await.unwrap(), None, "{}", bench.name);
    }
}

/// Whoever carries the operation out, even if he came after the look, is not interfered with.
#[tokio::test]
async fn nothing_is_written_while_somebody_is_at_work_or_things_move() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let store = soaking(&bench).await;
    set(&store, &service_of(one), &dropped()).await;
    let found = watched(&bench, &store).await;
    let journal = bench.journal(&store).await;
    let cluster = &bench.plan.header.cluster;
    let attempt = async || mend(&store, cluster, &journal, &found.mends[0], &Constant).await.expect("a mend");

    let lock = Key::from(format!("/netsurgeon/{cluster}/lock"));
    commit(&store, &lock, Expected::Absent, Action::Put(b"{}".to_vec())).await;
    let before = keys(&store, "/").await;
    assert_eq!(attempt().await, Mended::Locked);
    assert_eq!(keys(&store, "/").await, before);
    delete(&store, &lock).await;

    // Between look and mend the client comes again: its change is not overwritten unseen.
    set(&store, &service_of(one), &[(Field::label("release"), text("2026.4"))]).await;
    assert_eq!(attempt().await, Mended::Moved);
    let again = watched(&bench, &store).await;
    // Or the client puts it back itself, and the whole operation is undone.
    let held = Value::Texts(vec![one.old_address.to_string()]);
    let put_back = [(Field::external_ips(), held), (Field::external_traffic_policy(), text("Local"))];
    set(&store, &service_of(one), &put_back).await;
    assert_eq!(bench.unwind(&store).await.expect("a rollback").stuck, []);
    let before = keys(&store, "/").await;
    for late in &again.mends {
        assert_eq!(mend(&store, cluster, &journal, late, &Constant).await.expect("a mend"), Mended::Moved);
    }
    assert_eq!(keys(&store, "/").await, before);
    assert_eq!(watched(&bench, &store).await, Watched::default(), "what is being undone is left alone");
}

/// Two guards mend the same thing once.
#[tokio::test]
async fn two_guards_mend_once() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let store = soaking(&bench).await;
    set(&store, &service_of(one), &dropped()).await;
    let (first, second) = (watched(&bench, &store).await, watched(&bench, &store).await);
    assert_eq!(carry_out(&bench, &store, &first.mends[0]).await, Mended::Done);
    assert_eq!(carry_out(&bench, &store, &second.mends[0]).await, Mended::Moved);
}

/// Retires what belongs to nobody any more, as `renumber retire` does first.
/// Settles until there is nothing any more, and returns whose it was.
async fn settle_strays(bench: &Bench, store: &Saboteur, guards: &[Guard]) -> BTreeSet<String> {
    let mut subjects = BTreeSet::new();
    loop {
        let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
        let mut journal = bench.journal(store).await;
        let found = strays(&bench.plan.work, &survey, |step| journal.state(step));
        if found.is_empty() {
            return subjects;
        }
        for (step, one) in found {
            let steps = (step.as_slice(), State::Done);
            let settled = operation::settle(store, &mut journal, steps, &one, guards, &Constant).await;
            assert_eq!(settled.expect("it is settled"), Mended::Done);
            subjects.insert(one.subject);
        }
    }
}

/// Services that are gone, or were made anew, do not keep the rest from being retired, and nothing of theirs is
/// left.
#[tokio::test]
async fn a_week_of_deletions_can_be_retired() {
    for bench in Bench::all().await {
        let layout = Layout::default();
        let [gone, anew] = [0, 1].map(|index| {
            let mut by_itself =
                bench.plan.work.moves.iter().filter(|m| m.hold == Hold::ExternalIp && m.turn.is_any());
            by_itself.nth(index).expect("such a move")
        });
        let shadowed = bench.plan.work.moves.iter().find(|m| m.hold == Hold::Shadow);
        let store = soaking(&bench).await;
        for one in [Some(gone), shadowed].into_iter().flatten() {
            delete(&store, &service_of(one)).await;
        }
        set(&store, &service_of(anew), &[(Field::uid(), text("another"))]).await;
        let guard = store.take_lock("alice@cp-1").await;
        let expected: BTreeSet<String> =
            [Some(gone), Some(anew), shadowed].into_iter().flatten().map(Move::subject).collect();
        assert_eq!(settle_strays(&bench, &store, &[guard]).await, expected, "{}", bench.name);
        bench.run(&store, None).await.expect("the rest is retired");
        let left = keys(&store, "/registry/").await;
        for one in [Some(gone), Some(anew), shadowed].into_iter().flatten() {
            assert!(!left.contains_key(&layout.ip_address(one.old_address)), "{}", one.subject());
        }
        let is_shadow = |key: &Key| key.to_string().contains("/netsurgeon-hold-");
        assert!(!left.keys().any(is_shadow), "{}", bench.name);
        let value = &left[&service_of(anew)];
        for field in [Field::external_ips(), Field::external_traffic_policy()] {
            assert_eq!(edit::read(value, &field).unwrap(), Value::Absent, "{}", bench.name);
        }
    }
}

/// Services that are gone, or were made anew, do not keep the rest from going back, and nothing of theirs is left;
/// wherever the operation stands.
#[tokio::test]
async fn what_is_gone_is_given_up_on_the_way_back() {
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
                // Through the API, which releases the addresses that it has.
                let has = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
                let has = has.services.into_iter().find(|s| s.uid == one.uid).expect("it is there");
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
                // Their bits went with them.
                assert_eq!(others, ["/registry/ranges/serviceips"], "{context}");
                let before = old_bits(&bench, &bench.fresh().await).await;
                assert_eq!(old_bits(&bench, &store).await, without(&bench, &before, &lost), "{context}");
                others.clear();
            }
            assert_eq!(others, Vec::<&String>::new(), "{context}");
        }
    }
}

/// Returns of how many Services something was given up.
async fn settle_given_up(bench: &Bench, store: &Saboteur, guards: &[Guard]) -> usize {
    let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
    let mut journal = bench.journal(store).await;
    let given_up = given_up(&bench.plan.work, &survey, |step| journal.state(step));
    let count = given_up.len();
    for (steps, mend) in given_up {
        let steps = (steps.as_slice(), State::UndoDone);
        let settled = operation::settle(store, &mut journal, steps, &mend, guards, &Constant).await;
        assert_eq!(settled.expect("it can be settled"), Mended::Done, "{mend:?}");
    }
    count
}

/// A rollback that could not move a Service back leaves its hold to the guard.
#[tokio::test]
async fn a_hold_is_kept_where_a_rollback_is_stuck() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let store = soaking(&bench).await;
    set(&store, &service_of(one), &dropped()).await;
    let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
    let journal = bench.journal(&store).await;
    for state in [State::UndoFailed, State::UndoStarted, State::UndoDone] {
        let of = |step: &operation::StepId| {
            if *step == one.step("flip") { Some(state) } else { journal.state(step) }
        };
        let found = watch(&bench.plan.work, &survey, of, Constant.now());
        let expected: &[&str] = if state.is_in_force() { &["hold-put-back"] } else { &[] };
        assert_eq!(found.mends.iter().map(|one| one.code).collect::<Vec<_>>(), expected, "{state:?}");
    }
}

/// Shadows that have their addresses go with a Service that is deleted before it moves: the API server has released its old
/// address, and may allocate it to another one.
#[tokio::test]
async fn shadows_of_a_service_that_never_moved_go_with_it() {
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
    assert!(seen > 0, "there are such Services");
}

/// No shadow is given an address that is not its Service's any more.
#[tokio::test]
async fn a_shadow_gets_no_address_of_a_service_that_is_gone() {
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
    assert!(seen > 0, "there are such Services");
}

/// One that has yet another address is not waited for: it cannot move.
#[tokio::test]
async fn a_service_at_another_address_keeps_nobody_waiting() {
    for bench in Bench::all().await {
        let one = bench.plan.work.moves.iter().find(|m| m.turn.is_any()).expect("such a move");
        let store = bench.fresh().await;
        let mut survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
        let all = verify(&bench.plan.work, &survey, |_| None).counts[0];
        let elsewhere = bench.plan.work.to.nth(bench.plan.work.to.capacity() / 2).expect("an address");
        let found = survey.services.iter_mut().find(|service| service.uid == one.uid).expect("it is there");
        for address in found.addresses.iter_mut().filter(|address| **address == one.old_address) {
            *address = elsewhere;
        }
        assert_eq!(verify(&bench.plan.work, &survey, |_| None).counts[0], all - 1, "{}", bench.name);
        let journal = bench.journal(&store).await;
        let (stray, _) = strays(&bench.plan.work, &survey, |step| journal.state(step)).remove(0);
        assert_eq!(stray, [one.step("retire")], "{}", bench.name);
        if bench.plan.work.era == Era::Bitmap {
            continue;
        }
        // What is reserved for it is kept until then, and not reserved again afterwards: nobody would free it.
        let lost = |done: &[&str]| {
            let state = |step: &operation::StepId| {
                done.iter().any(|name| *step == one.step(name)).then_some(State::Done)
            };
            let (kept, _) = kept(&bench.plan.work, &survey, state, Constant.now());
            kept.iter().filter(|it| it.mend.subject == one.subject()).count()
        };
        assert_eq!([lost(&["reserve"]), lost(&["reserve", "retire"])], [1, 0], "{}", bench.name);
    }
}

/// On the way back under dual write the RangeAllocation has the bits of the old addresses before every Service has its own:
/// that of one which is deleted in between goes with it.
#[tokio::test]
async fn the_bit_of_a_service_that_is_deleted_before_it_moves_back_is_freed() {
    let bench = Bench::of("dualwrite", "10.200.0.0/16").await;
    let store = soaking(&bench).await;
    let restore = operation::StepId("restore-bitmap/10.200.0.0-16".into());
    for _ in 0..1000 {
        if bench.journal(&store).await.state(&restore) == Some(State::UndoDone) {
            break;
        }
        store.arm(Fault::Stop(2));
        bench.unwind(&store).await.expect_err("it stops");
        store.arm(Fault::None);
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

/// The same without those of the old addresses of some Services, all of which are among them.
fn without(bench: &Bench, bits: &[u64], lost: &[&Move]) -> Vec<u64> {
    let of = |one: &&Move| Items::Addresses(bench.plan.work.from[0]).bit(Item::Address(one.old_address));
    let gone: Vec<u64> = lost.iter().filter_map(of).collect();
    assert!(gone.len() == lost.len() && gone.iter().all(|bit| bits.contains(bit)));
    bits.iter().copied().filter(|bit| !gone.contains(bit)).collect()
}
