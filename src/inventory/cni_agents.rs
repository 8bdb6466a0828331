//! Recognizes the agents of CNIs in the DaemonSets that run them.

use k8s_openapi::api::apps::v1::DaemonSet;

use crate::kube_api::accessors::containers;

/// Names of the agent containers in the CNIs' own DaemonSets, each with the name of the CNI.
const AGENTS: [(&str, &str); 11] = [
    ("calico-node", "Calico"),
    ("cilium-agent", "Cilium"),
    ("kube-flannel", "Flannel"),
    ("weave", "Weave Net"),
    ("antrea-agent", "Antrea"),
    ("kube-router", "kube-router"),
    ("aws-node", "Amazon VPC CNI"),
    ("ovn-controller", "OVN-Kubernetes"),
    ("cni-server", "Kube-OVN"),
    ("kindnet-cni", "kindnet"),
    ("cns-container", "Azure CNI"),
];

/// Returns the number of nodes on which a DaemonSet should run a Pod.
pub fn wanted(daemon_set: &DaemonSet) -> i32 {
    daemon_set.status.as_ref().map_or(0, |status| status.desired_number_scheduled)
}

/// If a DaemonSet runs the agent of a CNI, returns the name of the CNI and the image of the agent.
pub fn agent(daemon_set: &DaemonSet) -> Option<(&'static str, &str)> {
    let mut agents = containers(daemon_set).iter().filter_map(|container| {
        let (_, whose) = AGENTS.iter().find(|(agent, _)| container.name == *agent)?;
        Some((*whose, container.image.as_deref().unwrap_or_default()))
    });
    let (whose, image) = agents.next()?;
    // Canal is one CNI in one DaemonSet. It combines Calico's policies with Flannel's network.
    Some((if agents.any(|(other, _)| other != whose) { "Canal" } else { whose }, image))
}
