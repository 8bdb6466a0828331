//! The network plug-in in manifests that are not applied yet.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::Value;

use super::plugin_traits::{PluginTraits, traits_of};
use crate::inventory::network_plugins::{NetworkPlugin, PLUGINS, VXLAN, agent};
use crate::inventory::network_settings::{self, NetworkSettings, Sources, UsedRanges};
use crate::inventory::{list, text};
use crate::ip::ServiceCidr;
use crate::kube_api::accessors::subject;

/// Range of Calico if none is configured (`node/pkg/lifecycle/startup/startup.go`).
const RANGE_OF_CALICO: &str = "192.168.0.0/16";
/// Source of this range.
const DEFAULT_OF_CALICO: &str = "Calico's default";
/// Environment variables of agents with a range for Pods. `network_settings` reads those that are also valid in a running cluster.
const RANGE_VARIABLES: [&str; 3] = ["CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR", "POD_SUBNET"];
/// The folder of CNI configurations, on hosts and in containers that mount it.
const CONF_FOLDER: &str = "net.d/";

/// A network plug-in, as its manifests describe it.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the settings do not depend on each other")]
pub struct Newcomer {
    /// Its name.
    pub plugin: &'static str,
    /// Image of its agent.
    pub image: String,
    /// The DaemonSet of its agent.
    pub daemon_set: DaemonSet,
    /// Ranges for Pods, each with its source.
    pub ranges: UsedRanges,
    /// MTUs that are set by hand, each with the place where it is set.
    pub mtus: Vec<(String, u64)>,
    /// UDP ports of its tunnels.
    pub tunnels: BTreeSet<u16>,
    /// Name of its file in `/etc/cni/net.d`.
    pub conf: Option<String>,
    /// Types of the plug-ins in its configuration; `None` if the manifests have no configuration.
    pub chain: Option<BTreeSet<String>>,
    /// Ports that its Pods use on each node, and their protocols.
    pub host_ports: BTreeSet<(u16, String)>,
    /// Names of the containers in its Pods.
    pub containers: BTreeSet<String>,
    /// Whether each node's Pods have addresses of `spec.podCIDRs` of its Node.
    pub uses_node_ranges: bool,
    /// Whether it replaces kube-proxy.
    pub replaces_kube_proxy: bool,
    /// Whether its agent renames the configurations of other plug-ins (`cni-exclusive` of Cilium).
    pub is_exclusive: bool,
    /// Whether its operator deletes Pods of cluster DNS that are not on its network (`unmanaged-pod-watcher-interval` of Cilium).
    pub deletes_unmanaged: bool,
    /// Number of objects in the manifests.
    pub objects: usize,
}

/// Why no network plug-in was recognised.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewcomerError {
    /// No DaemonSet runs a known agent.
    #[error("no DaemonSet in the manifests runs the agent of a known CNI")]
    Missing,
    /// The manifests install an operator, which creates the DaemonSet later.
    #[error("the manifests install {0} with an operator, which creates the DaemonSet of the agent later")]
    Operator(&'static str),
    /// The DaemonSets of several plug-ins were found.
    #[error("the manifests contain the agents of several CNIs: {0}")]
    Several(String),
    /// An object cannot be read.
    #[error("{kind} `{name}` in the manifests cannot be read: {reason}")]
    Invalid {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// Why it cannot be read.
        reason: String,
    },
}

