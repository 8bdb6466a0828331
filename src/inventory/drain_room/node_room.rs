//! A node with its running Pods and its free resources.

use k8s_openapi::api::core::v1::Node;

use crate::inventory::pod::TrimmedPod;
use crate::inventory::resources::Resources;

/// A node, its free resources, and its Pods that have not ended. Pods with a negative priority are omitted.
pub struct Place<'a> {
    /// The node.
    pub node: &'a Node,
    /// Resources that no Pod requests.
    pub left: Resources,
    /// Its Pods.
    pub pods: Vec<&'a TrimmedPod>,
}
