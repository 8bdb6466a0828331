//! Which Pods a drain evicts, and which of them a controller recreates.

use k8s_openapi::api::core::v1::PersistentVolume;

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

/// Returns whether a drain deletes a Pod that no controller recreates.
pub fn is_bare(pod: &TrimmedPod) -> bool {
    is_alive(pod) && !is_made_anew(pod)
}

/// Returns whether a drain deletes data of a Pod. By default, `kubectl drain` stops at every Pod with an `emptyDir`, even if the
/// `emptyDir` is in memory (`localStorageFilter`, `k8s.io/kubectl/pkg/drain/filters.go`, v0.36.3).
pub fn has_local_data(pod: &TrimmedPod) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    is_drained(pod) && volumes.any(|volume| volume.empty_dir.is_some())
}

/// Returns whether a volume is in use, and exists on only one node.
pub fn is_on_one_node(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_on_one = volume.spec.as_ref().is_some_and(|spec| spec.local.is_some() || spec.host_path.is_some());
    is_on_one && phase == Some("Bound")
}

/// Returns the kind of the controller that recreates a Pod; `Node` for static Pods, which a drain skips.
fn maker(pod: &TrimmedPod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")) {
        return Some("Node");
    }
    controller(pod).map(|owner| owner.kind.as_str())
}
