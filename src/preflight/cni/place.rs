//! A node, and the Pods that are alive on it.

use serde_json::Value;

use crate::preflight::room::Room;

/// A node, and the Pods that are alive on it.
pub(super) struct Place<'a> {
    pub(super) node: &'a Value,
    pub(super) left: Room,
    pub(super) pods: Vec<&'a Value>,
}
