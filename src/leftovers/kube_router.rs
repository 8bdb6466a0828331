//! The names of kube-router 2: `pkg/controllers` and `pkg/utils` of its repository.

use super::Plugin;
use super::context::Scene;
use super::signature::{
    ChainMark, Letters,
    Pattern::{self, Hash, Is, Own},
    Placed, Reason, Signature, chain, commented, link, object, sure, weak,
};
use crate::node_state::{PolicyRule, Route};

const NAMESPACES: &[&str] = &["kube-system"];
/// Protocol of its routes, which it has from GoBGP.
const GOBGP: u8 = 17;
/// Routing tables, with their names.
const TABLES: [(u32, &str); 3] = [(77, "kube-router"), (78, "kube-router-dsr"), (79, "external_ip")];
/// Length of its hashes.
const HASH: usize = 16;
/// Comments of its rules for the links of Pods.
const OF_BRIDGE: [&str; 3] = [
    "allow inbound traffic to pods",
    "allow outbound traffic from pods",
    "allow outbound node port traffic on node interface with which node ip is associated",
];

const CHAINS: &[ChainMark] = &[
    chain("KUBE-ROUTER-INPUT", &["filter"]),
    chain("KUBE-ROUTER-FORWARD", &["filter"]),
    chain("KUBE-ROUTER-OUTPUT", &["filter"]),
    chain("KUBE-ROUTER-SERVICES", &["filter"]),
    chain("KUBE-ROUTER-HAIRPIN", &["nat"]),
    chain("KUBE-NWPLCY-DEFAULT", &["filter"]),
    chain("KUBE-NWPLCY-COMMON", &["filter"]),
    chain("KUBE-NWPLCY-TAIL", &["filter"]),
    commented(Hash("KUBE-POD-FW-", Letters::Base32, HASH, HASH), &["filter"]),
    commented(Hash("KUBE-NWPLCY-", Letters::Base32, HASH, HASH), &["filter"]),
];

const SETS: &[Pattern] = &[
    Is("kube-router-local-ips"),
    Is("kube-router-svip"),
    Is("kube-router-svip-prt"),
    Is("kube-router-pod-subnets"),
    Is("kube-router-node-ips"),
    Is("kube-router-local-pods"),
    Is("inet6:kube-router-local-ips"),
    Is("inet6:kube-router-svip"),
    Is("inet6:kube-router-svip-prt"),
    Is("inet6:kube-router-pod-subnets"),
    Is("inet6:kube-router-node-ips"),
    Is("inet6:kube-router-local-pods"),
    Hash("KUBE-SRC-", Letters::Base32, HASH, HASH),
    Hash("KUBE-DST-", Letters::Base32, HASH, HASH),
    Hash("inet6:KUBE-SRC-", Letters::Base32, HASH, HASH),
    Hash("inet6:KUBE-DST-", Letters::Base32, HASH, HASH),
];

pub(super) const SIGNATURE: Signature = Signature {
    plugin: Plugin::KubeRouter,
    links: &[
        link(Is("kube-bridge"), &[]),
        link(Is("kube-dummy-if"), &[]),
        link(Is("kube-tunnel-if"), &[]),
        link(Is("kube-tunnel-v6"), &[]),
        link(Hash("tun-", Letters::Hex, 11, 11), &["ipip", "sit", "ip6tnl", "tun"]),
    ],
    chains: CHAINS,
    comments: &[Hash("kube-router netpol - ", Letters::Base32, HASH, HASH)],
    inner_comments: &[
        Own("rule to "),
        Own("rule for stateful firewall for pod"),
        Own("run through nw policy "),
        Own("run through default "),
    ],
    ipsets: SETS,
    nft_tables: &[("", Is("kube-router-filter-ipv4")), ("", Is("kube-router-filter-ipv6"))],
    files: &[
        Is("/etc/cni/net.d/10-kuberouter.conflist"),
        Is("/etc/cni/net.d/10-kuberouter.conf"),
        Is("/var/lib/kube-router"),
    ],
    tables: &TABLES,
    filter_rule,
    route,
    policy_rule,
    objects: &[
        object("DaemonSet", NAMESPACES, "kube-router"),
        object("ServiceAccount", NAMESPACES, "kube-router"),
        object("ConfigMap", NAMESPACES, "kube-router-cfg"),
        object("ClusterRole", &[], "kube-router"),
        object("ClusterRoleBinding", &[], "kube-router"),
    ],
    node_keys: &[Own("kube-router.io/")],
    ..Signature::EMPTY
};

fn filter_rule(placed: &Placed<'_>, _: &Scene<'_>) -> Option<Reason> {
    let rule = placed.rule;
    let mut links = [&rule.incoming, &rule.outgoing].into_iter().flatten();
    let has_bridge = links.any(|link| link.value == "kube-bridge" && !link.is_negated);
    let comment = rule.comment.as_deref().unwrap_or_default();
    if placed.chain == "FORWARD" && has_bridge && OF_BRIDGE.contains(&comment) {
        return sure("kube-router adds this rule for its bridge `kube-bridge`");
    }
    let is_egress = (placed.table, placed.chain) == ("nat", "POSTROUTING")
        && rule
            .sets
            .iter()
            .any(|set| set == "kube-router-pod-subnets" || set == "inet6:kube-router-pod-subnets")
        && matches!(rule.action.as_deref(), Some("MASQUERADE" | "SNAT"));
    if is_egress {
        sure("kube-router adds this rule with its IP set `kube-router-pod-subnets`")
    } else {
        None
    }
}

fn is_table(table: u32) -> bool {
    TABLES.iter().any(|(number, _)| *number == table)
}

fn route(route: &Route, scene: &Scene<'_>) -> Option<Reason> {
    if is_table(route.table) {
        return weak("kube-router uses this routing table");
    }
    let is_its = route.protocol == GOBGP && scene.is_of_pods(route.to);
    if is_its { weak("kube-router adds routes to pod ranges with protocol 17") } else { None }
}

fn policy_rule(rule: &PolicyRule, scene: &Scene<'_>) -> Option<Reason> {
    let is_its = match (rule.priority, rule.table) {
        (_, 77) => rule.from.is_some_and(|from| scene.is_of_pods(from)) && rule.mark.is_none(),
        (32764, 78) => rule.mark.is_some(),
        (32765, 79) => rule.mark.is_none(),
        _ => false,
    };
    if is_its { weak("kube-router adds this rule for its routing table") } else { None }
}
