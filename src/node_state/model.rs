//! The state of a node, as data.

use std::io;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

/// The state of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Version of this format.
    pub version: u8,
    /// Host name of the node.
    pub node: String,
    /// The network links.
    pub links: Part<Link>,
    /// The addresses of the links.
    pub addresses: Part<LinkAddress>,
    /// The routes of all tables except the table `local`.
    pub routes: Part<Route>,
    /// The rules that select routing tables (`ip rule`).
    pub policy_rules: Part<PolicyRule>,
    /// The tables of nftables, with those of `iptables-nft`.
    pub nft_tables: Part<FilterTable>,
    /// The tables of `iptables-legacy`.
    pub legacy_tables: Part<FilterTable>,
    /// The IP sets.
    pub ipsets: Part<IpSet>,
    /// The IPsec states, without keys.
    pub xfrm_states: Part<XfrmState>,
    /// The IPsec policies.
    pub xfrm_policies: Part<XfrmPolicy>,
    /// The BPF filters of traffic control at links.
    pub traffic_filters: Part<TrafficFilter>,
    /// The paths of pinned BPF objects below `/sys/fs/bpf`.
    pub bpf_pins: Part<String>,
    /// The names of routing tables.
    pub table_names: Part<TableName>,
    /// Names in the folders that network plug-ins use.
    pub files: Part<String>,
    /// The network configurations of the container runtime, in the order in which it reads them.
    pub configurations: Part<NetworkConfiguration>,
    /// The leases of the plug-in `host-local`.
    pub leases: Part<Lease>,
    /// The cached results of network plug-ins.
    pub results: Part<CachedResult>,
}

/// A list, and whether it is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part<T> {
    /// The items.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<T>,
    /// Whether all items were read.
    pub coverage: Coverage,
}

/// Whether a list is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Coverage {
    /// All items were read.
    Complete,
    /// The node cannot have items, for this reason.
    Absent(String),
    /// Items can be missing, for this reason. The list can be empty.
    Incomplete(String),
}

impl<T> Part<T> {
    /// A complete list.
    pub fn complete(items: Vec<T>) -> Self {
        Self { items, coverage: Coverage::Complete }
    }

    /// An empty list, because the node cannot have items.
    pub fn absent(reason: impl Into<String>) -> Self {
        Self { items: Vec::new(), coverage: Coverage::Absent(reason.into()) }
    }

    /// A list that could not be read.
    pub fn unread(error: &io::Error) -> Self {
        Self::incomplete(Vec::new(), error.to_string())
    }

    /// A list in which items can be missing.
    pub fn incomplete(items: Vec<T>, reason: impl Into<String>) -> Self {
        Self { items, coverage: Coverage::Incomplete(reason.into()) }
    }

    /// A list that is incomplete if there is a reason.
    pub fn with_gap(items: Vec<T>, gap: Option<String>) -> Self {
        match gap {
            Some(reason) => Self::incomplete(items, reason),
            None => Self::complete(items),
        }
    }

    /// Why items can be missing.
    pub fn gap(&self) -> Option<&str> {
        match &self.coverage {
            Coverage::Incomplete(reason) => Some(reason),
            Coverage::Complete | Coverage::Absent(_) => None,
        }
    }
}

/// A network link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind, for example `bridge`; `None` for hardware and the loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the bridge to which it is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
}

/// An address of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkAddress {
    /// Name of the link.
    pub link: String,
    /// The address with its prefix length.
    pub address: IpNetwork,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The destination.
    pub to: IpNetwork,
    /// The gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The outgoing link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Number of the routing table.
    pub table: u32,
    /// Number of the protocol that added the route, for example 2 for the kernel.
    pub protocol: u8,
    /// Type of the route, for example 1 for `unicast` and 6 for `blackhole`.
    pub kind: u8,
    /// The metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// A rule that selects a routing table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// Whether the rule is for IPv6.
    pub is_v6: bool,
    /// The priority. The kernel reads rules with low numbers first.
    pub priority: u32,
    /// Number of the routing table; 0 if the rule has another action.
    pub table: u32,
    /// Source of the packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpNetwork>,
    /// Destination of the packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<IpNetwork>,
    /// Mark of the packets, and the mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// Incoming link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming: Option<String>,
    /// Whether the selectors are negated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_negated: bool,
}

