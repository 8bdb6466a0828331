//! What is read of objects of every type: how they are called, their labels and controllers, and in which state Pods and Nodes are.

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Returns the name of an object.
pub fn name(object: &impl Metadata<Ty = ObjectMeta>) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

/// Returns the namespace of an object; empty where its kind has none.
pub fn namespace(object: &impl Metadata<Ty = ObjectMeta>) -> &str {
    object.metadata().namespace.as_deref().unwrap_or_default()
}

/// Returns namespace and name of an object, in words.
pub fn subject(object: &impl Metadata<Ty = ObjectMeta>) -> String {
    format!("`{}/{}`", namespace(object), name(object))
}

/// Whether a Pod has not come to its end.
pub fn is_alive(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns what an annotation of an object says; empty where it has none of that name.
pub fn annotation<'o>(object: &'o impl Metadata<Ty = ObjectMeta>, name: &str) -> &'o str {
    let all = object.metadata().annotations.as_ref();
    all.and_then(|all| all.get(name)).map(String::as_str).unwrap_or_default()
}

/// Returns the owner of an object that is its controller.
pub fn controller(object: &impl Metadata<Ty = ObjectMeta>) -> Option<&OwnerReference> {
    object.metadata().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether a condition of a Node is true.
pub fn has_condition(node: &Node, of: &str) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == of && one.status == "True")
}
