//! Nodes that are not ready for a move, one fault after the other: kube-proxies, operating systems, routes, managed clusters
//! without access to etcd, and a host with a full conntrack table.

use std::net::{Ipv4Addr, UdpSocket};

use netsurgeon::host::conntrack::taken;
use serde_json::{Value, json};

use super::{fails, look, verdict, warns};
use crate::rig::process::wait_until;
use crate::serving_cluster::{DEADLINE, NEW_RANGE, Serving};

const PROXY_CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kube-proxy";
const NODE: &str = "/api/v1/nodes/node-2";
const OTHER_NODE: &str = "/api/v1/nodes/node-x";
/// An endpoint without an etcd.
const NO_ETCD: &str = "--etcd-endpoints http://127.0.0.1:1 --etcd-timeout 1";

/// Creates one fault after the other, and repairs it.
pub async fn each_in_turn(serving: &mut Serving) {
    with_a_silent_proxy(serving);
    without_a_detector(serving).await;
    with_windows(serving).await;
    with_a_route(serving);
    without_an_etcd(serving).await;
    with_a_full_table(serving).await;
}

fn with_a_silent_proxy(serving: &mut Serving) {
    serving.proxies[1].pause();
    fails(serving, "kube-proxy", &["1 of 2", "`node-2` ("]);
    serving.proxies[1].resume();
    assert_eq!(verdict(serving, "kube-proxy", "")["verdict"], "pass");
}

/// Both kube-proxies restart without their cluster's range, and then with it again.
async fn without_a_detector(serving: &mut Serving) {
    let before = serving.proxies[0].config["clusterCIDR"].clone();
    start_with(serving, &json!("")).await;
    warns(serving, "kube-proxy", &["2 kube-proxies healthy", "`detectLocalMode`"]);
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
    fails(serving, "windows", &["`node-2`", "winkernel"]);
    assert_eq!(verdict(serving, "windows", "--accept-gap")["verdict"], "warn");
    serving.cluster.api.merge(NODE, &label(Value::Null)).await;
}

fn with_a_route(serving: &Serving) {
    let network = serving.cluster.network();
    network.hub().ip(&["route add 10.200.7.0/24 dev fabric"]);
    fails(serving, "overlaps", &["`10.200.7.0/24`", "`fabric`"]);
    network.hub().ip(&["route del 10.200.7.0/24 dev fabric", "route add 10.192.0.0/10 dev fabric"]);
    warns(serving, "overlaps", &["`10.192.0.0/10`", "`fabric`"]);
    network.hub().ip(&["route del 10.192.0.0/10 dev fabric"]);
}

