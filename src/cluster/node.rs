//! The nodes: where kube-proxies run.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1;
use serde::Deserialize;

use super::node_proxy::node_proxy_refusal;
use super::{Cluster, ClusterError};

/// How long a kubelet may take to answer; one that is gone is not waited for.
const QUESTION: Duration = Duration::from_secs(5);

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its addresses of type InternalIP, in their order.
    pub internal_ips: Vec<IpAddr>,
    /// Whether its kubelet says that it is ready, and was heard of lately.
    pub ready: bool,
}

impl Node {
    /// Reads a node from its object, as the API has it.
    pub fn of(object: &v1::Node) -> Self {
        let status = object.status.as_ref();
        let addresses = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
        let internal = addresses.filter(|address| address.type_ == "InternalIP");
        let conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready =
            |condition: &v1::NodeCondition| condition.type_ == "Ready" && condition.status == "True";
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            internal_ips: internal.filter_map(|address| address.address.parse().ok()).collect(),
            ready: conditions.into_iter().any(is_ready),
        }
    }
}

impl Cluster {
    /// Lists the nodes as they are now.
    pub async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
        Ok(self.objects(None, None).await?.iter().map(Node::of).collect())
    }

    /// Asks a node's kubelet, once, which addresses of the cluster's DNS it tells Pods: `clusterDNS` of the configuration that it
    /// runs with (`/configz`, `pkg/kubelet/server/server.go`, v1.36.3). The error says why it did not answer: without the optional
    /// ClusterRole `netsurgeon-nodes` no kubelet can be asked.
    pub async fn kubelet_dns(&self, node: &str) -> Result<Vec<String>, String> {
        let answer = self.ask_node((node, None), "configz", QUESTION).await?;
        if answer.code != 200 {
            return Err(node_proxy_refusal(&answer));
        }
        let found: Configz = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        Ok(found.kubeletconfig.cluster_dns)
    }
}

/// What is read of a kubelet's configuration.
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
