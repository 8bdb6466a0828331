//! Names that cannot move: the mirror does not serve them, or another client changed them. The others move.

use netsurgeon::nameserver::{RecordKind, RecordSet, SetChange};
use serde_json::{Value, json};

use super::{DOWN, NEW, OLD, PATIENCE, TTL, World, ZONE, hosts, server};
use crate::rig::balancer::Behaviour;
use crate::rig::process::wait_until;
use crate::rig::run::says;
use crate::serving_cluster::{Watched, command};

const NAMES: [&str; 5] = ["www", "status", "hang", "shown", "down"];

fn reasons(shown: &Value) -> Vec<String> {
    let skipped = shown["skipped"].as_array().expect("a list").iter();
    skipped.map(|reason| reason.as_str().expect("a text").to_owned()).collect()
}

#[tokio::test]
async fn name_that_the_mirror_does_not_serve_is_not_moved() {
    let world = World::start(&NAMES, &["down"]).await;
    let plan = world.plan("--force probes");
    let host = |name: &str| format!("{name}.{ZONE}");
    world.new.behaves(&host("status"), Behaviour::Answers(500));
    world.new.behaves(&host("hang"), Behaviour::Hangs);
    world.new.behaves(&host("shown"), Behaviour::ShowsAnotherCertificate);
    let ran = world.netsurgeon(&format!("dns cutover --plan {plan} --all --yes -o json")).expect(3);
    let shown = ran.json();
    let reasons = reasons(&shown);
    for (name, reason) in [
        ("status", "HTTP status 500"),
        ("hang", " 5 s"),
        ("shown", "the certificate does not cover `shown.example.test`; it covers `default.local`"),
        ("down", "Connection refused"),
    ] {
        let found = reasons.iter().find(|text| text.contains(&host(name))).expect("it is skipped");
        assert!(found.contains(reason), "{found}");
        assert_eq!(world.addresses(name).await, (vec![OLD.to_owned()], 2), "{name}: only its TTL is lowered");
    }
    assert_eq!((reasons.len(), &shown["status"]), (4, &"paused".into()));
    assert_eq!(world.addresses("www").await, (vec![NEW.to_owned()], TTL));

    for name in ["status", "hang", "shown"] {
        world.new.behaves(&host(name), Behaviour::Serves);
    }
    let next = shown["next"].as_str().expect("a command").strip_prefix("netsurgeon ").expect("a command");
    let again = world.netsurgeon(&format!("{next} --yes -o json")).expect(3).json();
    assert_eq!(reasons_of(&again), [host("down")], "the others are retried");
    assert_eq!(world.addresses("hang").await, (vec![NEW.to_owned()], TTL));
    assert!(again["skipped"][0].as_str().expect("a text").contains(DOWN));
    let without =
        again["give_up"].as_str().expect("a command").strip_prefix("netsurgeon ").expect("a command");
    let done = world.netsurgeon(&format!("{without} --yes -o json")).expect(0).json();
    let given_up = |shown: &Value| shown["given_up"][0]["subject"].clone();
    assert_eq!((&done["status"], given_up(&done)), (&json!("done"), json!(host("down"))));
    assert_eq!(world.addresses("down").await, (vec![OLD.to_owned()], 2), "its records stay as they are");
    // The records are still those that netsurgeon wrote, so a rollback restores them, too.
    let operation = done["operation"].as_str().expect("an id");
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    for name in NAMES {
        assert_eq!(world.addresses(name).await, (vec![OLD.to_owned()], TTL), "{name}");
    }
}

/// A stage that moves no name does not wait for its soak.
#[tokio::test]
async fn stage_whose_names_are_all_skipped_does_not_soak() {
    let world = World::start(&["www"], &[]).await;
    let plan = world.plan("");
    let host = format!("www.{ZONE}");
    world.new.behaves(&host, Behaviour::Answers(500));
    let ran = world.netsurgeon(&format!("dns cutover --plan {plan} --all --yes")).expect(5);
    says(&ran.err, &["every name of this stage was skipped", &format!("`{host}`: "), "HTTP status 500"]);
    let steps = world.netsurgeon("operation show -o json").expect(0).json()["steps"].to_string();
    assert!(!steps.contains("soak/"), "{steps}");
    assert_eq!(world.addresses("www").await, (vec![OLD.to_owned()], 2), "only its TTL is lowered");
    world.new.behaves(&host, Behaviour::Serves);
    let next = ran.err.split("`netsurgeon ").find(|rest| rest.starts_with("dns cutover")).expect("a hint");
    let next = next.split('`').next().expect("a command").to_owned();
    world.netsurgeon(&format!("{next} --yes")).expect(0);
    assert_eq!(world.addresses("www").await.0, [OLD, NEW]);
}

