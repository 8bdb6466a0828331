//! `rights`: whether the user has the permissions that a renumbering needs.

use super::Renumber;
use crate::inventory::unread;
use crate::preflight::rights::{self, Asked, Need, READER};
use crate::preflight::{Check, Judged, Read, Source};

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "rights",
    why: "a missing permission stops the renumbering half way",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Permissions that a renumbering needs, in all namespaces. `get nodes/proxy` is checked separately, because it is not needed if
/// nodes are reachable directly.
const ASKED: Asked<'static> = Asked {
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
        operation: "a renumbering",
        reader: READER,
        read_role: "netsurgeon-preflight",
        remedy: "bind the ClusterRole `netsurgeon-renumber` of deploy/rbac.yaml to the user who runs `renumber apply`, and run this check \
               again as that user",
    },
};

/// Checks the API permissions that a renumbering needs. `get nodes/proxy` is optional.
async fn read(input: &Renumber) -> Read<Judged> {
    let mut judged = rights::check(&input.read, &ASKED, None).await?;
    if !input.read.cluster()?.may("get", ("", "nodes/proxy"), None).await.map_err(unread)? {
        judged.observed.push_str(
            "; without `get nodes/proxy`, netsurgeon queries kube-proxies directly and does not query kubelets",
        );
    }
    Ok(judged)
}
