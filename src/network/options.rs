//! How to test.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::baseline::Baseline;
use super::member::Role;
use super::path::Path;
use crate::kube_api::accessors::{is_windows, label, name};

/// How to test.
#[derive(Debug, Clone)]
pub struct Test {
    /// The nodes to test; all Linux nodes if empty.
    pub nodes: Vec<String>,
    /// Paths to leave out.
    pub skip: BTreeSet<Path>,
    /// The number of rounds, if there is no duration.
    pub rounds: u32,
    /// The time for which rounds repeat.
    pub duration: Option<Duration>,
    /// The pause between the starts of two rounds.
    pub interval: Duration,
    /// Whether rounds continue after a failure that the baseline does not have.
    pub keep_going: bool,
    /// In a cluster with more than 50 nodes: how many other nodes each node asks in a round.
    pub peers: usize,
    /// The time for the Pods to start.
    pub patience: Duration,
    /// Further names to resolve.
    pub names: Vec<String>,
    /// Further name servers to ask, for example a node-local one.
    pub name_servers: Vec<std::net::IpAddr>,
    /// An earlier result.
    pub baseline: Option<Baseline>,
}

impl Test {
    /// Whether a node is to be tested.
    pub(super) fn includes(&self, node: &Node) -> bool {
        let is_named = self.nodes.is_empty() || self.nodes.iter().any(|wanted| wanted == name(node));
        is_named && runs_agents(node)
    }

    /// Returns the roles of the agents of each node, in the order in which they start.
    pub(super) fn roles(&self) -> Vec<Role> {
        let of_peers =
            [Path::NewPod, Path::PodToPodSameNode, Path::HostPort, Path::PolicyDeny, Path::PolicyAllow];
        let skips_peers = of_peers.iter().all(|path| self.skip.contains(path));
        Role::ALL.into_iter().filter(|role| *role != Role::Peer || !skips_peers).collect()
    }
}

/// Whether a node can run the agents: not Windows, and not a node without a kubelet of its own (Virtual Kubelet, AWS Fargate), which
/// starts no Pod that names its node.
pub(super) fn runs_agents(node: &Node) -> bool {
    let is_virtual = label(node, "type") == Some("virtual-kubelet")
        || label(node, "eks.amazonaws.com/compute-type") == Some("fargate");
    !is_windows(node) && !is_virtual
}
