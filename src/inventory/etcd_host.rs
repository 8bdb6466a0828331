//! Finds the reason why etcd is not reachable, based on the versions and the labels of the Nodes.

use k8s_openapi::api::core::v1::Node;

use crate::kube_api::accessors::{label, node_info};

/// Services for managed clusters, in which etcd is not reachable. Each entry has a part of the kubelet's version, a label of
/// Nodes, and the name of the service.
const MANAGED: [(&str, &str, &str); 4] = [
    ("-eks-", "eks.amazonaws.com/nodegroup", "EKS"),
    ("-gke.", "cloud.google.com/gke-nodepool", "GKE"),
    ("-aks", "kubernetes.azure.com/cluster", "AKS"),
    ("-aliyun", "alibabacloud.com/nodepool-id", "ACK"),
];

/// Returns why etcd is not reachable, and what to do. `None` if the Nodes do not show a reason.
pub fn without_etcd(nodes: &[Node]) -> Option<(String, &'static str)> {
    for node in nodes {
        let version = node_info(node).map(|info| info.kubelet_version.as_str()).unwrap_or_default();
        let is_of =
            |(part, name, _): &&(&str, &str, &str)| version.contains(part) || label(node, name).is_some();
        if let Some((.., who)) = MANAGED.iter().find(is_of) {
            let reason = format!(
                "this is a {who} cluster (kubelet `{version}`) with a managed etcd: its Service range cannot be changed"
            );
            return Some((reason, "create a cluster with the new range, and move the workloads there"));
        }
        let of_etcd = |node: &Node| label(node, "node-role.kubernetes.io/etcd").is_some();
        if version.contains("+k3s") && !nodes.iter().any(of_etcd) {
            let reason = format!(
                "this is a K3s cluster (kubelet `{version}`) without an etcd Node: it stores its objects in a database behind kine, which netsurgeon does not support"
            );
            return Some((reason, "move it to etcd first: `k3s server --cluster-init`"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn unreachable_etcd_is_explained() {
        let node = |version: &str, labels: Value| {
            let object =
                json!({"metadata": {"labels": labels}, "status": {"nodeInfo": {"kubeletVersion": version}}});
            serde_json::from_value::<Node>(object).unwrap()
        };
        assert_eq!(without_etcd(&[node("v1.36.3", json!({}))]), None);
        let told = |version: &str, labels: Value| without_etcd(&[node(version, labels)]).unwrap();
        assert!(told("v1.33.1-eks-7f2c", json!({})).0.contains("EKS"));
        assert!(told("v1.33.1", json!({"kubernetes.azure.com/cluster": "x"})).0.contains("AKS"));
        let (reason, remedy) = told("v1.33.1+k3s1", json!({}));
        assert!(reason.contains("kine") && remedy.contains("--cluster-init"));
        let with_etcd = node("v1.33.1+k3s1", json!({"node-role.kubernetes.io/etcd": "true"}));
        assert_eq!(without_etcd(&[node("v1.33.1+k3s1", json!({})), with_etcd]), None);
    }
}
