//! Rules about the agents of both plug-ins, and about what installs them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};

use super::{Input, Observation, Rule};
use crate::cni::plan::newcomer::known_ports;
use crate::inventory::host_ports::{Port, taken};
use crate::inventory::node_fit::untolerated;
use crate::inventory::pod::TrimmedPodSpec;
use crate::kube_api::accessors::{label, name, subject};
use crate::words::{counted, first_few};

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "managed-network",
        why: "an operator or a provider owns the network of this cluster, and repairs or breaks what another client changes",
        judge: managed_network,
    },
    Rule {
        name: "plug-in",
        why: "what the old plug-in leaves on the nodes, and which settings it has, depends on the plug-in",
        judge: plug_in,
    },
    Rule {
        name: "agents-in-cluster",
        why: "two agents on one node change the same routes, rules and configuration files",
        judge: agents_in_cluster,
    },
    Rule {
        name: "node-selector",
        why: "on a node with two configurations, the runtime uses the one whose name sorts first: new Pods get addresses of the wrong network",
        judge: node_selector,
    },
    Rule {
        name: "conf-exclusive",
        why: "the agent renames the configurations of other plug-ins, also on nodes that still use them",
        judge: conf_exclusive,
    },
    Rule {
        name: "unmanaged-pods",
        why: "on nodes of the old network, Pods of cluster DNS are deleted again and again, as soon as the operator runs",
        judge: unmanaged_pods,
    },
    Rule {
        name: "tolerations",
        why: "a node without a network is not ready, and an agent that does not tolerate this cannot start there",
        judge: tolerations,
    },
    Rule {
        name: "tunnel-port",
        why: "two tunnels on one UDP port receive each other's packets, and one agent cannot start",
        judge: tunnel_port,
    },
    Rule { name: "agent-ports", why: "an agent does not start if its port is in use", judge: agent_ports },
    Rule {
        name: "installer",
        why: "an installer that restores the old plug-in starts its agents again after they were removed",
        judge: installer,
    },
    Rule {
        name: "built-in-network",
        why: "no DaemonSet can be excluded from a node: the old network stays on each node until K3s is restarted there without it",
        judge: built_in_network,
    },
];

/// Labels that a provider sets on its nodes, and how this provider changes the network.
const PROVIDERS: [(&str, &str, &str); 4] = [
    ("cloud.google.com/gke-nodepool", "GKE", "create a cluster with Dataplane V2"),
    ("kubernetes.azure.com/cluster", "AKS", "`az aks update --network-plugin-mode` or `--network-dataplane`"),
    ("eks.amazonaws.com/nodegroup", "EKS", "the EKS add-on of the CNI, and new node groups"),
    ("doks.digitalocean.com/node-pool", "DOKS", "create a cluster with the other network"),
];

fn managed_network(input: &Input<'_>) -> Option<Observation> {
    let groups = &input.view.groups;
    if groups.contains("operator.openshift.io") || groups.contains("config.openshift.io") {
        return Some(Observation::blocks(
            "this is OpenShift: its network operator owns the CNI",
            "use the network migration of OpenShift (`oc patch Network.operator.openshift.io cluster`)",
        ));
    }
    let (provider, way) = PROVIDERS.iter().find_map(|(key, provider, way)| {
        let is_its = input.view.nodes.iter().any(|node| label(node, key).is_some());
        is_its.then_some((provider, way))
    })?;
    Some(Observation::blocks(
        format!("the nodes belong to {provider}, whose control plane is managed by the provider"),
        format!("use the way of the provider: {way}"),
    ))
}

fn plug_in(input: &Input<'_>) -> Option<Observation> {
    let (old, new) = (input.old, input.new);
    if old.plugins.contains(new.plugin) {
        return Some(Observation::blocks(
            format!("{} is the CNI of this cluster already", new.plugin),
            "this plan is for a change to another CNI; to upgrade it or to change its settings, use its own documentation",
        ));
    }
    match old.plugins.len() {
        0 => Some(Observation::accept(
            "no DaemonSet of a known CNI",
            "find out which CNI is in use (`/etc/cni/net.d` on a node), its range and its tunnel port, and compare them with this plan",
        )),
        1 => None,
        _ => Some(Observation::accept(
            format!("agents of several CNIs run: {}", old.name()),
            "complete or clean up the earlier change first: `/etc/cni/net.d` on each node shows the CNI in use",
        )),
    }
}

