//! `mirror-rights`: whether the user has the permissions to create the copied objects and their namespaces on the mirror.

use super::Mirror;
use crate::inventory::kinds::{NAMESPACES, READS, SECRETS, copied_kinds};
use crate::preflight::rights::{self, Asked, Need, READER};
use crate::preflight::{Check, Judged, Read, Source};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "mirror-rights",
    why: "a missing permission stops the copy half way",
    needs: &[Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

/// Verbs that a copy needs for namespaces and for objects of each copied kind.
const CHANGES: &[&str] = &["create", "patch", "delete"];

/// Checks the permissions. The permission to read Secrets on the mirror is not checked.
async fn read(input: &Mirror) -> Read<Judged> {
    let kinds = || copied_kinds().map(|kind| kind.resource).chain([NAMESPACES]);
    let reads: Vec<_> = kinds().filter(|kind| *kind != SECRETS).map(|kind| (READS, kind)).collect();
    let changes: Vec<_> = kinds().map(|kind| (CHANGES, kind)).collect();
    rights::check(&input.target, &Asked { reads: &reads, changes: &changes, need: NEED }, None).await
}

/// Texts about the permissions to create objects on the mirror.
const NEED: Need = Need {
    operation: "copying into the mirror",
    reader: READER,
    read_role: "netsurgeon-mirror",
    remedy: "bind the optional role `netsurgeon-mirror-write` of deploy/rbac.yaml in the namespaces of the mirror, or copy the objects as a user with the write permissions, for example the user of `/etc/kubernetes/admin.conf` on a control-plane host of the mirror",
};