/// Recognises the network plug-in in manifests.
pub fn recognise(objects: &[Value]) -> Result<Newcomer, NewcomerError> {
    let daemon_sets: Vec<DaemonSet> = of_kind(objects, "DaemonSet")?;
    let agents: Vec<(&'static str, &str, &DaemonSet)> =
        daemon_sets.iter().filter_map(|one| agent(one).map(|(name, image)| (name, image, one))).collect();
    let names: BTreeSet<&str> = agents.iter().map(|(name, ..)| *name).collect();
    if names.len() > 1 {
        return Err(NewcomerError::Several(names.into_iter().collect::<Vec<_>>().join(", ")));
    }
    let Some((plugin, image, daemon_set)) = agents.first().copied() else {
        let is_of_operator = objects.iter().any(|one| text(one, "/kind") == "Installation");
        return Err(if is_of_operator { NewcomerError::Operator("Calico") } else { NewcomerError::Missing });
    };
    let sources = Sources { config_maps: of_kind(objects, "ConfigMap")?, others: others(objects) };
    let settings = settings(&sources, daemon_set);
    let specs = pod_specs(objects)?;
    let entries = entries(&sources);
    Ok(Newcomer {
        plugin,
        image: image.to_string(),
        daemon_set: daemon_set.clone(),
        ranges: ranges(plugin, &settings, daemon_set, objects),
        mtus: settings.mtus.clone(),
        tunnels: tunnels(&settings, daemon_set),
        conf: conf_name(daemon_set, &entries)
            .or_else(|| traits_of(plugin).map(|traits| traits.conf.to_string())),
        chain: chain(&entries),
        host_ports: specs.iter().flat_map(host_ports).collect(),
        containers: specs.iter().flat_map(|spec| &spec.containers).map(|one| one.name.clone()).collect(),
        uses_node_ranges: settings.has_node_ranges
            || traits_of(plugin).is_some_and(|traits| traits.uses_node_ranges),
        replaces_kube_proxy: !settings.service_proxies.is_empty(),
        is_exclusive: plugin == "Cilium" && entry(&entries, "cni-exclusive") != Some("false"),
        deletes_unmanaged: plugin == "Cilium" && deletes_unmanaged(&entries),
        objects: objects.len(),
    })
}

impl Newcomer {
    /// Returns what is known of the plug-in.
    pub fn traits(&self) -> Option<&'static PluginTraits> {
        traits_of(self.plugin)
    }

    /// Returns the plug-in as it is in a cluster with these ranges in kubeadm's configuration: calico-node prefers them to its default.
    #[must_use]
    pub fn with_kubeadm(&self, ranges: &[ServiceCidr]) -> Self {
        let mut new = self.clone();
        let has_default = new.ranges.iter().any(|(at, _)| at == DEFAULT_OF_CALICO);
        if has_default && ranges.iter().any(|range| range.network().is_ipv4()) {
            let told = ranges.iter().map(|range| ("`podSubnet` of kubeadm-config".to_string(), *range));
            new.ranges = told.collect();
        }
        new
    }

    /// Returns the Pod spec of its agents.
    pub fn spec(&self) -> Option<&PodSpec> {
        self.daemon_set.spec.as_ref()?.template.spec.as_ref()
    }

    /// Returns the namespace and the name of the DaemonSet of its agents.
    pub fn subject(&self) -> String {
        subject(&self.daemon_set)
    }

    /// Returns whether its configuration has a plug-in of this type; `None` if this is unknown.
    pub fn has(&self, plugin: &str) -> Option<bool> {
        self.chain.as_ref().map(|chain| chain.contains(plugin))
    }

    /// Returns the update strategy of the DaemonSet.
    pub fn update_strategy(&self) -> &str {
        let spec = self.daemon_set.spec.as_ref();
        let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
        strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate")
    }
}

fn of_kind<K: serde::de::DeserializeOwned>(objects: &[Value], kind: &str) -> Result<Vec<K>, NewcomerError> {
    let found = objects.iter().filter(|object| text(object, "/kind") == kind);
    let typed = |object: &Value| {
        serde_json::from_value(object.clone()).map_err(|error| NewcomerError::Invalid {
            kind: kind.to_string(),
            name: text(object, "/metadata/name").to_string(),
            reason: error.to_string(),
        })
    };
    found.map(typed).collect()
}

