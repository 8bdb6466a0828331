//! Clients keep using the cluster while it is renumbered. Their changes survive a rollback. Their changes of the addresses
//! themselves stay, with everything that those addresses need.

use std::borrow::Cow;

use netsurgeon::ip::{Item, Items};
use netsurgeon::operation::{OperationError, State};
use netsurgeon::renumber::{Hold, Move};
use netsurgeon::store::Key;
use netsurgeon::survey::{Era, Layout};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::field::{FieldKind, Segment};
use netsurgeon::wire::{Field, FieldEdit, Value};

use crate::harness::{Bench, Settings, keys};
use crate::saboteur::{Sabotage, Saboteur};

fn field(path: &[(u32, &'static str)], entry: Option<&str>) -> Field {
    let mut path: Vec<Segment> =
        path.iter().map(|(number, name)| Segment::Member(*number, Cow::Borrowed(*name))).collect();
    path.extend(entry.map(|entry| Segment::Entry(entry.to_string())));
    Field { path, kind: FieldKind::Text }
}

fn set(field: Field, text: &str) -> FieldEdit {
    FieldEdit { field, change: FieldChange::Set(Value::Text(text.into())) }
}

/// A label, a selector and a port, as a deployment would change them; the port only where there is one and the value is
/// protobuf, for which these edits can name it.
fn changes(json: bool) -> Vec<FieldEdit> {
    let mut changes = vec![
        set(Field::label("release"), "2026.3"),
        set(field(&[(2, "spec"), (2, "selector")], Some("app")), "web-next"),
        set(field(&[(2, "spec"), (2, "selector")], Some("zone")), "b"),
    ];
    if !json {
        changes.push(set(field(&[(2, "spec"), (1, "ports"), (1, "name")], None), "http-next"));
    }
    changes
}

fn key_of(candidate: &Move) -> Key {
    Layout::default().service(&candidate.namespace, &candidate.name)
}

async fn change(store: &Saboteur, key: &Key, edits: &[FieldEdit]) {
    let value = keys(store, "/registry/").await.remove(key).expect("it exists");
    store.meddle(key, edit::apply(&value, edits).expect("an edit")).await;
}

#[tokio::test]
async fn rollback_keeps_changes_of_other_clients() {
    for mut bench in Bench::all_ways().await {
        // Held by external IP, and by shadow.
        for subject in ["shop/web", "shop/checkout"] {
            let store = bench.fresh().await;
            bench.run(&store, bench.no_return()).await.expect("a run");
            let Some(candidate) = bench.plan.work.moves.iter().find(|m| m.subject() == subject) else {
                continue;
            };
            let key = key_of(candidate);
            let edits = changes(bench.name.starts_with("json"));
            change(&store, &key, &edits).await;
            let report = bench.unwind(&store).await.expect("a rollback");
            assert_eq!(report.stuck, [], "{}", bench.name);
            let was = bench.before[&key].clone();
            bench.before.insert(key.clone(), edit::apply(&was, &edits).expect("an edit"));
            bench.assert_as_at_the_start(&store, subject).await;
            bench.before.insert(key, was);
        }
    }
}

/// No step depends on the records of kubeadm: if another client has changed or deleted them, everything else is rolled back.
#[tokio::test]
async fn changed_kubeadm_record_does_not_stop_rollback() {
    let key = Layout::default().kubelet_config();
    let mut tried = 0;
    for mut bench in Bench::all_ways().await {
        if !bench.plan.work.records.iter().any(|record| record.config_map == "kubelet-config") {
            continue;
        }
        for is_gone in [false, true] {
            let store = bench.fresh().await;
            bench.run(&store, bench.no_return()).await.expect("a run");
            let was = bench.before.remove(&key).expect("it existed");
            if is_gone {
                store.delete(&key).await;
            } else {
                let other = set(Field::config_map_entry("kubelet"), "clusterDNS: [169.254.20.10]\n");
                change(&store, &key, std::slice::from_ref(&other)).await;
                bench.before.insert(key.clone(), edit::apply(&was, &[other]).expect("an edit"));
            }
            let report = bench.unwind(&store).await.expect("a rollback");
            let stuck: Vec<&str> = report.stuck.iter().map(|stuck| stuck.step.kind()).collect();
            assert_eq!(stuck, ["record"], "{}", bench.name);
            bench.assert_as_at_the_start(&store, "a record").await;
            bench.before.insert(key.clone(), was);
            tried += 1;
        }
    }
    assert!(tried > 0, "a fixture has the record");
}

/// A Service is deleted in the middle: with `max_failures` set, all others complete.
#[tokio::test]
async fn deleted_service_is_skipped_forward() {
    for bench in Bench::all_ways().await {
        let (work, parallel) = (&bench.plan.work, bench.settings.parallel);
        let moves = &work.moves[work.batches()[0].clone()];
        let candidate = moves.last().expect("a batch has moves");
        let flip = format!("flip/{}", candidate.subject());
        let store = bench.fresh().await;
        bench.run(&store, work.flip_stage(0)).await.expect("a run");
        store.delete(&key_of(candidate)).await;
        let failure = bench.run(&store, bench.no_return()).await.expect_err("no failure is allowed");
        assert!(failure.source.is_about_one_object(), "{}: {failure}", bench.name);
        let lenient = bench.with(Settings { max_failures: 1, parallel, ..Settings::default() });
        let report = lenient.run(&store, bench.no_return()).await.expect("a run");
        let stuck: Vec<String> = report.stuck.iter().map(|stuck| stuck.step.to_string()).collect();
        assert_eq!(stuck, std::slice::from_ref(&flip), "{}", bench.name);
        let states = bench.states(&store).await;
        for (step, state) in states.iter().filter(|(step, _)| step.starts_with("flip/")) {
            let wanted = if *step == flip { State::Failed } else { State::Done };
            assert_eq!(*state, Some(wanted), "{}: {step}", bench.name);
        }
        // The skipped Service may stay so; a second one exceeds `max_failures`.
        let other = key_of(work.moves.iter().find(|m| m.subject() != candidate.subject()).expect("another"));
        store.delete(&other).await;
        bench.run(&store, None).await.expect_err("a second failure is not allowed");
        lenient.run(&store, None).await.expect("one failure more is allowed");
    }
}

/// The Service stays as it is, and so does everything that its addresses need: holds, reservations, the range.
#[tokio::test]
async fn rollback_skips_service_with_changed_address() {
    for bench in Bench::all_ways().await {
        for hold in [Hold::ExternalIp, Hold::Shadow] {
            let Some(candidate) = bench.plan.work.moves.iter().find(|m| m.hold == hold) else { continue };
            let store = bench.fresh().await;
            bench.run(&store, bench.no_return()).await.expect("a run");
            let key = key_of(candidate);
            let theirs = FieldEdit {
                field: Field::external_ips(),
                change: FieldChange::Set(Value::Texts(vec!["198.51.100.9".into()])),
            };
            let their_address = set(Field::cluster_ip(), "10.222.0.1");
            let edit = if hold == Hold::ExternalIp { theirs } else { their_address };
            change(&store, &key, &[edit]).await;
            let held = keys(&store, "/registry/").await;
            let report = bench.unwind(&store).await.expect("a rollback");
            let context = format!("{}, {}", bench.name, candidate.subject());
            assert!(!report.stuck.is_empty(), "{context}");
            for stuck in &report.stuck {
                assert!(stuck.step.to_string().ends_with(&candidate.subject()), "{context}: {stuck:?}");
            }
            assert_left_alone(&bench, &store, candidate, &held).await;
            // Every further rollback has the same result.
            let once = keys(&store, "/registry/").await;
            let again = bench.unwind(&store).await.expect("a second rollback");
            assert_eq!(again.stuck.len(), report.stuck.len(), "{context}: {again:?}");
            assert_eq!(keys(&store, "/registry/").await, once, "{context}");
            // Once the client has reverted its change, the rollback can be completed.
            store.meddle(&key, held_before(&bench, candidate).await).await;
            let last = bench.unwind(&store).await.expect("a last rollback");
            assert_eq!(last.stuck, [], "{context}");
            bench.assert_as_at_the_start(&store, &context).await;
        }
    }
}

/// The moved Service as the operation left it.
async fn held_before(bench: &Bench, candidate: &Move) -> Vec<u8> {
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    keys(&store, "/registry/").await.remove(&key_of(candidate)).expect("it exists")
}

async fn assert_left_alone(bench: &Bench, store: &Saboteur, candidate: &Move, held: &crate::harness::Keys) {
    let layout = Layout::default();
    let after = keys(store, "/registry/").await;
    let mut its = vec![
        key_of(candidate),
        layout.ip_address(candidate.old_address),
        layout.ip_address(candidate.new_address),
    ];
    its.extend(candidate.shadow.iter().map(|s| layout.service(&candidate.namespace, &s.hold_name)));
    for key in &its {
        assert_eq!(after.get(key), held.get(key), "{}: `{key}` is not changed", bench.name);
    }
    for other in bench.plan.work.moves.iter().filter(|m| m.subject() != candidate.subject()) {
        let key = key_of(other);
        assert_eq!(after.get(&key), bench.before.get(&key), "{}: `{key}` is rolled back", bench.name);
    }
}

#[tokio::test]
async fn recreated_service_is_not_moved() {
    for bench in Bench::all_ways().await {
        let candidate = &bench.plan.work.moves[0];
        let store = bench.fresh().await;
        let uid = set(Field::uid(), "11111111-2222-4333-8444-555555555555");
        change(&store, &key_of(candidate), &[uid]).await;
        let failure = bench.run(&store, None).await.expect_err("another Service");
        assert!(matches!(failure.source, OperationError::Changed { .. }), "{failure}");
        assert!(failure.to_string().contains(&candidate.subject()), "{failure}");
        let states = bench.states(&store).await;
        let started = states.values().filter(|state| **state == Some(State::Started)).count();
        assert_eq!(started, 0, "{}: started steps are finished", bench.name);
        let report = bench.unwind(&store).await.expect("a rollback");
        assert_eq!(report.stuck, [], "{}", bench.name);
    }
}

/// An API server that is paused while it creates a Service may treat it as a failed creation, and release its address although
/// the Service exists: the temporary address of a shadow is free before the operation frees it.
#[tokio::test]
async fn early_released_temporary_address_does_not_stop_operation() {
    let mut tried = Vec::new();
    for bench in Bench::all_ways().await {
        let work = &bench.plan.work;
        // Under dual write the bitmap has the new range only when sweeps run.
        let is_meant = |m: &&Move| m.shadow.is_some() && (work.era != Era::DualWrite || m.sweep > 0);
        let Some(candidate) = work.moves.iter().find(is_meant) else { continue };
        let shadow = candidate.shadow.as_ref().expect("it has one");
        let temporary = shadow.temporary[0];
        let store = between(&bench, &format!("{}/{}", candidate.namespace, shadow.hold_name)).await;
        if work.era != Era::Objects {
            let items = Items::Addresses(work.to);
            let bit = items.bit(Item::Address(temporary)).expect("it is in the range");
            let key = Layout::default().range(&work.bitmap.as_ref().expect("a bitmap").name);
            let clear = FieldChange::Bits { capacity: items.capacity(), set: Vec::new(), clear: vec![bit] };
            change(&store, &key, &[FieldEdit { field: Field::data(), change: clear }]).await;
        }
        if work.era != Era::Bitmap {
            store.delete(&Layout::default().ip_address(temporary)).await;
        }
        bench.run(&store, bench.no_return()).await.expect("a run");
        bench.unwind(&store).await.expect("a rollback");
        bench.assert_as_at_the_start(&store, "released too early").await;
        tried.push(work.era);
    }
    assert!([Era::Bitmap, Era::DualWrite, Era::Objects].iter().all(|era| tried.contains(era)), "{tried:?}");
}

/// A store in which a run was cut off after a shadow was created, and before its temporary address was freed.
async fn between(bench: &Bench, shadow: &str) -> Saboteur {
    let freed = if bench.plan.work.era == Era::Bitmap { "give-address" } else { "free-temporary" };
    for commit in 1.. {
        let store = bench.fresh().await;
        store.arm(Sabotage::Stop(commit));
        bench.run(&store, bench.no_return()).await.expect_err("it stops at the commit");
        let states = bench.states(&store).await;
        let state = |kind: &str| states.get(&format!("{kind}/{shadow}")).copied().flatten();
        assert_eq!(state(freed), None, "{}: a commit between the two is missed", bench.name);
        if state("make-shadow") == Some(State::Done) {
            store.arm(Sabotage::None);
            return store;
        }
    }
    unreachable!("one commit is the last one")
}
