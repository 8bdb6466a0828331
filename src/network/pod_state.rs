//! How the Pod of an agent is.

use k8s_openapi::api::core::v1::Pod;

use super::member::Agent;
use crate::kube_api::accessors::name;
use crate::words::brief;

/// Returns the agent of a Pod whose container is ready.
pub(super) fn ready(pod: &Pod) -> Option<Agent> {
    let status = pod.status.as_ref()?;
    let is_ready = status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    let addresses: Vec<_> =
        status.pod_ips.iter().flatten().filter_map(|address| address.ip.parse().ok()).collect();
    (is_ready && !addresses.is_empty()).then(|| Agent {
        name: name(pod).to_string(),
        addresses,
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        generation: 0,
    })
}

/// Returns why a Pod waits.
pub(super) fn waiting(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers =
        status.container_statuses.iter().flatten().filter_map(|container| container.state.as_ref());
    let of_containers = containers.filter_map(|state| {
        let waiting = state.waiting.as_ref()?;
        Some(format!(
            "{}: {}",
            waiting.reason.as_deref().unwrap_or("waiting"),
            waiting.message.as_deref().unwrap_or("no message")
        ))
    });
    let own = status.message.clone().or_else(|| status.reason.clone());
    own.or_else(|| of_containers.into_iter().next_back())
}

/// Returns why a Pod is being removed, from its condition `DisruptionTarget` (`DisruptionTarget`, k8s.io/api/core/v1, v0.37.2).
pub(super) fn disruption(pod: &Pod) -> String {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.find(|one| one.type_ == "DisruptionTarget" && one.status == "True");
    let why = condition.map(|one| {
        let parts = [one.reason.as_deref(), one.message.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
    });
    why.map_or_else(
        || "its Pod is being removed".to_string(),
        |why| format!("its Pod is being removed: {}", brief(&why)),
    )
}

/// Returns why the kubelet has ended a Pod, or did not start it: for example `OutOfpods`, `OutOfcpu`, `Evicted`.
pub(super) fn ended(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Failed"))?;
    let parts = [status.reason.as_deref(), status.message.as_deref()];
    let why = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
    Some(format!("the node does not run its Pod: {}", brief(&why)))
}

/// Returns why a node does not take a Pod of the test, if that has nothing to do with its network. A host port that another Pod has is
/// a setting of the test.
pub(super) fn declined(pod: &Pod) -> Option<String> {
    let reason = pod.status.as_ref()?.reason.as_deref().unwrap_or_default();
    if matches!(reason, "NodePorts" | "DeadlineExceeded") { None } else { ended(pod) }
}
