//! Puts together what the API and the nodes show.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::cluster_facts::{AgentSet, ClusterFacts};
use super::node_reader::NodeRead;
use crate::leftovers::{Context, Judgement, Leftover, Plugin, Unchecked, judge, judge_objects, winner};
use crate::node_state::NetworkConfiguration;

/// The network plug-in of a cluster, and what others left behind.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// The version of the format.
    pub version: u8,
    /// The agents of network plug-ins.
    pub agents: Vec<AgentSet>,
    /// The nodes.
    pub nodes: Vec<NodeShown>,
    /// What does not fit together.
    pub conflicts: Vec<Conflict>,
    /// Objects and marks on Nodes that plug-ins left behind.
    pub objects: Vec<Leftover>,
    /// What could not be read through the API.
    pub unchecked: Vec<Unchecked>,
}

/// A node.
#[derive(Debug, Clone, Serialize)]
pub struct NodeShown {
    /// Name of the Node.
    pub node: String,
    /// The configuration that the container runtime reads first.
    pub configuration: Option<NetworkConfiguration>,
    /// Names of the other configurations, which have no effect.
    pub other_configurations: Vec<String>,
    /// What is left, and what could not be judged.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Why the node could not be read.
    pub unread: Option<String>,
}

/// Something that does not fit together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The nodes; empty for the whole cluster.
    pub nodes: Vec<String>,
    /// What was seen.
    pub seen: String,
    /// Why it matters.
    pub why: String,
}

/// What is not read without the permission to list Secrets.
const SECRETS: &str = "Secret objects";

impl Shown {
    /// Whether something is left behind, does not fit together, or could not be read.
    pub fn has_findings(&self) -> bool {
        let is_open = |node: &NodeShown| {
            node.unread.is_some()
                || !node.judgement.leftovers.is_empty()
                || !node.judgement.unchecked.is_empty()
        };
        // The printed roles do not permit to list Secrets, on purpose.
        let is_unread = |one: &Unchecked| one.subject != SECRETS;
        !self.conflicts.is_empty()
            || !self.objects.is_empty()
            || self.nodes.iter().any(is_open)
            || self.unchecked.iter().any(is_unread)
    }
}

/// Returns the type of the first plug-in in the configuration of a network plug-in, if only this plug-in uses it.
fn of_type(kind: &str) -> Option<Plugin> {
    Some(match kind {
        "weave-net" => Plugin::Weave,
        "flannel" => Plugin::Flannel,
        "calico" => Plugin::Calico,
        "cilium-cni" => Plugin::Cilium,
        "aws-cni" => Plugin::AwsVpc,
        _ => return None,
    })
}

/// Puts together what was read.
pub fn shown(facts: ClusterFacts, reads: Vec<NodeRead>) -> Shown {
    let in_place = facts.in_place();
    let nodes: Vec<NodeShown> = reads.into_iter().map(|read| of_node(&facts, read)).collect();
    let context = Context { in_place: in_place.clone(), ..Context::default() };
    Shown {
        version: 1,
        conflicts: conflicts(&facts, &context, &nodes),
        objects: judge_objects(&facts.objects, &facts.nodes, &in_place),
        agents: facts.agents,
        nodes,
        unchecked: facts.unchecked,
    }
}

fn of_node(facts: &ClusterFacts, read: NodeRead) -> NodeShown {
    let NodeRead { node, state } = read;
    let state = match state {
        Ok(state) => state,
        Err(reason) => {
            let judgement = Judgement::default();
            let unread = Some(reason);
            return NodeShown {
                node,
                configuration: None,
                other_configurations: Vec::new(),
                judgement,
                unread,
            };
        }
    };
    let addresses = facts.pod_addresses.as_ref();
    let context = Context {
        in_place: facts.in_place(),
        pod_addresses: addresses.map(|addresses| addresses.get(&node).cloned().unwrap_or_default()),
        is_ready: facts.is_ready(&node),
        is_k3s: facts.is_k3s(&node),
        nodes: facts.nodes.clone(),
        pod_ranges: facts.pod_ranges(),
    };
    let others = state.configurations.items.iter().skip(1);
    NodeShown {
        configuration: winner(&state).cloned(),
        other_configurations: others.map(|configuration| configuration.file.clone()).collect(),
        judgement: judge(&state, &context),
        unread: None,
        node,
    }
}

fn conflicts(facts: &ClusterFacts, context: &Context, nodes: &[NodeShown]) -> Vec<Conflict> {
    let mut found = Vec::new();
    let running: Vec<&AgentSet> = facts.agents.iter().filter(|set| set.wanted > 0).collect();
    // Some plug-ins belong together, for example Calico's policies with the network of Amazon VPC CNI: there is one configuration.
    let winners: BTreeSet<&str> =
        nodes.iter().filter_map(|node| Some(node.configuration.as_ref()?.file.as_str())).collect();
    let has_one = winners.len() == 1 && nodes.iter().all(|node| node.other_configurations.is_empty());
    if running.len() > 1 && !has_one {
        let sets: Vec<String> =
            running.iter().map(|set| format!("{} (`{}`)", set.plugin, set.daemon_set)).collect();
        found.push(Conflict {
            nodes: Vec::new(),
            seen: format!("agents of several network plug-ins run: {}", sets.join(", ")),
            why: "the configuration that sorts first takes over each node on which both run".to_string(),
        });
    }
    let mut by_winner: BTreeMap<(&str, &[String]), Vec<String>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.unread.is_none()) {
        let Some(first) = &node.configuration else {
            // For example, k3s has its configuration in another folder.
            if facts.is_ready(&node.node) {
                continue;
            }
            found.push(Conflict {
                nodes: vec![node.node.clone()],
                seen: "no network configuration in `/etc/cni/net.d`".to_string(),
                why: "the node turns not ready, and no Pod starts on it".to_string(),
            });
            continue;
        };
        if let Some(fault) = &first.fault {
            found.push(Conflict {
                nodes: vec![node.node.clone()],
                seen: format!("the first network configuration, `{}`, is not valid: {fault}", first.file),
                why: "the container runtime skips nothing: no Pod starts on the node".to_string(),
            });
        }
        by_winner.entry((&first.file, &first.plugins)).or_default().push(node.node.clone());
        found.extend(foreign_winner(context, &node.node, first));
    }
    if by_winner.len() > 1 {
        for ((file, plugins), on) in by_winner {
            found.push(Conflict {
                nodes: on,
                seen: format!("`{file}` ({}) comes first, unlike on other nodes", plugins.join(", ")),
                why: "Pods of these nodes are in another network, or have other capabilities".to_string(),
            });
        }
    }
    found
}

/// Returns the conflict of a configuration whose plug-in is not in place.
fn foreign_winner(context: &Context, node: &str, first: &NetworkConfiguration) -> Option<Conflict> {
    let plugin = of_type(first.plugins.first()?)?;
    (!context.claims(plugin)).then(|| Conflict {
        nodes: vec![node.to_string()],
        seen: format!("`{}` is a configuration of {plugin}, whose agents do not run", first.file),
        why: "new Pods on the node get no network, or one that nothing maintains".to_string(),
    })
}
