//! A node with its running Pods and its free resources.

use k8s_openapi::api::core::v1::Node;

use crate::inventory::pod::TrimmedPod;
use crate::inventory::resources::Resources;

/// A node, its free resources, and its Pods that have not ended. Pods with a negative priority are omitted.
pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    pub(super) left: Resources,
    pub(super) pods: Vec<&'a TrimmedPod>,
}
