//! What the cluster knows about a node, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::Plugin;
use crate::node_state::{NetworkConfiguration, NodeState};

/// What the cluster knows about a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Context {
    /// The plug-ins that run. Their items are not leftovers.
    pub in_place: BTreeSet<Plugin>,
    /// The addresses of the Pods of this node that use the pod network; `None` if they are not known.
    pub pod_addresses: Option<BTreeSet<IpAddr>>,
    /// Whether the Node is ready.
    pub is_ready: bool,
    /// Whether the node runs K3s or RKE2, which can enforce NetworkPolicies with the code of kube-router, without a Pod.
    pub is_k3s: bool,
    /// All Nodes.
    pub nodes: Vec<NodeFacts>,
    /// The ranges from which the former plug-in assigned addresses, for example the cluster CIDR.
    pub pod_ranges: Vec<IpNetwork>,
}

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its pod ranges.
    pub pod_cidrs: Vec<IpNetwork>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The keys of its taints.
    pub taints: Vec<String>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// A condition of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Its type.
    pub kind: String,
    /// Its status.
    pub status: String,
    /// Its reason.
    pub reason: String,
}

impl Context {
    /// Returns whether a plug-in runs. Canal consists of Calico and Flannel.
    pub fn claims(&self, plugin: Plugin) -> bool {
        let is_part_of_canal = matches!(plugin, Plugin::Calico | Plugin::Flannel | Plugin::Canal);
        self.in_place.contains(&plugin) || (is_part_of_canal && self.in_place.contains(&Plugin::Canal))
    }

    /// Returns the Node to whose pod range a network belongs exactly, and which has this address.
    pub(super) fn node_of_route(&self, to: IpNetwork, via: IpAddr) -> Option<&NodeFacts> {
        self.nodes.iter().find(|node| node.pod_cidrs.contains(&to) && node.addresses.contains(&via))
    }
}

/// The state of a node together with the context, and what several judges need from both.
pub(super) struct Scene<'s> {
    pub(super) state: &'s NodeState,
    pub(super) context: &'s Context,
    /// The types of all plug-ins in the configurations that the runtime uses.
    pub(super) used_types: BTreeSet<&'s str>,
}

/// Plug-ins that call the plug-ins of other configurations.
const META: [&str; 2] = ["multus", "multus-shim"];

/// Returns whether a configuration calls the plug-ins of other configurations.
pub(super) fn is_meta(configuration: &NetworkConfiguration) -> bool {
    configuration.plugins.iter().any(|kind| META.contains(&kind.as_str()))
}

impl<'s> Scene<'s> {
    pub(super) fn new(state: &'s NodeState, context: &'s Context) -> Self {
        let configurations = &state.configurations.items;
        let mut used: Vec<&NetworkConfiguration> = configurations.first().into_iter().collect();
        if used.iter().any(|one| is_meta(one)) {
            used = configurations.iter().collect();
        }
        let types = used.iter().flat_map(|one| one.plugins.iter().chain(&one.inner_types));
        let mut used_types: BTreeSet<&str> = types.map(String::as_str).collect();
        if used_types.contains("flannel") {
            // Its default delegate.
            used_types.extend(["bridge", "host-local"]);
        }
        Self { state, context, used_types }
    }

    /// Returns the configuration that the runtime reads first.
    pub(super) fn winner(&self) -> Option<&'s NetworkConfiguration> {
        super::winner(self.state)
    }

    /// Returns whether it is known which configurations the runtime uses. A node is only ready with a configuration, so it has another
    /// folder if none was found.
    pub(super) fn has_configurations(&self) -> bool {
        let is_elsewhere = self.state.configurations.items.is_empty() && self.context.is_ready;
        self.state.configurations.gap().is_none() && !is_elsewhere
    }

    /// Returns whether it is known that no configuration uses a plug-in.
    pub(super) fn is_unused(&self, kind: &str) -> bool {
        self.has_configurations() && !self.used_types.contains(kind)
    }

    /// Returns whether it is known that no Pod has the address.
    pub(super) fn is_dead(&self, address: IpAddr) -> bool {
        self.context.pod_addresses.as_ref().is_some_and(|live| !live.contains(&address))
    }

    /// Returns whether a network is inside a former pod range, or the pod range of a Node.
    pub(super) fn is_of_pods(&self, network: IpNetwork) -> bool {
        let of_nodes = self.context.nodes.iter().flat_map(|node| &node.pod_cidrs);
        self.context.pod_ranges.iter().chain(of_nodes).any(|range| contains(*range, network))
    }
}

/// Returns whether a network is inside another one.
pub(super) fn contains(range: IpNetwork, network: IpNetwork) -> bool {
    range.prefix() <= network.prefix() && range.contains(network.network())
}

/// Returns whether a network is a single address.
pub(super) fn host(network: IpNetwork) -> Option<IpAddr> {
    let full = if network.is_ipv4() { 32 } else { 128 };
    (network.prefix() == full).then(|| network.ip())
}
