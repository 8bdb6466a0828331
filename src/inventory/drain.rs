//! Which Pods a drain evicts, and which of them a controller recreates.

use crate::inventory::pod::{TrimmedPod, is_alive};
use crate::kube_api::accessors::controller;

/// Returns whether a drain evicts a Pod. Pods of DaemonSets and static Pods stay.
pub fn is_drained(pod: &TrimmedPod) -> bool {
    is_alive(pod) && !matches!(maker(pod), Some("DaemonSet" | "Node"))
}

/// Returns whether a controller recreates a Pod after its deletion.
pub fn is_made_anew(pod: &TrimmedPod) -> bool {
    maker(pod).is_some()
}

/// Returns the kind of the controller that recreates a Pod; `Node` for static Pods, which a drain skips.
fn maker(pod: &TrimmedPod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")) {
        return Some("Node");
    }
    controller(pod).map(|owner| owner.kind.as_str())
}
