//! Manifests and clusters for tests.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster_view::ClusterView;
use crate::inventory::network_settings::{self, Sources};

pub fn typed<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap()
}

/// Returns a DaemonSet with one container.
pub fn daemon_set(container: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "hostNetwork": true, "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": container, "image": "example.com/node:1"}],
                },
            },
        },
    })
}

/// Returns manifests of Calico with a range, `portmap`, and VXLAN. The agents start only on labelled nodes.
pub fn manifests(range: &str) -> Vec<Value> {
    let mut agent = daemon_set("calico-node", "calico-node");
    let spec = &mut agent["spec"]["template"]["spec"];
    spec["nodeSelector"] = json!({"netsurgeon.io/cni": "calico"});
    spec["containers"][0]["ports"] = json!([{"containerPort": 9099}]);
    spec["containers"][0]["env"] = json!([{"name": "CALICO_IPV4POOL_CIDR", "value": range}, {"name": "CALICO_IPV4POOL_VXLAN", "value": "Always"}]);
    let conf = r#"{"plugins": [{"type": "calico", "mtu": __CNI_MTU__}, {"type" : "portmap", "capabilities": {"portMappings": true}}]}"#;
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "calico-config", "namespace": "kube-system"},
        "data": {"veth_mtu": "0", "cni_network_config": conf},
    });
    vec![agent, config]
}

/// Returns a ready node.
pub fn node(name: &str, labels: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels}, "spec": {"podCIDRs": ["10.244.0.0/24"]},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "addresses": [{"type": "InternalIP", "address": "192.0.2.10"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Returns a running Pod of a ReplicaSet.
pub fn pod(name: &str, on: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": name, "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": on, "containers": [{"name": "web", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "podIP": "10.244.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Returns a cluster of Flannel with three control-plane nodes and two workers.
pub fn cluster() -> ClusterView {
    let control_plane = json!({"node-role.kubernetes.io/control-plane": ""});
    let nodes = [
        node("a", &control_plane),
        node("b", &control_plane),
        node("c", &control_plane),
        node("d", &json!({})),
        node("e", &json!({})),
    ];
    let mut agent = daemon_set("kube-flannel", "kube-flannel-ds");
    agent["status"] = json!({"desiredNumberScheduled": 5, "currentNumberScheduled": 5, "numberMisscheduled": 0, "numberReady": 5});
    let conf = r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}"#;
    let config = json!({"metadata": {"name": "kube-flannel-cfg", "namespace": "kube-flannel"}, "data": {"net-conf.json": conf}});
    let daemon_sets = vec![typed(&agent)];
    let sources = Sources { config_maps: vec![typed(&config)], others: Vec::new() };
    let nodes: Vec<_> = nodes.iter().map(typed).collect();
    ClusterView {
        settings: network_settings::read(&sources, &daemon_sets, &nodes, Some("Calico")),
        pods: ["web-1", "web-2"].iter().zip(["d", "e"]).map(|(name, on)| typed(&pod(name, on))).collect(),
        daemon_sets,
        nodes,
        ..ClusterView::default()
    }
}