fn agents_in_cluster(input: &Input<'_>) -> Option<Observation> {
    let found = &input.old.newcomers;
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!("DaemonSets of {} exist already: {}", input.new.plugin, first_few(found)),
            "delete them if they are left over from another change; check on each node that they left nothing behind",
        )
    })
}

fn node_selector(input: &Input<'_>) -> Option<Observation> {
    let (new, conf) = (input.new, input.new.conf.as_deref().unwrap_or("a configuration"));
    if input.selected.is_empty() {
        return None;
    }
    let nodes: Vec<String> = input.selected.iter().map(|node| format!("`{}`", name(*node))).collect();
    let start = format!(
        "{} starts on {} as soon as it is applied ({})",
        new.subject(),
        counted(nodes.len(), "node of the old network", "nodes of the old network"),
        first_few(&nodes)
    );
    let remedy = format!(
        "in the same change, add a node selector for a label that no node has yet to the DaemonSet {}, for example \
         `netsurgeon.io/cni: {}`; each node gets this label in its turn",
        new.subject(),
        new.plugin.to_lowercase().replace(' ', "-")
    );
    let old: Vec<&str> = input.old.traits().map(|traits| traits.conf).collect();
    let is_first = old.is_empty() || old.iter().any(|old| conf <= *old);
    if is_first {
        let old = if old.is_empty() {
            "an unknown configuration".to_string()
        } else {
            format!("`{}`", old.join("` and `"))
        };
        return Some(Observation::blocks(
            format!(
                "{start}, and its `{conf}` sorts before or replaces {old}: all these nodes change within seconds"
            ),
            remedy,
        ));
    }
    Some(Observation::accept(
        format!("{start}; its `{conf}` sorts after `{}`, but both agents run", old.join("` and `")),
        remedy,
    ))
}

fn conf_exclusive(input: &Input<'_>) -> Option<Observation> {
    (input.new.is_exclusive && !input.selected.is_empty()).then(|| {
        Observation::accept(
            "`cni-exclusive` is on: the agent renames other configurations to `*.cilium_bak`",
            "set `cni.exclusive=false` in its Helm chart until the change is complete",
        )
    })
}

fn unmanaged_pods(input: &Input<'_>) -> Option<Observation> {
    input.new.deletes_unmanaged.then(|| {
        Observation::blocks(
            "cilium-operator deletes Pods of cluster DNS that have no CiliumEndpoint (`unmanaged-pod-watcher-interval`)",
            "set `operator.unmanagedPodWatcher.restart=false` in its Helm chart until the last node has changed",
        )
    })
}

fn tolerations(input: &Input<'_>) -> Option<Observation> {
    let spec = input.new.spec()?;
    let is_on_host = spec.host_network == Some(true);
    // The DaemonSet controller adds tolerations for the other taints of Kubernetes (`pkg/controller/daemon/util/daemonset_util.go`).
    let without_network: &[&str] =
        if is_on_host { &["not-ready"] } else { &["not-ready", "network-unavailable"] };
    let of_kubernetes = without_network.iter().map(|of| taint(&format!("node.kubernetes.io/{of}")));
    let of_nodes = input
        .view
        .nodes
        .iter()
        .flat_map(|node| node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()));
    let of_nodes = of_nodes.filter(|taint| !taint.key.starts_with("node.kubernetes.io/")).cloned();
    let agent = TrimmedPodSpec { tolerations: spec.tolerations.clone(), ..TrimmedPodSpec::default() };
    let repels = |taint: &Taint| {
        let spec = NodeSpec { taints: Some(vec![taint.clone()]), ..NodeSpec::default() };
        untolerated(&agent, &Node { spec: Some(spec), ..Node::default() }).is_some()
    };
    let found = of_kubernetes.chain(of_nodes).filter(repels);
    let found: BTreeSet<String> = found.map(|taint| format!("`{}:{}`", taint.key, taint.effect)).collect();
    let found: Vec<String> = found.into_iter().collect();
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!(
                "the DaemonSet {} does not tolerate taints of nodes: {}",
                input.new.subject(),
                first_few(&found)
            ),
            "add the toleration `operator: Exists`, or check that it starts on every node",
        )
    })
}

