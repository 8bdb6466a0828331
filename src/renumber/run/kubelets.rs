//! Reads the DNS addresses that kubelets write into Pods (`clusterDNS`), through the node proxy of the API servers.

use std::net::IpAddr;

use futures_util::StreamExt as _;
use futures_util::stream::iter;

use crate::kube_api::{Cluster, ClusterError};

/// Number of nodes that are queried concurrently, each through an API server.
const AT_ONCE: usize = 16;
/// Maximum number of nodes that a message names.
const NAMED: usize = 3;

/// The answers of the kubelets.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Number of nodes.
    pub(super) count: usize,
    /// Nodes whose kubelets configure Pods with one of the checked addresses.
    nodes: Vec<String>,
    /// Nodes that did not answer, each with the reason.
    silent: Vec<String>,
}

/// Reads from every kubelet whether it configures Pods with one of these DNS addresses.
pub(super) async fn told(cluster: &Cluster, addresses: &[IpAddr]) -> Result<Told, ClusterError> {
    let names: Vec<String> = cluster.nodes().await?.into_iter().map(|node| node.name).collect();
    let count = names.len();
    let asked = iter(names).map(|node| async move { (cluster.kubelet_dns(&node).await, node) });
    let mut found = Told { count, ..Told::default() };
    let mut answers = std::pin::pin!(asked.buffer_unordered(AT_ONCE));
    while let Some((answer, node)) = answers.next().await {
        match answer {
            Ok(dns) if dns.iter().any(|text| text.parse().is_ok_and(|one| addresses.contains(&one))) => {
                found.nodes.push(node);
            }
            Ok(_) => {}
            Err(error) => found.silent.push(format!("node `{node}`: {error}")),
        }
    }
    found.nodes.sort_unstable();
    found.silent.sort_unstable();
    Ok(found)
}

impl Told {
    /// Returns a message that names the kubelets that configure Pods with one of these addresses; `None` if there are no such
    /// kubelets.
    pub(super) fn words(&self, addresses: &[IpAddr]) -> Option<String> {
        if self.nodes.is_empty() {
            return None;
        }
        let named: Vec<String> = self.nodes.iter().take(NAMED).map(|node| format!("`{node}`")).collect();
        let more = match self.nodes.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let addresses: Vec<String> = addresses.iter().map(|address| format!("`{address}`")).collect();
        Some(format!(
            "kubelets configure Pods with the DNS address {}: {}{more}",
            addresses.join(" or "),
            named.join(", ")
        ))
    }

    /// Returns the number of kubelets that did not answer.
    pub(super) fn unseen_count(&self) -> usize {
        self.silent.len()
    }

    /// Returns the first node that did not answer, with the reason; `None` if every kubelet answered.
    pub(super) fn unseen(&self) -> Option<&str> {
        self.silent.first().map(String::as_str)
    }
}
