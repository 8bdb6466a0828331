//! Checks which nodes accept a Pod, based on node selectors, required affinity, and taints.

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};

use crate::inventory::pod::TrimmedPodSpec;
use crate::kube_api::accessors::Labels;
use crate::kube_api::accessors::{is_closed, labels, name};

/// Returns whether a node accepts a Pod: the Pod's `nodeName` is not another node, the node is not cordoned, the Pod's
/// requirements select the node, and the Pod tolerates the taints of the node.
pub fn takes(node: &Node, spec: &TrimmedPodSpec) -> bool {
    is_given(node, spec) && would_take(node, spec)
}

/// Returns whether a node accepts a Pod, regardless of the Pod's `nodeName`.
pub fn would_take(node: &Node, spec: &TrimmedPodSpec) -> bool {
    !is_closed(node) && untolerated(spec, node).is_none() && is_selected(node, spec)
}

/// Returns a key with a Pod's requirements for its node. Nodes that accept a Pod also accept the other Pods with the same key.
pub fn wish(spec: &TrimmedPodSpec) -> String {
    format!("{:?}", (&spec.node_selector, required(spec), &spec.tolerations))
}

/// Returns the required node affinity of a Pod.
pub fn required(spec: &TrimmedPodSpec) -> Option<&NodeSelector> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity.required_during_scheduling_ignored_during_execution.as_ref()
}

/// Returns the first taint of a node that a Pod does not tolerate (`ToleratesTaint`,
/// `k8s.io/component-helpers/scheduling/corev1/helpers.go`, v1.36.3).
pub fn untolerated<'n>(spec: &TrimmedPodSpec, node: &'n Node) -> Option<&'n Taint> {
    let repels = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let mut taints = node.spec.as_ref()?.taints.iter().flatten().filter(repels);
    taints.find(|taint| !spec.tolerations.iter().flatten().any(|one| tolerates(one, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let [key, effect, operator, value] =
        [&toleration.key, &toleration.effect, &toleration.operator, &toleration.value]
            .map(|text| text.as_deref().unwrap_or_default());
    let is_its = (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key);
    is_its
        && match operator {
            "" | "Equal" => !key.is_empty() && value == taint.value.as_deref().unwrap_or_default(),
            // Numeric comparisons (alpha in 1.35) are not evaluated.
            _ => true,
        }
}

/// Returns whether a Pod's own requirements select a node.
pub fn is_wanted(spec: &TrimmedPodSpec, node: &Node) -> bool {
    is_given(node, spec) && is_selected(node, spec)
}

/// Returns whether the Pod's `nodeName` is empty or this node.
fn is_given(node: &Node, spec: &TrimmedPodSpec) -> bool {
    spec.node_name.as_deref().is_none_or(|named| named.is_empty() || named == name(node))
}

/// Returns whether a Pod's node selector and required affinity select a node (`GetRequiredNodeAffinity`,
/// `k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go`, v1.36.3). One of the terms must match; an empty
/// term matches no node.
fn is_selected(node: &Node, spec: &TrimmedPodSpec) -> bool {
    let own = labels(node);
    let mut pairs = spec.node_selector.iter().flatten();
    let fields = Labels::from([("metadata.name".to_string(), name(node).to_string())]);
    let is_met = |term: &NodeSelectorTerm| {
        let of_labels = term.match_expressions.iter().flatten().map(|one| meets(one, own));
        let of_fields = term.match_fields.iter().flatten().map(|one| meets(one, &fields));
        let mut all = of_labels.chain(of_fields).peekable();
        all.peek().is_some() && all.all(|is_met| is_met)
    };
    pairs.all(|(key, value)| own.get(key) == Some(value))
        && required(spec).is_none_or(|required| required.node_selector_terms.iter().any(is_met))
}

/// Returns whether labels meet a requirement (`Requirement.Matches`, `apimachinery/pkg/labels/selector.go`, v1.36.3). A
/// requirement with an unknown operator is never met.
fn meets(requirement: &NodeSelectorRequirement, labels: &Labels) -> bool {
    let found = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_in = || found.is_some_and(|found| values.contains(found));
    let number = |text: &String| text.parse::<i64>().ok();
    let both = || found.and_then(number).zip(values.first().and_then(number));
    match requirement.operator.as_str() {
        "In" => is_in(),
        "NotIn" => !is_in(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => both().is_some_and(|(found, wanted)| found > wanted),
        "Lt" => both().is_some_and(|(found, wanted)| found < wanted),
        _ => false,
    }
}
