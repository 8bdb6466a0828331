//! The network plug-in that is in place.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;

use super::cluster_view::ClusterView;
use super::plugin_traits::{PluginTraits, traits_of};
use crate::inventory::installer::Installer;
use crate::inventory::network_plugins::{agent, is_k3s_with_flannel};
use crate::inventory::network_settings::UsedRanges;
use crate::inventory::used_ranges::node_ranges;
use crate::kube_api::accessors::subject;

/// The network plug-in that is in place.
#[derive(Debug, Clone)]
pub struct Present<'v> {
    /// Names of the plug-ins with agents, or whose settings were found.
    pub plugins: BTreeSet<&'static str>,
    /// Images of the agents.
    pub images: BTreeSet<&'v str>,
    /// The DaemonSets of the agents.
    pub daemon_sets: Vec<&'v DaemonSet>,
    /// What installed the DaemonSets.
    pub installers: BTreeSet<Installer>,
    /// Whether the Pods of each node have addresses of `spec.podCIDRs` of its Node.
    pub uses_node_ranges: bool,
    /// Ranges for Pods, each with its source.
    pub ranges: UsedRanges,
    /// Whether K3s runs the plug-in, without a DaemonSet.
    pub is_built_in: bool,
    /// Agents of the new plug-in that are already in the cluster.
    pub newcomers: Vec<String>,
}

impl<'v> Present<'v> {
    /// Finds the plug-in that is in place. `to`: the new plug-in.
    pub fn of(view: &'v ClusterView, to: &str) -> Self {
        let others: Vec<_> = view.agents().filter(|(plugin, ..)| *plugin != to).collect();
        let is_same = others.is_empty() && view.agents().next().is_some();
        let found = if is_same { view.agents().collect() } else { others };
        let mut plugins: BTreeSet<&'static str> = found.iter().map(|(plugin, ..)| *plugin).collect();
        if plugins.is_empty() {
            plugins.extend(view.settings.running.iter().copied().filter(|plugin| *plugin != to));
            // K3s runs Flannel without Pods.
            plugins.extend(view.nodes.iter().any(is_k3s_with_flannel).then_some("Flannel"));
        }
        let newcomers = view.daemon_sets.iter().filter(|one| agent(one).is_some_and(|(name, _)| name == to));
        let newcomers = if is_same { Vec::new() } else { newcomers.map(subject).collect() };
        let uses_node_ranges = view.settings.has_node_ranges
            || plugins.iter().filter_map(|name| traits_of(name)).any(|one| one.uses_node_ranges);
        let daemon_sets: Vec<&DaemonSet> = found.iter().map(|(.., one)| *one).collect();
        Self {
            images: found.iter().map(|(_, image, _)| *image).collect(),
            installers: daemon_sets.iter().filter_map(|one| Installer::of(*one)).collect(),
            ranges: ranges(view, uses_node_ranges),
            uses_node_ranges,
            plugins,
            is_built_in: daemon_sets.is_empty() && view.nodes.iter().any(is_k3s_with_flannel),
            daemon_sets,
            newcomers,
        }
    }

    /// Returns the names of the plug-ins as text.
    pub fn name(&self) -> String {
        if self.plugins.is_empty() {
            return "an unknown CNI".to_string();
        }
        self.plugins.iter().copied().collect::<Vec<_>>().join(" and ")
    }

    /// Returns what is known of the plug-ins.
    pub fn traits(&self) -> impl Iterator<Item = &'static PluginTraits> {
        self.plugins.iter().filter_map(|name| traits_of(name))
    }

    /// Returns the plug-ins that route Services, if no kube-proxy does.
    pub fn service_proxies(view: &ClusterView) -> Vec<&'static str> {
        let is_alone = view.detector.is_none();
        view.settings.service_proxies.iter().copied().filter(|_| is_alone).collect()
    }

    /// Returns the namespaces and names of the DaemonSets.
    pub fn subjects(&self) -> Vec<String> {
        self.daemon_sets.iter().map(|one| subject(*one)).collect()
    }
}

/// Returns the ranges of the plug-ins: those in their settings, those of the Nodes, and that of the controller manager. A plug-in with
/// ranges of its own does not use the others.
fn ranges(view: &ClusterView, uses_nodes: bool) -> UsedRanges {
    let mut found: UsedRanges = Vec::new();
    let of_pools = view.settings.pools.iter();
    found.extend(of_pools.map(|(at, range)| (at.trim_start_matches("Pods: ").to_string(), *range)));
    if found.is_empty() || uses_nodes {
        let of_pods = view.ranges.iter().filter(|(at, _)| at.starts_with("Pods: "));
        found.extend(of_pods.map(|(at, range)| (at.trim_start_matches("Pods: ").to_string(), *range)));
        found.extend(
            node_ranges(&view.nodes).into_iter().map(|(at, range)| (at.replace("Pods of n", "N"), range)),
        );
    }
    found
}

/// Returns the prefix or name of the links of a plug-in's Pods on a node.
pub fn links_of(plugin: &str) -> Option<&'static str> {
    Some(match plugin {
        "Calico" | "Canal" => "cali",
        "Cilium" => "lxc",
        "Flannel" => "cni0",
        "Weave Net" => "weave",
        "kube-router" => "kube-bridge",
        "Amazon VPC CNI" => "eni",
        "Antrea" => "antrea-gw0",
        _ => return None,
    })
}