/// No server listens at etcd's endpoint, and Nodes show the reason, as those of distributions do: an additional Node has the
/// labels, the provider and the kubelet's version of one of them.
async fn without_an_etcd(serving: &Serving) {
    let kine = "kine";
    let cases = [
        (
            "+k3s1",
            "node-role.kubernetes.io/control-plane",
            "k3s://node-x",
            Some((kine, "k3s server --cluster-init")),
        ),
        ("+k3s1", "node-role.kubernetes.io/etcd", "k3s://node-x", None),
        ("-eks-7f2c9a1", "eks.amazonaws.com/nodegroup", "aws:///eu-west-1a/i-0a", Some(("EKS", "range"))),
        ("-eks-7f2c9a1", "karpenter.sh/nodepool", "aws:///eu-west-1a/i-0b", Some(("EKS", "range"))),
        ("-gke.1061000", "cloud.google.com/gke-nodepool", "gce://shop/zone/node-x", Some(("GKE", "range"))),
        ("", "kubernetes.azure.com/cluster", "azure:///subscriptions/0/vm/0", Some(("AKS", "range"))),
        ("", "node.kubernetes.io/instance-type", "aws:///eu-west-1a/i-0c", None),
    ];
    for (end, label, provider, expected) in cases {
        let version = format!("{}{end}", serving.cluster.version().text());
        make_node(serving, &version, label, provider).await;
        let found = verdict(serving, "etcd-members", NO_ETCD);
        assert_eq!(found["verdict"], "fail", "{found}");
        let (seen, remedy) = (found["observed"].as_str().unwrap(), found["remedy"].as_str().unwrap());
        assert!(seen.contains("127.0.0.1:1"), "{found}");
        if let Some((reason, way_out)) = expected {
            assert!(seen.contains(reason) && seen.contains(&version), "{version} {label}: {found}");
            assert!(remedy.contains(way_out), "{version} {label}: {found}");
        } else {
            let names_none = [kine, "EKS", "GKE", "AKS"].iter().all(|name| !seen.contains(name));
            assert!(names_none, "{version} {label}: {found}");
        }
        if seen.contains(kine) {
            said_once(serving, kine);
        }
        serving.cluster.api.delete(OTHER_NODE).await;
    }
    assert_eq!(verdict(serving, "etcd-members", "")["verdict"], "pass");
    // The checks that need etcd are skipped with `etcd-members`, so that a CI job can pass.
    let (code, checks) = look(serving, &format!("--skip etcd-members {NO_ETCD}"));
    let skipped = checks.iter().filter(|check| check["verdict"] == "skipped").count();
    let open = checks.iter().find(|check| check["verdict"] == "fail" || check["verdict"] == "unknown");
    assert!(code == 0 && skipped > 10 && open.is_none(), "{code} {skipped} {open:?}");
}

async fn make_node(serving: &Serving, version: &str, label: &str, provider: &str) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-x", "labels": {label: "x"}}, "spec": {"providerID": provider},
    });
    serving.cluster.api.create(&node).await;
    let says = json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
    serving.cluster.api.merge(&format!("{OTHER_NODE}/status"), &says).await;
}

/// The first check that needs an etcd reports why there is none; the others do not repeat it.
fn said_once(serving: &Serving, reason: &str) {
    let all = serving.netsurgeon(&format!("preflight renumber --to {NEW_RANGE} {NO_ETCD}")).expect(3);
    assert_eq!(all.out.matches(reason).count(), 1, "it is reported once: {}", all.out);
    let words = format!("preflight renumber --to {NEW_RANGE} {NO_ETCD} -o json");
    let all = serving.netsurgeon(&words).expect(3).json();
    let mut depending = all["checks"].as_array().expect("checks").iter();
    assert!(depending.any(|check| check["depends_on"] == "etcd-members"), "{all}");
}

/// Many connections almost fill the conntrack table of this host: datagrams, each to another port or address.
async fn with_a_full_table(serving: &Serving) {
    assert_eq!(verdict(serving, "room", "")["verdict"], "pass");
    let hub = serving.cluster.network().hub();
    hub.run("nft", &["add", "table", "inet", "tracking"]);
    hub.run("nft", &["add", "chain", "inet", "tracking", "in", "{ type filter hook input priority 0; }"]);
    hub.run("nft", &["add", "rule", "inet", "tracking", "in", "ct", "state", "new", "accept"]);
    wait_until("the table is full", DEADLINE, async || {
        hub.within(|| {
            let (_, most) = taken().expect("the kernel tracks connections");
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            for number in 0..u32::try_from(most.div_ceil(100) * 85).expect("a number") {
                let address = Ipv4Addr::from_bits(0x7f01_0000 + (number >> 15));
                let port = 1024 + u16::try_from(number & 0x7fff).expect("15 bits");
                // A closed port answers with an error, which the next `send_to` returns.
                let _ = socket.send_to(b"x", (address, port));
            }
        });
        let found = verdict(serving, "room", "");
        if found["verdict"] == "warn" { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    let found = warns(serving, "room", &["conntrack", " %"]);
    assert!(found["remedy"].as_str().unwrap().contains("nf_conntrack_max"), "{found}");
    hub.run("nft", &["delete", "table", "inet", "tracking"]);
    hub.run("conntrack", &["-F"]);
    assert_eq!(verdict(serving, "room", "")["verdict"], "pass");
}
