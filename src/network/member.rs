//! The nodes of a test, and the agents on them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};

use super::node_object::pod_ranges;
use crate::kube_api::accessors::name;

/// The role of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// On the host network.
    Host,
    /// On the Pod network; the endpoint of the Services.
    Pod,
    /// On the Pod network, started last: with a host port, and the target of the NetworkPolicies.
    Peer,
    /// On the host network, privileged, with the node's root file system read-only: reads what is on the node. Not part of a network
    /// test.
    Reader,
}

impl Role {
    /// The roles of a network test.
    pub const ALL: [Self; 3] = [Self::Host, Self::Pod, Self::Peer];

    /// Returns the name of the role in names and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Pod => "pod",
            Self::Peer => "peer",
            Self::Reader => "reader",
        }
    }
}

/// An agent that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name: that of its Pod.
    pub name: String,
    /// Its addresses: those of the node on the host network.
    pub addresses: Vec<IpAddr>,
    /// The UID of its Pod.
    pub uid: String,
    /// How often its Pod was created again.
    pub generation: usize,
}

impl Agent {
    /// Returns the first address of a family.
    pub fn address_of(&self, is_v4: bool) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv4() == is_v4)
    }

    /// Returns the first address of the family of another one.
    pub fn address_like(&self, other: IpAddr) -> Option<IpAddr> {
        self.address_of(other.is_ipv4())
    }
}

/// A node, and the agents on it that started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of the Node.
    pub node: String,
    /// The agents.
    pub agents: BTreeMap<Role, Agent>,
    /// The Pod ranges of the Node (`spec.podCIDRs`).
    pub pod_cidrs: Vec<IpNetwork>,
}

impl Member {
    /// Returns a node before its agents start.
    pub(super) fn of(node: &Node) -> Self {
        Self { node: name(node).to_string(), agents: BTreeMap::new(), pod_cidrs: pod_ranges(node) }
    }

    /// Returns the agent with a role.
    pub fn agent(&self, role: Role) -> Option<&Agent> {
        self.agents.get(&role)
    }
}
