//! Which questions each agent gets in a round.
//!
//! Up to [`ALL_PAIRS`] nodes, every node asks every other one in each round. In a larger cluster, a node asks the next one (a ring)
//! and `k` others. These are chosen at random, but so that all pairs were asked after a known number of rounds: the distances
//! between the two nodes of a pair are shuffled once, and each round takes the next `k` distances.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use super::cell::CellKey;
use super::expectation::Expectation;
use super::member::{Member, Role};
use super::path::Path;
use crate::agent::{Ask, Transport, Way};

/// The largest number of nodes of which every pair is asked in each round: 2,450 directed pairs.
pub const ALL_PAIRS: usize = 50;
/// The largest number of nodes of which every pair transfers 1 MiB in each round. In a larger cluster, only the ring does.
const ALL_TRANSFERS: usize = 10;
/// The number of datagrams of a series: it shows a loss of 5 % in every round.
const SERIES: u16 = 100;
/// The size of a transfer, in bytes.
const TRANSFER: u32 = 1 << 20;
/// The number of tries of a probe. Loss has a probe of its own.
const TRIES: u8 = 3;
/// The largest number of endpoints of which each one must answer in one round.
const ALL_ENDPOINTS: usize = 10;
/// The number of connections to a Service for each endpoint: with ten endpoints, the chance to miss one is 1 in 140 million.
const CONNECTIONS_PER_ENDPOINT: u16 = 20;
/// The number of connections to a node port with many endpoints.
const CONNECTIONS_TO_PORT: u16 = 12;
/// The number of connections to a Service with many endpoints.
const CONNECTIONS: u16 = 60;

/// A question to an agent, and what must come back.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub(super) key: CellKey,
    /// The node and the role of the agent that asks.
    pub(super) asker: (usize, Role),
    /// The agent that must be there, if the probe asks a certain one; for an API server, that of its node.
    pub(super) target: Option<(usize, Role)>,
    pub(super) ask: Ask,
    pub(super) expectation: Expectation,
    /// From where to where, for people.
    pub(super) tried: String,
}

/// Addresses of the Services of a test, and of the cluster's own ones.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// ClusterIPs of the Service with all Pod agents as endpoints, and its node port.
    pub(super) service: (Vec<IpAddr>, Option<u16>),
    /// The same of the Service with `internalTrafficPolicy` and `externalTrafficPolicy: Local`.
    pub(super) local: (Vec<IpAddr>, Option<u16>),
    /// ClusterIPs of the Service `default/kubernetes`, and its port.
    pub(super) api: Vec<SocketAddr>,
    /// Addresses of the API servers.
    pub(super) api_servers: Vec<SocketAddr>,
    /// Absolute names, and the addresses that they must have; an empty list means any.
    pub(super) names: Vec<(String, Vec<IpAddr>)>,
    /// Further name servers, for example a node-local one.
    pub(super) name_servers: Vec<IpAddr>,
}

/// Which nodes ask which ones in which round.
#[derive(Debug, Clone)]
pub struct Schedule {
    nodes: usize,
    peers: usize,
    seed: u64,
    distances: Vec<usize>,
}

/// Returns the number of rounds after which every pair was asked.
pub fn rounds_to_cover(nodes: usize, peers: usize) -> usize {
    if nodes <= ALL_PAIRS { 1 } else { nodes.saturating_sub(2).div_ceil(peers.max(1)).max(1) }
}

impl Schedule {
    /// Returns the schedule of so many nodes, each of which asks the next one and so many others in a round. `seed` chooses the order.
    pub fn new(nodes: usize, peers: usize, seed: u64) -> Self {
        let mut distances: Vec<usize> = (2..nodes).collect();
        if nodes > ALL_PAIRS {
            distances.shuffle(&mut StdRng::seed_from_u64(seed));
        }
        Self { nodes, peers: peers.max(1), seed, distances }
    }

    /// Changes the number of nodes; returns whether it was another one. All pairs then have to be asked again.
    pub(super) fn resize(&mut self, nodes: usize) -> bool {
        let is_new = nodes != self.nodes;
        if is_new {
            *self = Self::new(nodes, self.peers, self.seed);
        }
        is_new
    }

