//! The permissions that the checks of rights ask about, and the role of `deploy/rbac.yaml` that has them.

use crate::preflight::rights::Need;

/// What is done through the API: verbs, and API group and resource.
pub(super) type Rights = [(&'static [&'static str], (&'static str, &'static str))];

/// The permissions that a check asks about.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Those to read with.
    pub(super) reads: &'a Rights,
    /// Those that the change itself needs on top.
    pub(super) changes: &'a Rights,
    pub(super) need: Need,
}

const READER: &str = "can read, and cannot change anything";

/// What a renumbering does, everywhere. `get nodes/proxy` is asked about apart: nodes that are reached directly need none.
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

/// What draining every node does, and another network on it.
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
        operation: "this",
        reader: READER,
        read_role: "netsurgeon-cni",
        remedy: "no role of deploy/rbac.yaml has the others, for no command of netsurgeon makes this change: the user who drains the nodes \
               needs them, as `/etc/kubernetes/admin.conf` on a control-plane host has",
    },
};

/// What changing names does in each of the two clusters: it looks for names, holds ExternalDNS back, and keeps a journal.
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
        operation: "this",
        reader: READER,
        read_role: "netsurgeon-dns",
        remedy: "no role of deploy/rbac.yaml has the others, for no command of netsurgeon makes this change: the user who holds ExternalDNS \
               back needs them, as `/etc/kubernetes/admin.conf` on a control-plane host has",
    },
};

/// What reading is for that a mirror copies. Secrets are apart: `preflight` goes without them, and says so.
pub(super) const SOURCE: Need = Need {
    operation: "copying from the source",
    reader: "can read everything but Secrets, which would not be copied",
    read_role: "netsurgeon-mirror-source",
    remedy: "bind the optional ClusterRole `netsurgeon-mirror-secrets` of deploy/rbac.yaml to this user; its comment says what it permits",
};

/// What creating is for on the mirror.
pub(super) const MIRROR: Need = Need {
    operation: "copying into the mirror",
    reader: READER,
    read_role: "netsurgeon-mirror",
    remedy: "no role of deploy/rbac.yaml has the others, for no command of netsurgeon makes this change: the user who copies needs them, as \
           `/etc/kubernetes/admin.conf` on a control-plane host of the mirror has",
};
