//! Finds a network plugin that routes Services instead of kube-proxy, or possibly does.
//!
//! Such a plugin can leave kube-proxy's ConfigMap, or even its DaemonSet, in the cluster. netsurgeon's protocol is not tested with
//! the data planes of these plugins. So each of them is either refused, or the data plane counts as unknown.

use super::{DataPlane, argument};
use crate::survey::{NetworkAgent, Routing};

/// Returns the data plane if a network plugin routes Services, or possibly does. `is_given`: whether the operator has given a
/// configuration of kube-proxy, and so states that kube-proxy routes Services.
pub(super) fn of_plugins(routing: &Routing, is_given: bool) -> Option<DataPlane> {
    let unsupported = |reason: &str| DataPlane::Unsupported(format!("{reason}, which was not tested"));
    let replacement = routing.cilium_replacement.as_deref().unwrap_or("false");
    if !matches!(replacement, "false" | "disabled" | "") {
        return Some(unsupported(
            "Cilium routes Services (`kube-proxy-replacement` in ConfigMap `kube-system/cilium-config`)",
        ));
    }
    let agents = || routing.agents.iter();
    let is_bpf = |agent: &NetworkAgent| is_bpf(agent, routing.calico_bpf);
    if agents().any(is_bpf) {
        return Some(unsupported(
            "Calico's eBPF data plane routes Services (`bpfEnabled` in a FelixConfiguration, or `FELIX_BPFENABLED` of `calico-node`)",
        ));
    }
    if agents().any(is_service_proxy) {
        return Some(unsupported("kube-router routes Services (`--run-service-proxy`)"));
    }
    if is_given {
        return None;
    }
    agents().find_map(maybe).map(DataPlane::Unknown)
}

/// Returns whether an agent of Calico has the eBPF data plane. The environment has precedence over a FelixConfiguration
/// (`felix/config/config_params.go`, Calico v3.31).
fn is_bpf(agent: &NetworkAgent, configured: Option<bool>) -> bool {
    let is_on = |value: &String| ["true", "1", "yes", "y", "t"].contains(&value.to_lowercase().as_str());
    agent.name == "calico-node" && agent.felix_bpf.as_ref().map_or(configured == Some(true), is_on)
}

/// Returns whether an agent of kube-router routes Services. The flag is on by default (`pkg/options/options.go`, kube-router v2.6).
fn is_service_proxy(agent: &NetworkAgent) -> bool {
    let words: Vec<&str> = agent.arguments.iter().flat_map(|word| word.split_whitespace()).collect();
    let is_off = |value: &str| ["false", "f", "0"].contains(&value.to_lowercase().as_str());
    agent.name == "kube-router" && !argument(&words, "run-service-proxy").is_some_and(is_off)
}

/// Returns the reason why this agent possibly routes Services; `None` if it does not.
fn maybe(agent: &NetworkAgent) -> Option<String> {
    let NetworkAgent { name, namespace, .. } = agent;
    let plugin = match name.as_str() {
        "cilium-agent" if namespace != "kube-system" => {
            return Some(format!(
                "Cilium runs in the namespace `{namespace}`: netsurgeon reads `kube-proxy-replacement` only in ConfigMap \
                 `kube-system/cilium-config`"
            ));
        }
        "antrea-agent" => "Antrea (AntreaProxy)",
        "ovn-controller" | "ovnkube-controller" | "ovnkube-node" => "OVN-Kubernetes",
        "cni-server" => "Kube-OVN",
        _ => return None,
    };
    Some(format!(
        "{plugin} possibly routes Services itself (container `{name}` in the namespace `{namespace}`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, namespace: &str, arguments: &[&str], felix_bpf: Option<&str>) -> NetworkAgent {
        NetworkAgent {
            name: name.into(),
            namespace: namespace.into(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            felix_bpf: felix_bpf.map(str::to_string),
        }
    }

    #[test]
    fn plugins_that_route_services_are_refused_or_unknown() {
        let of = |agent: NetworkAgent, calico_bpf: Option<bool>, is_given: bool| {
            let routing = Routing { agents: vec![agent], calico_bpf, ..Routing::default() };
            of_plugins(&routing, is_given).map(|plane| matches!(plane, DataPlane::Unsupported(_)))
        };
        let (refused, unknown) = (Some(true), Some(false));
        for (agent, felix, unless_given, given) in [
            (agent("calico-node", "calico-system", &[], None), None, None, None),
            (agent("calico-node", "calico-system", &[], None), Some(false), None, None),
            (agent("calico-node", "calico-system", &[], None), Some(true), refused, refused),
            (agent("calico-node", "kube-system", &[], Some("true")), Some(false), refused, refused),
            (agent("calico-node", "kube-system", &[], Some("false")), Some(true), None, None),
            (agent("kube-router", "kube-system", &["--run-router=true"], None), None, refused, refused),
            (
                agent("kube-router", "kube-system", &["--run-service-proxy=true"], None),
                None,
                refused,
                refused,
            ),
            (agent("kube-router", "kube-system", &["--run-service-proxy=false"], None), None, None, None),
            (agent("cilium-agent", "kube-system", &[], None), None, None, None),
            (agent("cilium-agent", "cilium", &[], None), None, unknown, None),
            (agent("antrea-agent", "kube-system", &[], None), None, unknown, None),
            (agent("ovnkube-node", "ovn-kubernetes", &[], None), None, unknown, None),
            (agent("cni-server", "kube-system", &[], None), None, unknown, None),
        ] {
            let words = format!("{agent:?} {felix:?}");
            assert_eq!(of(agent.clone(), felix, false), unless_given, "{words}");
            assert_eq!(of(agent, felix, true), given, "{words}");
        }
        for (replacement, wanted) in [("true", refused), ("strict", refused), ("false", None), ("", None)] {
            let routing = Routing { cilium_replacement: Some(replacement.into()), ..Routing::default() };
            let found = of_plugins(&routing, true).map(|plane| matches!(plane, DataPlane::Unsupported(_)));
            assert_eq!(found, wanted, "{replacement}");
        }
    }
}
