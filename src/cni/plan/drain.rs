//! What the drain of each node means: its Pods, the budgets that block it, and the capacity that is left.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::inventory::budgets::{ClosedBudget, DrainBudgets, SeveralBudgets};
use crate::inventory::drain::{has_local_data, is_bare, is_drained};
use crate::inventory::drain_room::{Place, Places, Why};
use crate::inventory::node_fit::untolerated;
use crate::inventory::pod::{TrimmedPod, TrimmedPodSpec, node_of};
use crate::inventory::resources::{Resources, requested};
use crate::kube_api::accessors::{has_condition, is_closed, name, subject};

/// The drain of one node, while no other node is drained.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drain {
    /// Name of the node.
    pub node: String,
    /// Namespaces and names of the Pods that are evicted.
    pub pods: Vec<String>,
    /// Further options of `kubectl drain` that the Pods of the node need.
    pub options: String,
    /// Budgets that allow none of these evictions, each with the reason.
    pub blocked_by: Vec<String>,
    /// Pods that have no room on the other nodes, each with what is missing.
    pub crowded: Vec<String>,
    /// Pods that no other node accepts.
    pub homeless: Vec<String>,
    /// What is left afterwards on the other nodes that are ready and have no taint: CPU, memory and Pods.
    pub left: String,
}

/// Returns the drain of each node, in the order of the nodes.
pub fn drains(nodes: &[Node], pods: &[TrimmedPod], budgets: &[PodDisruptionBudget]) -> Vec<Drain> {
    let (places, budgets) = (Places::of(nodes, pods), DrainBudgets::of(budgets, pods));
    let mut of_node = BTreeMap::<&str, Vec<&TrimmedPod>>::new();
    for pod in pods.iter().filter(|pod| is_drained(pod)) {
        of_node.entry(node_of(pod)).or_default().push(pod);
    }
    let open = places.all.iter().filter(|place| has_condition(place.node, "Ready") && !is_closed(place.node));
    // Most Pods do not tolerate the taints of control-plane nodes.
    let no_toleration = TrimmedPodSpec::default();
    let open: Vec<_> = open.filter(|place| untolerated(&no_toleration, place.node).is_none()).collect();
    let all = open.iter().fold(Resources::default(), |sum, place| sum.plus(&place.left));
    let drain = |(index, place): (usize, &Place<'_>)| {
        let node = name(place.node);
        let own = of_node.get(node).map(Vec::as_slice).unwrap_or_default();
        let moved = own.iter().filter_map(|pod| pod.spec.as_ref()).map(requested);
        let moved = moved.fold(Resources::default(), |sum, wanted| sum.plus(&wanted));
        let is_open = open.iter().any(|one| name(one.node) == node);
        let others = if is_open { all.clone().without(&place.left) } else { all.clone() };
        let (mut crowded, mut homeless) = (Vec::new(), Vec::new());
        for (pod, why) in places.left_behind(index, place) {
            match why {
                Why::Crowded(of) => crowded.push(format!("{} lacks {}", subject(pod), of.join(" and "))),
                Why::Homeless => homeless.push(subject(pod)),
                Why::Apart => {}
            }
        }
        let closed = budgets.closed.iter().filter(|one| one.nodes.iter().any(|of| of == node));
        let several = budgets.several.iter().filter(|one| one.node == node);
        Drain {
            node: node.to_string(),
            pods: own.iter().map(|pod| subject(*pod)).collect(),
            blocked_by: closed.map(ClosedBudget::told).chain(several.map(SeveralBudgets::told)).collect(),
            options: options(own),
            crowded,
            homeless,
            left: others.without(&moved).told(&Resources::default()),
        }
    };
    places.all.iter().enumerate().map(drain).collect()
}

fn options(pods: &[&TrimmedPod]) -> String {
    let told = [
        (pods.iter().any(|pod| has_local_data(pod)), " --delete-emptydir-data"),
        (pods.iter().any(|pod| is_bare(pod)), " --force"),
    ];
    told.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, option)| option).collect()
}
