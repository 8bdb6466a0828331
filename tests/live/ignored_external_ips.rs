//! Data planes that ignore external IPs: where kube-proxy's configuration says so, shadows hold; where the configuration is
//! unknown, a test address detects it before any Service moves.

use serde_json::{Value, json};

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::network::gateway;
use super::rig::proxy::{ProxyMode, ProxyOptions};
use super::rig::relay::Relay;
use super::rig::run::{has_line, says};
use super::serving_cluster::{NEW_RANGE, Serving, command, run};

fn gate_off(mode: ProxyMode) -> ProxyOptions {
    ProxyOptions {
        config: json!({"featureGates": {"AllowServiceExternalIPs": false}}),
        ..ProxyOptions::new(mode)
    }
}

async fn two_nodes() -> Cluster {
    Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::new(Era::Objects) }).await
}

/// Every Service and EndpointSlice, without those that the cluster's own controllers renew.
async fn objects(cluster: &Cluster) -> Vec<Value> {
    let mut found = cluster.api.list("/api/v1/services").await;
    found.extend(cluster.api.list("/apis/discovery.k8s.io/v1/endpointslices").await);
    let keep = |object: Value| json!([object["metadata"]["name"], object["spec"], object["endpoints"]]);
    found.into_iter().map(keep).collect()
}

fn apply_is_refused(serving: &Serving, more: &str, nodes: &[&str]) {
    let refused = serving.netsurgeon(&format!("{} {more}", serving.apply_words())).expect(1);
    let named = nodes.iter().map(|node| format!("`{node}`")).collect::<Vec<_>>().join(", ");
    says(&refused.err, &["kube-proxy", &format!(": {named};")]);
    assert!(refused.err.contains("--hold shadow"), "it names the remedy: {}", refused.err);
    assert_eq!(serving.journals(), Vec::<String>::new(), "nothing is started");
}

#[tokio::test]
async fn shadows_hold_every_address_when_the_gate_is_off() {
    let cluster = two_nodes().await;
    let proxies = cluster.start_proxies_as(&gate_off(ProxyMode::Iptables)).await;
    let mut serving = Serving::furnish(cluster, proxies).await;
    let plan = serving.netsurgeon(&format!("renumber plan --to {NEW_RANGE} -o json")).expect(0);
    says(&plan.err, &["`AllowServiceExternalIPs`"]);
    let plan = plan.json();
    for planned in plan["moves"].as_array().expect("moves") {
        assert_eq!(planned["hold"], "shadow", "{planned}");
        assert!(planned["hold_reason"].as_str().unwrap().contains("AllowServiceExternalIPs"), "{planned}");
    }
    let words = format!("preflight renumber --to {NEW_RANGE} --only kube-proxy -o json");
    let checks = serving.netsurgeon(&words).expect(0).json()["checks"].clone();
    let check = checks.as_array().unwrap().iter().find(|check| check["name"] == "kube-proxy").unwrap();
    assert_eq!(check["verdict"], "warn", "{check}");
    assert!(check["observed"].as_str().unwrap().contains("AllowServiceExternalIPs"), "{check}");
    let asked = serving.netsurgeon(&format!("renumber plan --to {NEW_RANGE} --hold external-ip")).expect(1);
    assert!(asked.err.contains("AllowServiceExternalIPs"), "{}", asked.err);

    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    serving.apply("--accept-gap").await;
    serving.netsurgeon("renumber verify").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
}

/// The stored configuration does not have the gate: only one node runs with another one.
#[tokio::test]
async fn apply_stops_before_any_move_when_a_node_ignores_external_ips() {
    let cluster = two_nodes().await;
    let first = cluster.start_proxy(0, &ProxyOptions::new(ProxyMode::Nftables)).await;
    cluster.store_configuration(&first).await;
    cluster.store_proxy_pods().await;
    let second = cluster.start_proxy(1, &gate_off(ProxyMode::Nftables)).await;
    let serving = Serving::furnish(cluster, vec![first, second]).await;
    let before = objects(&serving.cluster).await;
    apply_is_refused(&serving, "", &["node-2"]);
    apply_is_refused(&serving, "--barrier node-proxy", &["node-2"]);
    assert_eq!(objects(&serving.cluster).await, before, "nothing has changed, and nothing is left");

    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    let paused = serving.netsurgeon(&format!("{} --hold shadow", serving.apply_words())).expect(6);
    assert!(paused.err.contains("--confirm flags"), "{}", paused.err);
    serving.assert_unbroken(&probe.stop(), &old);
}

/// The ConfigMap of kube-proxy exists, but no Pod of kube-proxy: another component can route Services. The operator continues all
/// the same.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn apply_stops_before_any_move_when_the_gate_is_unknown_and_off() {
    let cluster = two_nodes().await;
    let mut proxies = Vec::new();
    for node in 0..2 {
        proxies.push(cluster.start_proxy(node, &gate_off(ProxyMode::Iptables)).await);
    }
    cluster.store_configuration(&proxies[0]).await;
    let serving = Serving::furnish(cluster, proxies).await;
    let unknown = serving.netsurgeon(&serving.apply_words()).expect(1);
    says(&unknown.err, &["no Pod of `kube-system` has a container `kube-proxy`"]);
    says(&unknown.err, &["`--kube-proxy-config FILE`"]);
    says(&unknown.err, &["`--accept-gap`"]);
    let before = objects(&serving.cluster).await;
    apply_is_refused(&serving, "--accept-gap", &["node-1", "node-2"]);
    assert_eq!(objects(&serving.cluster).await, before, "nothing has changed, and nothing is left");
}

/// From a host beside the nodes every node can be asked; on a node only that node, because its own kube-proxy answers for all.
#[tokio::test]
async fn nodes_out_of_reach_are_reported_once() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let words = serving.apply_words();
    let paused = run(&words, command(&serving.cluster, &words)).expect(6);
    says(&paused.err, &["2 nodes", "external IPs"]);

    let serving = Serving::start(Era::Bitmap, ProxyMode::Iptables).await;
    let words = serving.apply_words();
    let mut inside = serving.cluster.nodes[0].namespace().command(env!("CARGO_BIN_EXE_netsurgeon"));
    inside.env_clear().args(words.split_whitespace());
    let etcd = serving.cluster.etcd.endpoint();
    let relay = Relay::start_at(gateway().into(), etcd.trim_start_matches("http://"));
    inside.env("ETCDCTL_ENDPOINTS", relay.address()).env("KUBECONFIG", serving.cluster.kubeconfig());
    let paused = run(&words, inside).expect(6);
    let is_said = |line: &&str| has_line(line, &["1 node ", "external IPs", "`node-2`"]);
    assert_eq!(paused.err.lines().filter(is_said).count(), 1, "{}", paused.err);
}
