//! The names of kindnet, as kind installs it: `images/kindnetd` of kind's repository.

use super::Plugin;
use super::context::Scene;
use super::flannel::BACKEND;
use super::signature::{Pattern::Is, Reason, Signature, chain, object, weak};
use crate::node_state::Route;

const NAMESPACES: &[&str] = &["kube-system"];
/// Protocol and type of its routes.
const BOOT: u8 = 3;
const UNICAST: u8 = 1;

pub(super) const SIGNATURE: Signature = Signature {
    plugin: Plugin::Kindnet,
    chains: &[chain("KIND-MASQ-AGENT", &["nat"])],
    nft_tables: &[("inet", Is("kindnet-network-policies"))],
    files: &[
        Is("/etc/cni/net.d/10-kindnet.conflist"),
        Is("/etc/cni/net.d/10-kindnet.conf"),
        Is("/run/cni-ipam-state"),
    ],
    route,
    objects: &[
        object("DaemonSet", NAMESPACES, "kindnet"),
        object("ServiceAccount", NAMESPACES, "kindnet"),
        object("ClusterRole", &[], "kindnet"),
        object("ClusterRoleBinding", &[], "kindnet"),
    ],
    ..Signature::EMPTY
};

/// A route to the range of each other node. Flannel's backend `host-gw` and kube-router create the same routes.
fn route(route: &Route, scene: &Scene<'_>) -> Option<Reason> {
    let others = [Plugin::Flannel, Plugin::KubeRouter];
    if route.protocol != BOOT
        || route.kind != UNICAST
        || others.iter().any(|plugin| scene.context.claims(*plugin))
    {
        return None;
    }
    let node = scene.context.node_of_route(route.to, route.via?)?;
    if node.annotations.contains_key(BACKEND) {
        return None;
    }
    weak("kindnet adds a route to the pod range of each Node")
}
