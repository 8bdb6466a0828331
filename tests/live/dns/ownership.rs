//! Names that ExternalDNS owns: netsurgeon owns them during the cutover, and the mirror's ExternalDNS afterwards.

use netsurgeon::nameserver::{RecordKind, RecordSet, Server, SetChange};
use serde_json::{Value, json};

use super::{NEW, OLD, PATIENCE, World, ZONE, serve, server};
use crate::rig::cluster::Cluster;
use crate::rig::external_dns::{ExternalDns, trust};
use crate::rig::process::wait_until;

const RESOURCE: &str = "external-dns/resource=ingress/default/www";

fn record(owner: &str) -> String {
    format!("\"heritage=external-dns,external-dns/owner={owner},{RESOURCE}\"")
}

/// Creates the Deployment of an ExternalDNS, from which netsurgeon reads its owner and its affixes.
pub async fn deploy(cluster: &Cluster, owner: &str, more: &[&str]) -> Value {
    let mut args = vec![format!("--txt-owner-id={owner}"), "--policy=sync".to_owned()];
    args.extend(more.iter().map(ToString::to_string));
    let container =
        json!({"name": "external-dns", "image": "registry.test/external-dns:v0.23.0", "args": args});
    let labels = json!({"app": "external-dns"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "external-dns", "namespace": "kube-system"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    cluster.api.create(&deployment).await;
    trust(&cluster.api).await;
    deployment
}

/// The texts at a name of the zone.
pub async fn texts(label: &str) -> Vec<String> {
    let answer = server().ask(&format!("{label}.{ZONE}"), RecordKind::Txt).await.expect("an answer");
    answer.of(RecordKind::Txt).into_iter().map(str::to_owned).collect()
}

/// The old cluster's ExternalDNS has records of the present and of the former format, and another text beside one of them. The
/// mirror's one has a prefix.
#[tokio::test]
async fn ownership_moves_with_the_name_and_back() {
    let world = World::start(&["www", "free"], &[]).await;
    let set = |label: &str, data: Vec<String>| {
        let set = RecordSet::new(format!("{label}.{ZONE}"), RecordKind::Txt, 60, data);
        SetChange { from: None, to: Some(set) }
    };
    let beside = r#""v=spf1 " "-all""#.to_owned();
    let owned = [set("a-www", vec![record("blue")]), set("www", vec![record("blue"), beside.clone()])];
    server().replace(ZONE, &owned).await.expect("an update");
    deploy(&world.cluster, "blue", &["--txt-cache-interval=2s"]).await;
    deploy(&world.mirror, "green", &["--txt-prefix=green-"]).await;
    let before = world.records().await;
    let plan = world.plan("");
    let shown =
        world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(0).json();
    assert_eq!(texts("a-www").await, [record("netsurgeon")]);
    assert_eq!(texts("www").await, [record("netsurgeon"), beside.clone()]);
    let operation = shown["operation"].as_str().expect("an id").to_owned();
    let steps = world.netsurgeon(&format!("operation show {operation} -o json")).expect(0).json();
    let ids: Vec<&str> = steps["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| step["step"].as_str().expect("an id"))
        .collect();
    let at = |id: &str| ids.iter().position(|other| *other == id);
    assert!(
        at("own/www.example.test") < at("owners") && at("owners") < at("ttl/www.example.test"),
        "{ids:?}"
    );
    assert_eq!(at("own/free.example.test"), None, "no ExternalDNS owns it");

    world.netsurgeon("dns cutover --all --yes").expect(0);
    assert_eq!(texts("green-a-www").await, [record("green")]);
    assert_eq!(texts("a-www").await, Vec::<String>::new());
    assert_eq!(texts("www").await, [beside]);
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    assert_eq!(world.records().await, before, "every record is as before");
}

/// Starts the ExternalDNS of a cluster.
fn start(owner: &str, cluster: &Cluster) -> ExternalDns {
    ExternalDns::start(owner, cluster.kubeconfig(), ZONE, super::PRIMARY, super::KEY)
}

/// Serves the host `shop` on both clusters. The ExternalDNS of the old one, with the owner `blue`, publishes it.
pub async fn publish(world: &World) -> ExternalDns {
    serve(&world.cluster, "shop", json!({"ip": OLD})).await;
    let blue = start("blue", &world.cluster);
    // On both servers: the resolver would cache for a minute that the name does not exist.
    let secondary = Server::new(format!("{}:53", super::SECONDARY).parse().expect("an address"), None);
    wait_until("ExternalDNS has created the name", PATIENCE, async || {
        let found =
            secondary.ask(&format!("shop.{ZONE}"), RecordKind::A).await.map_err(|error| error.to_string())?;
        let owners = texts("a-shop").await;
        if found.of(RecordKind::A) == [OLD] && !owners.is_empty() {
            Ok(())
        } else {
            Err(format!("{found:?}, {owners:?}"))
        }
    })
    .await;
    deploy(&world.cluster, "blue", &[]).await;
    serve(&world.mirror, "shop", json!({"ip": NEW})).await;
    blue
}

/// ExternalDNS runs on both clusters for the whole time, and neither reverts a change of netsurgeon.
#[tokio::test]
async fn external_dns_of_both_clusters_leaves_the_name_to_netsurgeon() {
    let world = World::start(&["www"], &[]).await;
    let blue = publish(&world).await;
    let green = start("green", &world.mirror);
    let visitor = world.visitor("shop");
    deploy(&world.mirror, "green", &[]).await;
    let before = world.records().await;
    let stays = async |wanted: &[&str], owner: &str| {
        blue.loops(2).await;
        green.loops(2).await;
        let owners = texts("a-shop").await;
        assert!(
            owners.len() == 1 && owners[0].contains(&format!("owner={owner},")),
            "{owners:?}, not {owner}"
        );
        assert_eq!(world.addresses("shop").await.0, wanted, "{}\n{}", blue.log(), green.log());
    };
    stays(&[OLD], "blue").await;
    let plan = world.plan(&format!("--name shop.{ZONE}"));
    let run = |stage: &str| {
        world.netsurgeon(&format!("dns cutover --plan {plan} {stage} --yes -o json")).expect(0).json()
    };
    let operation = run("--stage 1")["operation"].as_str().expect("an id").to_owned();
    stays(&[OLD, NEW], "netsurgeon").await;
    run("--all");
    stays(&[NEW], "green").await;
    world.netsurgeon(&format!("dns rollback {operation} --yes")).expect(0);
    assert_eq!(world.records().await, before, "every record is as before");
    stays(&[OLD], "blue").await;

    world.netsurgeon(&format!("operation forget {operation}")).expect(0);
    run("--all");
    // The old cluster no longer owns the name: with its Ingress it would have deleted the records.
    world.cluster.api.delete("/apis/networking.k8s.io/v1/namespaces/default/ingresses/shop").await;
    stays(&[NEW], "green").await;
    let seen = visitor.take();
    println!("{} requests", seen.all());
    assert!(
        seen.failures.is_empty() && seen.all() > 0,
        "{} failed, as {:?}",
        seen.failures.len(),
        seen.failures.first()
    );
}
