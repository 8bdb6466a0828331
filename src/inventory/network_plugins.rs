//! The network plug-ins (CNIs) that netsurgeon knows: how to recognize them, where their settings are, and what they need. To add a
//! plug-in, add an entry to [`PLUGINS`]. If its ranges, MTU or tunnel can be set, `network_settings` reads these settings.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;

use crate::kube_api::accessors::{annotation, containers};

/// Default VXLAN port in the Linux kernel. Flannel and Cilium use this port by default.
pub const VXLAN_OF_LINUX: u16 = 8472;
/// Standard VXLAN port (RFC 7348, section 5).
pub const VXLAN: u16 = 4789;
/// Standard Geneve port (RFC 8926, section 3.3).
pub const GENEVE: u16 = 6081;

/// Namespace in which most network plug-ins run.
const KUBE_SYSTEM: &str = "kube-system";

/// A network plug-in.
#[derive(Debug, PartialEq, Eq)]
pub struct NetworkPlugin {
    /// Its name, for people.
    pub name: &'static str,
    /// Name of the agent container in its own DaemonSet.
    pub agent: &'static str,
    /// Namespaces in which it runs according to its manifests, except `kube-system`.
    pub namespaces: &'static [&'static str],
    /// Namespaces and names of the ConfigMaps in its manifests.
    pub config_maps: &'static [(&'static str, &'static str)],
    /// Other kinds of objects with its settings, each with its API versions. The first version that the cluster serves is read.
    pub settings: &'static [(&'static [&'static str], &'static str)],
    /// API versions and kinds of the policies that only this plug-in enforces.
    pub policies: &'static [(&'static str, &'static str)],
    /// UDP ports of its tunnels that no setting changes.
    pub tunnels: &'static [u16],
    /// What it needs on each node; `None` if this is not known, so that it cannot be the new plug-in of a change.
    pub ports: Option<AgentPorts>,
}

/// The ports that the agents of a network plug-in need on each node.
#[derive(Debug, PartialEq, Eq)]
pub struct AgentPorts {
    /// Name of the plug-in in options, for example in `--to`.
    pub option: &'static str,
    /// Container names in its Pods.
    pub containers: &'static [&'static str],
    /// Default UDP port of its tunnel.
    pub tunnel: u16,
    /// TCP and UDP ports on which its Pods in the host network listen.
    pub own: (&'static [u16], &'static [u16]),
    /// TCP ports on which its Pods in the host network listen only if it is configured to open these ports.
    pub optional: &'static [u16],
    /// Traffic that must be allowed between nodes.
    pub between: &'static str,
    /// Setting that selects another tunnel port.
    pub tunnel_setting: &'static str,
}

/// A plug-in without settings of its own.
const fn plain(name: &'static str, agent: &'static str) -> NetworkPlugin {
    NetworkPlugin {
        name,
        agent,
        namespaces: &[],
        config_maps: &[],
        settings: &[],
        policies: &[],
        tunnels: &[],
        ports: None,
    }
}

/// The network plug-ins. The ports of Cilium come from `Documentation/operations/system_requirements.rst`. The ports of Calico come
/// from the network requirements in its documentation; its health ports come from `manifests/calico-typha.yaml` and
/// `felix/config/config_params.go`. The port of Flannel comes from `Documentation/backends.md`, and the ports of Antrea come from
/// `docs/network-requirements.md`.
pub const PLUGINS: [NetworkPlugin; 11] = [
    NetworkPlugin {
        namespaces: &["cilium"],
        config_maps: &[(KUBE_SYSTEM, "cilium-config"), ("cilium", "cilium-config")],
        settings: &[(&["cilium.io/v2", "cilium.io/v2alpha1"], "CiliumPodIPPool")],
        policies: &[
            ("cilium.io/v2", "CiliumNetworkPolicy"),
            ("cilium.io/v2", "CiliumClusterwideNetworkPolicy"),
        ],
        ports: Some(AgentPorts {
            option: "cilium",
            containers: &["cilium-agent", "cilium-operator", "cilium-envoy"],
            tunnel: VXLAN_OF_LINUX,
            own: (&[4240, 4244, 9878, 9879, 9890, 9891], &[]),
            optional: &[4250, 9901, 9962, 9963, 9964],
            between: "4240/TCP and ICMP (health checks), and its tunnel port, by default 8472/UDP",
            tunnel_setting: "`tunnelPort` of its Helm chart, for example 8473",
        }),
        ..plain("Cilium", "cilium-agent")
    },
    NetworkPlugin {
        namespaces: &["calico-system", "tigera-operator"],
        config_maps: &[(KUBE_SYSTEM, "calico-config")],
        settings: &[
            (CALICO, "IPPool"),
            (CALICO, "FelixConfiguration"),
            (&["operator.tigera.io/v1"], "Installation"),
        ],
        policies: &[
            ("crd.projectcalico.org/v1", "NetworkPolicy"),
            ("crd.projectcalico.org/v1", "GlobalNetworkPolicy"),
        ],
        ports: Some(AgentPorts {
            option: "calico",
            containers: &["calico-node", "calico-typha"],
            tunnel: VXLAN,
            own: (&[179, 5473, 9098, 9099], &[]),
            optional: &[9091, 9093],
            between: "5473/TCP (Typha), and depending on its IPPools: 179/TCP (BGP), IP protocol 4 (IP-in-IP), 4789/UDP (VXLAN)",
            tunnel_setting: "`vxlanPort` of its FelixConfiguration",
        }),
        ..plain("Calico", "calico-node")
    },
    NetworkPlugin {
        namespaces: &["kube-flannel"],
        config_maps: &[
            ("kube-flannel", "kube-flannel-cfg"),
            (KUBE_SYSTEM, "kube-flannel-cfg"),
            (KUBE_SYSTEM, "canal-config"),
            (KUBE_SYSTEM, "rke2-canal-config"),
        ],
        ports: Some(AgentPorts {
            option: "flannel",
            containers: &["kube-flannel"],
            tunnel: VXLAN_OF_LINUX,
            own: (&[], &[]),
            optional: &[],
            between: "8472/UDP (VXLAN)",
            tunnel_setting: "`Backend.Port` of its `net-conf.json`",
        }),
        ..plain("Flannel", "kube-flannel")
    },
    NetworkPlugin {
        config_maps: &[(KUBE_SYSTEM, "antrea-config")],
        policies: &[
            ("crd.antrea.io/v1beta1", "NetworkPolicy"),
            ("crd.antrea.io/v1beta1", "ClusterNetworkPolicy"),
        ],
        ports: Some(AgentPorts {
            option: "antrea",
            containers: &["antrea-agent", "antrea-controller"],
            tunnel: GENEVE,
            own: (&[10349, 10350, 10351], &[10351]),
            optional: &[],
            between: "10349-10351/TCP, 10351/UDP, and 6081/UDP (Geneve)",
            tunnel_setting: "`tunnelPort` of `antrea-agent.conf`",
        }),
        ..plain("Antrea", "antrea-agent")
    },
    NetworkPlugin { tunnels: &[6783, 6784], ..plain("Weave Net", "weave") },
    plain("kube-router", "kube-router"),
    plain("Amazon VPC CNI", "aws-node"),
    NetworkPlugin {
        namespaces: &["openshift-ovn-kubernetes", "ovn-kubernetes"],
        tunnels: &[GENEVE],
        ..plain("OVN-Kubernetes", "ovn-controller")
    },
    NetworkPlugin {
        settings: &[(&["kubeovn.io/v1"], "Subnet")],
        tunnels: &[GENEVE],
        ..plain("Kube-OVN", "cni-server")
    },
    plain("kindnet", "kindnet-cni"),
    plain("Azure CNI", "cns-container"),
];

