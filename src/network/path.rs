//! The kinds of paths that the test covers.

use serde::{Deserialize, Serialize};

/// A kind of path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// The agents of a node start and answer through the API.
    Agent,
    /// Conditions and taints of the Node.
    NodeObject,
    /// A new Pod on the node gets an address and answers.
    NewPod,
    /// Host network to host network.
    NodeToNode,
    /// Pod to Pod on one node.
    PodToPodSameNode,
    /// Pod to Pod on another node.
    PodToPod,
    /// Host network to Pod, on the same and on another node.
    NodeToPod,
    /// Pod to host network, on the same and on another node.
    PodToNode,
    /// Small numbered datagrams from Pod to Pod.
    Loss,
    /// A packet of the full size of the link from Pod to Pod.
    FullSize,
    /// 1 MiB over TCP from Pod to Pod, in both directions.
    Transfer,
    /// Pod to ClusterIP.
    PodToService,
    /// Host network to ClusterIP.
    NodeToService,
    /// A Pod to its own Service.
    Hairpin,
    /// Host network to a host port on another node.
    HostPort,
    /// Host network to a node port on another node.
    NodePort,
    /// The same for a Service with `externalTrafficPolicy: Local`, which keeps the source address.
    NodePortLocal,
    /// Names, over UDP.
    DnsUdp,
    /// Names, over TCP.
    DnsTcp,
    /// The API server by its ClusterIP and by its own addresses.
    ApiServer,
    /// A connection that stays open during the test.
    StandingConnection,
    /// Connection tracking and links have no new failures.
    Counters,
    /// A NetworkPolicy that denies everything.
    PolicyDeny,
    /// NetworkPolicies that allow a part again.
    PolicyAllow,
}

impl Path {
    /// All paths, in the order of the output.
    pub const ALL: [Self; 24] = [
        Self::Agent,
        Self::NodeObject,
        Self::NewPod,
        Self::NodeToNode,
        Self::PodToPodSameNode,
        Self::PodToPod,
        Self::NodeToPod,
        Self::PodToNode,
        Self::Loss,
        Self::FullSize,
        Self::Transfer,
        Self::PodToService,
        Self::NodeToService,
        Self::Hairpin,
        Self::HostPort,
        Self::NodePort,
        Self::NodePortLocal,
        Self::DnsUdp,
        Self::DnsTcp,
        Self::ApiServer,
        Self::StandingConnection,
        Self::Counters,
        Self::PolicyDeny,
        Self::PolicyAllow,
    ];

    /// Returns the name of the path in options and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::NodeObject => "node-object",
            Self::NewPod => "new-pod",
            Self::NodeToNode => "node-to-node",
            Self::PodToPodSameNode => "pod-to-pod-same-node",
            Self::PodToPod => "pod-to-pod",
            Self::NodeToPod => "node-to-pod",
            Self::PodToNode => "pod-to-node",
            Self::Loss => "loss",
            Self::FullSize => "full-size",
            Self::Transfer => "transfer",
            Self::PodToService => "pod-to-service",
            Self::NodeToService => "node-to-service",
            Self::Hairpin => "hairpin",
            Self::HostPort => "host-port",
            Self::NodePort => "node-port",
            Self::NodePortLocal => "node-port-local",
            Self::DnsUdp => "dns-udp",
            Self::DnsTcp => "dns-tcp",
            Self::ApiServer => "api-server",
            Self::StandingConnection => "standing-connection",
            Self::Counters => "counters",
            Self::PolicyDeny => "policy-deny",
            Self::PolicyAllow => "policy-allow",
        }
    }

    /// Returns the path with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.name() == name)
    }

    /// Returns what the test of the path checks, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Agent => "agents start and report",
            Self::NodeObject => "Node has no network condition or taint",
            Self::NewPod => "a new Pod gets an address and answers",
            Self::NodeToNode => "node to node (TCP, UDP)",
            Self::PodToPodSameNode => "Pod to Pod, same node (TCP, UDP, source)",
            Self::PodToPod => "Pod to Pod, other node (TCP, UDP, source)",
            Self::NodeToPod => "node to Pod (TCP)",
            Self::PodToNode => "Pod to node (TCP)",
            Self::Loss => "Pod to Pod, 100 datagrams without loss",
            Self::FullSize => "Pod to Pod, full packet size",
            Self::Transfer => "Pod to Pod, 1 MiB over TCP",
            Self::PodToService => "Pod to ClusterIP (endpoints, source)",
            Self::NodeToService => "node to ClusterIP",
            Self::Hairpin => "Pod to its own Service (hairpin)",
            Self::HostPort => "node to host port (TCP, UDP)",
            Self::NodePort => "node to NodePort",
            Self::NodePortLocal => "node to NodePort, policy Local (source)",
            Self::DnsUdp => "DNS over UDP",
            Self::DnsTcp => "DNS over TCP",
            Self::ApiServer => "Pod and node to API server",
            Self::StandingConnection => "connections that stay open",
            Self::Counters => "no new failures in kernel counters",
            Self::PolicyDeny => "NetworkPolicy: denied",
            Self::PolicyAllow => "NetworkPolicy: allowed",
        }
    }

    /// Whether the path needs the Services of the test, which every kube-proxy must learn first.
    pub fn needs_services(self) -> bool {
        matches!(
            self,
            Self::PodToService | Self::NodeToService | Self::Hairpin | Self::NodePort | Self::NodePortLocal
        )
    }

    /// Whether a cell of the path is a pair of nodes, so that the matrix of nodes shows it.
    pub fn is_pair(self) -> bool {
        matches!(
            self,
            Self::NodeToNode
                | Self::PodToPod
                | Self::NodeToPod
                | Self::PodToNode
                | Self::Loss
                | Self::FullSize
                | Self::Transfer
                | Self::HostPort
                | Self::NodePort
                | Self::NodePortLocal
        )
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_that_of_the_json() {
        for path in Path::ALL {
            assert_eq!(serde_json::to_value(path).unwrap(), path.name());
            assert_eq!(Path::named(path.name()), Some(path));
        }
    }
}
