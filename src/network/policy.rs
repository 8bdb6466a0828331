//! Whether NetworkPolicies are enforced. The targets are the peers, so no other path of the test is concerned.
//!
//! A policy has [`EFFECT`] to take effect. Traffic from a Pod's own node always passes, because the kubelet's probes do
//! (`NetworkPolicy`, api/networking/v1, Kubernetes v1.37.2).

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::attendance::Attendance;
use super::cell::{CellKey, Cells, FaultClass, Observation};
use super::deployment::{Deployment, DeploymentError};
use super::expectation::Expectation;
use super::fleet::{Fleet, Replies};
use super::member::Role;
use super::objects::{ROLE, RUN};
use super::path::Path;
use super::round::{Probe, Schedule, family, tried};
use crate::agent::{Ask, Transport};

/// The time until a policy must be in effect.
pub(super) const EFFECT: Duration = Duration::from_secs(30);
/// The case of a policy that allows addresses.
const BY_ADDRESS: &str = "from addresses (ipBlock)";
const PAUSE: Duration = Duration::from_millis(300);

/// Tests the policies of a cluster.
pub(super) struct Policies<'t, 'a> {
    pub(super) deployment: &'t Deployment,
    pub(super) schedule: &'t Schedule,
    pub(super) port: u16,
    /// Pairs of agents that do not reach each other without a policy either, so that silence proves nothing.
    pub(super) excluded: BTreeSet<CellKey>,
    pub(super) attendance: &'t mut Attendance<'a>,
}

/// What a policy does, in the variant of a cell.
#[derive(Clone, Copy)]
struct Case {
    path: Path,
    variant: &'static str,
    is_egress: bool,
}

impl Policies<'_, '_> {
    /// Tests a policy that denies everything, policies that allow a part, and the same for the traffic from a Pod.
    pub(super) async fn test(&mut self, fleet: &mut Fleet, cells: &mut Cells) -> Result<(), DeploymentError> {
        self.exclude(fleet, cells).await;
        let deny = Case { path: Path::PolicyDeny, variant: "ingress", is_egress: false };
        self.deployment.create_policy("deny", &json!({"policyTypes": ["Ingress"]})).await?;
        self.settle(fleet, deny, cells).await;
        let is_enforced = is_enforced(cells, deny.variant);
        let own_node = Case { path: Path::PolicyAllow, variant: "from the own node", is_egress: false };
        self.settle(fleet, own_node, cells).await;
        for (name, variant, rule) in self.rules(fleet) {
            let case = Case { path: Path::PolicyAllow, variant, is_egress: false };
            if !is_enforced {
                self.skip(fleet, case, "no policy is enforced", cells);
                continue;
            }
            self.deployment
                .create_policy(name, &json!({"policyTypes": ["Ingress"], "ingress": [rule]}))
                .await?;
            self.settle(fleet, case, cells).await;
            self.deployment.remove_policy(name).await?;
            // The next case must not pass because of this one.
            self.settle(fleet, deny, cells).await;
        }
        self.deployment.remove_policy("deny").await?;
        if is_enforced {
            return self.egress(fleet, cells).await;
        }
        for (path, variant) in [(Path::PolicyDeny, "egress"), (Path::PolicyAllow, "egress to Pods")] {
            self.skip(fleet, Case { path, variant, is_egress: true }, "no policy is enforced", cells);
        }
        Ok(())
    }

    /// Asks all pairs without a policy. Those that do not answer are left out.
    async fn exclude(&mut self, fleet: &mut Fleet, cells: &mut Cells) {
        for is_egress in [false, true] {
            let variant = if is_egress { "egress" } else { "ingress" };
            // The expectation of an allowed pair is an answer.
            let case = Case { path: Path::PolicyAllow, variant, is_egress };
            let Replies(replies) = fleet.ask(self.probes(fleet, case)).await;
            for (probe, seen) in replies {
                if fleet.has_failed(&probe, &seen) {
                    let key = CellKey { path: Path::PolicyDeny, ..probe.key.clone() };
                    cells.record_untested(key, "the Pod does not answer without a policy either");
                    self.excluded.insert(pair(&probe.key, is_egress));
                }
            }
        }
    }

    async fn egress(&mut self, fleet: &mut Fleet, cells: &mut Cells) -> Result<(), DeploymentError> {
        self.deployment.create_policy("deny-egress", &json!({"policyTypes": ["Egress"]})).await?;
        let deny = Case { path: Path::PolicyDeny, variant: "egress", is_egress: true };
        let allow = Case { path: Path::PolicyAllow, variant: "egress to Pods", is_egress: true };
        self.settle(fleet, deny, cells).await;
        if is_enforced(cells, deny.variant) {
            let rule = json!({"to": [{"podSelector": {"matchLabels": {ROLE: Role::Pod.name()}}}]});
            let spec = json!({"policyTypes": ["Egress"], "egress": [rule]});
            self.deployment.create_policy("allow-egress", &spec).await?;
            self.settle(fleet, allow, cells).await;
            self.deployment.remove_policy("allow-egress").await?;
        } else {
            self.skip(fleet, allow, "no policy is enforced", cells);
        }
        Ok(self.deployment.remove_policy("deny-egress").await?)
    }

