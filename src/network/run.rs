//! A whole test: prepares the cluster, starts the agents, asks them round by round, and removes everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, sleep};

use super::baseline::Baseline;
use super::cell::{CellKey, Cells, FaultClass, Observation};
use super::deployment::{Deployment, DeploymentError, Started};
use super::fleet::{Fleet, Replies};
use super::link::AgentLink;
use super::member::{Member, Role};
use super::node_object::observed;
use super::path::Path;
use super::policy::Policies;
use super::result::{PathResult, Result};
use super::round::{ALL_PAIRS, Round, Schedule, Targets, rounds_to_cover};
use super::{counters, targets};
use crate::kube_api::Cluster;
use crate::kube_api::accessors::{label, name};

/// The time in which every kube-proxy must know the Services of the test.
const SETTLEMENT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(300);

/// Reports what a test does.
pub type Progress<'p> = &'p (dyn Fn(&str) + Sync);

/// How to test.
#[derive(Debug, Clone)]
pub struct Test {
    /// The nodes to test; all Linux nodes if empty.
    pub nodes: Vec<String>,
    /// Paths to leave out.
    pub skip: BTreeSet<Path>,
    /// The number of rounds, if there is no duration.
    pub rounds: u32,
    /// The time for which rounds repeat.
    pub duration: Option<Duration>,
    /// The pause between the starts of two rounds.
    pub interval: Duration,
    /// Whether rounds continue after a failure that the baseline does not have.
    pub keep_going: bool,
    /// In a cluster with more than 50 nodes: how many other nodes each node asks in a round.
    pub peers: usize,
    /// The time for the Pods to start.
    pub patience: Duration,
    /// Further names to resolve.
    pub names: Vec<String>,
    /// Further name servers to ask, for example a node-local one.
    pub name_servers: Vec<std::net::IpAddr>,
    /// An earlier result.
    pub baseline: Option<Baseline>,
}

/// The state of a running test.
struct Running<'r> {
    test: &'r Test,
    fleet: Fleet,
    cells: Cells,
    targets: Targets,
    schedule: Schedule,
    ports: (u16, u16),
}

impl Test {
    /// Runs the test. The caller removes the objects afterwards, also after an error ([`Deployment::clean`]).
    pub async fn run(
        &self,
        cluster: &Cluster,
        deployment: &Deployment,
        say: Progress<'_>,
    ) -> std::result::Result<Result, DeploymentError> {
        let nodes = self.chosen(cluster).await?;
        let names: Vec<String> = nodes.iter().map(|node| name(node).to_string()).collect();
        let first = names.first().ok_or(DeploymentError::NoNodes)?;
        say("checking that the cluster accepts the Pods of the test");
        deployment.prepare(first, &Role::ALL).await?;
        tokio::select! {
            result = self.deployed(cluster, deployment, &nodes, &names, say) => result,
            lost = deployment.keep_lease() => Err(lost),
        }
    }

    async fn deployed(
        &self,
        cluster: &Cluster,
        deployment: &Deployment,
        nodes: &[Node],
        names: &[String],
        say: Progress<'_>,
    ) -> std::result::Result<Result, DeploymentError> {
        let settings = deployment.settings();
        let services = deployment.create_services().await?;
        let mut cells = Cells::new(names.len() > ALL_PAIRS);
        let mut members: Vec<Member> = nodes.iter().map(member).collect();
        for (node, member) in nodes.iter().zip(&members) {
            observed(node, &member.node, &mut cells);
        }
        for role in [Role::Host, Role::Pod, Role::Peer] {
            if role == Role::Peer && self.skips_peers() {
                continue;
            }
            let progress =
                |ready: usize, all: usize| say(&format!("agents `{}`: {ready} of {all}", role.name()));
            let started = deployment.start(names, role, self.patience, &progress).await?;
            record_start(&started, role, &members, &mut cells);
            for (index, agent) in started.agents {
                if let Some(member) = members.get_mut(index) {
                    member.agents.insert(role, agent);
                }
            }
        }
        record_families(&members, &mut cells);
        let mut fleet = Fleet::new(members, BTreeMap::new());
        fleet.connect(cluster, &settings.namespace, settings.port).await;
        let mut targets = targets::targets(cluster, &services).await?;
        let domains = fleet.facts(Role::Pod).await;
        let domain = domains.values().find_map(|facts| facts.cluster_domain().map(str::to_string));
        targets.names =
            targets::names(&targets, settings, domain.as_deref().unwrap_or("cluster.local"), &self.names);
        targets.name_servers.clone_from(&self.name_servers);
        let schedule = Schedule::new(names.len(), self.peers, seed(&settings.run));
        let ports = (settings.port, settings.host_port);
        let mut running = Running { test: self, fleet, cells, targets, schedule, ports };
        let reconnect = Some((cluster, settings.namespace.as_str()));
        let (rounds, seconds, started) = running.rounds(reconnect, Some(deployment), say).await?;
        Ok(running.result(rounds, seconds, started))
    }

