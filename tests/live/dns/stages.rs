//! A whole cutover and its rollback, under a client.

use serde_json::Value;

use super::{KEY, NEW, OLD, TTL, World, ZONE};
use crate::rig::process::wait_until;
use crate::rig::run::says;
use crate::rig::visitor::Seen;

/// Requests by which a share is judged. The standard error of a share of one half is 2.5 %.
const ENOUGH: usize = 400;
/// Four standard errors.
const TOLERANCE: f64 = 0.1;

#[tokio::test]
async fn names_move_in_stages_and_back_without_a_failed_request() {
    let world = World::start(&["www", "api"], &[]).await;
    let before = world.records().await;
    let plan = world.plan("");
    let visitor = world.visitor("www");
    let mut all = Vec::new();
    let mut shares = async |wanted: f64| {
        visitor.take();
        wait_until("the client has visited often enough", super::PATIENCE, async || {
            if visitor.count() >= ENOUGH { Ok(()) } else { Err(format!("{} times", visitor.count())) }
        })
        .await;
        let seen = visitor.take();
        println!("wanted {wanted}: {:?}", seen.bodies);
        assert!((seen.share("new") - wanted).abs() <= TOLERANCE, "wanted {wanted}: {seen:?}");
        all.push(seen);
    };
    shares(0.0).await;

    let first = world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(0);
    let shown = first.json();
    assert_eq!((&shown["status"], &shown["next_stage"]), (&"paused".into(), &2.into()));
    assert_eq!(shown["names"][0]["shares"]["A"], 50);
    assert_eq!(world.addresses("www").await, (vec![OLD.to_owned(), NEW.to_owned()], 2));
    shares(0.5).await;

    let operation = shown["operation"].as_str().expect("an id").to_owned();
    let status = world.netsurgeon("dns status -o json").expect(0).json();
    assert_eq!(status["next"], format!("netsurgeon dns cutover {operation} --stage 2"));
    let known = world.netsurgeon("operation show -o json").expect(0).json();
    assert_eq!(
        (&known["next"], &known["rollback"]),
        (&status["next"], &format!("netsurgeon dns rollback {operation}").into())
    );
    world.netsurgeon(&format!("operation rollback {operation} --without-api 1")).expect(2);
    assert_eq!(status["names"][1]["observed"]["server"], format!("A {OLD}, {NEW}"));
    let done = world.netsurgeon("dns cutover --stage 2 --yes").expect(0);
    says(&done.err, &["done", "2 names", "100 %"]);
    assert_eq!(world.addresses("api").await, (vec![NEW.to_owned()], TTL));
    shares(1.0).await;
    for (words, hint) in [
        ("dns status", format!("`netsurgeon dns status {operation}`")),
        ("dns rollback --yes", format!("`netsurgeon dns rollback {operation}`")),
        ("operation report --html /nowhere.html", format!("`{operation}`")),
    ] {
        let ended = world.netsurgeon(words).expect(1);
        assert!(ended.err.contains(&hint), "{}", ended.err);
    }

    let serial = world.serial().await;
    let back = world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    assert_eq!(world.serial().await, serial + 2, "one update for each name");
    assert!(back.err.contains("rolled back"), "{}", back.err);
    assert_eq!(world.records().await, before, "every record is as before");
    shares(0.0).await;
    let failures: Vec<&String> = all.iter().flat_map(|seen: &Seen| &seen.failures).collect();
    assert!(failures.is_empty(), "{failures:?}");
    assert!(!world.recorded().await.contains(KEY.1), "the ledger has no secret");
    follow_up(&world, &plan, &operation);
}

/// The commands for an operation of any kind.
fn follow_up(world: &World, plan: &str, operation: &str) {
    let listed = world.netsurgeon("operation list -o json").expect(0).json();
    assert_eq!(
        (&listed["operations"][0]["kind"], &listed["operations"][0]["status"]),
        (&"dns-cutover".into(), &"rolled-back".into())
    );
    let shown = world.netsurgeon(&format!("operation show {operation} -o json")).expect(0).json();
    let steps: Vec<&Value> =
        shown["steps"].as_array().expect("steps").iter().map(|step| &step["step"]).collect();
    assert!(steps.contains(&&Value::from(format!("share-50/www.{ZONE}"))), "{steps:?}");
    let page = world.workspace.join("report.html");
    world.netsurgeon(&format!("operation report {operation} --html {}", page.display())).expect(0);
    let text = std::fs::read_to_string(page).expect("a page");
    for part in
        ["share of the mirror over time", "<code>www.example.test</code>", "share-50/www.example.test"]
    {
        assert!(text.contains(part), "{part}");
    }
    // The curve ends where the figures are: several steps of a rollback have the same second.
    let curve =
        text.split("class=\"share\" d=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a curve");
    assert!(curve.rsplit(" V ").next().is_some_and(|end| end.starts_with("150.0 ")), "{curve}");
    assert!(text.contains("now 0 %") && text.contains("0 % of clients on the mirror"), "{text}");
    let again = world.netsurgeon(&format!("dns cutover --plan {plan} --all --yes")).expect(1);
    assert!(
        again.err.contains("rolled back") && again.err.contains(&format!("operation forget {operation}")),
        "{}",
        again.err
    );
    let forgotten = world.netsurgeon(&format!("operation forget {operation}")).expect(0);
    says(&forgotten.err, &["ConfigMaps"]);
}
