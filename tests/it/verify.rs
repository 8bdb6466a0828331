//! `renumber verify`: no findings on a renumbering that matches its journal, wherever it stops, and clear findings about the
//! changes of other clients.

use netsurgeon::renumber::verify::{Verified, verify};
use netsurgeon::renumber::{Hold, Move, drift};
use netsurgeon::store::Key;
use netsurgeon::survey::{Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::objects::MANAGED_BY;
use netsurgeon::wire::{Field, FieldEdit, Value};

use crate::harness::{Bench, keys};
use crate::saboteur::{Sabotage, Saboteur};

async fn verified(bench: &Bench, store: &Saboteur) -> Verified {
    let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
    let journal = bench.journal(store).await;
    verify(&bench.plan.work, &survey, |step| journal.state(step))
}

fn codes(verified: &Verified) -> Vec<String> {
    verified.findings.iter().map(|finding| format!("{} {}", finding.code, finding.subject)).collect()
}

#[tokio::test]
async fn undisturbed_renumbering_has_no_findings() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        let moves = bench.plan.work.moves.len();
        let stages = netsurgeon::operation::Work::stages(&bench.plan.work).len();
        let mut phases = Vec::new();
        for until in 0..=stages {
            bench.run(&store, Some(until)).await.expect("a run");
            let found = verified(&bench, &store).await;
            assert_eq!(codes(&found), Vec::<String>::new(), "{}, before stage {until}", bench.name);
            assert_eq!(found.counts.iter().sum::<usize>(), moves);
            phases.push(found.counts);
        }
        assert_eq!(phases.first(), Some(&[moves, 0, 0]), "{}", bench.name);
        assert!(phases.contains(&[0, moves, 0]), "{}: {phases:?}", bench.name);
        assert_eq!(phases.last(), Some(&[0, 0, moves]), "{}", bench.name);
    }
}

/// The same for a rollback, after any number of the steps of a stage.
#[tokio::test]
async fn undisturbed_rollback_has_no_findings() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        bench.run(&store, bench.no_return()).await.expect("a run");
        loop {
            store.arm(Sabotage::Stop(4));
            let stopped = bench.unwind(&store).await.err();
            store.arm(Sabotage::None);
            let found = verified(&bench, &store).await;
            assert_eq!(codes(&found), Vec::<String>::new(), "{}, at {stopped:?}", bench.name);
            if stopped.is_none() {
                assert_eq!(found.counts, [bench.plan.work.moves.len(), 0, 0]);
                break;
            }
        }
    }
}

/// Changes one object of a store in which everything has moved and is held.
async fn found_after(bench: &Bench, key: Key, edits: &[(Field, Value)]) -> Vec<String> {
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    let value = keys(&store, "/registry/").await.remove(&key).unwrap_or_else(|| panic!("no `{key}`"));
    let edits: Vec<FieldEdit> = edits
        .iter()
        .map(|(field, value)| FieldEdit { field: field.clone(), change: FieldChange::Set(value.clone()) })
        .collect();
    store.meddle(&key, edit::apply(&value, &edits).expect("an edit")).await;
    codes(&verified(bench, &store).await)
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[tokio::test]
async fn changes_of_other_clients_are_reported() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let layout = Layout::default();
    let held_by = |hold: Hold| -> &Move {
        bench.plan.work.moves.iter().find(|m| m.hold == hold && m.turn.is_any()).expect("such a move")
    };
    let one = held_by(Hold::ExternalIp);
    let (service, old, new) = (
        layout.service(&one.namespace, &one.name),
        layout.ip_address(one.old_address),
        layout.ip_address(one.new_address),
    );
    let about = |code: &str| vec![format!("{code} Service {}", one.subject())];
    let dropped = [(Field::external_ips(), Value::Absent), (Field::external_traffic_policy(), Value::Absent)];
    assert_eq!(found_after(&bench, service.clone(), &dropped).await, about("hold-missing"));
    let policy = [(Field::external_traffic_policy(), text("Cluster"))];
    assert_eq!(found_after(&bench, service.clone(), &policy).await, about("hold-masquerades"));
    let recreated = [(Field::uid(), text("another"))];
    assert_eq!(found_after(&bench, service.clone(), &recreated).await, about("moved-service-gone"));
    let both = Value::Texts(vec![one.new_address.to_string(), "fd00:96::77".to_string()]);
    let dual_stack = [(Field::cluster_ips(), both)];
    assert_eq!(found_after(&bench, service.clone(), &dual_stack).await, Vec::<String>::new());
    let elsewhere = [
        (Field::cluster_ip(), text("10.200.77.77")),
        (Field::cluster_ips(), Value::Texts(vec!["10.200.77.77".into()])),
    ];
    assert_eq!(found_after(&bench, service, &elsewhere).await, about("moved-service-elsewhere"));
    for (key, address) in [(old, one.old_address), (new, one.new_address)] {
        let stolen = [(Field::label(MANAGED_BY), text("another"))];
        let told = found_after(&bench, key, &stolen).await;
        assert_eq!(told, [format!("moved-address-unprotected IPAddress {address}")]);
    }
    let other = held_by(Hold::Shadow);
    let shadow = other.shadow.as_ref().expect("a shadow");
    let key = layout.service(&other.namespace, &shadow.hold_name);
    let told = found_after(&bench, key, &elsewhere_for_shadow()).await;
    assert_eq!(told, [format!("hold-missing Service {}", other.subject())]);
}

fn elsewhere_for_shadow() -> [(Field, Value); 2] {
    [
        (Field::cluster_ip(), text("10.200.77.78")),
        (Field::cluster_ips(), Value::Texts(vec!["10.200.77.78".into()])),
    ]
}

/// Shadows hold addresses of the old range: they belong to the plan, and are not new Services.
#[tokio::test]
async fn shadow_is_not_a_new_service() {
    let mut shadows = 0;
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.soak_stage()).await.expect("a run");
        let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
        shadows += survey.services.iter().filter(|service| service.is_labelled_ours()).count();
        let newcomers = drift::compare(&bench.plan.work, &survey).newcomers;
        assert_eq!(newcomers, Vec::<String>::new(), "{}", bench.name);
    }
    assert!(shadows > 0, "some case has a shadow");
}
