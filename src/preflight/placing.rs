//! Which nodes take a Pod: node selectors, required affinity, and taints.

use serde_json::{Value, json};

use super::selectors::{Labels, labels};
use super::{list, text};

/// Where a Pod says which nodes it must have.
pub const AFFINITY: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// Whether a node takes a Pod: it is not cordoned, the Pod's own wish selects it, and its taints are tolerated.
pub fn takes(node: &Value, spec: &Value) -> bool {
    !is_closed(node) && untolerated(list(spec, "/tolerations"), node).is_none() && is_wanted(spec, node)
}

/// What decides which nodes take a Pod, but for the node that it has been given.
pub fn unbound(spec: &Value) -> Value {
    let of = |name: &str| spec.get(name).cloned().unwrap_or_default();
    let required = spec.pointer(AFFINITY).map(|required| {
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        json!({"nodeAffinity": affinity})
    });
    json!({"nodeSelector": of("nodeSelector"), "tolerations": of("tolerations"), "affinity": required})
}

/// Whether a node is cordoned.
pub fn is_closed(node: &Value) -> bool {
    node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true)
}

/// The taint of a node that keeps a Pod with these tolerations away, if there is one (`ToleratesTaint`,
/// `k8s.io/component-helpers/scheduling/corev1/helpers.go`, v1.36.3).
pub fn untolerated<'v>(tolerations: &[Value], node: &'v Value) -> Option<&'v Value> {
    let repels = |taint: &&Value| matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute");
    let mut taints = list(node, "/spec/taints").iter().filter(repels);
    taints.find(|taint| !tolerations.iter().any(|one| tolerates(one, taint)))
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
    let is_its = (effect.is_empty() || effect == text(taint, "/effect"))
        && (key.is_empty() || key == text(taint, "/key"));
    is_its
        && match text(toleration, "/operator") {
            "" | "Equal" => !key.is_empty() && text(toleration, "/value") == text(taint, "/value"),
            // Comparisons with numbers (alpha in 1.35) are not evaluated.
            _ => true,
        }
}

/// Whether a Pod may go to a node by its own wish (`GetRequiredNodeAffinity`,
/// `k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go`, v1.36.3): of the terms one must be met, and one that is
/// empty is met by no node.
pub fn is_wanted(spec: &Value, node: &Value) -> bool {
    let (own, name) = (labels(node), text(node, "/metadata/name"));
    let pairs = spec.get("nodeSelector").and_then(Value::as_object).into_iter().flatten();
    let is_selected =
        pairs.into_iter().all(|(key, value)| own.get(key).is_some_and(|found| value == found.as_str()));
    let terms = spec.pointer(&format!("{AFFINITY}/nodeSelectorTerms")).and_then(Value::as_array);
    let is_met = |term: &Value| {
        let (of_labels, of_fields) = (list(term, "/matchExpressions"), list(term, "/matchFields"));
        let fields = Labels::from([("metadata.name".to_string(), name.to_string())]);
        !(of_labels.is_empty() && of_fields.is_empty())
            && of_labels.iter().all(|one| meets(one, &own))
            && of_fields.iter().all(|one| meets(one, &fields))
    };
    let named = text(spec, "/nodeName");
    is_selected && terms.is_none_or(|terms| terms.iter().any(is_met)) && (named.is_empty() || named == name)
}

/// Whether labels meet a requirement (`Requirement.Matches`, `apimachinery/pkg/labels/selector.go`, v1.36.3). One that cannot be read
/// is met by nothing.
fn meets(requirement: &Value, labels: &Labels) -> bool {
    let found = labels.get(text(requirement, "/key"));
    let values = list(requirement, "/values");
    let is_in = |found: &String| values.iter().any(|value| value == found.as_str());
    let number = |text: &str| text.parse::<i64>().ok();
    let both = || {
        let wanted = values.first().and_then(Value::as_str).and_then(number)?;
        Some((found.and_then(|found| number(found))?, wanted))
    };
    match text(requirement, "/operator") {
        "In" => found.is_some_and(is_in),
        "NotIn" => !found.is_some_and(is_in),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => both().is_some_and(|(found, wanted)| found > wanted),
        "Lt" => both().is_some_and(|(found, wanted)| found < wanted),
        _ => false,
    }
}
