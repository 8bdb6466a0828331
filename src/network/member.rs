//! The nodes of a test, and the agents on them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

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
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Host, Self::Pod, Self::Peer];

    /// Returns the name of the role in names and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Pod => "pod",
            Self::Peer => "peer",
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
}

impl Agent {
    /// Returns the first address of the family of another one.
    pub fn address_like(&self, other: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv4() == other.is_ipv4())
    }
}

/// A node, and the agents on it. An agent that did not start is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of the Node.
    pub node: String,
    /// The agents, in the order of [`Role::ALL`].
    pub agents: [Option<Agent>; 3],
    /// The Pod ranges of the Node (`spec.podCIDRs`).
    pub pod_cidrs: Vec<ipnetwork::IpNetwork>,
}

impl Member {
    /// Returns the agent with a role.
    pub fn agent(&self, role: Role) -> Option<&Agent> {
        let [host, pod, peer] = &self.agents;
        match role {
            Role::Host => host.as_ref(),
            Role::Pod => pod.as_ref(),
            Role::Peer => peer.as_ref(),
        }
    }

    /// Returns the place of an agent with a role.
    pub fn agent_mut(&mut self, role: Role) -> &mut Option<Agent> {
        let [host, pod, peer] = &mut self.agents;
        match role {
            Role::Host => host,
            Role::Pod => pod,
            Role::Peer => peer,
        }
    }
}
