//! Services that change between the plan and their move: which moves are planned again, and how; all others are not.

use netsurgeon::operation::{RepairOutcome, State, StepId, repair, settle};
use netsurgeon::renumber::replan::{Replanned, replan};
use netsurgeon::renumber::reserved_bits::{reserve_again, reserved};
use netsurgeon::renumber::sweep::Sweep;
use netsurgeon::renumber::{Hold, Move, Turn};
use netsurgeon::store::ReadStore as _;
use netsurgeon::survey::{Era, Layout, ServiceRecord, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit, Value};

use crate::harness::{Bench, Constant};
use crate::saboteur::{Sabotage, Saboteur};

async fn survey(store: &Saboteur) -> Survey {
    Survey::read(store, &Layout::default(), None).await.expect("a survey")
}

async fn replanned(bench: &Bench, store: &Saboteur, survey: &Survey) -> Vec<Replanned> {
    let journal = bench.journal(store).await;
    let (again, refused) = replan(&bench.plan.work, survey, false, |step| journal.state(step));
    assert!(refused.is_empty(), "{}: {refused:?}", bench.name);
    again
}

fn service<'s>(survey: &'s mut Survey, of: &Move) -> &'s mut ServiceRecord {
    survey.services.iter_mut().find(|service| service.uid == of.uid).expect("it exists")
}

/// A move of the first batch with this hold.
fn one(bench: &Bench, hold: Hold) -> Option<&Move> {
    let batch = bench.plan.work.batches().into_iter().next().expect("a batch");
    bench.plan.work.moves[batch].iter().find(|candidate| candidate.hold == hold)
}

/// Runs up to the flips of the first batch.
async fn before_the_flip(bench: &Bench) -> Saboteur {
    let store = bench.fresh().await;
    bench.run(&store, bench.plan.work.flip_stage(0)).await.expect("a run");
    store
}

