//! What is known of network plug-ins beyond their settings: the name of their configuration file, whether they enforce
//! NetworkPolicies, and where their ranges come from.

/// What is known of a network plug-in.
#[derive(Debug, PartialEq, Eq)]
pub struct PluginTraits {
    /// Name of the plug-in, see `inventory::network_plugins`.
    pub name: &'static str,
    /// Default name of its file in `/etc/cni/net.d`.
    pub conf: &'static str,
    /// Whether it enforces NetworkPolicies; `None` if this depends on a setting.
    pub enforces_policies: Option<bool>,
    /// Whether each node's Pods have addresses of `spec.podCIDRs` of its Node.
    pub uses_node_ranges: bool,
    /// Prefix of the annotations with which a Pod asks the plug-in for something. Annotations in `results` are its answers.
    pub annotations: &'static [&'static str],
}

const fn traits(
    name: &'static str,
    conf: &'static str,
    enforces_policies: Option<bool>,
    uses_node_ranges: bool,
) -> PluginTraits {
    PluginTraits { name, conf, enforces_policies, uses_node_ranges, annotations: &[] }
}

/// The plug-ins. The names of the files come from their manifests and installers.
const ALL: [PluginTraits; 12] = [
    PluginTraits {
        annotations: &["cilium.io/", "io.cilium/", "ipam.cilium.io/"],
        ..traits("Cilium", "05-cilium.conflist", Some(true), false)
    },
    PluginTraits {
        annotations: &["cni.projectcalico.org/"],
        ..traits("Calico", "10-calico.conflist", Some(true), false)
    },
    traits("Flannel", "10-flannel.conflist", Some(false), true),
    PluginTraits {
        annotations: &["cni.projectcalico.org/"],
        ..traits("Canal", "10-canal.conflist", Some(true), true)
    },
    PluginTraits {
        annotations: &["ipam.antrea.io/"],
        ..traits("Antrea", "10-antrea.conflist", Some(true), true)
    },
    traits("Weave Net", "10-weave.conflist", Some(true), false),
    traits("kube-router", "10-kuberouter.conflist", Some(true), true),
    PluginTraits {
        annotations: &["vpc.amazonaws.com/"],
        ..traits("Amazon VPC CNI", "10-aws.conflist", None, false)
    },
    PluginTraits {
        annotations: &["k8s.ovn.org/"],
        ..traits("OVN-Kubernetes", "10-ovn-kubernetes.conf", Some(true), false)
    },
    PluginTraits {
        annotations: &["ovn.kubernetes.io/"],
        ..traits("Kube-OVN", "01-kube-ovn.conflist", Some(true), false)
    },
    traits("kindnet", "10-kindnet.conflist", None, true),
    traits("Azure CNI", "10-azure.conflist", None, false),
];

/// Annotations that a plug-in sets on Pods itself.
const RESULTS: [&str; 5] = [
    "cni.projectcalico.org/podIP",
    "cni.projectcalico.org/podIPs",
    "cni.projectcalico.org/containerID",
    "vpc.amazonaws.com/pod-ips",
    "k8s.ovn.org/pod-networks",
];

/// Annotations with which a Pod asks Multus for networks.
const OF_MULTUS: [&str; 2] = ["k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network"];

/// Returns what is known of a plug-in.
pub fn traits_of(name: &str) -> Option<&'static PluginTraits> {
    ALL.iter().find(|one| one.name == name)
}

/// Returns whether an annotation of a Pod asks one of these plug-ins, or Multus, for something.
pub fn is_wish(annotation: &str, plugins: &[&str]) -> bool {
    let mut prefixes =
        plugins.iter().filter_map(|name| traits_of(name)).flat_map(|one| one.annotations.iter());
    OF_MULTUS.contains(&annotation)
        || !RESULTS.contains(&annotation)
            // Kube-OVN and Multus mark their answers.
            && !annotation.ends_with("/allocated")
            && prefixes.any(|prefix| annotation.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::network_plugins::PLUGINS;

    #[test]
    fn every_plugin_has_traits() {
        for plugin in &PLUGINS {
            assert!(traits_of(plugin.name).is_some(), "{}", plugin.name);
        }
    }

    #[test]
    fn wishes_are_told_from_answers() {
        let calico = |annotation: &str| is_wish(annotation, &["Calico"]);
        assert!(calico("cni.projectcalico.org/ipAddrs") && calico("k8s.v1.cni.cncf.io/networks"));
        assert!(!calico("cni.projectcalico.org/podIP") && !calico("prometheus.io/scrape"));
        assert!(!is_wish("cni.projectcalico.org/ipAddrs", &["Flannel"]));
        assert!(!is_wish("k8s.v1.cni.cncf.io/network-status", &["Flannel"]));
        assert!(!is_wish("ovn.kubernetes.io/allocated", &["Kube-OVN"]));
    }
}
