//! `drain-rights`: whether the user has the permissions to drain nodes and to replace the network.

use super::Cni;
use crate::preflight::rights::{self, Asked, Need, READER};
use crate::preflight::{Check, Source};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "drain-rights",
    why: "a missing permission stops the change half way",
    needs: &[Source::Api],
    judge: |input| Box::pin(rights::check(&input.read, &RIGHTS, None)),
};

/// Permissions to drain every node and to replace the network.
const RIGHTS: Asked<'static> = Asked {
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
        remedy: "the user who drains the nodes needs the write permissions, such as the user of `/etc/kubernetes/admin.conf` on a control-plane host; no role of deploy/rbac.yaml has them, because no command of netsurgeon makes this change",
    },
};
