//! Sound networks: every path passes.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

#[tokio::test]
async fn every_path_passes_with_a_bridge_and_policies() {
    let world = World::with_policies(2, PodNetwork::Bridge).await;
    let run = world.netsurgeon("network test");
    assert_eq!(run.code, 0);
    assert_clean(&world).await;
}

#[tokio::test]
async fn every_path_passes_with_flannel_and_policies() {
    let world = World::with_policies(3, PodNetwork::Flannel).await;
    let run = world.netsurgeon("network test --rounds 2 --interval 1s");
    assert_eq!(run.code, 0);
    assert!(run.out.contains("every tested path passed (3 nodes, 2 rounds"), "{}", run.out);
    // The link of flannel is smaller than that of the nodes.
    let result = world.test("--only full-size,policy-deny,policy-allow");
    let sizes: Vec<&str> = result["paths"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|path| path["path"] == "full-size")
        .filter_map(|path| path["last"]["seen"].as_str())
        .collect();
    assert_eq!(sizes, ["1450 bytes arrived"; 6]);
    assert_clean(&world).await;
}

/// Returns the paths that passed over IPv6.
fn passed_over_ipv6(result: &Value) -> BTreeSet<String> {
    let paths = result["paths"].as_array().unwrap().iter();
    let is_of = |path: &&Value| path["variant"].as_str().unwrap().ends_with("IPv6");
    let all = paths.filter(is_of).filter(|path| path["verdict"] == "passed");
    all.map(|path| path["path"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_path_passes_with_both_families() {
    let ranges = "10.96.0.0/16,fd00:10:96::/112".to_owned();
    let options = ClusterOptions { service_cidrs: ranges, ..ClusterOptions::with_real_nodes(2) };
    let world = World::start_on(options, PodNetwork::Bridge).await;
    let result = world.test("--skip policy-deny,policy-allow");
    assert!(failures(&result).is_empty(), "{:#?}", failures(&result));
    let v6 = passed_over_ipv6(&result);
    assert_eq!(v6.len(), 15, "{v6:?}");
    assert_clean(&world).await;
}

#[tokio::test]
#[ignore = "half a minute, in `make soak`: needs `make rig` and root"]
async fn every_path_passes_with_ipv6_alone() {
    let ranges = "fd00:10:96::/112".to_owned();
    let options = ClusterOptions { service_cidrs: ranges, ..ClusterOptions::with_real_nodes(2) };
    let world = World::start_on(options, PodNetwork::Bridge).await;
    let run = world.netsurgeon("network test --skip policy-deny,policy-allow");
    assert_eq!(run.code, 0);
    assert_clean(&world).await;
}

/// node-2 was moved from flannel to a bridge with a range of its own. Both nodes have routes to each other's Pods.
#[tokio::test]
async fn every_path_passes_in_the_middle_of_a_swap() {
    let cluster = Cluster::start(ClusterOptions::with_real_nodes(2)).await;
    let mut nodes = cluster.start_real_nodes(PodNetwork::Flannel).await;
    nodes[1].programs.pop().expect("flannel runs").terminate().await;
    let host = nodes[1].host();
    let configuration = host.path(CONFIGURATION);
    let text = std::fs::read_to_string(&configuration).unwrap();
    std::fs::write(&configuration, text.replace("10.244.2.0/24", "10.244.102.0/24").replace("cni0", "cni1"))
        .unwrap();
    nodes[1].namespace().ip(&["link delete flannel.1"]);
    for (chain, jump) in [("nat", "POSTROUTING"), ("filter", "FORWARD")] {
        host.run("iptables", &["-t", chain, "-F", jump]);
    }
    nodes[1].namespace().ip(&["route replace 10.244.1.0/24 via 192.0.2.101"]);
    for host in [cluster.network().hub(), nodes[0].namespace()] {
        host.ip(&["route replace 10.244.102.0/24 via 192.0.2.102"]);
    }
    cluster.start_dns(2).await;
    let world = World { nodes, cluster };
    let run = world.netsurgeon("network test --skip policy-deny,policy-allow --rounds 2 --interval 1s");
    assert_eq!(run.code, 0);
    let result = world.test("--only full-size");
    assert!(result.to_string().contains("10.244.102."), "node-2 has the new network: {result}");
    assert_clean(&world).await;
}

/// 60 addresses do not fit into an answer of 512 bytes.
#[tokio::test]
async fn truncated_answer_of_dns_is_asked_for_over_tcp() {
    let world = World::start(1, PodNetwork::Bridge).await;
    let api = &world.cluster.api;
    let spec = json!({"clusterIP": "None", "ports": [{"port": 80}]});
    api.create_service("default", "large", spec).await;
    let endpoints: Vec<Value> =
        (1..=60).map(|last| json!({"addresses": [format!("10.8.0.{last}")]})).collect();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"port": 80}],
        "metadata": {"namespace": "default", "name": "large", "labels": {"kubernetes.io/service-name": "large"}},
    });
    api.create(&slice).await;
    let result = world.test("--only dns-udp,dns-tcp --resolve large.default.svc.cluster.local");
    assert!(failures(&result).is_empty(), "{:#?}", failures(&result));
    let paths = result["paths"].as_array().unwrap();
    let seen = |kind: &str| {
        let path = paths
            .iter()
            .find(|path| path["path"] == kind && path["variant"].as_str().unwrap().starts_with("large"));
        path.unwrap()["last"]["seen"].as_str().unwrap().to_owned()
    };
    assert!(seen("dns-udp").contains("3 truncated answers, asked again over TCP"), "{}", seen("dns-udp"));
    assert!(!seen("dns-tcp").contains("truncated"), "{}", seen("dns-tcp"));
}
