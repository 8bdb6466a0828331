//! Judges which items on a node, and which objects of a cluster, were left behind by network plug-ins that are no longer in place.
//!
//! Every item is recognized by its whole name, or by a prefix together with the plug-in's own comment, mark or hash. Prefixes that
//! several programs share, such as `KUBE-` and `CNI-`, are never enough. Each plug-in has one file with its names; [`signature`]
//! defines the types of these tables, and the other files apply them. The names come from the sources of the plug-ins.
//!
//! Some items are recognized only together with others: a route to the pod range of a node belongs to kindnet only on a node that
//! also has a name which only kindnet uses. Such an item is *weak* ([`signature::Reason`]).

mod aws_vpc;
mod calico;
mod canal;
mod cilium;
mod context;
mod filter_judge;
mod flannel;
mod kindnet;
mod kube_router;
mod link_judge;
mod objects;
mod reference;
mod sandbox_judge;
mod signature;
mod weave;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use context::{Condition, Context, NodeFacts};
pub use objects::{ObjectFacts, judge_objects};

use crate::node_state::{NetworkConfiguration, NodeState, Part};
use context::Scene;
use signature::{Found, Signature};

/// A network plug-in, or the plug-ins that several network plug-ins use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Plugin {
    /// Weave Net.
    Weave,
    /// Flannel.
    Flannel,
    /// Calico.
    Calico,
    /// Canal: Flannel's network with Calico's policies.
    Canal,
    /// Cilium.
    Cilium,
    /// kube-router.
    KubeRouter,
    /// kindnet.
    Kindnet,
    /// Amazon VPC CNI.
    AwsVpc,
    /// The reference plug-ins of the CNI project: `bridge`, `ptp`, `portmap`, `firewall`, `host-local`.
    Reference,
}

impl Plugin {
    /// All plug-ins.
    pub const ALL: [Self; 9] = [
        Self::Weave,
        Self::Flannel,
        Self::Calico,
        Self::Canal,
        Self::Cilium,
        Self::KubeRouter,
        Self::Kindnet,
        Self::AwsVpc,
        Self::Reference,
    ];

    /// Returns its name, for people. The names are those of `inventory::network_plugins`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weave => "Weave Net",
            Self::Flannel => "Flannel",
            Self::Calico => "Calico",
            Self::Canal => "Canal",
            Self::Cilium => "Cilium",
            Self::KubeRouter => "kube-router",
            Self::Kindnet => "kindnet",
            Self::AwsVpc => "Amazon VPC CNI",
            Self::Reference => "the reference plug-ins",
        }
    }

    /// Returns the plug-in with a name of `inventory::network_plugins::agent`.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    fn signature(self) -> &'static Signature {
        match self {
            Self::Weave => &weave::SIGNATURE,
            Self::Flannel => &flannel::SIGNATURE,
            Self::Calico => &calico::SIGNATURE,
            Self::Canal => &canal::SIGNATURE,
            Self::Cilium => &cilium::SIGNATURE,
            Self::KubeRouter => &kube_router::SIGNATURE,
            Self::Kindnet => &kindnet::SIGNATURE,
            Self::AwsVpc => &aws_vpc::SIGNATURE,
            Self::Reference => &reference::SIGNATURE,
        }
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A network link.
    Link,
    /// A route.
    Route,
    /// A rule that selects a routing table.
    PolicyRule,
    /// A chain of iptables or nftables.
    Chain,
    /// A rule in another program's chain.
    FilterRule,
    /// A table of nftables.
    NftTable,
    /// An IP set.
    IpSet,
    /// An IPsec state.
    XfrmState,
    /// An IPsec policy.
    XfrmPolicy,
    /// A BPF filter of traffic control.
    TrafficFilter,
    /// A pinned BPF object.
    BpfPin,
    /// The name of a routing table.
    TableName,
    /// A file or a folder.
    File,
    /// A lease of an address.
    Lease,
    /// A cached result.
    CachedResult,
    /// An annotation of a Node.
    Annotation,
    /// A label of a Node.
    Label,
    /// A taint of a Node.
    Taint,
    /// A condition of a Node.
    Condition,
    /// An object of the cluster.
    Object,
}

