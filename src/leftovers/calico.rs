//! The names of Calico, as Felix, BIRD, its CNI plug-in, its manifests and its operator create them: `felix/rules`, `felix/ipsets`,
//! `felix/bpf`, `manifests` and `node` of its repository.

use super::Plugin;
use super::context::Scene;
use super::signature::{
    ChainMark, Letters, ObjectMark,
    Pattern::{self, Hash, Is, Own},
    Reason, Signature, chain, chains, commented, link, object, resources, sure, weak, weak_link,
};
use crate::node_state::{PolicyRule, Route};

/// Protocols of routes: Felix and BIRD.
const FELIX: u8 = 80;
const BIRD: u8 = 12;
const BLACKHOLE: u8 = 6;
/// Lengths of the prefixes of its blocks.
const BLOCKS: [u8; 2] = [26, 122];
const KUBE_SYSTEM: &[&str] = &["kube-system"];
const SYSTEM: &[&str] = &["kube-system", "calico-system"];

/// The comment of each rule of Felix: a hash of 12 bytes.
pub(super) const HASH: Pattern = Hash("cali:", Letters::Base64, 16, 16);

const CHAINS: &[ChainMark] = &[
    chain("cali-INPUT", &[]),
    chain("cali-FORWARD", &[]),
    chain("cali-OUTPUT", &[]),
    chain("cali-PREROUTING", &[]),
    chain("cali-POSTROUTING", &[]),
    chain("cali-untracked-flows", &[]),
    chain("cali-untracked-policy", &[]),
    chain("cali-failsafe-in", &[]),
    chain("cali-failsafe-out", &[]),
    chain("cali-nat-outgoing", &[]),
    chain("cali-fip-dnat", &[]),
    chain("cali-fip-snat", &[]),
    chain("cali-cidr-block", &[]),
    chain("cali-wl-to-host", &[]),
    chain("cali-from-wl-dispatch", &[]),
    chain("cali-to-wl-dispatch", &[]),
    chain("cali-to-host-endpoint", &[]),
    chain("cali-from-host-endpoint", &[]),
    chain("cali-to-hep-forward", &[]),
    chain("cali-from-hep-forward", &[]),
    chain("cali-set-endpoint-mark", &[]),
    chain("cali-from-endpoint-mark", &[]),
    chain("cali-forward-check", &[]),
    chain("cali-forward-endpoint-mark", &[]),
    chain("cali-wireguard-incoming-mark", &[]),
    chain("cali-rpf-skip", &[]),
    chain("cali-rpf", &[]),
    chain("cali-to-wl-dispatch-allow", &[]),
    commented(Hash("cali-from-wl-dispatch-", Letters::Link, 1, 10), &[]),
    commented(Hash("cali-to-wl-dispatch-", Letters::Link, 1, 10), &[]),
    commented(Hash("cali-pi-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-po-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-pri-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-pro-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-gi-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-go-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-tw-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-fw-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-sm-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-th-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-fh-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-thfw-", Letters::Link, 1, 24), &[]),
    commented(Hash("cali-fhfw-", Letters::Link, 1, 24), &[]),
    // Before Felix 2.1.
    chain("felix-INPUT", &[]),
    chain("felix-FORWARD", &[]),
    chain("felix-OUTPUT", &[]),
    chain("felix-PREROUTING", &[]),
    chain("felix-POSTROUTING", &[]),
    chain("felix-FROM-ENDPOINT", &[]),
    chain("felix-TO-ENDPOINT", &[]),
    chain("felix-FIP-DNAT", &[]),
    chain("felix-FIP-SNAT", &[]),
    chains(Hash("felix-FROM-EP-PFX", Letters::Base64, 0, 8), &[]),
];

const OBJECTS: &[ObjectMark] = &[
    object("Namespace", &[], "tigera-operator"),
    object("Namespace", &[], "calico-system"),
    object("Namespace", &[], "calico-apiserver"),
    object("DaemonSet", SYSTEM, "calico-node"),
    object("Deployment", SYSTEM, "calico-kube-controllers"),
    object("Deployment", SYSTEM, "calico-typha"),
    object("Deployment", &["tigera-operator"], "tigera-operator"),
    object("PodDisruptionBudget", SYSTEM, "calico-kube-controllers"),
    object("PodDisruptionBudget", SYSTEM, "calico-typha"),
    object("ConfigMap", KUBE_SYSTEM, "calico-config"),
    object("ServiceAccount", SYSTEM, "calico-node"),
    object("ServiceAccount", SYSTEM, "calico-kube-controllers"),
    object("ServiceAccount", SYSTEM, "calico-cni-plugin"),
    object("ClusterRole", &[], "calico-node"),
    object("ClusterRole", &[], "calico-kube-controllers"),
    object("ClusterRole", &[], "calico-cni-plugin"),
    object("ClusterRole", &[], "calico-tier-getter"),
    object("ClusterRoleBinding", &[], "calico-node"),
    object("ClusterRoleBinding", &[], "calico-kube-controllers"),
    object("ClusterRoleBinding", &[], "calico-cni-plugin"),
    object("ClusterRoleBinding", &[], "calico-tier-getter"),
    object("APIService", &[], "v3.projectcalico.org"),
    object("Installation", &[], "default"),
    object("APIServer", &[], "default"),
    resources(".crd.projectcalico.org"),
    resources(".operator.tigera.io"),
    resources(".projectcalico.org"),
];

