//! The names of Cilium: `pkg/datapath`, `bpf`, `pkg/defaults` and `install/kubernetes` of its repository.

use super::Plugin;
use super::context::{Scene, host};
use super::signature::{
    ChainMark, Letters, ObjectMark,
    Pattern::{Between, Hash, Is, Own},
    Reason, Signature, chain, link, object, resources_except, sure, weak,
};
use crate::node_state::{PolicyRule, Route};

const NAMESPACES: &[&str] = &["kube-system", "cilium"];
/// Mask of the marks, and the marks of IPsec.
const MASK: u32 = 0xf00;
const DECRYPT: u32 = 0xd00;
const ENCRYPT: u32 = 0xe00;
/// Routing tables.
const MAIN: u32 = 254;
const LOCAL: u32 = 255;
const OWN_TABLES: [u32; 5] = [200, 201, 202, 2004, 2005];

const CHAINS: &[ChainMark] = &[
    chain("CILIUM_INPUT", &["filter"]),
    chain("CILIUM_OUTPUT", &["filter"]),
    chain("CILIUM_FORWARD", &["filter"]),
    chain("CILIUM_TRANSIENT_FORWARD", &["filter"]),
    chain("CILIUM_PRE_nat", &["nat"]),
    chain("CILIUM_POST_nat", &["nat"]),
    chain("CILIUM_OUTPUT_nat", &["nat"]),
    chain("CILIUM_PRE_mangle", &["mangle"]),
    chain("CILIUM_POST_mangle", &["mangle"]),
    chain("CILIUM_PRE_raw", &["raw"]),
    chain("CILIUM_OUTPUT_raw", &["raw"]),
    chain("OLD_CILIUM_INPUT", &["filter"]),
    chain("OLD_CILIUM_OUTPUT", &["filter"]),
    chain("OLD_CILIUM_FORWARD", &["filter"]),
    chain("OLD_CILIUM_TRANSIENT_FORWARD", &["filter"]),
    chain("OLD_CILIUM_PRE_nat", &["nat"]),
    chain("OLD_CILIUM_POST_nat", &["nat"]),
    chain("OLD_CILIUM_OUTPUT_nat", &["nat"]),
    chain("OLD_CILIUM_PRE_mangle", &["mangle"]),
    chain("OLD_CILIUM_POST_mangle", &["mangle"]),
    chain("OLD_CILIUM_PRE_raw", &["raw"]),
    chain("OLD_CILIUM_OUTPUT_raw", &["raw"]),
];

const OBJECTS: &[ObjectMark] = &[
    object("DaemonSet", NAMESPACES, "cilium"),
    object("DaemonSet", NAMESPACES, "cilium-envoy"),
    object("Deployment", NAMESPACES, "cilium-operator"),
    object("Deployment", NAMESPACES, "hubble-relay"),
    object("Deployment", NAMESPACES, "hubble-ui"),
    object("ConfigMap", NAMESPACES, "cilium-config"),
    object("Secret", NAMESPACES, "cilium-ca"),
    object("Secret", NAMESPACES, "hubble-server-certs"),
    object("Secret", NAMESPACES, "hubble-relay-client-certs"),
    object("ServiceAccount", NAMESPACES, "cilium"),
    object("ServiceAccount", NAMESPACES, "cilium-envoy"),
    object("ServiceAccount", NAMESPACES, "cilium-operator"),
    object("ClusterRole", &[], "cilium"),
    object("ClusterRole", &[], "cilium-operator"),
    object("ClusterRoleBinding", &[], "cilium"),
    object("ClusterRoleBinding", &[], "cilium-operator"),
    // Those of Tetragon, which also runs without Cilium.
    resources_except(
        ".cilium.io",
        &["tracingpolicies.cilium.io", "tracingpoliciesnamespaced.cilium.io", "podinfo.cilium.io"],
    ),
];