/// Which program manages a table of packet filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FilterBackend {
    /// `nft`.
    Nft,
    /// `iptables-nft`.
    IptablesNft,
    /// `iptables-legacy`.
    IptablesLegacy,
}

/// A table of packet filters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilterTable {
    /// The program that manages it.
    pub backend: FilterBackend,
    /// Its family, for example `ip` or `inet`.
    pub family: String,
    /// Its name.
    pub name: String,
    /// Its chains.
    pub chains: Vec<Chain>,
    /// Names of its sets and maps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
}

/// A chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Whether the kernel calls it for packets.
    pub is_base: bool,
    /// Its rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// A rule in a chain. Contains the parts that show who created the rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Its handle in nftables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<u64>,
    /// The rule in the words of `iptables-save`. Rules of nftables are abbreviated.
    pub text: String,
    /// Its comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Selector>,
    /// Destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Selector>,
    /// Incoming link; ends with `+` if it is a prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incoming: Option<Selector>,
    /// Outgoing link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing: Option<Selector>,
    /// Names of the other conditions, for example `conntrack`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Names of the IP sets that it uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Chain to which it jumps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jump: Option<String>,
    /// Its action, for example `ACCEPT`, if it does not jump.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// New destination address of the packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_destination: Option<IpAddr>,
    /// Group of the kernel's log messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_group: Option<u32>,
}

/// A value that packets must have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// The value: a network or the name of a link.
    pub value: String,
    /// Whether packets must have another value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_negated: bool,
}

impl Selector {
    /// A value that packets must have.
    pub fn is(value: impl Into<String>) -> Self {
        Self { value: value.into(), is_negated: false }
    }
}

/// An IP set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpSet {
    /// Its name.
    pub name: String,
    /// Its type, for example `hash:ip`.
    pub kind: String,
    /// Number of rules and sets that use it.
    pub references: u32,
    /// Its number in rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u16>,
}

/// An IPsec state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XfrmState {
    /// Source address.
    pub from: IpAddr,
    /// Destination address.
    pub to: IpAddr,
    /// Security parameter index.
    pub spi: u32,
    /// Number of the protocol, 50 for ESP.
    pub protocol: u8,
    /// Request id, which policies refer to.
    pub request_id: u32,
    /// Mark and mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
}

/// An IPsec policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XfrmPolicy {
    /// Source of the packets.
    pub from: IpNetwork,
    /// Destination of the packets.
    pub to: IpNetwork,
    /// Direction: 0 in, 1 out, 2 forward.
    pub direction: u8,
    /// Whether the policy drops packets.
    pub blocks: bool,
    /// Mark and mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<(u32, u32)>,
    /// Source and destination of the tunnel or of the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<(IpAddr, IpAddr)>,
}

/// A BPF filter of traffic control at a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficFilter {
    /// Name of the link.
    pub link: String,
    /// `ingress` or `egress`.
    pub direction: String,
    /// Name of the program.
    pub program: String,
}

/// The name of a routing table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableName {
    /// The file that contains it.
    pub file: String,
    /// Number of the table.
    pub table: u32,
    /// Its name.
    pub name: String,
}

/// A network configuration of the container runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfiguration {
    /// Name of the file.
    pub file: String,
    /// Its folder, unless this is `/etc/cni/net.d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Name of the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Types of the plug-ins, in the order in which they run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// Types that occur inside the settings of the plug-ins: of address management, and of delegates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner_types: Vec<String>,
    /// Name of the bridge that the plug-in `bridge` uses, if the configuration contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Why the runtime cannot use the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A lease of the plug-in `host-local`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The file.
    pub file: String,
    /// Name of the network.
    pub network: String,
    /// The address.
    pub address: IpAddr,
    /// Id of the sandbox.
    pub container: String,
}

/// A cached result of a network plug-in, which it needs when the sandbox is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedResult {
    /// The file.
    pub file: String,
    /// Name of the network.
    pub network: String,
    /// Id of the sandbox.
    pub container: String,
    /// Addresses of the sandbox.
    pub addresses: Vec<IpAddr>,
}