fn taint(key: &str) -> Taint {
    Taint { key: key.to_string(), effect: "NoSchedule".to_string(), ..Taint::default() }
}

fn tunnel_port(input: &Input<'_>) -> Option<Observation> {
    let old = input.view.settings.tunnels.iter().filter(|(_, port)| input.new.tunnels.contains(port));
    let met: Vec<String> =
        old.map(|(whose, port)| format!("{whose} and {} use {port}/UDP", input.new.plugin)).collect();
    if met.is_empty() {
        return None;
    }
    let setting = known_ports(input.new.plugin).map_or("its own setting", |ports| ports.tunnel_setting);
    let (seen, remedy) =
        (first_few(&met), format!("give the tunnel of {} another port ({setting})", input.new.plugin));
    Some(if input.selected.is_empty() {
        Observation::accept(seen, format!("{remedy}; otherwise no node must run both agents at a time"))
    } else {
        Observation::blocks(seen, remedy)
    })
}

fn agent_ports(input: &Input<'_>) -> Option<Observation> {
    let (new, known) = (input.new, known_ports(input.new.plugin));
    let mut wanted: BTreeSet<Port<'_>> =
        new.host_ports.iter().map(|(port, protocol)| (*port, protocol.as_str())).collect();
    if let Some(known) = known {
        let (tcp, udp) = known.own;
        wanted.extend(tcp.iter().map(|port| (*port, "TCP")).chain(udp.iter().map(|port| (*port, "UDP"))));
    }
    let containers: Vec<&str> = new.containers.iter().map(String::as_str).collect();
    let met = taken(&containers, &wanted, &input.view.pods);
    (!met.is_empty()).then(|| {
        Observation::blocks(
            format!("{} needs ports of the nodes that are in use: {}", new.plugin, first_few(&met)),
            "free the ports, or configure other ports in the new CNI",
        )
    })
}

fn built_in_network(input: &Input<'_>) -> Option<Observation> {
    input.old.is_built_in.then(|| {
        Observation::accept(
            "K3s runs Flannel in its own process, and reads network configurations in `/var/lib/rancher/k3s/agent/etc/cni/net.d`",
            "set `flannel-backend: none` and `disable-network-policy: true` in the configuration of every server. Each node gets this when \
             K3s restarts there, so restart servers and agents only in their turn. The new CNI must write its configuration to the folder \
             that the runtime reads then",
        )
    })
}

fn installer(input: &Input<'_>) -> Option<Observation> {
    let found: Vec<String> = input.old.installers.iter().map(ToString::to_string).collect();
    let subjects: Vec<String> = input.old.daemon_sets.iter().map(|one| subject(*one)).collect();
    if subjects.is_empty() {
        return None;
    }
    if input.old.installers.iter().any(|one| one.restores) {
        return Some(Observation::accept(
            format!("{} installed {} and restores it", first_few(&found), first_few(&subjects)),
            "suspend this installer until the old CNI is removed. Do not remove the CNI from its configuration before: this deletes its \
             agents on all nodes. If it also installs the new CNI, add the node selector there",
        ));
    }
    let seen = if found.is_empty() {
        format!("what installed {} is unknown", first_few(&subjects))
    } else {
        format!("{} installed {}", first_few(&found), first_few(&subjects))
    };
    Some(Observation::note(seen, "make sure that no pipeline applies the old manifests again"))
}
