//! The nodes of the cluster, on which kube-proxies run.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1;
use serde::Deserialize;

use super::accessors::{has_condition, name};
use super::node_proxy::node_proxy_refusal;
use super::{Cluster, ClusterError};

/// Timeout for the answer of a kubelet. A kubelet may be down.
const QUESTION: Duration = Duration::from_secs(5);

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Addresses of type InternalIP, in the order of the Node object.
    pub internal_ips: Vec<IpAddr>,
    /// Whether the condition `Ready` of the node is true. The control plane sets the condition to unknown when the kubelet stops
    /// reporting.
    pub ready: bool,
}

impl Node {
    /// Reads a node from its API object.
    pub fn of(object: &v1::Node) -> Self {
        let status = object.status.as_ref();
        let addresses = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
        let internal = addresses.filter(|address| address.type_ == "InternalIP");
        Self {
            name: name(object).to_string(),
            internal_ips: internal.filter_map(|address| address.address.parse().ok()).collect(),
            ready: has_condition(object, "Ready"),
        }
    }
}

impl Cluster {
    /// Lists the current nodes.
    pub async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
        Ok(self.objects(None, None).await?.iter().map(Node::of).collect())
    }

    /// Reads the DNS addresses that the kubelet of a node gives to Pods. They are `clusterDNS` in the kubelet's running
    /// configuration (`/configz`, `pkg/kubelet/server/server.go`, v1.36.3). Sends the request once. The error is the reason why
    /// the addresses could not be read, for example that the optional ClusterRole `netsurgeon-nodes` is missing.
    pub async fn kubelet_dns(&self, node: &str) -> Result<Vec<String>, String> {
        let answer = self.ask_node((node, None), "configz", QUESTION).await?;
        if answer.code != 200 {
            return Err(node_proxy_refusal(&answer));
        }
        let found: Configz = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        Ok(found.kubeletconfig.cluster_dns)
    }
}

/// The part of a kubelet's configuration that netsurgeon uses.
#[derive(Deserialize)]
struct Configz {
    kubeletconfig: KubeletConfig,
}

#[derive(Deserialize)]
struct KubeletConfig {
    #[serde(rename = "clusterDNS", default)]
    cluster_dns: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_has_addresses_of_several_types() {
        let node = json!({
            "metadata": {"name": "a"},
            "status": {
                "addresses": [
                    {"type": "Hostname", "address": "10.0.0.9"},
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "InternalIP", "address": "fd00::1"},
                ],
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            },
        });
        let node = Node::of(&serde_json::from_value(node).unwrap());
        let internal_ips = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(node, Node { name: "a".into(), internal_ips, ready: false });
    }
}
