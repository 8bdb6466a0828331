//! Which names move: those whose records point to the old cluster, and not every name that an object contains.

use netsurgeon::nameserver::{RecordKind, RecordSet, Server, SetChange};
use serde_json::{Value, json};

use super::ownership::deploy;
use super::{NEW, OLD, PATIENCE, SECONDARY, TTL, World, ZONE, hosts, serve, server};
use crate::rig::cluster::Cluster;
use crate::rig::process::wait_until;
use crate::rig::run::says;

/// Where `cdn` points.
const CDN: &str = "203.0.113.5";
/// The target of a tenant's objects.
const TENANT: &str = "203.0.113.6";

/// Creates an Ingress of a tenant, with a target in an annotation.
async fn tenant(cluster: &Cluster, name: &str, host: &str, target: &str) {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {
            "name": name, "namespace": "tenant",
            "annotations": {"external-dns.alpha.kubernetes.io/target": target},
        },
        "spec": {"rules": [{"host": format!("{host}.{ZONE}"), "http": {"paths": [path]}}]},
    });
    cluster.api.create(&ingress).await;
}

/// Publishes the hosts of an Ingress whose TLS section has one host more, and a host of another kind of object, as the ExternalDNS
/// of the old cluster does.
async fn publish_tls_hosts(world: &World) {
    for (cluster, at) in [(&world.cluster, OLD), (&world.mirror, NEW)] {
        serve(cluster, "plain", json!({"ip": at})).await;
        let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/plain";
        let hosts = ["plain", "secure", "*.wild"].map(|host| format!("{host}.{ZONE}"));
        cluster.api.merge(path, &json!({"spec": {"tls": [{"hosts": hosts, "secretName": "x"}]}})).await;
    }
    let text = |resource: &str| {
        format!("\"heritage=external-dns,external-dns/owner=blue,external-dns/resource={resource}\"")
    };
    let change = |label: &str, kind, data: String| {
        let set = RecordSet::new(format!("{label}.{ZONE}"), kind, TTL, vec![data]);
        SetChange { from: None, to: Some(set) }
    };
    for (label, resource) in [
        ("plain", "ingress/default/plain"),
        ("secure", "ingress/default/plain"),
        ("endpoint", "crd/default/dns"),
    ] {
        let both = [
            change(label, RecordKind::A, OLD.to_owned()),
            change(&format!("a-{label}"), RecordKind::Txt, text(resource)),
        ];
        server().replace(ZONE, &both).await.expect("an update");
    }
    deploy(&world.cluster, "blue", &[]).await;
    let secondary = Server::new(format!("{SECONDARY}:53").parse().expect("an address"), None);
    wait_until("the secondary has the names", PATIENCE, async || {
        let answer = secondary.ask(&format!("a-endpoint.{ZONE}"), RecordKind::Txt).await;
        if answer.as_ref().is_ok_and(|answer| !answer.records.is_empty()) {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await;
}

fn names(plan: &Value) -> Vec<String> {
    let names = plan["work"]["names"].as_array().or(plan["names"].as_array()).expect("names");
    names.iter().map(|name| name["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn only_names_that_point_to_the_old_cluster_move() {
    let records =
        format!("{}cdn {TTL} IN A {CDN}\n*.apps {TTL} IN A {OLD}\n", hosts(&["www", "loop", "taken"], TTL));
    let world = World::start_on(&["www", "cdn", "absent", "a.apps"], &[], &records).await;
    for cluster in [&world.cluster, &world.mirror] {
        cluster.api.create_namespace("tenant").await;
    }
    // Names and targets that a tenant gives.
    serve(&world.cluster, "loop", json!({"ip": OLD})).await;
    serve(&world.mirror, "loop", json!({"ip": NEW})).await;
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/loop";
    let target = json!({"external-dns.alpha.kubernetes.io/target": "127.0.0.1"});
    world.mirror.api.merge(path, &json!({"metadata": {"annotations": target}})).await;
    serve(&world.cluster, "taken", json!({"ip": OLD})).await;
    tenant(&world.mirror, "all", "*", TENANT).await;
    tenant(&world.mirror, "www", "www", TENANT).await;
    publish_tls_hosts(&world).await;

    let planned = world.netsurgeon(&format!("{} --soak 10 -o json", world.planning())).expect(0);
    let plan = planned.json();
    assert_eq!(names(&plan), ["plain", "secure", "www"].map(|host| format!("{host}.{ZONE}")));
    assert!(!plan.to_string().contains(TENANT), "no address of a tenant joins: {plan}");
    let left = |host: &str, why: &str| {
        says(&planned.err, &[&format!("not in the plan: `{host}.{ZONE}` (Ingress `default/{host}`): "), why]);
    };
    left("cdn", &format!("its records are {CDN}, but the addresses of Ingress `default/cdn` are {OLD}"));
    left("absent", "no record");
    left("a.apps", "wildcard");
    left("loop", "127.0.0.1, a loopback address");
    left(
        "taken",
        "only objects of other namespaces than here contain it on the mirror: Ingress `tenant/all`",
    );
    says(&planned.err, &["left-behind: ", &format!("`endpoint.{ZONE}` (`crd/default/dns`)")]);
    let table = world.netsurgeon(&format!("{} --soak 10", world.planning())).expect(0);
    says(&table.out, &[&format!("www.{ZONE}"), "Ingress `default/www`"]);

    let cdn = format!("cdn.{ZONE}");
    let refused = world.netsurgeon(&format!("{} --name {cdn}", world.planning())).expect(1);
    says(&refused.err, &["names: ", CDN, OLD, "`--take NAME`"]);
    let taken = world
        .netsurgeon(&format!("{} --soak 10 -o json --name {cdn} --take {cdn}", world.planning()))
        .expect(0);
    assert_eq!(names(&taken.json()), [cdn]);
}
