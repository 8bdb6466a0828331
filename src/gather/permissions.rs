//! The permissions that the permission checks request, and the roles of `deploy/rbac.yaml` that grant them.

use crate::preflight::rights::Need;

/// Permissions: verbs, API group, and resource.
pub(super) type Rights = [(&'static [&'static str], (&'static str, &'static str))];

/// The permissions that a check requests.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Permissions to read.
    pub(super) reads: &'a Rights,
    /// Permissions that the change needs in addition.
    pub(super) changes: &'a Rights,
    pub(super) need: Need,
}

const READER: &str = "can read, and cannot change anything";

/// Permissions of a renumbering, in all namespaces. `get nodes/proxy` is checked separately: it is not needed if nodes are
/// reachable directly.
pub(super) const RENUMBER: Asked<'static> = Asked {
    reads: &[
        (&["get", "list"], ("", "services")),
        (&["list"], ("", "nodes")),
        (&["get", "list"], ("", "pods")),
        (&["get", "list"], ("", "namespaces")),
        (&["list"], ("discovery.k8s.io", "endpointslices")),
        (&["get", "list"], ("networking.k8s.io", "servicecidrs")),
        (&["get"], ("networking.k8s.io", "ipaddresses")),
    ],
    changes: &[
        (&["create", "delete"], ("", "services")),
        (&["create", "update", "delete"], ("discovery.k8s.io", "endpointslices")),
        (&["create", "delete"], ("networking.k8s.io", "servicecidrs")),
        (&["create"], ("events.k8s.io", "events")),
    ],
    need: Need {
        operation: "a move",
        reader: READER,
        read_role: "netsurgeon-preflight",
        remedy: "bind the ClusterRole `netsurgeon-renumber` of deploy/rbac.yaml to the user who runs `renumber apply`, and run this check \
               again as that user",
    },
};

/// Permissions to drain every node and to replace the network.
pub(super) const CNI: Asked<'static> = Asked {
    reads: &[
        (&["get", "list"], ("", "nodes")),
        (&["get", "list"], ("", "pods")),
        (&["list"], ("policy", "poddisruptionbudgets")),
        (&["get", "list"], ("apps", "daemonsets")),
        (&["get"], ("", "configmaps")),
    ],
    changes: &[
        (&["patch"], ("", "nodes")),
        (&["delete"], ("", "pods")),
        (&["create"], ("", "pods/eviction")),
        (&["create", "patch", "delete"], ("apps", "daemonsets")),
        (&["create", "patch", "delete"], ("", "configmaps")),
    ],
    need: Need {
        operation: "the change",
        reader: READER,
        read_role: "netsurgeon-cni",
        remedy: "no role of deploy/rbac.yaml has the others, because no command of netsurgeon makes this \
                 change: the user who drains the nodes needs them, such as the user of \
                 `/etc/kubernetes/admin.conf` on a control-plane host",
    },
};

/// Permissions to change DNS names, in each of the two clusters: find names, stop ExternalDNS, and store a journal.
pub(super) const DNS: Asked<'static> = Asked {
    reads: &[
        (&["list"], ("networking.k8s.io", "ingresses")),
        (&["list"], ("", "services")),
        (&["get", "list"], ("apps", "deployments")),
    ],
    changes: &[
        (&["patch"], ("apps", "deployments")),
        (&["get", "create", "patch", "delete"], ("", "configmaps")),
    ],
    need: Need {
        operation: "the change",
        reader: READER,
        read_role: "netsurgeon-dns",
        remedy: "no role of deploy/rbac.yaml has the others, because no command of netsurgeon makes this \
                 change: the user who stops ExternalDNS needs them, such as the user of \
                 `/etc/kubernetes/admin.conf` on a control-plane host",
    },
};

/// Permissions to read the source. Secrets are optional: without this permission `preflight` reports that Secrets are not
/// checked.
pub(super) const SOURCE: Need = Need {
    operation: "copying from the source",
    reader: "can read everything but Secrets, which would not be copied",
    read_role: "netsurgeon-mirror-source",
    remedy: "bind the optional ClusterRole `netsurgeon-mirror-secrets` of deploy/rbac.yaml to this user; its comment describes the permission",
};

/// Permissions to create objects on the mirror.
pub(super) const MIRROR: Need = Need {
    operation: "copying into the mirror",
    reader: READER,
    read_role: "netsurgeon-mirror",
    remedy: "no role of deploy/rbac.yaml has the others, because no command of netsurgeon makes this \
             change: the user who copies the objects needs them, such as the user of \
             `/etc/kubernetes/admin.conf` on a control-plane host of the mirror",
};
