//! Which agents are there in a round.
//!
//! A node that leaves the cluster or is down, an agent that was evicted, and a node that does not take an agent are no failures of the
//! network: their paths are not tested. An agent that was removed is created again when its node takes Pods. A node that joins the
//! cluster gets agents when it is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::time::Instant;

use super::cell::{CellKey, Cells, FaultClass, Observation};
use super::deployment::Deployment;
use super::family::record_families;
use super::fleet::Fleet;
use super::member::{Agent, Member, Role};
use super::node_object::{not_observed, not_ready, pod_ranges};
use super::options::Test;
use super::path::Path;
use super::pod_state::{disruption, ended, ready};
use crate::kube_api::accessors::{has_condition, is_closed, name};

/// The agents that belong to the test.
pub(super) struct Attendance<'t> {
    test: &'t Test,
    agents: BTreeMap<(usize, Role), Known>,
}

/// What is known about an agent.
#[derive(Default)]
struct Known {
    /// When its Pod was created during the test, until that is ready.
    awaited: Option<Instant>,
}

/// How the Pod of an agent is.
#[derive(Debug, PartialEq, Eq)]
enum AgentState {
    Ready(Agent),
    /// The Pod exists and is not ready.
    Waiting,
    /// The Pod does not run any more, and is not gone. `uid`: it can be removed, because its kubelet has given it up.
    Ended {
        reason: String,
        uid: Option<String>,
    },
    /// There is no Pod.
    Missing,
    NoNode,
}

fn state_of(node: Option<&Node>, pod: Option<&Pod>) -> AgentState {
    if node.is_none() {
        return AgentState::NoNode;
    }
    let Some(pod) = pod else { return AgentState::Missing };
    if pod.metadata.deletion_timestamp.is_some() {
        return AgentState::Ended { reason: disruption(pod), uid: None };
    }
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    if let Some(reason) = ended(pod) {
        return AgentState::Ended { reason, uid: Some(uid) };
    }
    ready(pod).map_or(AgentState::Waiting, AgentState::Ready)
}

impl<'t> Attendance<'t> {
    /// Returns the attendance of a test, without agents.
    pub(super) fn new(test: &'t Test) -> Self {
        Self { test, agents: BTreeMap::new() }
    }

    /// Adds an agent: one that has started, or one that its node did not take.
    pub(super) fn add(&mut self, at: (usize, Role)) {
        self.agents.entry(at).or_default();
    }

    /// Adds an agent that did not start in time. It can still start.
    pub(super) fn add_late(&mut self, at: (usize, Role)) {
        self.agents.entry(at).or_default().awaited = Some(Instant::now());
    }