/// Returns the objects of the kinds with settings of network plug-ins.
fn others(objects: &[Value]) -> Vec<(&'static str, Value)> {
    let kinds = PLUGINS.iter().flat_map(|plugin| plugin.settings);
    let found = kinds.flat_map(|(versions, kind)| {
        let own = objects.iter().filter(move |object| {
            text(object, "/kind") == *kind && versions.contains(&text(object, "/apiVersion"))
        });
        own.map(|object| (*kind, object.clone()))
    });
    found.collect()
}

/// Reads the settings as if the agents ran.
fn settings(sources: &Sources, daemon_set: &DaemonSet) -> NetworkSettings {
    let status = DaemonSetStatus { desired_number_scheduled: 1, ..DaemonSetStatus::default() };
    let running = DaemonSet { status: Some(status), ..daemon_set.clone() };
    network_settings::read(sources, &[running], &[], None)
}

fn all_containers(daemon_set: &DaemonSet) -> impl Iterator<Item = &Container> {
    let spec = daemon_set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    spec.into_iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
}

/// Returns the variables of the agent's containers that have a value in the manifest.
fn variables(daemon_set: &DaemonSet) -> impl Iterator<Item = (&str, &str)> {
    let all = all_containers(daemon_set).flat_map(|container| container.env.iter().flatten());
    all.filter_map(|one| Some((one.name.as_str(), one.value.as_deref()?)))
}

fn ranges(
    plugin: &'static str,
    settings: &NetworkSettings,
    daemon_set: &DaemonSet,
    objects: &[Value],
) -> UsedRanges {
    let mut found: UsedRanges = settings
        .pools
        .iter()
        .map(|(at, range)| (at.trim_start_matches("Pods: ").to_string(), *range))
        .collect();
    let told = variables(daemon_set).filter(|(name, _)| RANGE_VARIABLES.contains(name));
    let told = told.flat_map(|(name, value)| {
        let ranges = value.split(',').filter_map(|range| range.trim().parse().ok());
        ranges.map(move |range| (format!("`{name}`"), range))
    });
    found.extend(told);
    let installations = objects.iter().filter(|one| text(one, "/kind") == "Installation");
    let pools = installations.flat_map(|one| list(one, "/spec/calicoNetwork/ipPools"));
    let pools = pools.filter_map(|pool| text(pool, "/cidr").parse().ok());
    found.extend(pools.map(|range| ("Installation".to_string(), range)));
    let has_no_pool = variables(daemon_set).any(|pair| pair == ("NO_DEFAULT_POOLS", "true"));
    if plugin == "Calico" && found.is_empty() && !has_no_pool {
        found.extend(RANGE_OF_CALICO.parse().ok().map(|range| (DEFAULT_OF_CALICO.to_string(), range)));
    }
    found.sort_by_key(|(_, range)| *range);
    found.dedup_by_key(|(_, range)| *range);
    found
}

fn tunnels(settings: &NetworkSettings, daemon_set: &DaemonSet) -> BTreeSet<u16> {
    let mut ports: BTreeSet<u16> = settings.tunnels.iter().map(|(_, port)| *port).collect();
    let told: BTreeMap<&str, &str> = variables(daemon_set).collect();
    let modes = ["CALICO_IPV4POOL_VXLAN", "CALICO_IPV6POOL_VXLAN"];
    if modes.iter().any(|name| told.get(name).is_some_and(|mode| !matches!(*mode, "" | "Never"))) {
        ports.insert(told.get("FELIX_VXLANPORT").and_then(|port| port.parse().ok()).unwrap_or(VXLAN));
    }
    ports
}

/// An entry of a ConfigMap: its name and its text.
type Entry<'s> = (&'s str, &'s str);

/// Returns the entries of the ConfigMaps.
fn entries(sources: &Sources) -> Vec<Entry<'_>> {
    let all = sources.config_maps.iter().flat_map(|object| object.data.iter().flatten());
    all.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn entry<'s>(entries: &[Entry<'s>], name: &str) -> Option<&'s str> {
    entries.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
}