    fn skips_peers(&self) -> bool {
        [Path::NewPod, Path::PodToPodSameNode, Path::HostPort, Path::PolicyDeny, Path::PolicyAllow]
            .iter()
            .all(|path| self.skip.contains(path))
    }

    /// Returns the nodes to test.
    async fn chosen(&self, cluster: &Cluster) -> std::result::Result<Vec<Node>, DeploymentError> {
        let mut nodes: Vec<Node> = cluster.objects(None, None).await?;
        nodes.retain(runs_agents);
        if let Some(unknown) = self.nodes.iter().find(|wanted| nodes.iter().all(|node| name(node) != *wanted))
        {
            return Err(DeploymentError::UnknownNode(unknown.clone()));
        }
        nodes.retain(|node| self.nodes.is_empty() || self.nodes.iter().any(|wanted| wanted == name(node)));
        nodes.sort_by(|one, other| name(one).cmp(name(other)));
        Ok(nodes)
    }
}

/// Whether a node can run the agents: not Windows, and not a node without a kubelet of its own (Virtual Kubelet, AWS Fargate), which
/// starts no Pod that names its node.
fn runs_agents(node: &Node) -> bool {
    let system = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let is_windows = system.is_some_and(|system| system.operating_system == "windows");
    let is_virtual = label(node, "type") == Some("virtual-kubelet")
        || label(node, "eks.amazonaws.com/compute-type") == Some("fargate");
    !is_windows && !is_virtual
}

/// Records the address families that Pods of other nodes, or the ranges of the Node, have and an agent does not.
fn record_families(members: &[Member], cells: &mut Cells) {
    let agents = members.iter().filter_map(|member| member.agent(Role::Pod));
    let everywhere: BTreeSet<bool> =
        agents.flat_map(|agent| agent.addresses.iter().map(std::net::IpAddr::is_ipv4)).collect();
    for member in members {
        let Some(agent) = member.agent(Role::Pod) else { continue };
        let mut wanted = everywhere.clone();
        wanted.extend(member.pod_cidrs.iter().map(ipnetwork::IpNetwork::is_ipv4));
        for is_v4 in wanted.into_iter().filter(|is_v4| agent.address_of(*is_v4).is_none()) {
            let family = if is_v4 { "IPv4" } else { "IPv6" };
            let key = CellKey {
                path: Path::Agent,
                from: member.node.as_str().into(),
                to: "".into(),
                variant: family.into(),
            };
            let observation = Observation {
                tried: format!("Pod `{}`", agent.name),
                seen: format!("the Pod has no {family} address"),
                fault: Some(FaultClass::NotStarted),
            };
            cells.record(key, observation);
        }
    }
}

/// Returns a node before its agents start.
fn member(node: &Node) -> Member {
    let ranges = node.spec.as_ref().map(|spec| spec.pod_cidrs.iter().flatten().collect::<Vec<_>>());
    let ranges = ranges.unwrap_or_default().into_iter().filter_map(|range| range.parse().ok());
    Member { node: name(node).to_string(), agents: BTreeMap::new(), pod_cidrs: ranges.collect() }
}