    /// Reads which agents and nodes are there, and creates the Pods that are missing, if `creates`. Returns whether an agent has come
    /// or has gone. If the API does not answer, the last known state stays.
    pub(super) async fn refresh(
        &mut self,
        deployment: &Deployment,
        fleet: &mut Fleet,
        creates: bool,
        cells: &mut Cells,
    ) -> bool {
        let Ok((nodes, pods)) = deployment.nodes_and_pods().await else { return false };
        let mut has_changed = creates && self.admit(&nodes, fleet, cells);
        // At the end of a round, what was an endpoint at its start still counts.
        let lingered = fleet.lingering.clone();
        fleet.lingering = fleet.lingering.take().filter(|_| !creates);
        for (index, member) in fleet.members.iter_mut().enumerate() {
            let node = nodes.get(&member.node);
            if let Some(node) = node {
                member.pod_cidrs = pod_ranges(node);
            }
            let reason = node.map_or_else(|| Some("it left the cluster".to_string()), not_ready);
            match reason {
                Some(reason) => fleet.down.insert(index, format!("the Node `{}`: {reason}", member.node)),
                None => fleet.down.remove(&index),
            };
        }
        let mut came = BTreeSet::new();
        let all: BTreeSet<(usize, Role)> = self.agents.keys().copied().collect();
        for (index, role) in all {
            let Some(name) = fleet.members.get(index).map(|member| member.node.clone()) else { continue };
            let pod = pods.get(&deployment.settings().pod_name(index, role));
            let found = state_of(nodes.get(&name), pod);
            let is_open = nodes.get(&name).is_some_and(|node| !is_closed(node) && not_ready(node).is_none());
            let creates = creates && is_open;
            let before = fleet.absent.contains_key(&(index, role));
            if matches!(&found, AgentState::Ready(agent) if !fleet.is_known((index, role), agent)) {
                came.insert(index);
            }
            let reason = self.reason((index, role), found, (deployment, &name, creates), fleet, cells).await;
            let reason = reason.map(|reason| {
                let cordoned = nodes.get(&name).is_some_and(is_closed);
                let note = if cordoned { ", and the Node is cordoned" } else { "" };
                format!("the agent `{}` on `{name}`: {reason}{note}", role.name())
            });
            has_changed |= before != reason.is_some();
            match reason {
                Some(reason) => {
                    // A Pod that ended or is not ready is no endpoint; one that is being removed can still be one for a kube-proxy.
                    if role == Role::Pod && pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()) {
                        fleet.lingering = Some(reason.clone());
                    }
                    fleet.remove((index, role), reason);
                }
                None => {
                    fleet.absent.remove(&(index, role));
                }
            }
        }
        record_families(&fleet.members, |index| came.contains(&index), cells);
        // Each kube-proxy needs a moment after the Pod of an agent is gone.
        has_changed || lingered.is_some() && fleet.lingering.is_none()
    }

    /// Adds the nodes that joined the cluster and are ready. Returns whether there are any.
    fn admit(&mut self, nodes: &BTreeMap<String, Node>, fleet: &mut Fleet, cells: &mut Cells) -> bool {
        let known: BTreeSet<String> = fleet.members.iter().map(|member| member.node.clone()).collect();
        let is_new = |node: &&Node| {
            let is_open = has_condition(node, "Ready") && !is_closed(node);
            is_open && self.test.includes(node) && !known.contains(name(*node))
        };
        let joined: Vec<&Node> = nodes.values().filter(is_new).collect();
        for node in &joined {
            not_observed(name(*node), cells);
            for role in self.test.roles() {
                self.agents.insert((fleet.members.len(), role), Known::default());
            }
            fleet.members.push(Member::of(node));
        }
        !joined.is_empty()
    }

    /// Returns why an agent is absent. Creates its Pod, or takes over the new one.
    async fn reason(
        &mut self,
        at: (usize, Role),
        found: AgentState,
        (deployment, node, creates): (&Deployment, &str, bool),
        fleet: &mut Fleet,
        cells: &mut Cells,
    ) -> Option<String> {
        let known = self.agents.entry(at).or_default();
        let is_first = fleet.members.get(at.0).is_some_and(|member| member.agent(at.1).is_none());
        let history = if is_first { "its Pod was created" } else { "its Pod was created again" };
        match found {
            AgentState::NoNode => Some("the Node left the cluster".to_string()),
            AgentState::Ready(agent) => {
                if let Some(since) = known.awaited.take() {
                    cells.record(started_key(node, at.1), has_started(at.1, since.elapsed()));
                }
                if !fleet.is_known(at, &agent) {
                    fleet.replace(at, agent);
                }
                None
            }
            AgentState::Waiting => {
                let since = known.awaited?;
                if since.elapsed() > self.test.patience {
                    let reason = deployment.not_started(at.0, at.1, None).await;
                    cells.record(started_key(node, at.1), not_started(at.1, reason));
                }
                Some(format!("{history}, and is not ready yet"))
            }
            AgentState::Ended { reason, uid } => {
                if let Some(uid) = uid.filter(|_| creates) {
                    deployment.remove_pod(at, &uid).await;
                }
                Some(reason)
            }
            AgentState::Missing if creates && deployment.create_pod(at, node).await => {
                known.awaited = Some(Instant::now());
                Some(format!("{history}, and is not ready yet"))
            }
            AgentState::Missing if is_first => Some("it has no Pod yet".to_string()),
            AgentState::Missing => Some("its Pod was removed".to_string()),
        }
    }
}

/// Returns the cell that says whether the agent of a role starts on a node.
pub(super) fn started_key(node: &str, role: Role) -> CellKey {
    let (path, variant) = match role {
        Role::Peer => (Path::NewPod, ""),
        _ => (Path::Agent, role.name()),
    };
    CellKey { path, from: node.into(), to: "".into(), variant: variant.into() }
}

/// Returns the observation of a Pod that started.
pub(super) fn has_started(role: Role, time: Duration) -> Observation {
    let seen = format!("ready after {:.1} s", time.as_secs_f64());
    Observation { tried: new_pod(role), seen, fault: None }
}

/// Returns the observation of a Pod that does not start.
pub(super) fn not_started(role: Role, reason: String) -> Observation {
    Observation { tried: new_pod(role), seen: reason, fault: Some(FaultClass::NotStarted) }
}

/// Returns what is tried when a Pod starts.
fn new_pod(role: Role) -> String {
    format!("a new Pod on the {} network", if role == Role::Host { "host" } else { "Pod" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::pod_state::declined;
    use super::*;

    fn pod(status: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "a", "uid": "1"}, "status": status})).unwrap()
    }

    fn reason(found: &AgentState) -> String {
        match found {
            AgentState::Ended { reason, .. } => reason.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pods_that_ended_are_told_from_pods_that_wait() {
        let node = Node::default();
        let of = |pod: &Pod| state_of(Some(&node), Some(pod));
        let message = "Node didn't have enough resource: pods";
        let refused = pod(&json!({"phase": "Failed", "reason": "OutOfpods", "message": message}));
        assert!(reason(&of(&refused)).contains("OutOfpods: Node didn't have enough resource"));
        assert!(declined(&refused).is_some());
        assert!(declined(&pod(&json!({"phase": "Failed", "reason": "NodePorts"}))).is_none(), "a setting");
        assert!(declined(&pod(&json!({"phase": "Pending"}))).is_none());
        assert_eq!(of(&pod(&json!({"phase": "Pending"}))), AgentState::Waiting);
        let mut leaving = pod(&json!({"phase": "Running", "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        }]}));
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert!(reason(&of(&leaving)).contains("EvictionByEvictionAPI"));
        assert_eq!(state_of(Some(&node), None), AgentState::Missing);
        assert_eq!(state_of(None, Some(&refused)), AgentState::NoNode);
        let running = pod(&json!({
            "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}],
        }));
        assert!(matches!(of(&running), AgentState::Ready(agent) if agent.uid == "1"));
    }
}
