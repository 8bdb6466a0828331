//! How many failures the control plane tolerates.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use crate::inventory::pod::{TrimmedPod, is_alive, is_ready, node_of};
use crate::kube_api::accessors::{has_condition, labels, name};

/// Label of the nodes of K3s, RKE2 and RKE that run etcd.
const ETCD: &str = "node-role.kubernetes.io/etcd";
/// Labels of control-plane nodes; the second one is from before Kubernetes 1.24, the third one from RKE.
const CONTROL_PLANE: [&str; 4] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",
    ETCD,
];
/// Labels of the Pods of etcd: those of kubeadm, and those of kOps, which also has one for events.
const OF_ETCD: [(&str, &str); 2] = [("component", "etcd"), ("k8s-app", "etcd-manager-main")];

/// The members of the control plane: Pods of etcd if there are some, otherwise nodes of etcd, otherwise control-plane nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quorum {
    /// `etcd` if Pods of etcd were counted, otherwise `nodes`.
    pub counted: &'static str,
    /// Number of members.
    pub members: usize,
    /// Number of members that are ready.
    pub ready: usize,
    /// Number of members that a quorum needs.
    pub required: usize,
    /// Number of members that can fail now without the loss of the quorum.
    pub margin: usize,
}

/// Returns whether a node is a control-plane node, or has only etcd.
pub fn is_control_plane(node: &Node) -> bool {
    CONTROL_PLANE.iter().any(|label| labels(node).contains_key(*label))
}

impl Quorum {
    /// Counts the members.
    pub fn of(nodes: &[Node], pods: &[TrimmedPod]) -> Self {
        let is_etcd = |pod: &&TrimmedPod| {
            is_alive(pod)
                && OF_ETCD.iter().any(|(key, value)| labels(*pod).get(*key).is_some_and(|own| own == value))
        };
        let of_etcd: Vec<&TrimmedPod> = pods.iter().filter(is_etcd).collect();
        if of_etcd.is_empty() {
            let of_label = nodes.iter().filter(|node| labels(*node).contains_key(ETCD));
            let mut own: Vec<&Node> = of_label.collect();
            if own.is_empty() {
                own = nodes.iter().filter(|node| is_control_plane(node)).collect();
            }
            let ready = own.iter().filter(|node| has_condition(node, "Ready")).count();
            return Self::new("nodes", own.len(), ready);
        }
        let known: BTreeSet<&str> = nodes.iter().map(name).collect();
        let members: BTreeSet<&str> =
            of_etcd.iter().map(|pod| node_of(pod)).filter(|node| known.contains(node)).collect();
        let ready: BTreeSet<&str> =
            of_etcd.iter().filter(|pod| is_ready(pod)).map(|pod| node_of(pod)).collect();
        Self::new("etcd", members.len(), ready.intersection(&members).count())
    }

    fn new(counted: &'static str, members: usize, ready: usize) -> Self {
        let required = if members == 0 { 0 } else { members.div_euclid(2).saturating_add(1) };
        Self { counted, members, ready, required, margin: ready.saturating_sub(required) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_of_etcd_are_its_members() {
        let node = |role: &str| {
            let label = format!("node-role.kubernetes.io/{role}");
            let conditions = json!([{"type": "Ready", "status": "True"}]);
            let object = json!({"metadata": {"name": role, "labels": {label: "true"}}, "status": {"conditions": conditions}});
            serde_json::from_value::<Node>(object).unwrap()
        };
        assert!(["etcd", "controlplane", "control-plane"].iter().all(|role| is_control_plane(&node(role))));
        assert!(!is_control_plane(&node("worker")));
        let members = |roles: &[&str]| {
            Quorum::of(&roles.iter().map(|role| node(role)).collect::<Vec<_>>(), &[]).members
        };
        assert_eq!(members(&["etcd", "etcd", "etcd", "controlplane", "worker"]), 3);
        assert_eq!(members(&["control-plane", "worker"]), 1);
    }

    #[test]
    fn margin_is_what_can_fail() {
        let margin = |members, ready| Quorum::new("nodes", members, ready).margin;
        assert_eq!((margin(0, 0), margin(1, 1), margin(2, 2), margin(3, 3)), (0, 0, 0, 1));
        assert_eq!((margin(3, 2), margin(5, 5), margin(5, 4)), (0, 2, 1));
        assert_eq!(Quorum::new("nodes", 3, 3).required, 2);
    }
}
