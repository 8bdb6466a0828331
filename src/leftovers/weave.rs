//! The names of Weave Net 2.8: `weave` (the script), `net/`, `npc/` and `prog/weave-npc` of its repository.

use super::Plugin;
use super::context::Scene;
use super::signature::{
    Letters,
    Pattern::{Hash, Is},
    Placed, Reason, Signature, chain, link, object, sure,
};
use crate::node_state::XfrmState;

/// Mark of packets that Weave encrypts (`net/ipsec/ipsec.go`).
const MARK: (u32, u32) = (0x20000, 0x20000);
/// Group of the kernel's log messages that `weave-npc` reads.
const LOG_GROUP: u32 = 86;
const NAMESPACES: &[&str] = &["kube-system"];

pub(super) const SIGNATURE: Signature = Signature {
    plugin: Plugin::Weave,
    links: &[
        link(Is("weave"), &["bridge"]),
        link(Is("datapath"), &["openvswitch"]),
        link(Is("vethwe-bridge"), &[]),
        link(Is("vethwe-datapath"), &[]),
        link(Is("vethwe-pcap"), &[]),
        link(Is("vethwedu"), &[]),
        link(Is("vxlan-6784"), &[]),
        link(Hash("vethwepl", Letters::Hex, 7, 7), &["veth"]),
    ],
    chains: &[
        chain("WEAVE", &["nat"]),
        chain("WEAVE-CANARY", &["mangle", "nat", "filter"]),
        chain("WEAVE-NPC", &["filter"]),
        chain("WEAVE-NPC-DEFAULT", &["filter"]),
        chain("WEAVE-NPC-INGRESS", &["filter"]),
        chain("WEAVE-NPC-EGRESS", &["filter"]),
        chain("WEAVE-NPC-EGRESS-DEFAULT", &["filter"]),
        chain("WEAVE-NPC-EGRESS-CUSTOM", &["filter"]),
        chain("WEAVE-NPC-EGRESS-ACCEPT", &["filter"]),
        chain("WEAVE-EXPOSE", &["filter"]),
        chain("WEAVE-KUBE-TEST", &["filter", "nat"]),
        chain("WEAVE-IPSEC-IN", &["filter", "mangle"]),
        chain("WEAVE-IPSEC-IN-MARK", &["mangle"]),
        chain("WEAVE-IPSEC-OUT", &["filter", "mangle"]),
        chain("WEAVE-IPSEC-OUT-MARK", &["mangle"]),
    ],
    comments: &[Is("Block non-local access to Weave Net control port")],
    ipsets: &[
        Is("weave-local-pods"),
        Is("weaver-no-masq-local"),
        // 160 bits in a base of 85; see `npc/shortname.go`.
        Hash("weave-", Letters::Weave, 22, 25),
    ],
    files: &[
        Is("/var/lib/weave"),
        Is("/var/lib/weave/weave-netdata.db"),
        Is("/etc/cni/net.d/10-weave.conflist"),
        Is("/etc/cni/net.d/10-weave.conf"),
        Is("/opt/cni/bin/weave-net"),
        Is("/opt/cni/bin/weave-ipam"),
        Hash("/opt/cni/bin/weave-plugin-", Letters::Version, 1, 20),
    ],
    types: &["weave-net"],
    filter_rule,
    xfrm_policy: |policy| policy.mark == Some(MARK),
    xfrm_state,
    objects: &[
        object("DaemonSet", NAMESPACES, "weave-net"),
        object("ServiceAccount", NAMESPACES, "weave-net"),
        object("Role", NAMESPACES, "weave-net"),
        object("RoleBinding", NAMESPACES, "weave-net"),
        object("ClusterRole", &[], "weave-net"),
        object("ClusterRoleBinding", &[], "weave-net"),
        object("ConfigMap", NAMESPACES, "weave-net"),
        object("Secret", NAMESPACES, "weave-passwd"),
        object("Secret", NAMESPACES, "weave-net"),
    ],
    conditions: &["WeaveIsUp", "WeaveIsDown"],
    ..Signature::EMPTY
};

/// The rules without comment that the script `weave` and `weave-npc` add to the chains of the kernel. They select only the bridge
/// and the state of connections.
fn filter_rule(placed: &Placed<'_>, _: &Scene<'_>) -> Option<Reason> {
    let rule = placed.rule;
    let has_link = |selector: &Option<crate::node_state::Selector>, is_negated| {
        selector
            .as_ref()
            .is_some_and(|selector| selector.value == "weave" && selector.is_negated == is_negated)
    };
    let is_plain = rule.source.is_none()
        && rule.destination.is_none()
        && rule.comment.is_none()
        && rule.conditions.iter().all(|name| name == "conntrack" || name == "state" || name == "ct");
    let action = rule.action.as_deref()?;
    let is_its = match (placed.table, placed.chain, action) {
        ("filter", "FORWARD", "ACCEPT") => {
            let to_others = has_link(&rule.incoming, false) && has_link(&rule.outgoing, true);
            let between = has_link(&rule.incoming, false) && has_link(&rule.outgoing, false);
            let answers =
                rule.incoming.is_none() && has_link(&rule.outgoing, false) && !rule.conditions.is_empty();
            to_others || between || answers
        }
        ("nat", "POSTROUTING", "ACCEPT") | ("filter", "FORWARD", "DROP") => {
            has_link(&rule.outgoing, false) && rule.incoming.is_none()
        }
        ("filter", "FORWARD", "NFLOG" | "LOG") => {
            has_link(&rule.outgoing, false) && rule.log_group == Some(LOG_GROUP)
        }
        _ => false,
    };
    if is_plain && is_its { sure("Weave Net adds this rule for its bridge `weave`") } else { None }
}

/// The states have no mark. Each belongs to a policy with Weave's mark, in one of the two directions.
fn xfrm_state(state: &XfrmState, scene: &Scene<'_>) -> bool {
    let policies = scene.state.xfrm_policies.items.iter().filter(|policy| policy.mark == Some(MARK));
    let mut pairs = policies.filter_map(|policy| policy.template);
    pairs.any(|(from, to)| (from, to) == (state.from, state.to) || (to, from) == (state.from, state.to))
}
