//! The most that a tenant can store in one object: Services as large as etcd accepts, an Ingress with thousands of hosts and targets,
//! a Pod with thousands of conditions for its node, and others. Commands that read all of them keep only the fields that they need,
//! and keep each object once.

use std::process::Command;

use serde_json::{Value, json};

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::memory::{take_peak, under_time};

/// The memory that a command may need, in KiB, for all that a tenant may store (tests/live/tenant.rs).
const MEMORY: u64 = 200 * 1024;
/// Each has 1.4 MB in etcd, and takes 30 MB if its JSON is kept as a whole.
const SERVICES: usize = 10;
const PORTS: usize = 10_800;
/// Hosts of an Ingress, targets in an annotation, and items of other lists.
const HOSTS: usize = 3_000;
const ITEMS: usize = 5_000;

/// Runs a command; returns its memory in KiB.
fn memory(cluster: &Cluster, words: &str) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.args(words.split(' '));
    command.env("KUBECONFIG", cluster.kubeconfig()).env("ETCDCTL_ENDPOINTS", cluster.etcd.endpoint());
    let output = under_time(&command).output().expect("`time` runs");
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    let out = String::from_utf8_lossy(&output.stdout);
    println!("$ netsurgeon {words}\n{out}{said}[{:?}]", output.status.code());
    assert!([0, 3].contains(&output.status.code().unwrap_or(-1)), "{words}: {said}");
    take_peak(&mut said)
}

/// Objects with long lists, of the kinds that commands read beside Services.
fn long_lists() -> Vec<Value> {
    let all = |count: usize, one: &dyn Fn(usize) -> Value| (0..count).map(one).collect::<Vec<_>>();
    let meta = |name: &str| json!({"namespace": "default", "name": name});
    let host = |number: usize| json!(format!("h{number}.example.test"));
    let targets: Vec<String> = (0..10_000).map(|number| format!("t{number}.example.net")).collect();
    let targets = targets.join(",");
    let values = || all(ITEMS, &|number| json!(format!("v{number}")));
    let term = json!([{"matchExpressions": [{"key": "a", "operator": "In", "values": values()}]}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": term}}});
    let labels = json!({"app": "large"});
    let arguments = all(ITEMS, &|number| json!(format!("--domain-filter=d{number}.example.test")));
    let pod = json!({"affinity": affinity, "containers": [{"name": "a", "image": "a", "args": arguments}]});
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values()}]});
    let peers = all(
        ITEMS,
        &|number| json!({"ipBlock": {"cidr": format!("10.{}.{}.0/24", number / 256, number % 256)}}),
    );
    let mut ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("large"),
        "spec": {
            "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
            "rules": all(HOSTS, &|number| json!({"host": host(number)})), "tls": [{"hosts": all(HOSTS, &host)}],
        },
    });
    ingress["metadata"]["annotations"] = json!({
        "external-dns.alpha.kubernetes.io/target": targets,
        "external-dns.alpha.kubernetes.io/hostname": "www.example.test",
    });
    let mut objects = vec![
        ingress,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("external-dns"),
            "spec": {
                "replicas": 3, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta("large"),
            "spec": {"minAvailable": 1, "selector": selector},
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta("large"),
            "spec": {"podSelector": selector, "ingress": [{"from": peers}]},
        }),
    ];
    let endpoint =
        |number: usize| json!({"addresses": [format!("10.1.{}.{}", number / 250, number % 250 + 1)]});
    objects.extend((0..10).map(|number| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta(&format!("large-{number}")),
            "addressType": "IPv4", "endpoints": all(1_000, &endpoint),
        })
    }));
    objects
}

#[tokio::test]
async fn large_objects_need_little_memory() {
    let cluster = Cluster::start(ClusterOptions::new(Era::Objects)).await;
    let ports: Vec<Value> =
        (1..=PORTS).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    for number in 0..SERVICES {
        cluster.api.create_service("default", &format!("large-{number}"), json!({"ports": ports})).await;
    }
    for object in long_lists() {
        cluster.api.create(&object).await;
    }
    let mut too_much = Vec::new();
    for words in [
        "ranges check",
        "renumber plan --to 10.200.0.0/16",
        "audit --old 10.201.0.0/16",
        "preflight renumber --to 10.200.0.0/16 --within 15",
        "preflight cni --to cilium --within 15",
        "preflight dns --zone example.test --name www.example.test --server 127.0.0.53 --resolver 127.0.0.53 --within 15",
    ] {
        let taken = memory(&cluster, words);
        if taken >= MEMORY {
            too_much.push(format!("`{words}` took {taken} KiB"));
        }
    }
    assert!(too_much.is_empty(), "{too_much:?}");
}