/// API versions and kinds of policies that several CNIs support, but not all.
pub const SHARED_POLICIES: [(&str, &str); 2] = [
    ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"),
    ("policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy"),
];

/// API versions of Calico's kinds.
const CALICO: &[&str] = &["crd.projectcalico.org/v1", "projectcalico.org/v3"];

impl NetworkPlugin {
    /// Returns the plug-in with a name in options, and its ports.
    pub fn of_option(option: &str) -> Option<(&'static Self, &'static AgentPorts)> {
        let with_ports = PLUGINS.iter().filter_map(|plugin| Some((plugin, plugin.ports.as_ref()?)));
        with_ports.into_iter().find(|(_, ports)| ports.option == option)
    }

    /// Returns the names in options of the plug-ins to which a change is possible.
    pub fn options() -> impl Iterator<Item = &'static str> {
        PLUGINS.iter().filter_map(|plugin| Some(plugin.ports.as_ref()?.option))
    }

    /// Returns the plug-in that has a ConfigMap with this name.
    pub(super) fn of_config_map(name: &str) -> Option<&'static Self> {
        PLUGINS.iter().find(|plugin| plugin.config_maps.iter().any(|(_, own)| *own == name))
    }

    /// Returns the plug-in that has settings in objects of this kind.
    pub(super) fn of_settings(kind: &str) -> Option<&'static Self> {
        PLUGINS.iter().find(|plugin| plugin.settings.iter().any(|(_, own)| *own == kind))
    }
}

/// Returns the namespaces in which network plug-ins run.
pub fn plugin_namespaces() -> impl Iterator<Item = &'static str> {
    std::iter::once(KUBE_SYSTEM).chain(PLUGINS.iter().flat_map(|plugin| plugin.namespaces).copied())
}

/// Returns the number of nodes on which a DaemonSet should run a Pod.
pub fn wanted(daemon_set: &DaemonSet) -> i32 {
    daemon_set.status.as_ref().map_or(0, |status| status.desired_number_scheduled)
}

/// Returns whether a node runs K3s or RKE2.
pub fn is_k3s_or_rke2(node: &Node) -> bool {
    ["+k3s", "+rke2"].iter().any(|of| kubelet_version(node).contains(of))
}

/// Returns whether K3s runs Flannel on a node, in its own process. K3s starts it unless it is turned off (`--flannel-backend=none`);
/// Flannel then writes its annotations.
pub fn is_k3s_with_flannel(node: &Node) -> bool {
    kubelet_version(node).contains("+k3s")
        && !annotation(node, "flannel.alpha.coreos.com/backend-type").is_empty()
}

fn kubelet_version(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.kubelet_version.as_str()).unwrap_or_default()
}

/// If a DaemonSet runs the agent of a network plug-in, returns the name of the plug-in and the image of the agent.
pub fn agent(daemon_set: &DaemonSet) -> Option<(&'static str, &str)> {
    let mut agents = containers(daemon_set).iter().filter_map(|container| {
        let plugin = PLUGINS.iter().find(|plugin| container.name == plugin.agent)?;
        Some((plugin.name, container.image.as_deref().unwrap_or_default()))
    });
    let (whose, image) = agents.next()?;
    // Canal is one CNI in one DaemonSet. It combines Calico's policies with Flannel's network.
    Some((if agents.any(|(other, _)| other != whose) { "Canal" } else { whose }, image))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn plugins_are_distinct() {
        let count =
            |of: fn(&NetworkPlugin) -> &'static str| PLUGINS.iter().map(of).collect::<BTreeSet<_>>().len();
        assert_eq!((count(|one| one.name), count(|one| one.agent)), (PLUGINS.len(), PLUGINS.len()));
    }
}