pub(super) const SIGNATURE: Signature = Signature {
    plugin: Plugin::Cilium,
    links: &[
        link(Is("cilium_host"), &[]),
        link(Is("cilium_net"), &[]),
        link(Is("cilium_vxlan"), &[]),
        link(Is("cilium_geneve"), &[]),
        link(Is("cilium_wg0"), &[]),
        link(Is("lxc_health"), &[]),
        link(Hash("lxc", Letters::Hex, 12, 12), &["veth", "netkit"]),
    ],
    chains: CHAINS,
    comments: &[Own("cilium-feeder: ")],
    ipsets: &[Is("cilium_node_set_v4"), Is("cilium_node_set_v6")],
    files: &[
        Is("/etc/cni/net.d/05-cilium.conflist"),
        Is("/etc/cni/net.d/05-cilium.conf"),
        Is("/etc/cni/net.d/05-cilium-cni.conf"),
        Is("/etc/cni/net.d/00-cilium.conflist"),
        Is("/etc/cni/net.d/00-cilium.conf"),
        Is("/etc/cni/net.d/00-cilium-cni.conf"),
        Is("/etc/cni/net.d/10-cilium.conflist"),
        Is("/etc/cni/net.d/10-cilium.conf"),
        Is("/etc/cni/net.d/10-cilium-cni.conf"),
        Between("/etc/cni/net.d/", ".cilium_bak"),
        Is("/opt/cni/bin/cilium-cni"),
        Is("/run/cilium"),
        Is("/var/lib/cilium"),
        Is("/etc/sysctl.d/99-zzz-override_cilium.conf"),
        Hash("/run/netns/cilium-", Letters::Base64, 1, 60),
    ],
    // Tetragon has its socket there.
    weak_files: &[Is("/run/cilium")],
    types: &["cilium-cni"],
    pins: &[Hash("/sys/fs/bpf/tc/globals/cilium_", Letters::Base64, 1, 60), Is("/sys/fs/bpf/cilium")],
    programs: &[
        Hash("cil_from_", Letters::Link, 1, 40),
        Hash("cil_to_", Letters::Link, 1, 40),
        Own("bpf_host.o:["),
        Own("bpf_lxc.o:["),
        Own("bpf_overlay.o:["),
        Own("bpf_network.o:["),
        Between("bpf_netdev_", "]"),
        Between("bpf_host_", "]"),
    ],
    route,
    policy_rule,
    xfrm_policy: |policy| is_mark_of_ipsec(policy.mark),
    xfrm_state: |state, _| is_mark_of_ipsec(state.mark),
    objects: OBJECTS,
    node_keys: &[
        Own("network.cilium.io/"),
        Own("io.cilium.network."),
        Own("node.cilium.io/"),
        Own("io.cilium.migration/"),
        Own("cilium.io/"),
    ],
    conditions: &["CiliumIsUp"],
    ..Signature::EMPTY
};

fn is_mark_of_ipsec(mark: Option<(u32, u32)>) -> bool {
    mark.is_some_and(|(mark, mask)| mask & MASK == MASK && [DECRYPT, ENCRYPT].contains(&(mark & MASK)))
}

/// Other programs use tables with these numbers, too.
fn route(route: &Route, scene: &Scene<'_>) -> Option<Reason> {
    let is_of_link = route.link.as_deref().is_some_and(|link| link.starts_with("cilium_"));
    let mut rules = scene.state.policy_rules.items.iter();
    let is_its = OWN_TABLES.contains(&route.table)
        && (is_of_link || rules.any(|rule| rule.table == route.table && policy_rule(rule, scene).is_some()));
    if is_its { weak("Cilium uses this routing table") } else { None }
}

/// The priorities and marks are those of `pkg/datapath/linux/linux_defaults`.
fn policy_rule(rule: &PolicyRule, scene: &Scene<'_>) -> Option<Reason> {
    if rule.is_negated {
        return None;
    }
    let has_no_address = rule.from.is_none() && rule.to.is_none() && rule.incoming.is_none();
    let pod =
        |network: Option<ipnetwork::IpNetwork>| network.and_then(host).is_some_and(|pod| scene.is_dead(pod));
    match (rule.priority, rule.table, rule.mark) {
        (1, 200, Some((DECRYPT | ENCRYPT, MASK))) if has_no_address => {
            sure("Cilium adds this rule for IPsec")
        }
        (1, 201, Some((ENCRYPT, MASK))) if has_no_address => sure("Cilium adds this rule for WireGuard"),
        (9, 2004, Some((0x200, MASK))) if has_no_address => {
            sure("Cilium adds this rule for packets to its proxy")
        }
        (10, 2005, Some((0xa00 | 0xb00, MASK))) if has_no_address => {
            sure("Cilium adds this rule for packets of its proxy")
        }
        (100, LOCAL, None) if has_no_address && is_local_moved(rule, scene) => weak(
            "Cilium moves the rule of the table `local` from priority 0 to 100. Without it, the node has no addresses",
        ),
        (109, MAIN, Some((0x80, 0x80))) if has_no_address || rule.incoming.is_some() => {
            weak("Cilium adds this rule for node ports on AWS")
        }
        (20, MAIN, None) if pod(rule.to) => {
            weak("Cilium adds this rule for a Pod; no Pod has this address now")
        }
        (110 | 111, table, None) if pod(rule.from) && (10..1000).contains(&table) => {
            weak("Cilium adds this rule for a Pod; no Pod has this address now")
        }
        _ => None,
    }
}

/// Returns whether the rule of the table `local` is no longer at its place.
pub(super) fn is_local_moved(rule: &PolicyRule, scene: &Scene<'_>) -> bool {
    let rules = &scene.state.policy_rules.items;
    !rules.iter().any(|other| other.is_v6 == rule.is_v6 && other.priority == 0 && other.table == LOCAL)
}
