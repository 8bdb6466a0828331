//! Nodes that are not ready for a move, one thing after the other: kube-proxies, operating systems, routes.

use serde_json::{Value, json};

use super::{fails, verdict, warns};
use crate::serving::{NEW_RANGE, Serving};

const PROXY_CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kube-proxy";
const NODE: &str = "/api/v1/nodes/node-2";

/// Breaks one thing after the other, and mends it again.
pub async fn each_in_turn(serving: &mut Serving) {
    with_a_silent_proxy(serving);
    without_a_detector(serving).await;
    with_windows(serving).await;
    with_a_route(serving);
    without_an_etcd(serving).await;
}

fn with_a_silent_proxy(serving: &mut Serving) {
    serving.proxies[1].pause();
    fails(serving, "kube-proxy", "1 of 2 do not say that they are healthy: `node-2` (");
    serving.proxies[1].resume();
    assert_eq!(verdict(serving, "kube-proxy", "")["verdict"], "pass");
}

/// Both kube-proxies are started anew, without their cluster's range, and with it again.
async fn without_a_detector(serving: &mut Serving) {
    let before = serving.proxies[0].config["clusterCIDR"].clone();
    start_with(serving, &json!("")).await;
    let found = warns(serving, "kube-proxy", "no local-traffic detector");
    assert!(found["seen"].as_str().unwrap().starts_with("2 healthy: "), "{found}");
    start_with(serving, &before).await;
    assert_eq!(verdict(serving, "kube-proxy", "")["verdict"], "pass");
}

async fn start_with(serving: &mut Serving, range: &Value) {
    for proxy in &mut serving.proxies {
        proxy.stop();
        proxy.config["clusterCIDR"] = range.clone();
        proxy.start_again().await;
    }
    let config = serving.proxies[0].config.to_string();
    serving.cluster.api.merge(PROXY_CONFIG, &json!({"data": {"config.conf": config}})).await;
}

async fn with_windows(serving: &Serving) {
    let label = |value: Value| json!({"metadata": {"labels": {"kubernetes.io/os": value}}});
    serving.cluster.api.merge(NODE, &label(json!("windows"))).await;
    fails(serving, "windows", "`node-2`: how their kube-proxy (winkernel)");
    assert_eq!(verdict(serving, "windows", "--accept-gap")["verdict"], "warn");
    serving.cluster.api.merge(NODE, &label(Value::Null)).await;
}

fn with_a_route(serving: &Serving) {
    let network = serving.cluster.network();
    network.hub().ip(&["route add 10.200.7.0/24 dev fabric"]);
    fails(serving, "overlaps", "a route into the new range: `10.200.7.0/24` by `fabric`");
    network.hub().ip(&["route del 10.200.7.0/24 dev fabric", "route add 10.192.0.0/10 dev fabric"]);
    warns(serving, "overlaps", "`10.192.0.0/10` by `fabric`");
    network.hub().ip(&["route del 10.192.0.0/10 dev fabric"]);
}

/// As on K3s with a database of its own: nobody listens where etcd would.
async fn without_an_etcd(serving: &Serving) {
    let status = format!("{NODE}/status");
    let says = |version: &str| json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
    let own = serving.cluster.version().text();
    serving.cluster.api.merge(&status, &says(&format!("{own}+k3s1"))).await;
    let words = format!(
        "preflight renumber --to {NEW_RANGE} --only etcd-members --etcd-endpoints http://127.0.0.1:1 --etcd-timeout 1"
    );
    let refused = serving.netsurgeon(&words).expect(3);
    assert!(
        refused.out.contains("a database behind kine") && refused.out.contains("127.0.0.1:1"),
        "{}",
        refused.out
    );
    let all = serving.netsurgeon(&words.replace("--only etcd-members ", "")).expect(3);
    assert_eq!(all.out.matches("a database behind kine").count(), 1, "it is said once: {}", all.out);
    assert!(all.out.contains("not looked at, for the reason that `etcd-members` has"), "{}", all.out);
    serving.cluster.api.merge(&status, &says(own)).await;
}
