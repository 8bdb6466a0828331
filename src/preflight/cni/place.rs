//! A node, and the Pods that are alive on it.

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::preflight::room::Room;

/// A node, and the Pods that are alive on it.
pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    pub(super) left: Room,
    pub(super) pods: Vec<&'a Pod>,
}
