//! The names of Flannel 0.28, and of its rules up to version 0.19: `pkg/trafficmngr`, `pkg/backend`, `subnet` of its repository.

use ipnetwork::IpNetwork;

use super::Plugin;
use super::context::{Scene, contains};
use super::signature::{
    Letters, ObjectMark,
    Pattern::{Hash, Is, Own},
    Placed, Reason, Signature, chain, link, object, sure, weak,
};
use crate::node_state::{Route, Rule};

const NAMESPACES: &[&str] = &["kube-flannel", "kube-system"];
/// Annotation that shows how Flannel reaches other nodes.
pub(super) const BACKEND: &str = "flannel.alpha.coreos.com/backend-type";
/// Protocol and types of routes.
const BOOT: u8 = 3;
const UNICAST: u8 = 1;
const BLACKHOLE: u8 = 6;

const OBJECTS: &[ObjectMark] = &[
    object("Namespace", &[], "kube-flannel"),
    object("DaemonSet", NAMESPACES, "kube-flannel-ds"),
    object("ConfigMap", NAMESPACES, "kube-flannel-cfg"),
    object("ServiceAccount", NAMESPACES, "flannel"),
    object("ClusterRole", &[], "flannel"),
    object("ClusterRoleBinding", &[], "flannel"),
];

pub(super) const SIGNATURE: Signature = Signature {
    plugin: Plugin::Flannel,
    links: &[
        link(Hash("flannel.", Letters::Digits, 1, 8), &["vxlan"]),
        link(Hash("flannel-v6.", Letters::Digits, 1, 8), &["vxlan"]),
        link(Is("flannel.ipip"), &[]),
        link(Is("flannel-wg"), &[]),
        link(Is("flannel-wg-v6"), &[]),
    ],
    chains: &[chain("FLANNEL-POSTRTG", &["nat"]), chain("FLANNEL-FWD", &["filter"])],
    comments: &[Is("flanneld masq"), Is("flanneld forward")],
    nft_tables: &[("ip", Is("flannel-ipv4")), ("ip6", Is("flannel-ipv6"))],
    files: &[
        Is("/run/flannel"),
        Is("/run/flannel/subnet.env"),
        Hash("/run/flannel/wgkey", Letters::Base64, 0, 10),
        Is("/var/lib/cni/flannel"),
        Is("/etc/cni/net.d/10-flannel.conflist"),
        Is("/etc/cni/net.d/10-flannel.conf"),
        Is("/opt/cni/bin/flannel"),
    ],
    types: &["flannel"],
    filter_rule,
    route,
    objects: OBJECTS,
    node_keys: &[Own("flannel.alpha.coreos.com/")],
    conditions: &["FlannelIsUp"],
    ..Signature::EMPTY
};

/// Up to version 0.19, the rules are in the chains of the kernel, and older ones have no comment. One of them has an exception for
/// multicast, which no other program writes like this; the others count only beside it.
fn filter_rule(placed: &Placed<'_>, scene: &Scene<'_>) -> Option<Reason> {
    const TEXT: &str = "Flannel up to version 0.19 adds this rule for its network";
    if (placed.table, placed.chain) != ("nat", "POSTROUTING") || placed.rule.comment.is_some() {
        return None;
    }
    let mut anchors = placed.chain_rules.iter().filter_map(|rule| masquerade(rule, scene));
    if anchors.any(|network| is_beside(placed.rule, network)) { sure(TEXT) } else { None }
}

/// Returns the network of `-s NETWORK ! -d 224.0.0.0/4 -j MASQUERADE`, if it contains pods.
fn masquerade(rule: &Rule, scene: &Scene<'_>) -> Option<IpNetwork> {
    let network: IpNetwork = rule.source.as_ref().filter(|source| !source.is_negated)?.value.parse().ok()?;
    let to = rule.destination.as_ref().filter(|to| to.is_negated)?;
    let is_multicast = matches!(to.value.as_str(), "224.0.0.0/4" | "ff00::/8");
    let mut of_nodes = scene.context.nodes.iter().flat_map(|node| &node.pod_cidrs);
    let is_known =
        scene.context.pod_ranges.contains(&network) || of_nodes.any(|range| contains(network, *range));
    (is_multicast && is_known && rule.action.as_deref() == Some("MASQUERADE")).then_some(network)
}

/// Returns whether a rule is one of the four for a network.
fn is_beside(rule: &Rule, network: IpNetwork) -> bool {
    let parsed = |selector: &Option<crate::node_state::Selector>| {
        let selector = selector.as_ref()?;
        Some((selector.value.parse::<IpNetwork>().ok()?, selector.is_negated))
    };
    let (Some((from, is_from_negated)), Some((to, is_to_negated))) =
        (parsed(&rule.source), parsed(&rule.destination))
    else {
        return false;
    };
    let has_links = rule.incoming.is_some() || rule.outgoing.is_some();
    let is_multicast = to.to_string() == "224.0.0.0/4" || to.to_string() == "ff00::/8";
    let is_its = match (rule.action.as_deref(), is_from_negated, is_to_negated) {
        (Some("RETURN"), false, false) | (Some("MASQUERADE"), true, false) => {
            from == network && to == network
        }
        (Some("MASQUERADE"), false, true) => from == network && is_multicast,
        (Some("RETURN"), true, false) => from == network && contains(network, to),
        _ => false,
    };
    is_its && !has_links && rule.conditions.is_empty()
}

/// The backend `host-gw` adds a route to the range of each node. Only the annotation of the Node shows that the route is Flannel's.
fn route(route: &Route, scene: &Scene<'_>) -> Option<Reason> {
    if route.protocol != BOOT {
        return None;
    }
    if route.kind == BLACKHOLE && scene.is_of_pods(route.to) {
        return weak("Flannel adds this route for the range of the node");
    }
    let others = [Plugin::Kindnet, Plugin::KubeRouter];
    if route.kind != UNICAST || others.iter().any(|plugin| scene.context.claims(*plugin)) {
        return None;
    }
    let node = scene.context.node_of_route(route.to, route.via?)?;
    let is_its = node.annotations.get(BACKEND).is_some_and(|backend| backend == "host-gw");
    if is_its {
        sure("it leads to the pod range of a Node whose annotation names Flannel's backend host-gw")
    } else {
        None
    }
}
