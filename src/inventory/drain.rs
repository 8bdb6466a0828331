//! Which Pods a drain evicts, and which of them a controller recreates.

use k8s_openapi::api::core::v1::Pod;

use crate::kube_api::accessors::{controller, is_alive};

/// Returns whether a drain evicts a Pod. Pods of DaemonSets and static Pods stay.
pub fn is_drained(pod: &Pod) -> bool {
    is_alive(pod) && !matches!(maker(pod), Some("DaemonSet" | "Node"))
}

/// Returns whether a controller recreates a Pod after its deletion.
pub fn is_made_anew(pod: &Pod) -> bool {
    maker(pod).is_some()
}

/// Returns the kind of the controller that recreates a Pod; `Node` for static Pods, which a drain skips.
fn maker(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")) {
        return Some("Node");
    }
    controller(pod).map(|owner| owner.kind.as_str())
}