pub(super) const SIGNATURE: Signature = Signature {
    plugin: Plugin::Calico,
    links: &[
        link(Hash("cali", Letters::Hex, 11, 11), &["veth"]),
        // The kernel creates it for each network namespace when `ipip` is loaded, for example for Flannel or kube-router.
        weak_link(Is("tunl0"), &["ipip"]),
        link(Is("vxlan.calico"), &[]),
        link(Is("vxlan-v6.calico"), &[]),
        link(Is("wireguard.cali"), &[]),
        link(Is("wg-v6.cali"), &[]),
        link(Is("bpfin.cali"), &[]),
        link(Is("bpfout.cali"), &[]),
        link(Is("egress.calico"), &[]),
    ],
    chains: CHAINS,
    comments: &[HASH],
    inner_comments: &[HASH],
    ipsets: &[
        Hash("cali40s:", Letters::Base64, 22, 23),
        Hash("cali60s:", Letters::Base64, 22, 23),
        Hash("cali40n:", Letters::Base64, 22, 23),
        Hash("cali60n:", Letters::Base64, 22, 23),
        Hash("cali40d:", Letters::Base64, 22, 23),
        Hash("cali60d:", Letters::Base64, 22, 23),
        Hash("cali4t", Letters::Digits, 1, 6),
        Hash("cali6t", Letters::Digits, 1, 6),
        Is("cali40all-ipam-pools"),
        Is("cali60all-ipam-pools"),
        Is("cali40masq-ipam-pools"),
        Is("cali60masq-ipam-pools"),
        Is("cali40all-hosts-net"),
        Is("cali60all-hosts-net"),
        Is("cali40all-vxlan-net"),
        Is("cali60all-vxlan-net"),
        Is("cali40this-host"),
        Is("cali60this-host"),
        Is("felix-masq-ipam-pools"),
        Is("felix-all-ipam-pools"),
    ],
    nft_tables: &[("ip", Is("calico")), ("ip6", Is("calico"))],
    files: &[
        Is("/etc/cni/net.d/10-calico.conflist"),
        Is("/etc/cni/net.d/10-calico.conf"),
        Is("/etc/cni/net.d/calico-kubeconfig"),
        Is("/opt/cni/bin/calico"),
        Is("/opt/cni/bin/calico-ipam"),
        Is("/var/lib/calico"),
        Is("/var/lib/calico/bpf_ct_map_size"),
        Is("/run/calico"),
        Is("/var/log/calico"),
    ],
    types: &["calico"],
    pins: &[
        Hash("/sys/fs/bpf/tc/globals/cali_", Letters::Base64, 1, 40),
        Hash("/sys/fs/bpf/cali_", Letters::Base64, 1, 40),
        Hash("/sys/fs/bpf/calico_", Letters::Base64, 1, 40),
        Hash("/sys/fs/bpf/xdp_cali_", Letters::Base64, 1, 40),
        Is("/sys/fs/bpf/calico"),
    ],
    programs: &[Hash("cali_tc_", Letters::Base64, 1, 20), Hash("calico_tc_", Letters::Base64, 1, 20)],
    filter_rule: |_, _| None,
    route,
    policy_rule,
    objects: OBJECTS,
    node_keys: &[Own("projectcalico.org/")],
    conditions: &["CalicoIsUp", "CalicoIsDown"],
    ..Signature::EMPTY
};

fn route(route: &Route, scene: &Scene<'_>) -> Option<Reason> {
    let is_block = BLOCKS.contains(&route.to.prefix());
    match route.protocol {
        FELIX => sure("Felix adds routes with protocol 80"),
        BIRD if is_block && route.kind == BLACKHOLE => weak("BIRD adds this route for a block of the node"),
        BIRD if is_block && route.via.is_some_and(|via| is_node(via, scene)) => {
            weak("BIRD adds this route for a block of another node")
        }
        _ => None,
    }
}

fn is_node(address: std::net::IpAddr, scene: &Scene<'_>) -> bool {
    scene.context.nodes.iter().any(|node| node.addresses.contains(&address))
}

/// WireGuard: everything without the mark uses another table.
fn policy_rule(rule: &PolicyRule, _: &Scene<'_>) -> Option<Reason> {
    let is_its = rule.priority == 99
        && rule.is_negated
        && (1..=250).contains(&rule.table)
        && rule.mark.is_some_and(|(mark, mask)| mark == mask && mark.is_power_of_two());
    if is_its { weak("Calico adds this rule for WireGuard") } else { None }
}
