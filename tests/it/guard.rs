//! The guard during the soak: it does nothing while every hold is in place, repairs what clients undo, once even if two guards
//! run, and never while a process holds the operation lease.

use std::borrow::Cow;

use netsurgeon::operation::{self, Ambient as _, Repair, RepairOutcome, State, repair};
use netsurgeon::renumber::guard::{Watched, watch};
use netsurgeon::renumber::verify::verify;
use netsurgeon::renumber::{Hold, Move};
use netsurgeon::store::{Action, Change, Expected, Key, ReadStore as _, Transaction, WriteStore as _};
use netsurgeon::survey::{Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::field::{FieldKind, Segment};
use netsurgeon::wire::{Field, FieldEdit, Value};

use crate::harness::{Bench, Constant, keys};
use crate::saboteur::Saboteur;

pub async fn watched(bench: &Bench, store: &Saboteur) -> Watched {
    let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
    let journal = bench.journal(store).await;
    watch(&bench.plan.work, &survey, |step| journal.state(step), Constant.now())
}

async fn carry_out(bench: &Bench, store: &Saboteur, one: &Repair) -> RepairOutcome {
    let journal = bench.journal(store).await;
    repair(store, &bench.plan.header.cluster, &journal, one, &Constant).await.expect("a repair")
}

fn codes(watched: &Watched) -> Vec<String> {
    let repairs = watched.repairs.iter().map(|one| format!("{} {}", one.code, one.subject));
    repairs.chain(watched.findings.iter().map(|found| format!("{} {}", found.code, found.subject))).collect()
}

/// Returns a store in which every Service has moved and is held.
pub async fn soaking(bench: &Bench) -> Saboteur {
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    store
}

async fn objects() -> Bench {
    Bench::of("objects", "10.200.0.0/16").await
}

pub fn held_by(bench: &Bench, hold: Hold) -> &Move {
    bench.plan.work.moves.iter().find(|m| m.hold == hold && m.turn.is_any()).expect("such a move")
}

pub fn service_of(one: &Move) -> Key {
    Layout::default().service(&one.namespace, &one.name)
}

pub fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// Changes an object as another client would.
pub async fn set(store: &Saboteur, key: &Key, fields: &[(Field, Value)]) {
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

pub async fn delete(store: &Saboteur, key: &Key) {
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

/// Repairs until nothing is left to repair; returns the repairs, and what is left.
pub async fn settle(bench: &Bench, store: &Saboteur) -> (Vec<String>, Vec<String>) {
    let mut done = Vec::new();
    for _ in 0..5 {
        let found = watched(bench, store).await;
        if found.repairs.is_empty() {
            return (done, codes(&found));
        }
        for one in &found.repairs {
            assert_eq!(carry_out(bench, store, one).await, RepairOutcome::Done, "{one:?}");
            done.push(format!("{} {}", one.code, one.subject));
        }
    }
    panic!("repairs do not end: {done:?}");
}

#[tokio::test]
async fn guard_does_nothing_without_disturbance() {
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

/// A `replace` without an address drops the hold and its policy; the repair restores every byte.
#[tokio::test]
async fn dropped_hold_is_repaired() {
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
        let record = format!("/netsurgeon/{}/loops/repaired/{}", bench.plan.header.cluster, one.subject());
        let record = store.get(&Key::from(record)).await.expect("a read").expect("a record in the journal");
        let record: serde_json::Value = serde_json::from_slice(&record.value).expect("JSON");
        assert_eq!((&record["count"], &record["last"][1][1]), (&2.into(), &"hold-put-back".into()));
        bench.unwind(&store).await.expect("a rollback");
        bench.assert_as_at_the_start(&store, "after two repairs").await;
    }
}

#[tokio::test]
async fn lost_reservation_is_recreated() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let key = Layout::default().ip_address(one.old_address);
    let store = soaking(&bench).await;
    delete(&store, &key).await;
    set(&store, &service_of(one), &dropped()).await;
    let both = ["address-kept", "hold-put-back"].map(|code| format!("{code} {}", one.subject()));
    assert_eq!(settle(&bench, &store).await, (both.to_vec(), vec![]));
    // Time passes.
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

/// `replace --force`: the Service is deleted, and cannot be recreated while its old address is reserved. Once the reservation
/// is given up, it is recreated, with any uid and address, and held again by its name.
#[tokio::test]
async fn recreated_service_is_held_by_name() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let (layout, name) = (Layout::default(), one.subject());
    let (service, old) = (service_of(one), layout.ip_address(one.old_address));
    let store = soaking(&bench).await;
    let value = store.get(&service).await.unwrap().unwrap().value;
    delete(&store, &service).await;
    assert_eq!(settle(&bench, &store).await, (vec![format!("hold-given-up {name}")], vec![]));
    assert_eq!(store.get(&old).await.unwrap(), None, "its old address is free");

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
    assert!(store.get(&old).await.unwrap().is_some(), "its old address is reserved");

    // Recreated with the old address pinned: the address is its own, and a finding reports it.
    let pinned =
        [(Field::cluster_ip(), text(&address)), (Field::cluster_ips(), Value::Texts(vec![address.clone()]))];
    set(&store, &service, &pinned).await;
    let told = format!("held-service-at-old-address Service {name}");
    assert_eq!(settle(&bench, &store).await, (vec![], vec![told]));
}

#[tokio::test]
async fn external_name_gives_up_old_address() {
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

/// A client's own decision is reported, and stays.
#[tokio::test]
async fn deliberate_client_changes_are_reported_and_kept() {
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

/// If a shadow was deleted through the API, which releases its address, the repair takes two transactions: the address first,
/// dated ahead, then the Service.
#[tokio::test]
async fn shadow_is_recreated_and_deleted_with_its_service() {
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

/// The guard does not interfere with the holder of the lease, even if it acquired the lease after the check.
#[tokio::test]
async fn guard_writes_nothing_while_lease_is_held() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let store = soaking(&bench).await;
    set(&store, &service_of(one), &dropped()).await;
    let found = watched(&bench, &store).await;
    let journal = bench.journal(&store).await;
    let cluster = &bench.plan.header.cluster;
    let attempt =
        async || repair(&store, cluster, &journal, &found.repairs[0], &Constant).await.expect("a repair");

    let lock = Key::from(format!("/netsurgeon/{cluster}/lock"));
    commit(&store, &lock, Expected::Absent, Action::Put(b"{}".to_vec())).await;
    let before = keys(&store, "/").await;
    assert_eq!(attempt().await, RepairOutcome::Locked);
    assert_eq!(keys(&store, "/").await, before);
    delete(&store, &lock).await;

    // Between check and repair the client changes the Service again: its change is not overwritten.
    set(&store, &service_of(one), &[(Field::label("release"), text("2026.4"))]).await;
    assert_eq!(attempt().await, RepairOutcome::Stale);
    let again = watched(&bench, &store).await;
    // Or the client restores the hold itself, and the whole operation is rolled back.
    let held = Value::Texts(vec![one.old_address.to_string()]);
    let put_back = [(Field::external_ips(), held), (Field::external_traffic_policy(), text("Local"))];
    set(&store, &service_of(one), &put_back).await;
    assert_eq!(bench.unwind(&store).await.expect("a rollback").stuck, []);
    let before = keys(&store, "/").await;
    for late in &again.repairs {
        assert_eq!(
            repair(&store, cluster, &journal, late, &Constant).await.expect("a repair"),
            RepairOutcome::Stale
        );
    }
    assert_eq!(keys(&store, "/").await, before);
    assert_eq!(watched(&bench, &store).await, Watched::default(), "an operation in rollback needs no guard");
}

/// Of two guards with the same repair one makes it.
#[tokio::test]
async fn two_guards_repair_once() {
    let bench = objects().await;
    let one = held_by(&bench, Hold::ExternalIp);
    let store = soaking(&bench).await;
    set(&store, &service_of(one), &dropped()).await;
    let (first, second) = (watched(&bench, &store).await, watched(&bench, &store).await);
    assert_eq!(carry_out(&bench, &store, &first.repairs[0]).await, RepairOutcome::Done);
    assert_eq!(carry_out(&bench, &store, &second.repairs[0]).await, RepairOutcome::Stale);
}

/// A rollback that could not move a Service back leaves its hold to the guard.
#[tokio::test]
async fn hold_is_kept_after_stuck_rollback() {
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
        assert_eq!(found.repairs.iter().map(|one| one.code).collect::<Vec<_>>(), expected, "{state:?}");
    }
}