fn reasons_of(shown: &Value) -> Vec<String> {
    let names = reasons(shown);
    let name =
        |text: &String| text.split(':').next().and_then(|step| step.split('/').nth(1)).map(str::to_owned);
    names.iter().filter_map(name).collect()
}

#[tokio::test]
async fn change_of_another_client_is_never_overwritten() {
    let world = World::start(&["www", "api", "edited", "later"], &[]).await;
    let plan = world.plan("");
    let server = server();
    let set = |host: &str, ttl, data: &[&str]| {
        RecordSet::new(
            format!("{host}.{ZONE}"),
            RecordKind::A,
            ttl,
            data.iter().map(ToString::to_string).collect(),
        )
    };
    let edit = async |from: RecordSet, to: RecordSet| {
        server.replace(ZONE, &[SetChange { from: Some(from), to: Some(to) }]).await.expect("an update");
    };
    edit(set("edited", TTL, &[OLD]), set("edited", 7, &["192.0.2.99"])).await;
    let ran = world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(3);
    let skipped = reasons(&ran.json());
    let [changed] = &skipped[..] else { panic!("{skipped:?}") };
    says(changed, &[&format!("ttl/edited.{ZONE}: "), "A 192.0.2.99"]);
    assert_eq!(world.addresses("edited").await, (vec!["192.0.2.99".to_owned()], 7));
    assert_eq!(world.addresses("www").await.0, [OLD, NEW]);
    let status = world.netsurgeon("dns status -o json").expect(3).json();
    let is_skipped = |one: &Value| one["name"] == format!("edited.{ZONE}") && one["skipped"].is_string();
    assert!(status["names"].as_array().expect("a list").iter().any(is_skipped), "{status}");

    // Only the TTL is changed, and a name is changed between two stages.
    edit(set("api", 2, &[OLD, NEW]), set("api", 30, &[OLD, NEW])).await;
    edit(set("later", 2, &[OLD, NEW]), set("later", 2, &["192.0.2.98"])).await;
    let ran = world.netsurgeon("dns cutover --all --yes -o json").expect(3).json();
    let names = reasons_of(&ran);
    assert_eq!(names, ["edited", "api", "later"].map(|host| format!("{host}.{ZONE}")), "{ran}");
    assert_eq!(world.addresses("api").await, (vec![OLD.to_owned(), NEW.to_owned()], 30));
    says(&reasons(&ran)[1], &["TTL 30 s", "TTL 2 s"]);
    assert!(world.netsurgeon(&world.planning()).err.contains(ran["operation"].as_str().expect("an id")));

    let operation = ran["operation"].as_str().expect("an id");
    let back = world.netsurgeon(&format!("dns rollback {operation} --yes -o json")).expect(3).json();
    assert_eq!(back["status"], "stuck");
    let standing = back["names"].as_array().expect("names");
    let share = |host: &str| {
        let name = format!("{host}.{ZONE}");
        standing.iter().find(|one| one["name"] == *name).expect("the name")["shares"]["A"].clone()
    };
    assert_eq!((share("www"), share("later")), (json!(0), json!(50)), "its last step could not be undone");
    assert_eq!(world.addresses("www").await, (vec![OLD.to_owned()], TTL));
    assert_eq!(world.addresses("later").await, (vec!["192.0.2.98".to_owned()], 2));

    names_are_given_up(&world, operation).await;
}

