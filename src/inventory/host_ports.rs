//! Host ports that Pods use.

use std::collections::BTreeSet;

use crate::inventory::network_plugins::AgentPorts;
use crate::inventory::pod::{TrimmedPod, is_alive};
use crate::kube_api::accessors::subject;

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

fn is_on_the_host(pod: &TrimmedPod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
}

/// Returns the Pods with a host port that the CNI maps. Each text has the Pod and its ports.
pub fn mapped(pods: &[TrimmedPod]) -> Vec<String> {
    let found = pods.iter().filter(|pod| is_alive(pod) && !is_on_the_host(pod));
    let found = found.filter_map(|pod| {
        let ports: Vec<String> =
            ports(pod).iter().map(|(port, protocol)| format!("{port}/{protocol}")).collect();
        (!ports.is_empty()).then(|| format!("{} ({})", subject(pod), ports.join(", ")))
    });
    found.collect()
}

/// Returns the required ports and the optional ports of a new CNI.
pub fn ports_of(newcomer: &AgentPorts) -> [BTreeSet<Port<'static>>; 2] {
    let of = |ports: &'static [u16], protocol| ports.iter().map(move |port| (*port, protocol));
    let (tcp, udp) = newcomer.own;
    let own = of(tcp, "TCP").chain(of(udp, "UDP")).chain([(newcomer.tunnel, "UDP")]);
    [own.collect(), of(newcomer.optional, "TCP").collect()]
}

/// Returns the wanted ports that Pods without a container in `own` use. Each text names the Pod and the port.
pub fn taken(own: &[&str], wanted: &BTreeSet<Port<'_>>, pods: &[TrimmedPod]) -> Vec<String> {
    let is_own = |pod: &TrimmedPod| {
        let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.any(|one| own.contains(&one.name.as_str()))
    };
    let others = pods.iter().filter(|pod| is_alive(pod) && !is_own(pod));
    let found = others.flat_map(|pod| {
        let both: Vec<_> = ports(pod).intersection(wanted).copied().collect();
        both.into_iter().map(|(port, protocol)| format!("{} uses {port}/{protocol}", subject(pod)))
    });
    found.collect::<BTreeSet<String>>().into_iter().collect()
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
