//! Rules about the Pods of the cluster.

use super::{Input, Observation, Rule};
use crate::cni::plan::plugin_traits::is_wish;
use crate::inventory::drain::{has_local_data, is_bare, is_drained, is_on_one_node};
use crate::inventory::host_ports::mapped;
use crate::inventory::pod::{TrimmedPod, is_alive};
use crate::kube_api::accessors::{containers, name, subject};
use crate::words::{counted, first_few};

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "host-ports",
        why: "without the plug-in `portmap`, a `hostPort` has no effect: the Pod starts, but clients cannot connect",
        judge: host_ports,
    },
    Rule {
        name: "bandwidth",
        why: "without the plug-in `bandwidth`, the limits in annotations of Pods have no effect",
        judge: bandwidth,
    },
    Rule {
        name: "chained-plug-ins",
        why: "these plug-ins add themselves to the configuration of the old CNI: under the new one, Pods start without them, for example \
              outside of the mesh",
        judge: chained_plug_ins,
    },
    Rule {
        name: "pod-annotations",
        why: "these annotations ask the old CNI for addresses or networks, and the new CNI ignores them",
        judge: pod_annotations,
    },
    Rule { name: "bare-pods", why: "a Pod without a controller is not recreated", judge: bare_pods },
    Rule {
        name: "local-data",
        why: "data on a node is lost, or unreachable, when the node is drained",
        judge: local_data,
    },
    Rule {
        name: "storage-plug-ins",
        why: "while a storage plug-in on the Pod network restarts, mounted volumes can hang",
        judge: storage_plug_ins,
    },
];

/// Annotations with limits for the bandwidth of a Pod (`plugins/meta/bandwidth`, README of the CNI plug-ins).
const BANDWIDTH: [&str; 2] = ["kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"];

/// Containers and DaemonSets of plug-ins that add themselves to the configuration of another plug-in.
const CHAINED: [(&str, &str); 4] =
    [("linkerd-cni", "Linkerd"), ("istio-cni", "Istio"), ("multus", "Multus"), ("kuma-cni", "Kuma")];

fn host_ports(input: &Input<'_>) -> Option<Observation> {
    let found = mapped(&input.view.pods);
    // Cilium maps host ports itself if it replaces kube-proxy.
    let is_mapped = input.new.has("portmap") == Some(true)
        || (input.new.plugin == "Cilium" && input.new.replaces_kube_proxy);
    if found.is_empty() || is_mapped {
        return None;
    }
    let what = if input.new.has("portmap").is_some() { "has no" } else { "does not show a" };
    Some(Observation::accept(
        format!(
            "the new configuration {what} `portmap`, and {} `hostPort`: {}",
            counted(found.len(), "Pod uses", "Pods use"),
            first_few(&found)
        ),
        "add `portmap` with the capability `portMappings` to the new configuration, or use Cilium's kube-proxy replacement",
    ))
}

fn with_annotation(pods: &[TrimmedPod], is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let found = pods.iter().filter(|pod| is_alive(pod)).filter_map(|pod| {
        let mut keys = pod.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str());
        let key = keys.find(|key| is_wanted(key))?;
        Some(format!("{} (`{key}`)", subject(pod)))
    });
    found.collect()
}

fn bandwidth(input: &Input<'_>) -> Option<Observation> {
    let found = with_annotation(&input.view.pods, |key| BANDWIDTH.contains(&key));
    let is_limited = input.new.has("bandwidth") == Some(true);
    (!found.is_empty() && !is_limited).then(|| {
        Observation::accept(
            format!(
                "the new configuration shows no `bandwidth`, and {} its annotations: {}",
                counted(found.len(), "Pod has", "Pods have"),
                first_few(&found)
            ),
            "add `bandwidth` with the capability `bandwidth` to the new configuration, or enable the bandwidth manager of the new CNI",
        )
    })
}

fn chained_plug_ins(input: &Input<'_>) -> Option<Observation> {
    let mut found = Vec::new();
    for one in &input.view.daemon_sets {
        let names = containers(one).iter().map(|container| container.name.as_str()).chain([name(one)]);
        let names: Vec<&str> = names.collect();
        let chained = CHAINED.iter().find(|(part, _)| names.iter().any(|name| name.contains(part)));
        found.extend(chained.map(|(_, whose)| format!("{whose} ({})", subject(one))));
    }
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!("plug-ins that extend the configuration of the CNI: {}", first_few(&found)),
            "on each node, after its change: restart the Pod of this DaemonSet, and check that the winning configuration contains the \
             plug-in before other Pods start. For Multus, first remove its generated `00-multus.conf`, which has the old CNI in it",
        )
    })
}

fn pod_annotations(input: &Input<'_>) -> Option<Observation> {
    let plugins: Vec<&str> = input.old.plugins.iter().copied().collect();
    let found = with_annotation(&input.view.pods, |key| is_wish(key, &plugins));
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!(
                "{} the CNI for something: {}",
                counted(found.len(), "Pod asks", "Pods ask"),
                first_few(&found)
            ),
            "find out what needs these addresses or networks, and configure it in the new CNI",
        )
    })
}

fn bare_pods(input: &Input<'_>) -> Option<Observation> {
    let found: Vec<String> = input.view.pods.iter().filter(|pod| is_bare(pod)).map(subject).collect();
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!("{} no controller: {}", counted(found.len(), "Pod has", "Pods have"), first_few(&found)),
            "give them a controller (such as a Deployment), or accept that a drain deletes them (`kubectl drain --force`)",
        )
    })
}

fn local_data(input: &Input<'_>) -> Option<Observation> {
    let pods: Vec<String> = input.view.pods.iter().filter(|pod| has_local_data(pod)).map(subject).collect();
    let volumes = input.view.volumes.iter().filter(|one| is_on_one_node(one));
    let volumes: Vec<String> = volumes.map(|one| format!("`{}`", name(one))).collect();
    let mut seen = Vec::new();
    if !volumes.is_empty() {
        let what = counted(volumes.len(), "PersistentVolume is", "PersistentVolumes are");
        seen.push(format!("{what} on one node: {}", first_few(&volumes)));
    }
    if !pods.is_empty() {
        let what = counted(pods.len(), "Pod has", "Pods have");
        seen.push(format!("{what} an `emptyDir`: {}", first_few(&pods)));
    }
    (!seen.is_empty()).then(|| {
        Observation::accept(
            seen.join("; "),
            "back the volumes up; make sure that each `emptyDir` has only temporary data (`kubectl drain --delete-emptydir-data`). With \
             `--strategy roll`, volumes of removed nodes are lost",
        )
    })
}

fn storage_plug_ins(input: &Input<'_>) -> Option<Observation> {
    let is_csi = |pod: &&TrimmedPod| {
        let spec = pod.spec.as_ref();
        let mut containers = spec.into_iter().flat_map(|spec| &spec.containers);
        let is_driver = containers
            .any(|one| one.name.contains("node-driver-registrar") || one.name == "driver-registrar");
        is_driver && spec.and_then(|spec| spec.host_network) != Some(true)
    };
    let found = input.view.pods.iter().filter(|pod| is_alive(pod) && !is_drained(pod)).filter(is_csi);
    let found: Vec<String> = found.map(subject).collect();
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!("storage plug-ins run on the Pod network: {}", first_few(&found)),
            "drain the Pods with their volumes first, and restart the plug-in of a node last",
        )
    })
}