#[tokio::test]
async fn unchanged_services_are_not_replanned() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        for until in 0..=bench.no_return().expect("an end") {
            bench.run(&store, Some(until)).await.expect("a run");
            let found = replanned(&bench, &store, &survey(&store).await).await;
            assert_eq!(found, [], "{}, before stage {until}", bench.name);
        }
        loop {
            store.arm(Sabotage::Stop(7));
            let stopped = bench.unwind(&store).await.err();
            store.arm(Sabotage::None);
            let found = replanned(&bench, &store, &survey(&store).await).await;
            assert_eq!(found, [], "{}, during the rollback, at {stopped:?}", bench.name);
            if stopped.is_none() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn service_with_own_external_ips_gets_shadow() {
    let mut seen = 0;
    for bench in Bench::all().await {
        let Some(moved) = one(&bench, Hold::ExternalIp) else { continue };
        let store = before_the_flip(&bench).await;
        let mut survey = survey(&store).await;
        service(&mut survey, moved).spec.external_ips.push("203.0.113.7".into());
        let found = replanned(&bench, &store, &survey).await;
        let [again] = found.as_slice() else { panic!("{}: {found:?}", bench.name) };
        assert_eq!((again.made.hold, again.made.new_address), (Hold::Shadow, moved.new_address));
        let shadow = again.made.shadow.as_deref().expect("a shadow");
        let [hold, warm] = shadow.temporary;
        assert!(hold != warm && bench.plan.work.to.contains(hold) && bench.plan.work.to.contains(warm));
        assert_eq!(again.steps, [moved.step("prewarm")]);
        seen += 1;
    }
    assert!(seen > 0, "some case has such a Service");
}

#[tokio::test]
async fn taken_new_address_is_replaced_and_dns_records_follow() {
    let mut followed = 0;
    for bench in Bench::all().await.into_iter().filter(|bench| bench.plan.work.era == Era::Bitmap) {
        let store = before_the_flip(&bench).await;
        let last = bench.plan.work.moves.iter().find(|candidate| candidate.turn == Turn::ClusterDns);
        let Some(dns) = last else { continue };
        let mut survey = survey(&store).await;
        let mut other = survey.services[0].clone();
        (other.name, other.uid) = ("other".into(), "11111111-0000-0000-0000-000000000000".into());
        other.addresses = vec![dns.new_address];
        survey.services.push(other);
        let found = replanned(&bench, &store, &survey).await;
        let [again] = found.as_slice() else { panic!("{}: {found:?}", bench.name) };
        let (former, address) = (dns.new_address.to_string(), again.made.new_address.to_string());
        assert_ne!(former, address);
        assert!(again.why.contains(&format!("`{former}` was allocated to Service `")), "{}", again.why);
        let mut work = bench.plan.work.clone();
        work.amend(Sweep { found: Vec::new(), again: vec![again.made.clone()] });
        assert_eq!(work.amendments, bench.plan.work.amendments + 1);
        assert_eq!(work.moves.len(), bench.plan.work.moves.len());
        assert!(work.records.iter().all(|record| record.after != former), "{:?}", work.records);
        followed += work.records.iter().filter(|record| record.after == address).count();
    }
    assert!(followed > 0, "the records of kubelets follow");
}

#[tokio::test]
async fn service_at_another_old_address_is_replanned() {
    for bench in Bench::all().await {
        let Some(moved) = one(&bench, Hold::ExternalIp) else { continue };
        let store = before_the_flip(&bench).await;
        for (range, is_again) in [(bench.plan.work.from[0], true), (bench.plan.work.to, false)] {
            let mut survey = survey(&store).await;
            let address = range.nth(range.capacity() / 2).expect("an address");
            let found = service(&mut survey, moved);
            found.addresses.retain(|other| *other != moved.old_address);
            found.addresses.insert(0, address);
            let text = |one: &std::net::IpAddr| one.to_string().as_str().into();
            found.spec.cluster_ips = found.addresses.iter().map(text).collect();
            found.spec.cluster_ip = found.spec.cluster_ips.first().cloned();
            let found = replanned(&bench, &store, &survey).await;
            assert_eq!(found.len(), usize::from(is_again), "{}: {found:?}", bench.name);
            for again in found {
                let old: Vec<_> = again.made.old.iter().map(ToString::to_string).collect();
                let new: Vec<_> = again.made.new.iter().map(ToString::to_string).collect();
                assert_eq!(again.made.old_address, address);
                assert!(old.contains(&address.to_string()), "{old:?}");
                assert!(new.contains(&moved.new_address.to_string()), "{new:?}");
            }
        }
    }
}

#[tokio::test]
async fn deleted_shadow_is_recreated() {
    let mut seen = 0;
    for bench in Bench::all().await {
        let Some(moved) = one(&bench, Hold::Shadow) else { continue };
        let store = before_the_flip(&bench).await;
        let mut survey = survey(&store).await;
        let name = &moved.shadow.as_deref().expect("a shadow").hold_name;
        survey.services.retain(|service| service.name != name.as_str());
        let found = replanned(&bench, &store, &survey).await;
        let [again] = found.as_slice() else { panic!("{}: {found:?}", bench.name) };
        let steps =
            ["make-shadow", "give-address"].map(|step| StepId(format!("{step}/{}/{name}", moved.namespace)));
        assert_eq!(again.steps, steps, "{}", bench.name);
        let journal = bench.journal(&store).await;
        assert!(steps.iter().all(|step| journal.state(step) == Some(State::Done)));
        // A deletion through the API has released the address, which belongs to the Service.
        survey.addresses.retain(|object| object.address != Some(moved.old_address));
        let found = replanned(&bench, &store, &survey).await;
        let address = Layout::default().ip_address(moved.old_address);
        let is_recreated = found[0].repair.swap.edits.iter().any(|edit| edit.key == address);
        assert_eq!(is_recreated, bench.plan.work.era != Era::Bitmap, "{}", bench.name);
        seen += 1;
    }
    assert!(seen > 0, "some case has such a Service");
}

#[tokio::test]
async fn shadow_deleted_before_its_address_was_set_is_recreated() {
    let mut seen = 0;
    for bench in Bench::all().await {
        let Some(moved) = one(&bench, Hold::Shadow) else { continue };
        let store = before_the_flip(&bench).await;
        let mut survey = survey(&store).await;
        let name = &moved.shadow.as_deref().expect("a shadow").hold_name;
        survey.services.retain(|service| service.name != name.as_str());
        let steps =
            ["make-shadow", "give-address"].map(|step| StepId(format!("{step}/{}/{name}", moved.namespace)));
        let journal = bench.journal(&store).await;
        for (state, back) in [(None, false), (Some(State::UndoDone), false), (None, true)] {
            let of = |step: &StepId| if *step == steps[1] { state } else { journal.state(step) };
            let (found, _) = replan(&bench.plan.work, &survey, back, of);
            let expected = if state.is_none() && !back { &steps[..1] } else { &[] };
            let again = found.iter().flat_map(|again| &again.steps).collect::<Vec<_>>();
            assert_eq!(again, expected.iter().collect::<Vec<_>>(), "{}, {state:?}, {back}", bench.name);
        }
        seen += 1;
    }
    assert!(seen > 0, "some case has such a Service");
}

/// What its owner added stays, and the Service moves back: its new address replaces the old one in the list, and is removed
/// when the step that added it cannot be rolled back in the usual way.
#[tokio::test]
async fn hold_changed_by_its_owner_is_rolled_back() {
    let text = |text: &str| Value::Text(text.into());
    for bench in Bench::all().await {
        let Some(moved) = one(&bench, Hold::ExternalIp) else { continue };
        let (old, new) = (moved.old_address.to_string(), moved.new_address.to_string());
        let own = "203.0.113.7".to_string();
        for (listed, policy, expected) in [
            (vec![old.clone(), own.clone()], "Local", vec![new.clone(), own.clone()]),
            (vec![own.clone()], "Cluster", vec![own.clone(), new.clone()]),
            (vec![], "", vec![new.clone()]),
        ] {
            let store = bench.fresh().await;
            bench.run(&store, bench.no_return()).await.expect("a run");
            let key = Layout::default().service(&moved.namespace, &moved.name);
            let value = store.get(&key).await.expect("a read").expect("it exists").value;
            let policy = if policy.is_empty() { Value::Absent } else { text(policy) };
            let set = |field, value| FieldEdit { field, change: FieldChange::Set(value) };
            let edits = [
                set(Field::external_ips(), Value::texts(&listed)),
                set(Field::external_traffic_policy(), policy),
            ];
            store.meddle(&key, edit::apply(&value, &edits).expect("an edit")).await;
            let journal = bench.journal(&store).await;
            let (found, _) =
                replan(&bench.plan.work, &survey(&store).await, true, |step| journal.state(step));
            let [again] = found.as_slice() else { panic!("{}: {found:?}", bench.name) };
            assert_eq!(again.steps, [moved.step("flip")], "{}", bench.name);
            let cluster = &bench.plan.header.cluster;
            let repaired =
                repair(&store, cluster, &journal, &again.repair, &Constant).await.expect("a repair");
            assert_eq!(repaired, RepairOutcome::Done, "{}", bench.name);
            let value = store.get(&key).await.expect("a read").expect("it exists").value;
            let read = |field: Field| edit::read(&value, &field).expect("a field");
            assert_eq!(read(Field::cluster_ip()), text(moved.old[0].as_str()), "{}", bench.name);
            assert_eq!(read(Field::external_ips()), Value::texts(&expected), "{}", bench.name);
            // The new address stays routed, for clients that know it, until the rollback of the step that added it has failed.
            let mut again = Vec::new();
            for state in [State::Done, State::UndoFailed] {
                let of = |step: &StepId| match step {
                    step if *step == moved.step("flip") => Some(State::UndoDone),
                    step if *step == moved.step("prewarm") => Some(state),
                    step => journal.state(step),
                };
                let (found, _) = replan(&bench.plan.work, &survey(&store).await, true, of);
                again.push(found.iter().flat_map(|again| again.steps.clone()).collect::<Vec<_>>());
            }
            let last = if expected == [new.clone()] { vec![] } else { vec![moved.step("prewarm")] };
            assert_eq!(again, [vec![], last], "{}", bench.name);
        }
    }
}

/// A Service that has become a NodePort Service needs its traffic policy: only the added address is removed.
#[tokio::test]
async fn rollback_keeps_policy_of_service_that_changed_type() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let moved = bench.plan.work.moves.iter().find(|one| one.hold == Hold::ExternalIp && one.turn.is_any());
    let moved = moved.expect("such a move");
    let store = bench.fresh().await;
    bench.run(&store, bench.no_return()).await.expect("a run");
    let key = Layout::default().service(&moved.namespace, &moved.name);
    let value = store.get(&key).await.expect("a read").expect("it exists").value;
    let kind =
        FieldEdit { field: Field::service_type(), change: FieldChange::Set(Value::Text("NodePort".into())) };
    store.meddle(&key, edit::apply(&value, &[kind]).expect("an edit")).await;
    for _ in 0..2 {
        let mut journal = bench.journal(&store).await;
        let (found, _) = replan(&bench.plan.work, &survey(&store).await, true, |step| journal.state(step));
        for again in &found {
            let steps = (again.steps.as_slice(), State::UndoDone);
            let settled =
                settle(&journal.in_store(&store, &[]), &mut journal, steps, &again.repair, &Constant).await;
            assert_eq!(settled.expect("a change"), RepairOutcome::Done);
        }
        bench.unwind(&store).await.expect("a rollback");
    }
    let (found, _) = replan(&bench.plan.work, &survey(&store).await, true, |_| Some(State::UndoDone));
    assert_eq!(found, []);
    let value = store.get(&key).await.expect("a read").expect("it exists").value;
    let read = |field: Field| edit::read(&value, &field).expect("a field");
    assert_eq!(read(Field::cluster_ip()), Value::Text(moved.old[0].to_string()));
    assert_eq!(
        (read(Field::external_ips()), read(Field::service_type())),
        (Value::Absent, Value::Text("NodePort".into()))
    );
    assert_eq!(read(Field::external_traffic_policy()), Value::Text("Local".into()));
}

/// A deleted Service does not need its bit any more: any Service may have it.
#[tokio::test]
async fn bit_of_deleted_service_may_be_allocated_to_another() {
    let bench = Bench::of("bitmap", "10.200.0.0/16").await;
    let store = before_the_flip(&bench).await;
    let journal = bench.journal(&store).await;
    let reserved = reserved(&bench.plan.work, |step| journal.state(step));
    let moved = *reserved.iter().find(|one| one.turn.is_any()).expect("such a move");
    let mut survey = survey(&store).await;
    let mut other = service(&mut survey, moved).clone();
    (other.name, other.uid) = ("other".into(), "11111111-0000-0000-0000-000000000000".into());
    other.addresses = vec![moved.new_address];
    survey.services.push(other);
    assert!(reserve_again(&bench.plan.work, &survey, &reserved).is_err(), "two Services have the address");
    survey.services.retain(|service| service.uid != moved.uid);
    assert_eq!(reserve_again(&bench.plan.work, &survey, &reserved), Ok(None));
}
