//! A Service that is written after others shows when a kube-proxy has applied all of them: at the end of that sync it opens the
//! Service's health check port, and answers there with the Service's name.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::rig::api::Api;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::network::Node;
use super::rig::process::wait_until;
use super::rig::proxy::{ProxyMode, ProxyOptions, http_get};

const DEADLINE: Duration = Duration::from_mins(1);

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn sentinel_opens_its_port_in_the_objects_era() {
    opens_its_port_on_every_node(Era::Objects).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn sentinel_opens_its_port_in_the_bitmap_era() {
    opens_its_port_on_every_node(Era::Bitmap).await;
}

/// One node's kube-proxy uses nftables, the other's iptables.
async fn opens_its_port_on_every_node(era: Era) {
    let cluster = Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::new(era) }).await;
    let mut proxies = Vec::new();
    for (node, mode) in ProxyMode::ALL.into_iter().enumerate() {
        proxies.push(cluster.start_proxy(node, &ProxyOptions::new(mode)).await);
    }
    let port = create(&cluster.api, "sentinel").await;
    for node in &cluster.nodes {
        directly(node, port, "sentinel").await;
        through_the_api_server(&cluster, node, port, "sentinel").await;
    }

    proxies[0].pause();
    let port = create(&cluster.api, "later").await;
    directly(&cluster.nodes[1], port, "later").await;
    let paused = &cluster.nodes[0];
    let answer = http_get(SocketAddr::new(paused.address(), port), "/healthz").await;
    assert!(answer.is_err(), "{era:?}: a paused kube-proxy opens nothing: {answer:?}");
    let (code, body) = cluster.ask(&node_proxy(paused, port)).await.unwrap();
    assert!(code == 503 && !body.contains("\"later\""), "{era:?}: the API server says so: {body}");
    proxies[0].resume();
    directly(paused, port, "later").await;
    through_the_api_server(&cluster, paused, port, "later").await;
}

/// Creates a sentinel and returns its health check port.
pub async fn create(api: &Api, name: &str) -> u16 {
    let spec = json!({
        "type": "LoadBalancer",
        "loadBalancerClass": "netsurgeon.io/none",
        "externalTrafficPolicy": "Local",
        "allocateLoadBalancerNodePorts": false,
        "ports": [{"port": 80}],
    });
    let service = api.create_service("default", name, spec).await;
    let port = service["spec"]["healthCheckNodePort"].as_u64().expect("a port");
    port.try_into().expect("a port")
}

/// Waits until the sentinel answers at the node.
pub async fn directly(node: &Node, port: u16, name: &str) {
    let address = SocketAddr::new(node.address(), port);
    wait_until(&format!("{name} at {}", node.name), DEADLINE, async || {
        is_named(name, http_get(address, "/healthz").await?)
    })
    .await;
}

async fn through_the_api_server(cluster: &Cluster, node: &Node, port: u16, name: &str) {
    let (code, body) = cluster.ask(&node_proxy(node, port)).await.unwrap();
    is_named(name, (code, body)).unwrap();
}

fn node_proxy(node: &Node, port: u16) -> String {
    format!("/api/v1/nodes/{}:{port}/proxy/healthz", node.name)
}

/// There are no endpoints on any node: the answer is unavailable, with the Service's name.
fn is_named(name: &str, (code, body): (u16, String)) -> Result<(), String> {
    let json: Value = serde_json::from_str(&body).map_err(|error| format!("{code} {body}: {error}"))?;
    let service = json!({"namespace": "default", "name": name});
    if code == 503 && json["service"] == service { Ok(()) } else { Err(format!("{code} {body}")) }
}
