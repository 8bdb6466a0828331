//! The names of the Amazon VPC CNI: `pkg/networkutils`, `cmd/routed-eni-cni-plugin` and `scripts` of its repository.

use ipnetwork::IpNetwork;

use super::Plugin;
use super::cilium::is_local_moved;
use super::context::{Scene, host};
use super::signature::{
    Letters,
    Pattern::{Hash, Is},
    Reason, Signature, chains, link, object, resources, weak,
};
use crate::node_state::PolicyRule;

const NAMESPACES: &[&str] = &["kube-system"];
/// Mark of packets that came in over the primary interface.
const MARK: (u32, u32) = (0x80, 0x80);
/// Routing tables.
const MAIN: u32 = 254;
const LOCAL: u32 = 255;

pub(super) const SIGNATURE: Signature = Signature {
    plugin: Plugin::AwsVpc,
    links: &[
        link(Hash("eni", Letters::Hex, 11, 11), &["veth"]),
        link(Hash("vlan", Letters::Hex, 11, 11), &["veth"]),
        link(Hash("vlan.eth.", Letters::Digits, 1, 4), &["vlan"]),
    ],
    chains: &[
        chains(Hash("AWS-SNAT-CHAIN-", Letters::Digits, 1, 3), &["nat"]),
        chains(Hash("AWS-CONNMARK-CHAIN-", Letters::Digits, 1, 3), &["nat"]),
    ],
    comments: &[
        Is("AWS, primary ENI"),
        Is("AWS, outbound connections"),
        Is("AWS, CONNMARK"),
        Is("AWS, SNAT"),
        Is("AWS SNAT CHAIN"),
        Is("AWS CONNMARK CHAIN"),
    ],
    nft_tables: &[("ip", Is("aws-cni"))],
    files: &[
        Is("/etc/cni/net.d/10-aws.conflist"),
        Is("/opt/cni/bin/aws-cni"),
        Is("/opt/cni/bin/egress-cni"),
        Is("/opt/cni/bin/aws-cni-support.sh"),
        Is("/run/aws-node"),
        Is("/var/log/aws-routed-eni"),
    ],
    types: &["aws-cni"],
    policy_rule,
    objects: &[
        object("DaemonSet", NAMESPACES, "aws-node"),
        object("ServiceAccount", NAMESPACES, "aws-node"),
        object("ConfigMap", NAMESPACES, "amazon-vpc-cni"),
        object("ClusterRole", &[], "aws-node"),
        object("ClusterRoleBinding", &[], "aws-node"),
        resources(".crd.k8s.amazonaws.com"),
    ],
    node_keys: &[Is("vpc.amazonaws.com/has-trunk-attached")],
    ..Signature::EMPTY
};

/// Priorities of `pkg/networkutils/network.go`.
fn policy_rule(rule: &PolicyRule, scene: &Scene<'_>) -> Option<Reason> {
    const OF_POD: &str = "the Amazon VPC CNI adds this rule for a Pod; no Pod has this address now";
    if rule.is_negated {
        return None;
    }
    let is_dead = |network: Option<IpNetwork>| network.and_then(host).is_some_and(|pod| scene.is_dead(pod));
    let has_no_address = rule.from.is_none() && rule.to.is_none() && rule.incoming.is_none();
    match (rule.priority, rule.table, rule.mark) {
        (20, LOCAL, None) if has_no_address && is_local_moved(rule, scene) => weak(
            "the Amazon VPC CNI moves the rule of the table `local` from priority 0 to 20. Without it, the node has no addresses",
        ),
        (512, MAIN, None) if is_dead(rule.to) => weak(OF_POD),
        (1024, MAIN, Some(MARK)) => weak("the Amazon VPC CNI adds this rule for packets to node ports"),
        (1536, 1..=250, None) if is_dead(rule.from) => weak(OF_POD),
        (10, 1..=250, None)
            if rule.incoming.as_deref().is_some_and(|link| link.starts_with("vlan"))
                && rule.from.is_none() =>
        {
            weak("the Amazon VPC CNI adds this rule for an interface of a Pod with security groups")
        }
        _ => None,
    }
}
