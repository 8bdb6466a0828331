//! Host ports that Pods use.

use std::collections::BTreeSet;

use crate::inventory::pod::TrimmedPod;

/// A host port and its protocol.
pub type Port<'p> = (u16, &'p str);

/// Returns the host ports of a Pod. For a Pod in the host network, the API server sets a host port for each port that a container
/// declares (`defaultHostNetworkPorts`, `pkg/apis/core/v1/defaults.go`, v1.36.3). The ports of an init container count only if it
/// is a sidecar (`GetHostPorts`, `pkg/scheduler/util/utils.go`).
pub fn ports(pod: &TrimmedPod) -> BTreeSet<Port<'_>> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let beside = spec.init_containers.iter().flatten();
    let beside = beside.filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(beside).flat_map(|container| container.ports.iter().flatten());
    let found = ports.filter_map(|one| {
        let port = u16::try_from(one.host_port?).ok().filter(|port| *port > 0)?;
        Some((port, one.protocol.as_deref().unwrap_or("TCP")))
    });
    found.collect()
}

#[cfg(test)]
pub(crate) mod testing {
    //! Pods with a host port for tests.

    use serde_json::json;

    use super::*;

    pub fn pod(container: &str, on_the_host: bool, port: u16, protocol: &str) -> TrimmedPod {
        let ports = json!([{"containerPort": port, "hostPort": port, "protocol": protocol}]);
        let pod = json!({
            "metadata": {"namespace": "shop", "name": container},
            "spec": {"hostNetwork": on_the_host, "containers": [{"name": container, "ports": ports}]},
            "status": {"phase": "Running"},
        });
        serde_json::from_value(pod).unwrap()
    }
}
