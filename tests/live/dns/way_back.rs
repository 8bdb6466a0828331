//! A rollback takes the names home whatever other servers do: a secondary that is dead or no longer receives changes, a resolver
//! that does not answer, and a name that the primary refuses to change.

use std::time::{Duration, Instant};

use netsurgeon::nameserver::{RecordKind, RecordSet, SetChange};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::interval;

use super::{KEY, NEW, OLD, PATIENCE, PRIMARY, RESOLVER, SECONDARY, TTL, World, ZONE, hosts, server};
use crate::rig::bind::{NameServer, zone_file};
use crate::rig::process::wait_until;
use crate::rig::run::says;
use crate::rig::shifted_clock::shift;
use crate::serving_cluster::{Watched, command, run};

fn said(program: &Watched) -> String {
    program.err.lock().unwrap().join("\n")
}

fn shown(program: &Watched) -> Value {
    let out = program.out.lock().unwrap().join("\n");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{}", said(program)))
}

/// Starts a server at the address of the secondary that has the records of the mirror, and never receives changes.
async fn start_stuck(names: &[&str]) -> NameServer {
    let records = names.iter().map(|name| format!("{name} 2 IN A {NEW}\n")).collect::<Vec<_>>().concat();
    let file = zone_file(ZONE, "ns1", [PRIMARY, SECONDARY], &records);
    let zone = format!("zone \"{ZONE}\" {{ type primary; file \"zone\"; }};");
    NameServer::start(SECONDARY.parse().expect("an address"), "recursion no;", &zone, &[("zone", &file)])
        .await
}