    /// Returns the nodes that a node asks in a round, by their index. The first one is the next node of the ring.
    pub fn partners(&self, node: usize, round: usize) -> Vec<usize> {
        if self.nodes < 2 {
            return Vec::new();
        }
        let others: Vec<usize> = if self.nodes <= ALL_PAIRS {
            self.distances.clone()
        } else {
            let start = round.wrapping_mul(self.peers);
            let count = self.peers.min(self.distances.len());
            let places = (0..count).map(|place| start.wrapping_add(place).checked_rem(self.distances.len()));
            places.flatten().filter_map(|place| self.distances.get(place).copied()).collect()
        };
        let at = |distance: usize| node.wrapping_add(distance).checked_rem(self.nodes);
        std::iter::once(1).chain(others).filter_map(at).collect()
    }
}

/// What the probes of a round need to know.
pub(super) struct Round<'t> {
    pub(super) members: &'t [Member],
    pub(super) targets: &'t Targets,
    pub(super) schedule: &'t Schedule,
    pub(super) number: usize,
    /// The port of all agents, and the host port of the peers.
    pub(super) ports: (u16, u16),
    /// Names of the agents that are endpoints of the Services.
    pub(super) endpoints: Arc<[String]>,
}

impl Round<'_> {
    /// Returns all probes of the round.
    pub(super) fn probes(&self) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (from, _) in self.members.iter().enumerate() {
            self.on_one_node(from, &mut probes);
            self.to_services(from, &mut probes);
            self.to_cluster(from, &mut probes);
            let partners = self.schedule.partners(from, self.number);
            for (place, to) in partners.into_iter().enumerate() {
                let transfers = place == 0 || self.members.len() <= ALL_TRANSFERS;
                self.between(from, to, transfers, &mut probes);
            }
        }
        probes
    }

    /// Returns the probes whose answers depend on the endpoints of the Services.
    pub(super) fn services(&self) -> Vec<Probe> {
        let mut probes = self.probes();
        probes.retain(|probe| probe.key.path.needs_services());
        probes
    }

    /// Returns the pairs of addresses of two agents, one for each family that both have, with the suffix of the variant.
    fn families(&self, from: (usize, Role), to: (usize, Role)) -> Vec<(IpAddr, IpAddr, &'static str)> {
        let agent =
            |(index, role): (usize, Role)| self.members.get(index).and_then(|member| member.agent(role));
        let (Some(one), Some(other)) = (agent(from), agent(to)) else { return Vec::new() };
        let mut pairs: Vec<(IpAddr, IpAddr, &'static str)> = Vec::new();
        for target in &other.addresses {
            let is_new = !pairs.iter().any(|(_, known, _)| known.is_ipv4() == target.is_ipv4());
            if let Some(source) = one.address_like(*target).filter(|_| is_new) {
                pairs.push((source, *target, family(*target)));
            }
        }
        pairs
    }

    fn name(&self, index: usize) -> String {
        self.members.get(index).map(|member| member.node.clone()).unwrap_or_default()
    }

    fn agent_name(&self, (index, role): (usize, Role)) -> String {
        let agent = self.members.get(index).and_then(|member| member.agent(role));
        agent.map(|agent| agent.name.clone()).unwrap_or_default()
    }

    /// Returns the agent on the host network of the node with an address.
    fn host_with(&self, address: IpAddr) -> Option<(usize, Role)> {
        let has =
            |member: &Member| member.agent(Role::Host).is_some_and(|host| host.addresses.contains(&address));
        Some((self.members.iter().position(has)?, Role::Host))
    }

    /// Returns how often the Pod agent of a node was created again.
    fn generation(&self, index: usize) -> usize {
        let agent = self.members.get(index).and_then(|member| member.agent(Role::Pod));
        agent.map_or(0, |agent| agent.generation)
    }

    fn key(&self, path: Path, from: usize, to: &str, variant: &str) -> CellKey {
        CellKey { path, from: self.name(from).into(), to: to.into(), variant: variant.trim().into() }
    }

    /// `Who` over these transports, with the source address as the sender's own if `keeps_source`.
    fn who(
        &self,
        path: Path,
        (from, to): ((usize, Role), (usize, Role)),
        transports: &[Transport],
        keeps_source: bool,
        probes: &mut Vec<Probe>,
    ) {
        for (source, target, family) in self.families(from, to) {
            for transport in transports {
                let to_port = SocketAddr::new(target, self.ports.0);
                probes.push(Probe {
                    key: self.key(path, from.0, &self.name(to.0), &format!("{transport} {family}")),
                    asker: from,
                    target: Some(to),
                    ask: Ask::Who { to: to_port, transport: *transport, tries: TRIES },
                    expectation: Expectation::Agent {
                        names: [self.agent_name(to)].into(),
                        source: keeps_source.then_some((from, to.0)),
                    },
                    tried: tried(from.1, source, &format!("{transport} {to_port}")),
                });
            }
        }
    }

    fn on_one_node(&self, node: usize, probes: &mut Vec<Probe>) {
        let (host, pod, peer) = ((node, Role::Host), (node, Role::Pod), (node, Role::Peer));
        let both = [Transport::Tcp, Transport::Udp];
        self.who(Path::PodToPodSameNode, (pod, peer), &both, true, probes);
        self.who(Path::NodeToPod, (host, pod), &[Transport::Tcp], false, probes);
        self.who(Path::PodToNode, (pod, host), &[Transport::Tcp], false, probes);
    }

    fn between(&self, from: usize, to: usize, transfers: bool, probes: &mut Vec<Probe>) {
        let (host, pod) = ((from, Role::Host), (from, Role::Pod));
        let (host_there, pod_there) = ((to, Role::Host), (to, Role::Pod));
        let both = [Transport::Tcp, Transport::Udp];
        self.who(Path::NodeToNode, (host, host_there), &both, false, probes);
        self.who(Path::PodToPod, (pod, pod_there), &both, true, probes);
        self.who(Path::NodeToPod, (host, pod_there), &[Transport::Tcp], false, probes);
        self.who(Path::PodToNode, (pod, host_there), &[Transport::Tcp], false, probes);
        for (source, target, family) in self.families(pod, pod_there) {
            self.packets((from, to), (source, target, family), transfers, probes);
        }
        self.to_ports(from, to, probes);
    }

    fn packets(
        &self,
        (from, to): (usize, usize),
        (source, target, family): (IpAddr, IpAddr, &'static str),
        transfers: bool,
        probes: &mut Vec<Probe>,
    ) {
        let at = SocketAddr::new(target, self.ports.0);
        let key = series_key(self.number, from, to, target.is_ipv6());
        let (asker, name) = ((from, Role::Pod), self.name(to));
        let receiver = (to, Role::Pod);
        probes.push(Probe {
            key: self.key(Path::Loss, from, &name, &format!("UDP {family}")),
            asker,
            target: Some(receiver),
            ask: Ask::Echoes { to: at, count: SERIES, key },
            expectation: Expectation::Series { receiver, key, name: self.agent_name(receiver) },
            tried: tried(Role::Pod, source, &format!("{SERIES} datagrams to {at}")),
        });
        probes.push(Probe {
            key: self.key(Path::FullSize, from, &name, family),
            asker,
            target: Some(receiver),
            ask: Ask::FullSize { to: at },
            expectation: Expectation::FullSize,
            tried: tried(
                Role::Pod,
                source,
                &format!("a packet of the full size, not to be fragmented, to {at}"),
            ),
        });
        for way in [Way::Upload, Way::Download].into_iter().filter(|_| transfers) {
            let word = if way == Way::Upload { "upload" } else { "download" };
            probes.push(Probe {
                key: self.key(Path::Transfer, from, &name, &format!("{word} {family}")),
                asker,
                target: Some(receiver),
                ask: Ask::Transfer { to: at, bytes: TRANSFER, way },
                expectation: Expectation::Success,
                tried: tried(Role::Pod, source, &format!("{word} of 1 MiB, TCP {at}")),
            });
        }
    }

    /// Host ports and node ports of another node.
    fn to_ports(&self, from: usize, to: usize, probes: &mut Vec<Probe>) {
        let (host, there) = ((from, Role::Host), (to, Role::Host));
        let agent = |role| self.members.get(to).and_then(|member| member.agent(role));
        for (source, target, family) in self.families(host, there) {
            let mut push = |path, role, transport: Transport, ask: Ask, what: &str, expectation| {
                probes.push(Probe {
                    key: self.key(path, from, &self.name(to), &format!("{transport} {family}")),
                    asker: host,
                    target: Some((to, role)),
                    ask,
                    expectation,
                    tried: tried(Role::Host, source, what),
                });
            };
            let who = |to, transport| Ask::Who { to, transport, tries: TRIES };
            // Nodes can have addresses of a family that Pods do not have.
            if let Some(peer) = agent(Role::Peer).filter(|peer| peer.address_like(target).is_some()) {
                let peer = Expectation::Agent { names: [peer.name.clone()].into(), source: None };
                let at = SocketAddr::new(target, self.ports.1);
                for transport in [Transport::Tcp, Transport::Udp] {
                    let (ask, what) = (who(at, transport), format!("{transport} {at}"));
                    push(Path::HostPort, Role::Peer, transport, ask, &what, peer.clone());
                }
            }
            let has_family =
                |addresses: &[IpAddr]| addresses.iter().any(|one| one.is_ipv4() == target.is_ipv4());
            if let (addresses, Some(port)) = &self.targets.service
                && has_family(addresses)
            {
                // Endpoints that the other node does not know yet would hide that it does not reach them.
                let (all, complete) = (self.endpoints.clone(), self.connections_to_all());
                let expectation =
                    Expectation::Endpoints { all, is_complete: complete.is_some(), source: None };
                let (at, count) = (SocketAddr::new(target, *port), complete.unwrap_or(CONNECTIONS_TO_PORT));
                let (ask, what) = (Ask::Spread { to: at, count }, format!("{count} connections to TCP {at}"));
                push(Path::NodePort, Role::Host, Transport::Tcp, ask, &what, expectation);
            }
            if let (addresses, Some(port)) = &self.targets.local
                && has_family(addresses)
                && let Some(pod) = agent(Role::Pod)
            {
                let (name, all) = (pod.name.clone(), self.endpoints.clone());
                let expectation = Expectation::LocalPort { name, all, from: host, to };
                let at = SocketAddr::new(target, *port);
                let ask = who(at, Transport::Tcp);
                push(Path::NodePortLocal, Role::Pod, Transport::Tcp, ask, &format!("TCP {at}"), expectation);
            }
        }
    }

    /// Returns the number of connections that reach each endpoint of a Service; `None` if there are too many endpoints.
    fn connections_to_all(&self) -> Option<u16> {
        let count =
            u16::try_from(self.endpoints.len()).ok().filter(|_| self.endpoints.len() <= ALL_ENDPOINTS)?;
        Some(count.saturating_mul(CONNECTIONS_PER_ENDPOINT).max(1))
    }

    fn to_services(&self, from: usize, probes: &mut Vec<Probe>) {
        let Some(member) = self.members.get(from) else { return };
        let all = &self.endpoints;
        let complete = self.connections_to_all();
        let (is_complete, count) = (complete.is_some(), complete.unwrap_or(CONNECTIONS));
        for cluster_ip in &self.targets.service.0 {
            let at = SocketAddr::new(*cluster_ip, self.ports.0);
            for (path, role) in [(Path::PodToService, Role::Pod), (Path::NodeToService, Role::Host)] {
                let Some(source) = member.agent(role).and_then(|agent| agent.address_like(*cluster_ip))
                else {
                    continue;
                };
                probes.push(Probe {
                    key: self.key(
                        path,
                        from,
                        &cluster_ip.to_string(),
                        &format!("TCP {}", family(*cluster_ip)),
                    ),
                    asker: (from, role),
                    target: None,
                    ask: Ask::Spread { to: at, count },
                    expectation: Expectation::Endpoints {
                        all: all.clone(),
                        is_complete,
                        source: (role == Role::Pod).then_some((from, role)),
                    },
                    tried: tried(role, source, &format!("{count} connections to TCP {at}")),
                });
            }
        }
        let own = member.agent(Role::Pod);
        for cluster_ip in &self.targets.local.0 {
            let Some((own, source)) = own.and_then(|own| Some((own, own.address_like(*cluster_ip)?))) else {
                continue;
            };
            let at = SocketAddr::new(*cluster_ip, self.ports.0);
            probes.push(Probe {
                key: self.key(
                    Path::Hairpin,
                    from,
                    &cluster_ip.to_string(),
                    &format!("TCP {}", family(*cluster_ip)),
                ),
                asker: (from, Role::Pod),
                target: None,
                ask: Ask::Who { to: at, transport: Transport::Tcp, tries: TRIES },
                expectation: Expectation::Agent { names: [own.name.clone()].into(), source: None },
                tried: tried(
                    Role::Pod,
                    source,
                    &format!("TCP {at}, whose only endpoint for this node is itself"),
                ),
            });
        }
    }

    /// DNS and the API servers.
    fn to_cluster(&self, from: usize, probes: &mut Vec<Probe>) {
        let Some(pod) = self.members.get(from).and_then(|member| member.agent(Role::Pod)) else { return };
        let Some(source) = pod.addresses.first().copied() else { return };
        let asker = (from, Role::Pod);
        let servers = std::iter::once(None).chain(self.targets.name_servers.iter().copied().map(Some));
        for server in servers {
            for (path, transport) in [(Path::DnsUdp, Transport::Udp), (Path::DnsTcp, Transport::Tcp)] {
                for (name, addresses) in &self.targets.names {
                    let at = server.map_or_else(|| "resolv.conf".to_string(), |server| server.to_string());
                    probes.push(Probe {
                        key: self.key(path, from, &at, name),
                        asker,
                        target: None,
                        ask: Ask::Resolve { name: name.clone(), server, transport },
                        expectation: Expectation::Addresses { wanted: addresses.clone() },
                        tried: tried(
                            Role::Pod,
                            source,
                            &format!("{transport}, name server of {at}, `{name}`"),
                        ),
                    });
                }
            }
        }
        let host = self.members.get(from).and_then(|member| member.agent(Role::Host));
        let agents = [(Role::Pod, Some(pod)), (Role::Host, host)];
        for (role, agent) in agents {
            for at in self.targets.api.iter().chain(&self.targets.api_servers) {
                let Some(source) = agent.and_then(|agent| agent.address_like(at.ip())) else { continue };
                let word = if role == Role::Pod { "from Pod" } else { "from node" };
                probes.push(Probe {
                    key: self.key(Path::ApiServer, from, &at.to_string(), word),
                    asker: (from, role),
                    target: self.host_with(at.ip()),
                    ask: Ask::Connect { to: *at },
                    expectation: Expectation::Success,
                    tried: tried(role, source, &format!("TCP {at}")),
                });
            }
        }
    }

    /// Connections from each Pod to the Pod on the next node, which stay open.
    pub(super) fn standing(&self) -> Vec<Probe> {
        let mut probes = Vec::new();
        for from in 0..self.members.len() {
            let Some(to) = self.schedule.partners(from, 0).first().copied() else { continue };
            for (source, target, family) in self.families((from, Role::Pod), (to, Role::Pod)) {
                let at = SocketAddr::new(target, self.ports.0);
                // A connection to an earlier agent has ended with it.
                let generation = [from, to].map(|at| self.generation(at)).into_iter().sum();
                let key = series_key(generation, from, to, target.is_ipv6());
                probes.push(Probe {
                    key: self.key(Path::StandingConnection, from, &self.name(to), &format!("TCP {family}")),
                    asker: (from, Role::Pod),
                    target: Some((to, Role::Pod)),
                    ask: Ask::Stand { to: at, key },
                    expectation: Expectation::Open,
                    tried: tried(Role::Pod, source, &format!("TCP {at}, a connection that stays open")),
                });
            }
        }
        probes
    }
}

/// Returns the key of a series: unique for a round, a pair and a family, and never 0.
fn series_key(round: usize, from: usize, to: usize, is_v6: bool) -> u64 {
    let part = |number: usize, shift: u32| (u64::try_from(number).unwrap_or_default() & 0xffff) << shift;
    1 << 63 | u64::from(is_v6) << 62 | part(round, 32) | part(from, 16) | part(to, 0)
}

/// Returns the suffix of a variant for an address family. IPv4 has none.
pub(super) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv6() { "IPv6" } else { "" }
}