/// The same command skips the names again. The refusal of `forget` has the command that ends the rollback.
async fn names_are_given_up(world: &World, operation: &str) {
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(3);
    let forget = world.netsurgeon(&format!("operation forget {operation}")).expect(1);
    let options = [" --give-up api.", " --give-up later."].map(|option| format!("{option}{ZONE}")).concat();
    let command = format!("dns rollback {operation}{options}");
    says(&forget.err, &[&format!("`netsurgeon {command}`")]);
    let absent =
        world.netsurgeon(&format!("dns rollback {operation} --yes --give-up absent.{ZONE}")).expect(2);
    for name in ["www", "api", "edited", "later"] {
        says(&absent.err, &["hint: ", &format!("`{name}.{ZONE}`")]);
    }
    let ended = world.netsurgeon(&format!("{command} --yes -o json")).expect(0).json();
    assert_eq!((&ended["status"], &ended["skipped"]), (&json!("rolled-back"), &json!([])));
    let shown = world.netsurgeon(&format!("operation show {operation} -o json")).expect(0).json();
    for shown in [&ended, &shown] {
        let waiver = &shown["given_up"][1];
        assert_eq!((&waiver["subject"], &waiver["back"]), (&json!(format!("later.{ZONE}")), &json!(true)));
        assert_eq!(waiver["observed"], "A 192.0.2.98 (TTL 2 s)");
        assert!(
            waiver["by"].as_str().is_some_and(|by| by.contains('@')) && waiver["at"].is_i64(),
            "{waiver}"
        );
    }
    let status = world.netsurgeon(&format!("dns status {operation}"));
    says(&status.out, &[&format!("later.{ZONE}"), "given up by ", "A 192.0.2.98 (TTL 2 s)"]);
    assert_eq!(world.addresses("later").await, (vec!["192.0.2.98".to_owned()], 2));
    let page = world.workspace.join("report.html");
    world.netsurgeon(&format!("operation report {operation} --html {}", page.display())).expect(0);
    assert!(std::fs::read_to_string(&page).expect("a report").contains("given up by "));
    world.netsurgeon(&format!("operation forget {operation}")).expect(0);
}

/// Another client changes a name while a stage lasts. The next step would find that, but there may be none, or only much later.
#[tokio::test]
async fn change_while_a_stage_lasts_is_reported_at_its_end() {
    let (names, ttl) = (["www", "api"], 2);
    let world = World::start_on(&names, &[], &hosts(&names, ttl)).await;
    let plan = world.plan_with("--shares 50 --soak 10");
    let set = |data: &[&str]| {
        let data = data.iter().map(ToString::to_string).collect();
        RecordSet::new(format!("www.{ZONE}"), RecordKind::A, ttl, data)
    };
    for (stage, at) in [("50", [OLD, NEW].as_slice()), ("100", &[NEW])] {
        let goal = if stage == "50" { "--stage 1" } else { "--all" };
        let words = format!("dns cutover --plan {plan} {goal} --yes --no-gates -o json");
        let mut program = Watched::start(command(&world.cluster, &words));
        wait_until("the stage lasts", PATIENCE, async || {
            let shown = world.netsurgeon("operation show -o json");
            let steps = if shown.code == 0 { shown.json()["steps"].to_string() } else { shown.err };
            let said = program.err.lock().unwrap().join("\n");
            let is_there = steps.contains(&format!("\"soak/{stage}\""));
            if is_there { Ok(()) } else { Err(format!("{steps}; the cutover printed: {said}")) }
        })
        .await;
        let change = SetChange { from: Some(set(at)), to: Some(set(&["192.0.2.97"])) };
        server().replace(ZONE, std::slice::from_ref(&change)).await.expect("an update");
        assert_eq!(program.end().await, 3);
        let shown: Value = serde_json::from_str(&program.out.lock().unwrap().join("\n")).expect("JSON");
        assert_eq!((&shown["changed"], &shown["skipped"]), (&json!([format!("www.{ZONE}")]), &json!([])));
        let said = program.err.lock().unwrap().join("\n");
        let status = said.split("`netsurgeon dns status ").nth(1).and_then(|rest| rest.split('`').next());
        let status = world.netsurgeon(&format!("dns status {} -o json", status.expect("a hint"))).expect(3);
        says(&status.out, &["192.0.2.97"]);
        if stage == "50" {
            let paused = world.netsurgeon("dns cutover --all --yes --gate-command /bin/false").expect(6);
            says(&paused.err, &["paused: ", "gate `command`"]);
            says(&paused.err, &[&format!("another client has changed www.{ZONE}")]);
        }
        if stage == "100" {
            // A Job that runs the command again reports the same.
            let again = world.netsurgeon(&words).expect(3).json();
            assert_eq!((&again["status"], &again["changed"]), (&json!("done"), &shown["changed"]));
        }
        let back = SetChange { from: change.to, to: change.from };
        server().replace(ZONE, &[back]).await.expect("an update");
        if stage == "100" {
            let again = world.netsurgeon(&words).expect(0).json();
            assert_eq!((&again["status"], &again["changed"]), (&json!("done"), &json!([])));
        }
    }
}
