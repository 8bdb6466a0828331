//! Accessors for objects of several types: names, labels, annotations and controllers, the state of Nodes, and
//! containers with their command lines.

use std::collections::BTreeMap;

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Node, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Returns the name of an object.
pub fn name(object: &impl Metadata<Ty = ObjectMeta>) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

/// Returns the namespace of an object; empty if the object has no namespace.
pub fn namespace(object: &impl Metadata<Ty = ObjectMeta>) -> &str {
    object.metadata().namespace.as_deref().unwrap_or_default()
}

/// Returns the namespace and name of an object as text for messages.
pub fn subject(object: &impl Metadata<Ty = ObjectMeta>) -> String {
    format!("`{}/{}`", namespace(object), name(object))
}

/// Returns the value of a label.
pub fn label<'o>(object: &'o impl Metadata<Ty = ObjectMeta>, name: &str) -> Option<&'o str> {
    object.metadata().labels.as_ref()?.get(name).map(String::as_str)
}

/// Returns the containers of a DaemonSet's Pods.
pub fn containers(daemon_set: &DaemonSet) -> &[Container] {
    let template = daemon_set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    template.map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

/// Returns the command and the arguments of a container.
pub fn words(container: &Container) -> impl Iterator<Item = &str> {
    container.command.iter().chain(&container.args).flatten().map(String::as_str)
}

/// Returns the labels of an object.
pub fn labels(object: &impl Metadata<Ty = ObjectMeta>) -> &Labels {
    static NONE: Labels = Labels::new();
    object.metadata().labels.as_ref().unwrap_or(&NONE)
}

/// Returns the value of an annotation; empty if the annotation does not exist.
pub fn annotation<'o>(object: &'o impl Metadata<Ty = ObjectMeta>, name: &str) -> &'o str {
    let all = object.metadata().annotations.as_ref();
    all.and_then(|all| all.get(name)).map(String::as_str).unwrap_or_default()
}

/// Returns the owner that is the controller of an object.
pub fn controller(object: &impl Metadata<Ty = ObjectMeta>) -> Option<&OwnerReference> {
    object.metadata().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Returns whether a condition of a Node is true.
pub fn has_condition(node: &Node, of: &str) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|one| one.type_ == of && one.status == "True")
}

/// Returns the `nodeInfo` that the kubelet of a Node reports.
pub fn node_info(node: &Node) -> Option<&NodeSystemInfo> {
    node.status.as_ref()?.node_info.as_ref()
}

/// Returns whether a Node is cordoned.
pub fn is_closed(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// Returns whether a Node runs Windows.
pub fn is_windows(node: &Node) -> bool {
    let said = node_info(node).map(|info| info.operating_system.as_str());
    [label(node, "kubernetes.io/os"), said].contains(&Some("windows"))
}