/// Returns a number for the order of the schedule.
fn seed(run: &str) -> u64 {
    run.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Records how the Pods of a role started.
fn record_start(started: &Started, role: Role, members: &[Member], cells: &mut Cells) {
    for (index, member) in members.iter().enumerate() {
        let path = if role == Role::Peer { Path::NewPod } else { Path::Agent };
        let key = CellKey {
            path,
            from: member.node.as_str().into(),
            to: "".into(),
            variant: if role == Role::Peer { "".into() } else { role.name().into() },
        };
        let tried = format!("a new Pod on the {} network", if role == Role::Host { "host" } else { "Pod" });
        let observation = match (started.times.get(&index), started.faults.get(&index)) {
            (Some(time), _) => {
                Observation { tried, seen: format!("ready after {:.1} s", time.as_secs_f64()), fault: None }
            }
            (None, reason) => Observation {
                tried,
                seen: reason.cloned().unwrap_or_default(),
                fault: Some(FaultClass::NotStarted),
            },
        };
        cells.record(key, observation);
    }
}

impl Running<'_> {
    /// Runs the rounds; returns their number, their time, and when they started.
    async fn rounds(
        &mut self,
        reconnect: Option<(&Cluster, &str)>,
        deployment: Option<&Deployment>,
        say: Progress<'_>,
    ) -> std::result::Result<(u32, f64, OffsetDateTime), DeploymentError> {
        let (started, at) = (Instant::now(), OffsetDateTime::now_utc());
        let before = self.fleet.facts(Role::Host).await;
        let mut round = 0_u32;
        loop {
            let begun = Instant::now();
            if let (Some((cluster, namespace)), 1..) = (reconnect, round) {
                self.fleet.connect(cluster, namespace, self.ports.0).await;
            }
            self.round(round, reconnect).await;
            if round == 0
                && let Some(deployment) = deployment
            {
                self.policies(deployment, say).await?;
            }
            counters::record(
                &self.fleet.members,
                &before,
                &self.fleet.facts(Role::Host).await,
                &mut self.cells,
            );
            self.fleet.record_links(&mut self.cells);
            self.cells.drop_paths(&self.test.skip);
            round = round.saturating_add(1);
            let failed = self.cells.failed().count();
            say(&format!("round {round}: {} probes, {failed} paths failed", self.cells.probes()));
            let is_over = match self.test.duration {
                Some(duration) => started.elapsed() >= duration,
                None => round >= self.test.rounds,
            };
            if is_over || !self.test.keep_going && self.has_new_failure() {
                return Ok((round, started.elapsed().as_secs_f64(), at));
            }
            sleep(self.test.interval.saturating_sub(begun.elapsed())).await;
        }
    }

    async fn round(&mut self, number: u32, reconnect: Option<(&Cluster, &str)>) {
        let agents = self.fleet.members.iter().filter_map(|member| member.agent(Role::Pod));
        let endpoints = agents.map(|agent| agent.name.clone()).collect();
        let round = Round {
            endpoints,
            members: &self.fleet.members,
            targets: &self.targets,
            schedule: &self.schedule,
            number: usize::try_from(number).unwrap_or_default(),
            ports: self.ports,
        };
        let mut probes = round.standing();
        probes.extend(round.probes());
        probes.retain(|probe| !self.test.skip.contains(&probe.key.path));
        let mut replies = self.fleet.ask(probes).await;
        if let Some((cluster, namespace)) = reconnect {
            // A connection through the API server can break without a fault of the network.
            let unanswered = replies.take_unanswered();
            if !unanswered.is_empty() {
                self.fleet.connect(cluster, namespace, self.ports.0).await;
                let Replies(again) = self.fleet.ask(unanswered).await;
                replies.0.extend(again);
            }
        }
        if number == 0 {
            self.settle(&mut replies).await;
        }
        let received = self.fleet.received(&replies).await;
        self.fleet.record(replies, &received, &mut self.cells);
    }

    /// Asks the failed probes of new Services again until they pass or the time is over: every kube-proxy needs a moment for them.
    async fn settle(&mut self, replies: &mut Replies) {
        let started = Instant::now();
        while started.elapsed() < SETTLEMENT {
            let failed = replies.take_failed(&self.fleet.members, Path::needs_services);
            if failed.is_empty() {
                return;
            }
            sleep(PAUSE).await;
            replies.ask_again(&mut self.fleet, failed).await;
        }
    }

    async fn policies(
        &mut self,
        deployment: &Deployment,
        say: Progress<'_>,
    ) -> std::result::Result<(), DeploymentError> {
        if self.test.skip.contains(&Path::PolicyDeny) && self.test.skip.contains(&Path::PolicyAllow) {
            return Ok(());
        }
        say("testing NetworkPolicies");
        let excluded = BTreeSet::new();
        let mut policies = Policies { deployment, schedule: &self.schedule, port: self.ports.0, excluded };
        policies.test(&mut self.fleet, &mut self.cells).await
    }

    fn has_new_failure(&self) -> bool {
        let baseline = self.test.baseline.as_ref();
        self.cells.failed().any(|(key, cell)| baseline.is_none_or(|baseline| !baseline.has_failed(key, cell)))
    }

    fn result(self, rounds: u32, seconds: f64, started: OffsetDateTime) -> Result {
        let nodes: Vec<String> = self.fleet.members.iter().map(|member| member.node.clone()).collect();
        Result {
            version: 1,
            started: started.replace_nanosecond(0).unwrap_or(started).format(&Rfc3339).unwrap_or_default(),
            seconds,
            rounds,
            rounds_to_cover: rounds_to_cover(nodes.len(), self.test.peers),
            nodes,
            paths: self
                .cells
                .into_iter()
                .map(|(key, cell)| PathResult { key, verdict: cell.verdict(), cell })
                .collect(),
        }
    }
}

/// Runs rounds with agents that the caller started, without a cluster. For measurements of large matrices.
pub async fn simulate(
    test: &Test,
    members: Vec<Member>,
    links: BTreeMap<(usize, Role), AgentLink>,
    port: u16,
    say: Progress<'_>,
) -> std::result::Result<Result, DeploymentError> {
    let schedule = Schedule::new(members.len(), test.peers, 1);
    let cells = Cells::new(members.len() > ALL_PAIRS);
    let fleet = Fleet::new(members, links);
    let ports = (port, port);
    let mut running = Running { test, fleet, cells, targets: Targets::default(), schedule, ports };
    let (rounds, seconds, started) = running.rounds(None, None, say).await?;
    Ok(running.result(rounds, seconds, started))
}