pub(super) fn tried(role: Role, source: IpAddr, what: &str) -> String {
    let whose = if role == Role::Host { "node" } else { "Pod" };
    format!("{whose} {source} → {what}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_pair_is_asked_within_the_announced_rounds() {
        for (nodes, peers) in [(2, 4), (3, 4), (50, 1), (51, 7), (500, 20), (120, 200)] {
            let (schedule, rounds) = (Schedule::new(nodes, peers, 42), rounds_to_cover(nodes, peers));
            let mut seen = BTreeSet::new();
            for round in 0..rounds {
                for node in 0..nodes {
                    let partners = schedule.partners(node, round);
                    assert_eq!(partners.first(), Some(&((node + 1) % nodes)), "the ring is in every round");
                    assert!(partners.iter().all(|partner| *partner != node));
                    seen.extend(partners.into_iter().map(|partner| (node, partner)));
                }
            }
            assert_eq!(seen.len(), nodes * (nodes - 1), "{nodes} nodes, {peers} peers, {rounds} rounds");
        }
    }

    #[test]
    fn keys_of_series_differ() {
        let all = [(0, 0, 1, false), (0, 1, 0, false), (1, 0, 1, false), (0, 0, 1, true)];
        let keys: BTreeSet<u64> = all.into_iter().map(|(a, b, c, d)| series_key(a, b, c, d)).collect();
        assert_eq!(keys.len(), 4);
        assert!(!keys.contains(&0));
    }
}
