//! What the API shows about network plug-ins.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Serialize;

use crate::inventory::installer::Installer;
use crate::inventory::network_plugins::{agent, is_k3s_or_rke2, is_k3s_with_flannel, wanted};
use crate::kube_api::accessors::{is_windows, name, subject};
use crate::kube_api::{Cluster, ClusterError, Collection};
use crate::leftovers::{Condition, NodeFacts, ObjectFacts, Plugin, Unchecked};

/// The kinds of objects that manifests and operators of network plug-ins create.
const KINDS: [(&str, &str); 15] = [
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("v1", "Namespace"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1", "APIService"),
    ("operator.tigera.io/v1", "Installation"),
    ("operator.tigera.io/v1", "APIServer"),
];

/// The DaemonSet of the agents of a network plug-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentSet {
    /// The plug-in.
    pub plugin: String,
    /// Namespace and name of the DaemonSet.
    pub daemon_set: String,
    /// The image of the agent.
    pub image: String,
    /// On how many nodes an agent should run, and on how many it is ready.
    pub wanted: i32,
    /// On how many nodes an agent is ready.
    pub ready: i32,
    /// What installed the DaemonSet, if it shows this.
    pub installer: Option<Installer>,
}

/// What the API shows about network plug-ins.
#[derive(Debug, Clone, Default)]
pub struct ClusterFacts {
    /// The agents.
    pub agents: Vec<AgentSet>,
    /// The Nodes. Windows nodes are left out.
    pub nodes: Vec<NodeFacts>,
    /// The addresses of the Pods on each node that use the Pod network; `None` if Pods could not be listed.
    pub pod_addresses: Option<BTreeMap<String, BTreeSet<IpAddr>>>,
    /// Objects of the kinds that plug-ins create.
    pub objects: Vec<ObjectFacts>,
    /// What could not be read.
    pub unchecked: Vec<Unchecked>,
    /// Names of the Nodes with K3s or RKE2.
    k3s: BTreeSet<String>,
    /// Whether k3s runs Flannel inside its own process, without a DaemonSet.
    has_flannel_in_k3s: bool,
}

impl ClusterFacts {
    /// Reads the API. Only Nodes and DaemonSets are required.
    pub async fn read(cluster: &Cluster) -> Result<Self, ClusterError> {
        let nodes: Vec<Node> = cluster.objects(None, None).await?;
        let sets: Vec<DaemonSet> = cluster.objects(None, None).await?;
        let mut facts = Self {
            agents: sets.iter().filter_map(agents_of).collect(),
            k3s: nodes
                .iter()
                .filter(|node| is_k3s_or_rke2(node))
                .map(|node| name(node).to_string())
                .collect(),
            has_flannel_in_k3s: nodes.iter().any(is_k3s_with_flannel),
            nodes: nodes.iter().filter(|node| !is_windows(node)).map(node_facts).collect(),
            ..Self::default()
        };
        facts.nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let windows = nodes.iter().filter(|node| is_windows(node)).count();
        if windows > 0 {
            facts.not_checked(&format!("{windows} Windows nodes"), "netsurgeon reads only Linux nodes");
        }
        match cluster.objects_as(None, &|pod: Pod| Some(addresses_of(&pod))).await {
            Ok(pods) => facts.pod_addresses = Some(by_node(pods)),
            Err(error) => facts.not_checked("addresses of Pods", &error.to_string()),
        }
        for (api_version, kind) in KINDS {
            facts.read_kind(cluster, api_version, kind).await;
        }
        Ok(facts)
    }

    async fn read_kind(&mut self, cluster: &Cluster, api_version: &str, kind: &str) {
        match cluster.list_metadata(&Collection::new(api_version, kind, None)).await {
            Ok(found) => {
                let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
                self.objects.extend(found.into_iter().map(|object| ObjectFacts {
                    kind: kind.to_string(),
                    group: group.to_string(),
                    namespace: object.namespace.unwrap_or_default(),
                    name: object.name.unwrap_or_default(),
                }));
            }
            // The operator of Calico is not installed.
            Err(ClusterError::NotFound { .. }) => {}
            Err(error) => self.not_checked(&format!("{kind} objects"), &error.to_string()),
        }
    }

    fn not_checked(&mut self, what: &str, reason: &str) {
        self.unchecked.push(Unchecked { subject: what.to_string(), reason: reason.to_string() });
    }

    /// Returns the plug-ins whose agents run.
    pub fn in_place(&self) -> BTreeSet<Plugin> {
        let running = self.agents.iter().filter(|set| set.wanted > 0);
        let mut plugins: BTreeSet<Plugin> = running.filter_map(|set| Plugin::of_name(&set.plugin)).collect();
        if self.has_flannel_in_k3s {
            plugins.insert(Plugin::Flannel);
        }
        plugins
    }

    /// Whether a Node runs K3s or RKE2.
    pub fn is_k3s(&self, node: &str) -> bool {
        self.k3s.contains(node)
    }

    /// Whether a Node is ready.
    pub fn is_ready(&self, node: &str) -> bool {
        let found = self.nodes.iter().find(|one| one.name == node);
        found
            .is_some_and(|node| node.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True"))
    }

    /// Returns the Pod ranges of all Nodes.
    pub fn pod_ranges(&self) -> Vec<IpNetwork> {
        self.nodes.iter().flat_map(|node| node.pod_cidrs.iter().copied()).collect()
    }
}

fn agents_of(set: &DaemonSet) -> Option<AgentSet> {
    let (plugin, image) = agent(set)?;
    Some(AgentSet {
        plugin: plugin.to_string(),
        daemon_set: subject(set).trim_matches('`').to_string(),
        image: image.to_string(),
        wanted: wanted(set),
        ready: set.status.as_ref().map_or(0, |status| status.number_ready),
        installer: Installer::of(set),
    })
}

fn node_facts(node: &Node) -> NodeFacts {
    let status = node.status.as_ref();
    let addresses = status.iter().flat_map(|status| status.addresses.iter().flatten());
    let conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
    let spec = node.spec.as_ref();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    NodeFacts {
        name: name(node).to_string(),
        addresses: addresses.filter_map(|address| address.address.parse().ok()).collect(),
        pod_cidrs: spec
            .iter()
            .flat_map(|spec| spec.pod_cidrs.iter().flatten())
            .filter_map(|range| range.parse().ok())
            .collect(),
        annotations: node.metadata.annotations.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: spec
            .iter()
            .flat_map(|spec| spec.taints.iter().flatten())
            .map(|taint| taint.key.clone())
            .collect(),
        conditions: conditions
            .map(|condition| Condition {
                kind: condition.type_.clone(),
                status: condition.status.clone(),
                reason: text(&condition.reason),
            })
            .collect(),
    }
}

/// Returns the node of a Pod, and its addresses if it uses the Pod network.
fn addresses_of(pod: &Pod) -> (String, Vec<IpAddr>) {
    let spec = pod.spec.as_ref();
    let is_on_host = spec.and_then(|spec| spec.host_network).unwrap_or_default();
    let node = spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let addresses = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    let addresses = addresses.filter(|_| !is_on_host).filter_map(|address| address.ip.parse().ok());
    (node, addresses.collect())
}

fn by_node(pods: Vec<(String, Vec<IpAddr>)>) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let mut found: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
    for (node, addresses) in pods {
        found.entry(node).or_default().extend(addresses);
    }
    found
}
