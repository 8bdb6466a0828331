//! Rules about nodes, drains and the control plane.

use super::{Input, Observation, Rule};
use crate::cni::plan::quorum::Quorum;
use crate::cni::plan::strategy::Strategy;
use crate::inventory::autoscalers::{REMEDY as AUTOSCALER_REMEDY, autoscalers};
use crate::inventory::budgets::{ClosedBudget, DrainBudgets, REMEDY as BUDGET_REMEDY, SeveralBudgets};
use crate::inventory::certificate_requests::is_pending;
use crate::kube_api::accessors::{has_condition, is_closed, is_windows, name};
use crate::words::{counted, first_few};

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "nodes-ready",
        why: "an existing fault looks like a fault of the change, and Pods of a drained node need other nodes",
        judge: nodes_ready,
    },
    Rule {
        name: "windows-nodes",
        why: "networks of Windows nodes cannot be removed without a restart of the node",
        judge: windows_nodes,
    },
    Rule {
        name: "quorum",
        why: "the API server needs a quorum of etcd while one control-plane node changes",
        judge: quorum,
    },
    Rule {
        name: "budgets",
        why: "a drain never ends if a PodDisruptionBudget allows no eviction",
        judge: budgets,
    },
    Rule {
        name: "capacity",
        why: "a Pod that no other node can run is unavailable until its node returns",
        judge: capacity,
    },
    Rule {
        name: "no-other-node",
        why: "a Pod that no other node accepts is unavailable until its node returns",
        judge: no_other_node,
    },
    Rule {
        name: "autoscalers",
        why: "an autoscaler removes drained nodes and nodes without a network, and adds nodes with the old network",
        judge: autoscaling,
    },
    Rule { name: "csrs", why: "a node cannot join before its certificate is approved", judge: csrs },
];

fn nodes_ready(input: &Input<'_>) -> Option<Observation> {
    let nodes = &input.view.nodes;
    if nodes.is_empty() {
        return Some(Observation::blocks("there are no Nodes", "is this the right cluster?"));
    }
    let of = |is_wanted: &dyn Fn(&k8s_openapi::api::core::v1::Node) -> bool| -> Vec<String> {
        nodes.iter().filter(|node| is_wanted(node)).map(|node| format!("`{}`", name(node))).collect()
    };
    let unready = of(&|node| !has_condition(node, "Ready"));
    if !unready.is_empty() {
        return Some(Observation::blocks(
            format!("{} of {} Nodes not ready: {}", unready.len(), nodes.len(), first_few(&unready)),
            "repair them, or delete Nodes that no longer exist, before the change",
        ));
    }
    let cut_off = of(&|node| has_condition(node, "NetworkUnavailable"));
    if !cut_off.is_empty() {
        return Some(Observation::accept(
            format!("Nodes with the condition `NetworkUnavailable`: {}", first_few(&cut_off)),
            "find out which component set it (its reason), and repair it; no component clears a condition of a CNI that was removed",
        ));
    }
    let closed = of(&is_closed);
    (!closed.is_empty()).then(|| {
        Observation::accept(
            format!("cordoned Nodes: {}", first_few(&closed)),
            "`kubectl uncordon` the Nodes that should run Pods: the last step of each node makes it schedulable",
        )
    })
}

fn windows_nodes(input: &Input<'_>) -> Option<Observation> {
    let found = input.view.nodes.iter().filter(|node| is_windows(node));
    let found: Vec<String> = found.map(|node| format!("`{}`", name(node))).collect();
    if found.is_empty() {
        return None;
    }
    let seen = format!("{}: {}", counted(found.len(), "Windows node", "Windows nodes"), first_few(&found));
    Some(match input.strategy {
        Strategy::InPlace => Observation::blocks(
            seen,
            "replace these nodes: `--strategy roll`, or remove them before the change",
        ),
        Strategy::Roll => Observation::accept(
            seen,
            "the plan leaves them out: replace them by hand, with a CNI that supports Windows",
        ),
    })
}

fn quorum(input: &Input<'_>) -> Option<Observation> {
    let quorum = Quorum::of(&input.view.nodes, &input.view.pods);
    if quorum.members == 0 {
        return Some(Observation::note(
            "no control-plane node was found",
            "if the control plane runs outside of these nodes, it needs routes to the new range for webhooks and aggregated APIs",
        ));
    }
    if quorum.ready < quorum.members {
        return Some(Observation::blocks(
            format!("{} of {} control-plane members are ready", quorum.ready, quorum.members),
            "repair the control plane before the change",
        ));
    }
    (quorum.margin == 0).then(|| {
        Observation::accept(
            format!("{}: the control plane tolerates no failure", counted(quorum.members, "control-plane member", "control-plane members")),
            "take a backup of etcd, and change these nodes last, one at a time; the change does not stop etcd, but a failure during the \
             change stops the API",
        )
    })
}

fn budgets(input: &Input<'_>) -> Option<Observation> {
    let found = DrainBudgets::of(&input.view.budgets, &input.view.pods);
    let mut blocking: Vec<String> = found.several.iter().map(SeveralBudgets::told).collect();
    blocking.extend(found.closed.iter().map(ClosedBudget::told));
    (!blocking.is_empty()).then(|| {
        Observation::blocks(format!("a drain would never end: {}", first_few(&blocking)), BUDGET_REMEDY)
    })
}

fn capacity(input: &Input<'_>) -> Option<Observation> {
    let crowded = input.drains.iter().filter(|drain| !drain.crowded.is_empty());
    let crowded: Vec<String> =
        crowded.map(|drain| format!("`{}` ({})", drain.node, first_few(&drain.crowded))).collect();
    if crowded.is_empty() {
        return None;
    }
    let seen = format!("draining these nodes leaves Pods unschedulable: {}", first_few(&crowded));
    Some(match input.strategy {
        Strategy::InPlace => Observation::blocks(
            seen,
            "add a node for the time of the change, or use `--strategy roll`, or scale down less important workloads",
        ),
        Strategy::Roll => Observation::note(
            seen,
            "the new nodes must have room for these Pods before the first old node is drained",
        ),
    })
}

fn no_other_node(input: &Input<'_>) -> Option<Observation> {
    let found: Vec<String> = input.drains.iter().flat_map(|drain| drain.homeless.iter().cloned()).collect();
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!("no other ready node accepts {}", first_few(&found)),
            "check their requirements (`nodeSelector`, affinity, tolerations); if they must stay available, add a matching node",
        )
    })
}

fn autoscaling(input: &Input<'_>) -> Option<Observation> {
    let found = autoscalers(&input.view.deployments, input.view.groups.contains("karpenter.sh"));
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!("these autoscalers add and remove nodes: {}", found.join(", ")),
            AUTOSCALER_REMEDY,
        )
    })
}

fn csrs(input: &Input<'_>) -> Option<Observation> {
    let open: Vec<String> = input
        .view
        .requests
        .iter()
        .filter(|one| is_pending(one))
        .map(|one| format!("`{}`", name(one)))
        .collect();
    (!open.is_empty()).then(|| {
        Observation::note(
            format!("pending certificate requests: {}", first_few(&open)),
            "check the requester, then `kubectl certificate approve NAME` or `deny`",
        )
    })
}