#[tokio::test]
async fn rollback_does_not_depend_on_other_servers() {
    let names = ["www", "api"];
    let mut world = World::start(&names, &[]).await;
    let before = world.records().await;
    let plan = world.plan("");
    let first =
        world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(0).json();
    let operation = first["operation"].as_str().expect("an id").to_owned();
    world.secondary.stop();
    let stuck = start_stuck(&names).await;
    world.resolver.stop();

    let words = format!("dns rollback {operation} --yes -o json");
    let mut program = Watched::start(world.command(&words));
    wait_until("the primary has the old records", PATIENCE, async || {
        let found = [world.addresses("www").await, world.addresses("api").await];
        let are_old = found.iter().all(|(data, ttl)| data == &[OLD.to_owned()] && *ttl == TTL);
        match program.ended() {
            None if are_old => Ok(()),
            ended => Err(format!("{found:?}, ended: {ended:?}, {}", said(&program))),
        }
    })
    .await;
    assert_eq!(program.end().await, 3, "{}", said(&program));
    let back = shown(&program);
    assert_eq!(back["status"], "rolled-back");
    let unconfirmed: Vec<&str> =
        back["unconfirmed"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let [secondary, resolver] = unconfirmed[..] else { panic!("{unconfirmed:?}") };
    assert!(secondary.contains("`ns2.example.test` serves") && secondary.contains(NEW), "{secondary}");
    assert!(resolver.contains(RESOLVER), "{resolver}");
    says(&said(&program), &["not confirmed yet: ", "`ns2.example.test`"]);
    let again = format!("netsurgeon dns rollback {operation}");
    says(&said(&program), &["not confirmed: ", "`ns2.example.test`", &again]);
    assert_eq!(world.records().await, before);
    says(&world.netsurgeon(&format!("dns status {operation}")).err, &["`ns2.example.test`", &again]);

    drop(stuck);
    // With an empty zone it asks for a transfer at once.
    world.secondary.start_empty("zone").await;
    world.resolver.start_again().await;
    let confirmed = world.netsurgeon(&words).expect(0).json();
    assert_eq!(confirmed["unconfirmed"], serde_json::json!([]));
    let nothing = world.netsurgeon(&words).expect(0);
    says(&nothing.err, &["already rolled back"]);
}

/// The primary refuses to change one of the names, forward and back.
#[tokio::test]
async fn refused_name_does_not_stop_the_others() {
    let mut world = World::start(&["www", "api", "docs"], &[]).await;
    let before = world.records().await;
    let plan = world.plan("");
    world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes")).expect(0);
    let (allowed, denied) = (
        format!("update-policy {{ grant {} zonesub ANY; }}", KEY.0),
        format!("update-policy {{ deny {} name api.{ZONE} ANY; grant {} zonesub ANY; }}", KEY.0, KEY.0),
    );
    world.primary.start_with(&allowed, &denied).await;
    let done = world.netsurgeon("dns cutover --stage 2 --yes -o json").expect(3);
    says(&done.err, &[&format!("share-100/api.{ZONE}"), "REFUSED"]);
    assert_eq!(world.addresses("www").await.0, [NEW]);
    assert_eq!(world.addresses("api").await.0, [OLD, NEW]);
    let operation = done.json()["operation"].as_str().expect("an id").to_owned();

    let words = format!("dns rollback {operation} --yes -o json");
    let back = world.netsurgeon(&words).expect(3);
    says(&back.err, &[&format!("share-50/api.{ZONE}"), "REFUSED"]);
    assert_eq!(back.json()["status"], "stuck");
    for host in ["www", "docs"] {
        assert_eq!(world.addresses(host).await, (vec![OLD.to_owned()], TTL), "{host}");
    }
    assert_eq!(world.addresses("api").await.0, [OLD, NEW]);
    world.primary.start_with(&denied, &allowed).await;
    world.netsurgeon(&words).expect(0);
    assert_eq!(world.records().await, before);
}

/// The primary notifies the secondary at most every five seconds, as BIND does by default, and other clients change the zone all
/// the time. So the secondary always has an older version of the zone, and all records of the names.
#[tokio::test]
async fn cutover_runs_while_other_clients_change_the_zone() {
    let world = World::start_under(&["www"], &hosts(&["www"], TTL), "notify-delay 5;").await;
    let plan = world.plan("");
    let mut program = Watched::start(command(
        &world.cluster,
        &format!("dns cutover --plan {plan} --stage 1 --yes -o json"),
    ));
    let changes = async {
        let mut tick = interval(Duration::from_millis(100));
        let mut from: Option<RecordSet> = None;
        for number in 0_u32.. {
            tick.tick().await;
            let to = Some(RecordSet::new(
                format!("noise.{ZONE}"),
                RecordKind::A,
                60,
                vec![format!("192.0.2.{}", number % 250)],
            ));
            let change = SetChange { from: from.take(), to: to.clone() };
            server().replace(ZONE, &[change]).await.expect("an update");
            from = to;
        }
    };
    let code = tokio::select! {
        () = changes => unreachable!("it has no end"),
        code = program.end() => code,
    };
    assert_eq!(code, 0, "{}", said(&program));
    assert_eq!(world.addresses("www").await.0, [OLD, NEW]);
}

/// Caches can get the old TTL from the secondary until the secondary has the lowered TTL. A process on a machine whose clock is
/// ahead continues the wait, and does not cut it.
#[tokio::test]
async fn old_ttls_are_dropped_only_after_no_server_has_them() {
    let ttl = 20;
    let mut world = World::start_under(&["www"], &hosts(&["www"], ttl), "notify no;").await;
    let plan = world.plan("");
    let words = format!("dns cutover --plan {plan} --stage 1 --yes --lock-ttl 2 --take-over");
    let mut program = Watched::start(world.command(&words));
    wait_until("the cutover waits for the secondary", PATIENCE, async || match program.ended() {
        None if said(&program).contains("`ns2.example.test` serves") => Ok(()),
        ended => Err(format!("ended: {ended:?}, {}", said(&program))),
    })
    .await;
    assert_eq!(world.addresses("www").await, (vec![OLD.to_owned()], 2), "the TTL is lowered");
    assert!(!steps(&world).contains(&"caches".to_owned()), "{:?}", steps(&world));
    world.secondary.start_empty("zone").await;
    wait_until("the caches drop the old TTL", PATIENCE, async || {
        let steps = steps(&world);
        if steps.contains(&"caches".to_owned()) { Ok(()) } else { Err(format!("{steps:?}")) }
    })
    .await;
    let begun = Instant::now();
    program.signal(Signal::KILL);
    program.end().await;
    let mut ahead = world.command(&words);
    shift(&mut ahead, &world.workspace, 250);
    let mut program = Watched::start(ahead);
    wait_until("the name moves", PATIENCE, async || {
        let found = world.addresses("www").await.0;
        if found == [OLD, NEW] {
            Ok(())
        } else {
            Err(format!("{found:?}, {:?}, {}", program.ended(), said(&program)))
        }
    })
    .await;
    assert!(begun.elapsed() >= Duration::from_secs(u64::from(ttl) / 2), "{:?}", begun.elapsed());
    program.signal(Signal::KILL);
}

fn steps(world: &World) -> Vec<String> {
    let shown = world.netsurgeon("operation show -o json").expect(0).json();
    let steps = shown["steps"].as_array().expect("steps").iter();
    steps.map(|step| step["step"].as_str().expect("an id").to_owned()).collect()
}

/// Deletes the ConfigMaps of all records, or those whose name contains a text.
async fn delete_records(world: &World, of: &str) {
    let path = "/api/v1/namespaces/netsurgeon/configmaps";
    let mut deleted = 0;
    for item in world.cluster.api.list(&format!("{path}?labelSelector=netsurgeon.io/part")).await {
        let name = item["metadata"]["name"].as_str().expect("a name");
        if name.contains(of) {
            world.cluster.api.delete(&format!("{path}/{name}")).await;
            deleted += 1;
        }
    }
    assert!(deleted > 0, "there is a record");
}

/// Another client deletes the record of a cutover. The plan and the zone are enough to go back.
#[tokio::test]
async fn cutover_whose_record_is_deleted_is_rolled_back_with_its_plan() {
    let world = World::start(&["www", "api", "docs"], &[]).await;
    let before = world.records().await;
    let plan = world.plan("");
    world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes")).expect(0);
    delete_records(&world, "").await;
    let refused = world.netsurgeon("dns rollback --yes").expect(1);
    says(&refused.err, &["no cutover of this cluster is under way"]);
    says(&refused.err, &["`netsurgeon dns rollback --plan FILE`"]);
    let foreign = RecordSet::new(format!("docs.{ZONE}"), RecordKind::A, 60, vec!["192.0.2.99".into()]);
    let present = RecordSet::new(format!("docs.{ZONE}"), RecordKind::A, 2, vec![OLD.into(), NEW.into()]);
    let edit = SetChange { from: Some(present.clone()), to: Some(foreign.clone()) };
    server().replace(ZONE, &[edit]).await.expect("an update");

    // The names are at a stage, so this is no start.
    let refused = world.netsurgeon(&format!("dns cutover --plan {plan} --stage 2 --yes")).expect(1);
    says(&refused.err, &["error: 2 names have the records of a stage of this plan"]);
    says(&refused.err, &["`netsurgeon dns rollback --plan FILE`"]);
    let words = format!("dns rollback --plan {plan} --yes -o json");
    let back = world.netsurgeon(&words).expect(3);
    says(&back.err, &["no usable journal"]);
    says(&back.err, &["another client changed the records"]);
    let back = back.json();
    assert_eq!((&back["status"], &back["names"][0]["shares"]["A"]), (&"stuck".into(), &0.into()));
    for host in ["www", "api"] {
        assert_eq!(world.addresses(host).await, (vec![OLD.to_owned()], TTL), "{host}");
    }
    assert_eq!(world.addresses("docs").await, (vec!["192.0.2.99".to_owned()], 60));
    let operation = back["operation"].as_str().expect("an id").to_owned();
    let status = world.netsurgeon(&format!("dns status {operation}"));
    says(&status.out, &["an unknown share"]);

    // The same command continues the rollback that it started.
    let edit = SetChange { from: Some(foreign), to: Some(present) };
    server().replace(ZONE, &[edit]).await.expect("an update");
    // The plan on the command line names the key file.
    let mut command = world.command(&words);
    command.env_remove("NETSURGEON_TSIG_KEY_FILE");
    let again = run(&words, command).expect(0).json();
    assert_eq!((&again["operation"], &again["status"]), (&operation.into(), &"rolled-back".into()));
    assert_eq!(world.records().await, before);
    says(&world.netsurgeon(&words).expect(0).err, &["every name already has its old records"]);
}

/// The ids of the operations with a record in the cluster.
async fn operations(world: &World) -> Vec<String> {
    let path = "/api/v1/namespaces/netsurgeon/configmaps?labelSelector=netsurgeon.io/part=head";
    let heads = world.cluster.api.list(path).await;
    heads.iter().map(|head| head["data"]["operation"].as_str().expect("an id").to_owned()).collect()
}

/// Part of a record is missing. What is left must not decide which names go back.
#[tokio::test]
async fn cutover_with_a_damaged_record_is_rolled_back_with_its_plan() {
    let world = World::start(&["www", "api"], &[]).await;
    let before = world.records().await;
    let plan = world.plan("");
    for (stages, part) in [("--stage 1", "-records-"), ("--all", "-plan-")] {
        world.netsurgeon(&format!("dns cutover --plan {plan} {stages} --yes")).expect(0);
        delete_records(&world, part).await;
        says(
            &world.netsurgeon("dns rollback --yes").expect(1).err,
            &["`netsurgeon dns rollback --plan FILE`"],
        );
        let damaged = world.netsurgeon(&format!("dns rollback --plan {plan} --yes -o json")).expect(0);
        says(&damaged.err, &["cannot be used"]);
        assert_eq!(damaged.json()["status"], "rolled-back");
        assert_eq!(world.records().await, before, "{part}");
        for operation in operations(&world).await {
            world.netsurgeon(&format!("operation forget {operation} --yes")).expect(0);
        }
        assert_eq!(operations(&world).await, Vec::<String>::new());
    }
}
