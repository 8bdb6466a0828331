//! A cutover of a name whose records only ExternalDNS writes: netsurgeon changes annotations of the Ingress.

use serde_json::{Value, json};

use super::kill_points::{is_killed, kills};
use super::ownership::{publish, texts};
use super::{NEW, OLD, PRIMARY, RESOLVER, World, ZONE, serve};
use crate::rig::external_dns::ExternalDns;
use crate::serving_cluster::{Watched, command};

const INGRESS: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/shop";
const PREFIX: &str = "external-dns.kubernetes.io";

/// Two clusters. The ExternalDNS of the old one publishes the host `shop`, with a TTL of four seconds.
async fn published() -> (World, ExternalDns) {
    let world = World::start(&["www"], &[]).await;
    let blue = publish(&world).await;
    annotate(&world, "ttl", "4s").await;
    blue.loops(2).await;
    (world, blue)
}

async fn annotate(world: &World, name: &str, value: &str) {
    let change = json!({"metadata": {"annotations": {format!("{PREFIX}/{name}"): value}}});
    world.cluster.api.merge(INGRESS, &change).await;
}

async fn annotations(world: &World) -> Value {
    world.cluster.api.get(INGRESS).await["metadata"]["annotations"].clone()
}

fn planning(world: &World, more: &str) -> String {
    format!(
        "dns plan --provider external-dns --zone {ZONE} --server {PRIMARY} --resolver {RESOLVER} --mirror-kubeconfig {} \
         --probe-ca {} --force zone-share --ttl 2 --soak 3 {more}",
        world.mirror.kubeconfig().display(),
        world.authority.certificate.display(),
    )
}

fn plan(world: &World) -> String {
    let file = world.workspace.join("annotated.json").display().to_string();
    let words = planning(world, &format!("--name shop.{ZONE} --save {file}"));
    world.netsurgeon(&words).expect(0);
    file
}

#[tokio::test]
async fn annotations_move_a_name_and_back_without_a_failed_request() {
    let (world, blue) = published().await;
    let (before, annotated) = (world.records().await, annotations(&world).await);
    let visitor = world.visitor("shop");
    let plan = plan(&world);
    let first =
        world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(0).json();
    assert_eq!((&first["next_stage"], &first["names"][0]["shares"]["A"]), (&2.into(), &50.into()));
    assert_eq!(world.addresses("shop").await, (vec![OLD.to_owned(), NEW.to_owned()], 2));
    let both = format!("{OLD},{NEW}");
    assert_eq!(annotations(&world).await[format!("{PREFIX}/target")], both);
    world.netsurgeon("dns cutover --all --yes").expect(0);
    blue.loops(2).await;
    assert_eq!(world.addresses("shop").await, (vec![NEW.to_owned()], 4));
    assert!(texts("a-shop").await.concat().contains("owner=blue,"), "ExternalDNS remains the owner");

    let operation = first["operation"].as_str().expect("an id");
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    blue.loops(2).await;
    assert_eq!(annotations(&world).await, annotated);
    assert_eq!(world.records().await, before, "every record is as before");
    let seen = visitor.take();
    println!("{} requests", seen.all());
    assert!(seen.failures.is_empty() && seen.all() > 0, "{:?} of {}", seen.failures, seen.all());
}

#[tokio::test]
async fn annotations_of_another_client_are_never_overwritten() {
    let (world, _blue) = published().await;
    let plan = plan(&world);
    world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes")).expect(0);
    annotate(&world, "target", OLD).await;
    let changed = annotations(&world).await;
    let skipped = world.netsurgeon("dns cutover --all --yes").expect(5);
    assert!(skipped.err.contains(&format!("`{PREFIX}/target: {OLD}`")), "{}", skipped.err);
    assert!(skipped.err.contains(" --stage 2`"), "a stage that moved no name is not over: {}", skipped.err);
    // An annotation of any size fills neither the record nor the terminal.
    annotate(&world, "target", &"192.0.2.1,".repeat(20_000)).await;
    let changed_again = annotations(&world).await;
    assert_ne!(changed_again, changed);
    let back = world.netsurgeon("dns rollback --yes").expect(3);
    assert!(back.err.contains(&format!("shop.{ZONE}")), "{}", back.err);
    assert!(back.err.len() < 10_000, "{} bytes", back.err.len());
    let recorded = world.recorded().await;
    assert!(recorded.matches("192.0.2.1").count() < 100, "{} bytes are recorded", recorded.len());
    assert_eq!(annotations(&world).await, changed_again);
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn killed_cutover_by_annotations_is_continued_by_the_same_command() {
    let (world, blue) = published().await;
    let (before, annotated) = (world.records().await, annotations(&world).await);
    let visitor = world.visitor("shop");
    let words = format!("dns cutover --plan {} --all --yes --lock-ttl 2 --take-over", plan(&world));
    let mut left = kills();
    loop {
        let mut program = Watched::start(command(&world.cluster, &words));
        if left > 0 && is_killed(&mut program).await {
            left -= 1;
            continue;
        }
        assert_eq!(program.end().await, 0, "{:?}", program.err.lock().unwrap());
        break;
    }
    assert_eq!(world.addresses("shop").await, (vec![NEW.to_owned()], 4));
    let listed = world.netsurgeon("operation list -o json").expect(0).json();
    assert_eq!(listed["operations"].as_array().map(Vec::len), Some(1), "it was continued: {listed}");
    let operation = listed["operations"][0]["operation"].as_str().expect("an id");
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    blue.loops(2).await;
    assert_eq!(annotations(&world).await, annotated);
    assert_eq!(world.records().await, before, "every record is as before");
    let seen = visitor.take();
    assert!(seen.failures.is_empty() && seen.all() > 0, "{:?} of {}", seen.failures, seen.all());
}

#[tokio::test]
async fn only_a_name_with_its_own_object_moves_by_annotations() {
    let (world, _blue) = published().await;
    let refused = |more: &str, fact: &str| {
        let ran = world.netsurgeon(&planning(&world, more)).expect(1);
        assert!(ran.err.contains("zone-updates: ") && ran.err.contains(fact), "{}", ran.err);
    };
    refused(&format!("--name www.{ZONE}"), "no ExternalDNS");
    serve(&world.cluster, "other", json!({"ip": OLD})).await;
    let rules = json!([{"host": format!("shop.{ZONE}")}, {"host": format!("other.{ZONE}")}]);
    world.cluster.api.merge(INGRESS, &json!({"spec": {"rules": rules}})).await;
    refused(&format!("--name shop.{ZONE}"), &format!("also names `other.{ZONE}`"));
}
