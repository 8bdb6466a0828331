//! The names of Canal that are neither Flannel's nor Calico's: `manifests/canal.yaml` of Calico's repository.

use super::Plugin;
use super::signature::{Pattern::Is, Signature, object};

const NAMESPACES: &[&str] = &["kube-system"];

pub(super) const SIGNATURE: Signature = Signature {
    plugin: Plugin::Canal,
    files: &[Is("/etc/cni/net.d/10-canal.conflist"), Is("/etc/cni/net.d/10-canal.conf")],
    objects: &[
        object("DaemonSet", NAMESPACES, "canal"),
        object("ConfigMap", NAMESPACES, "canal-config"),
        object("ServiceAccount", NAMESPACES, "canal"),
        object("ClusterRoleBinding", &[], "canal-flannel"),
        object("ClusterRoleBinding", &[], "canal-calico"),
    ],
    ..Signature::EMPTY
};
