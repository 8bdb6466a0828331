//! Conditions and taints of a Node that concern its network.

use k8s_openapi::api::core::v1::Node;

use super::cell::{CellKey, Cells, FaultClass, Observation};
use super::path::Path;
use crate::kube_api::accessors::has_condition;
use crate::words::brief;

/// The condition of a node whose network is not configured, which network plug-ins and route controllers set
/// (`NodeNetworkUnavailable`, k8s.io/api/core/v1, v0.37.2).
const UNAVAILABLE: &str = "NetworkUnavailable";
/// Taints that network plug-ins or the node controller set while a node has no network.
const TAINTS: [&str; 3] = [
    "node.kubernetes.io/network-unavailable",
    "node.cilium.io/agent-not-ready",
    "node.kubernetes.io/not-ready",
];

/// Returns why a Node is not ready, if the reason is not its network: for example that its kubelet is down.
pub(super) fn not_ready(node: &Node) -> Option<String> {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.find(|one| one.type_ == "Ready" && one.status != "True")?;
    let [reason, message] = [&ready.reason, &ready.message].map(|text| text.as_deref().unwrap_or_default());
    // The kubelet reports the runtime's condition `NetworkReady` in this message (`runtimeState`, pkg/kubelet/runtime.go, v1.37.2).
    let is_of_network = message.contains("network") || message.contains("cni");
    (!is_of_network).then(|| format!("it is not ready: {reason}: {}", brief(message)))
}

/// Returns the Pod ranges of a Node.
pub(super) fn pod_ranges(node: &Node) -> Vec<ipnetwork::IpNetwork> {
    let ranges = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
    ranges.filter_map(|range| range.parse().ok()).collect()
}

/// Records whether the Node has a condition or a taint that keeps Pods away because of the network.
pub(super) fn observed(node: &Node, name: &str, cells: &mut Cells) {
    let mut found = Vec::new();
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    for condition in conditions.filter(|one| one.type_ == UNAVAILABLE && one.status == "True") {
        let reason = condition.reason.as_deref().unwrap_or("no reason");
        let text = condition.message.as_deref().unwrap_or_default();
        found.push(format!("the condition `{UNAVAILABLE}` is True, reason `{reason}`: {text}"));
    }
    if !has_condition(node, "Ready") {
        found.push("the Node is not ready".to_string());
    }
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    for taint in taints.filter(|taint| TAINTS.contains(&taint.key.as_str())) {
        found.push(format!("the taint `{}:{}`", taint.key, taint.effect));
    }
    let (seen, fault) = if found.is_empty() {
        ("neither a condition nor a taint".to_string(), None)
    } else {
        (found.join("; "), Some(FaultClass::Condition))
    };
    cells.record(key(name), Observation { tried: format!("`kubectl get node {name}`"), seen, fault });
}

/// Records that the Node was not read, because its network plug-in may still remove conditions and taints.
pub(super) fn not_observed(name: &str, cells: &mut Cells) {
    cells.record_untested(key(name), "the node joined during the test");
}

fn key(name: &str) -> CellKey {
    CellKey { path: Path::NodeObject, from: name.into(), to: "".into(), variant: "".into() }
}
