//! Whether NetworkPolicies are enforced. The targets are the peers, so no other path of the test is concerned.
//!
//! A policy has [`EFFECT`] to take effect. Traffic from a Pod's own node always passes, because the kubelet's probes do
//! (`NetworkPolicy`, api/networking/v1, Kubernetes v1.37.2).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cell::{CellKey, Cells};
use super::deployment::{Deployment, DeploymentError};
use super::expectation::{Expectation, judged};
use super::fleet::{Fleet, Replies};
use super::member::Role;
use super::objects::{ROLE, RUN};
use super::path::Path;
use super::round::{Probe, Schedule, family, tried};
use crate::agent::{Ask, Transport};

/// The time until a policy must be in effect.
pub(super) const EFFECT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(300);

/// Tests the policies of a cluster.
pub(super) struct Policies<'t> {
    pub(super) deployment: &'t Deployment,
    pub(super) schedule: &'t Schedule,
    pub(super) port: u16,
}

/// What a policy does, in the variant of a cell.
#[derive(Clone, Copy)]
struct Case {
    path: Path,
    variant: &'static str,
    is_egress: bool,
}

impl Policies<'_> {
    /// Tests a policy that denies everything, policies that allow a part, and the same for the traffic from a Pod.
    pub(super) async fn test(&self, fleet: &mut Fleet, cells: &mut Cells) -> Result<(), DeploymentError> {
        let deny = Case { path: Path::PolicyDeny, variant: "ingress", is_egress: false };
        self.deployment.create_policy("deny", &json!({"policyTypes": ["Ingress"]})).await?;
        let is_enforced = self.settle(fleet, deny, cells).await;
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

    async fn egress(&self, fleet: &mut Fleet, cells: &mut Cells) -> Result<(), DeploymentError> {
        self.deployment.create_policy("deny-egress", &json!({"policyTypes": ["Egress"]})).await?;
        let deny = Case { path: Path::PolicyDeny, variant: "egress", is_egress: true };
        let allow = Case { path: Path::PolicyAllow, variant: "egress to Pods", is_egress: true };
        if self.settle(fleet, deny, cells).await {
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
            ("allow-block", "from addresses (ipBlock)", json!({"from": blocks})),
        ]
    }

    /// Probes until everything is as it must be, or the time is over. Records the last observations; returns whether they are right.
    async fn settle(&self, fleet: &mut Fleet, case: Case, cells: &mut Cells) -> bool {
        let started = Instant::now();
        loop {
            let Replies(replies) = fleet.ask(self.probes(fleet, case)).await;
            let are_right = replies.iter().all(|(probe, seen)| {
                let judge = |seen| judged(&probe.expectation, seen, None, &fleet.members, "");
                seen.as_ref().is_ok_and(|seen| judge(seen).fault.is_none())
            });
            if are_right || started.elapsed() > EFFECT {
                for (probe, seen) in replies {
                    match seen {
                        Ok(seen) => {
                            let mut observation =
                                judged(&probe.expectation, &seen, None, &fleet.members, &probe.tried);
                            if let Some(fault) = &mut observation.fault
                                && case.path == Path::PolicyAllow
                            {
                                *fault = super::cell::FaultClass::NotAllowed;
                            }
                            cells.record(probe.key, observation);
                        }
                        Err(reason) => cells.record_untested(probe.key, &reason),
                    }
                }
                return are_right;
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
            probes.extend(pairs.into_iter().filter_map(|(from, to)| self.probe(fleet, case, from, to)));
        }
        probes
    }

    fn probe(&self, fleet: &Fleet, case: Case, from: (usize, Role), to: (usize, Role)) -> Option<Probe> {
        let member = |index: usize| fleet.members.get(index);
        let (one, other) = (member(from.0)?, member(to.0)?);
        let (asker, target) = (one.agent(from.1)?, other.agent(to.1)?);
        let address: IpAddr = *target.addresses.first()?;
        let source = asker.address_like(address)?;
        let at = SocketAddr::new(address, self.port);
        let expectation = match case.path {
            Path::PolicyDeny => Expectation::Denied,
            _ => Expectation::Agent { names: vec![target.name.clone()], source: None },
        };
        let variant = format!("{} {}", case.variant, family(address));
        Some(Probe {
            key: CellKey {
                path: case.path,
                from: one.node.as_str().into(),
                to: other.node.as_str().into(),
                variant: variant.trim().into(),
            },
            asker: from,
            ask: Ask::Who { to: at, transport: Transport::Tcp, tries: 1 },
            expectation,
            tried: tried(from.1, source, &format!("TCP {at}, with the policy for {EFFECT:?}")),
        })
    }
}