/// Something that a network plug-in left behind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leftover {
    /// The plug-in.
    pub plugin: Plugin,
    /// What it is.
    pub kind: Kind,
    /// Its exact name, or its text if it has no name.
    pub name: String,
    /// Where it is, for example a table and its family.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Why it belongs to the plug-in.
    pub reason: String,
    /// A command that shows it on the node, or in the cluster.
    pub command: String,
}

/// Something that could not be judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unchecked {
    /// What was not checked.
    pub subject: String,
    /// Why.
    pub reason: String,
}

/// The result for a node or a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    /// The leftovers, sorted.
    pub leftovers: Vec<Leftover>,
    /// What could not be judged.
    pub unchecked: Vec<Unchecked>,
}

/// Returns the network configuration that the container runtime reads first. If it has a fault, containerd starts no Pods. Its first
/// plug-in creates the network; the others are chained.
pub fn winner(state: &NodeState) -> Option<&NetworkConfiguration> {
    state.configurations.items.first()
}

/// Judges the state of a node.
pub fn judge(state: &NodeState, context: &Context) -> Judgement {
    let scene = Scene::new(state, context);
    let mut leftovers = Vec::new();
    for plugin in Plugin::ALL.into_iter().filter(|plugin| !context.claims(*plugin)) {
        let signature = plugin.signature();
        let mut found = link_judge::found(signature, &scene);
        if plugin != Plugin::KubeRouter || !context.is_k3s {
            found.extend(filter_judge::found(signature, &scene));
        }
        // A plug-in without a name of its own on this node has no weak items.
        if found.iter().any(|one| !one.is_weak) {
            leftovers.extend(found.into_iter().map(|Found { leftover, .. }| Leftover { plugin, ..leftover }));
        }
    }
    let mut unchecked = gaps(state);
    leftovers.extend(reference::found(&scene));
    leftovers.extend(sandbox_judge::found(&scene));
    if !scene.has_configurations() && state.configurations.gap().is_none() {
        unchecked.push(Unchecked {
            subject: "network configurations".to_string(),
            reason: "the Node is ready, but `/etc/cni/net.d` has none: the runtime reads another folder"
                .to_string(),
        });
    }
    if context.pod_addresses.is_none() {
        unchecked.push(Unchecked {
            subject: "leases, cached results and hostPort rules".to_string(),
            reason: "the addresses of the Pods on this node are not known".to_string(),
        });
    }
    leftovers.sort();
    leftovers.dedup();
    Judgement { leftovers, unchecked }
}

/// Returns the parts of the state that are incomplete.
fn gaps(state: &NodeState) -> Vec<Unchecked> {
    fn of<T>(subject: &str, part: &Part<T>) -> Option<Unchecked> {
        Some(Unchecked { subject: subject.to_string(), reason: part.gap()?.to_string() })
    }
    let gaps = [
        of("network links", &state.links),
        of("addresses", &state.addresses),
        of("routes", &state.routes),
        of("policy rules", &state.policy_rules),
        of("nftables", &state.nft_tables),
        of("iptables-legacy", &state.legacy_tables),
        of("IP sets", &state.ipsets),
        of("IPsec states", &state.xfrm_states),
        of("IPsec policies", &state.xfrm_policies),
        of("filters of traffic control", &state.traffic_filters),
        of("pinned BPF objects", &state.bpf_pins),
        of("names of routing tables", &state.table_names),
        of("files", &state.files),
        of("network configurations", &state.configurations),
        of("leases", &state.leases),
        of("cached results", &state.results),
    ];
    gaps.into_iter().flatten().collect()
}