    /// The rules that allow the Pod agents again: by Pod, by namespace, by port, and by address.
    fn rules(&self, fleet: &Fleet) -> Vec<(&'static str, &'static str, Value)> {
        let settings = self.deployment.settings();
        let agents = fleet.members.iter().filter_map(|member| member.agent(Role::Pod));
        let addresses = agents.flat_map(|agent| agent.addresses.iter());
        let blocks: Vec<Value> = addresses
            .map(|address| {
                let length = if address.is_ipv4() { 32 } else { 128 };
                json!({"ipBlock": {"cidr": format!("{address}/{length}")}})
            })
            .collect();
        let pod = json!({"podSelector": {"matchLabels": {RUN: settings.run, ROLE: Role::Pod.name()}}});
        let namespace = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.namespace}}});
        vec![
            ("allow-pod", "from Pods", json!({"from": [pod]})),
            ("allow-namespace", "from the namespace", json!({"from": [namespace]})),
            ("allow-port", "to a port", json!({"ports": [{"port": self.port, "protocol": "TCP"}]})),
            ("allow-block", BY_ADDRESS, json!({"from": blocks})),
        ]
    }

    /// Probes until everything is as it must be, or the time is over. Records the last observations.
    async fn settle(&mut self, fleet: &mut Fleet, case: Case, cells: &mut Cells) {
        let started = Instant::now();
        loop {
            let Replies(replies) = fleet.ask(self.probes(fleet, case)).await;
            let are_right = replies.iter().all(|(probe, seen)| !fleet.has_failed(probe, seen));
            if are_right || started.elapsed() > EFFECT {
                if !are_right {
                    self.attendance.refresh(self.deployment, fleet, false, cells).await;
                }
                for (probe, seen) in &replies {
                    if let Some(observation) = fleet.observation(probe, seen, None, cells) {
                        record(case, probe, observation, cells);
                    }
                }
                return;
            }
            sleep(PAUSE).await;
        }
    }

    fn skip(&self, fleet: &Fleet, case: Case, reason: &str, cells: &mut Cells) {
        for probe in self.probes(fleet, case) {
            cells.record_untested(probe.key, reason);
        }
    }

    /// For each peer: from the Pod agent of its node and of the node before it, or from the host network of its own node.
    fn probes(&self, fleet: &Fleet, case: Case) -> Vec<Probe> {
        let mut probes = Vec::new();
        for here in 0..fleet.members.len() {
            let next = self.schedule.partners(here, 0).first().copied();
            let peer = (here, Role::Peer);
            let mut pairs: Vec<((usize, Role), (usize, Role))> = match case {
                Case { variant: "from the own node", .. } => vec![((here, Role::Host), peer)],
                Case { is_egress: true, .. } => vec![(peer, (here, Role::Pod))],
                _ => vec![((here, Role::Pod), peer)],
            };
            if let (Some(next), Some(((_, Role::Pod), _) | (_, (_, Role::Pod)))) = (next, pairs.first()) {
                pairs.push(if case.is_egress {
                    (peer, (next, Role::Pod))
                } else {
                    ((next, Role::Pod), peer)
                });
            }
            probes.extend(pairs.into_iter().flat_map(|(from, to)| self.probe(fleet, case, from, to)));
        }
        probes.retain(|probe| {
            ![Some(probe.asker), probe.target]
                .into_iter()
                .flatten()
                .any(|end| fleet.absent.contains_key(&end))
        });
        probes.retain(|probe| !self.excluded.contains(&pair(&probe.key, case.is_egress)));
        probes
    }

    fn probe(&self, fleet: &Fleet, case: Case, from: (usize, Role), to: (usize, Role)) -> Vec<Probe> {
        let member = |index: usize| fleet.members.get(index);
        let (Some(one), Some(other)) = (member(from.0), member(to.0)) else { return Vec::new() };
        let (Some(asker), Some(target)) = (one.agent(from.1), other.agent(to.1)) else { return Vec::new() };
        let addresses = target.addresses.iter().copied();
        let pairs = addresses.filter_map(|address| Some((asker.address_like(address)?, address)));
        let probe = |(source, address): (IpAddr, IpAddr)| {
            let at = SocketAddr::new(address, self.port);
            let expectation = match case.path {
                Path::PolicyDeny => Expectation::Denied,
                _ => Expectation::Agent { names: [target.name.clone()].into(), source: None },
            };
            let variant = format!("{} {}", case.variant, family(address));
            Probe {
                key: CellKey {
                    path: case.path,
                    from: one.node.as_str().into(),
                    to: other.node.as_str().into(),
                    variant: variant.trim().into(),
                },
                asker: from,
                target: Some(to),
                ask: Ask::Who { to: at, transport: Transport::Tcp, tries: 1 },
                expectation,
                tried: tried(
                    from.1,
                    source,
                    &format!("TCP {at}, up to {} s after the policy", EFFECT.as_secs()),
                ),
            }
        };
        pairs.map(probe).collect()
    }
}

fn record(case: Case, probe: &Probe, mut observation: Observation, cells: &mut Cells) {
    if let Some(fault) = &mut observation.fault
        && case.path == Path::PolicyAllow
    {
        *fault = FaultClass::NotAllowed;
    }
    if observation.fault.is_some() && case.variant == BY_ADDRESS {
        // Cilium and others do not compare addresses of Pods with `ipBlock`, which the API permits.
        cells.record_untested(probe.key.clone(), "the policy engine does not match Pods by `ipBlock`");
    } else {
        cells.record(probe.key.clone(), observation);
    }
}

/// Whether the policy that denies is enforced anywhere.
fn is_enforced(cells: &Cells, variant: &str) -> bool {
    let mut denied =
        cells.iter().filter(|(key, _)| key.path == Path::PolicyDeny && key.variant.starts_with(variant));
    denied.any(|(_, cell)| cell.passed > 0)
}

/// Returns a key that is the same for all cases of a pair of nodes, a direction and a family.
fn pair(key: &CellKey, is_egress: bool) -> CellKey {
    let family = if key.variant.ends_with("IPv6") { "IPv6" } else { "" };
    let variant = format!("{is_egress} {family}");
    CellKey { path: Path::PolicyDeny, variant: variant.into(), ..key.clone() }
}