fn is_conf_name(name: &str) -> bool {
    [".conflist", ".conf"].iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

/// Returns the name of the configuration that the agent writes: from a variable, from a path in a variable, a command or an entry, or
/// the name of an entry.
fn conf_name(daemon_set: &DaemonSet, entries: &[Entry<'_>]) -> Option<String> {
    let by_name = variables(daemon_set).find(|(name, _)| *name == "CNI_CONF_NAME").map(|(_, value)| value);
    if let Some(name) = by_name.filter(|name| !name.is_empty()) {
        return Some(name.to_string());
    }
    let words = all_containers(daemon_set)
        .flat_map(|one| one.command.iter().chain(&one.args).flatten())
        .map(String::as_str);
    let values = variables(daemon_set).map(|(_, value)| value);
    let texts = words.chain(values).chain(entries.iter().map(|(_, value)| *value));
    let paths = texts.flat_map(|text| text.split([' ', '\n', '\t', '"', '\'', '=']));
    let mut names = paths.filter_map(|path| Some(path.rsplit_once(CONF_FOLDER)?.1));
    let by_path = names.find(|name| is_conf_name(name) && !name.contains('/'));
    let by_entry = || {
        let starts_with_digits = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
        entries.iter().map(|(name, _)| *name).find(|name| is_conf_name(name) && starts_with_digits(name))
    };
    by_path.or_else(by_entry).map(str::to_string)
}

/// Returns the types of the plug-ins in the configuration. The text is a template, which need not be valid JSON.
fn chain(entries: &[Entry<'_>]) -> Option<BTreeSet<String>> {
    let is_conf = |name: &str| name == "cni_network_config" || name == "cni-conf.json" || is_conf_name(name);
    let confs = entries.iter().filter(|(name, text)| is_conf(name) && text.contains("\"type\""));
    let types = confs.flat_map(|(_, text)| {
        text.split("\"type\"").skip(1).filter_map(|rest| {
            let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
            Some(value.split('"').next()?.to_string())
        })
    });
    let types: BTreeSet<String> = types.collect();
    (!types.is_empty()).then_some(types)
}

/// Returns the Pod specs of the DaemonSets and Deployments.
fn pod_specs(objects: &[Value]) -> Result<Vec<PodSpec>, NewcomerError> {
    let daemon_sets: Vec<DaemonSet> = of_kind(objects, "DaemonSet")?;
    let deployments: Vec<k8s_openapi::api::apps::v1::Deployment> = of_kind(objects, "Deployment")?;
    let templates = daemon_sets.into_iter().filter_map(|one| one.spec).map(|spec| spec.template);
    let others = deployments.into_iter().filter_map(|one| one.spec).map(|spec| spec.template);
    Ok(templates.chain(others).filter_map(|template| template.spec).collect())
}

/// Returns the ports that a Pod uses on its node. In the host network, these are the ports that its containers declare.
fn host_ports(spec: &PodSpec) -> Vec<(u16, String)> {
    let is_on_host = spec.host_network == Some(true);
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let found = ports.filter_map(|one| {
        let port = one.host_port.or(is_on_host.then_some(one.container_port))?;
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        Some((port, one.protocol.clone().unwrap_or_else(|| "TCP".to_string())))
    });
    found.collect()
}

/// Returns whether Cilium's operator watches for Pods of cluster DNS without a CiliumEndpoint. The default interval is 15 s; the chart
/// writes 0 for `operator.unmanagedPodWatcher.restart=false`.
fn deletes_unmanaged(entries: &[Entry<'_>]) -> bool {
    !entry(entries, "unmanaged-pod-watcher-interval")
        .is_some_and(|interval| matches!(interval.trim(), "0" | "0s"))
}

/// Returns the ports of the plug-in that its manifests need not declare.
pub fn known_ports(plugin: &str) -> Option<&'static crate::inventory::network_plugins::AgentPorts> {
    let of_name = PLUGINS.iter().find(|one| one.name == plugin)?;
    of_name.ports.as_ref().and_then(|ports| NetworkPlugin::of_option(ports.option)).map(|(_, ports)| ports)
}

#[cfg(test)]
mod tests;
