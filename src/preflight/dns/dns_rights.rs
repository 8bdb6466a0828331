//! `dns-rights`: whether the user has the permissions that the change of names needs, in both clusters.

use super::Dns;
use crate::preflight::rights::{Asked, Need, READER};
use crate::preflight::{Check, Judged, Read, Verdict};

/// The check.
pub const CHECK: Check<Dns> = Check {
    name: "dns-rights",
    why: "a missing permission stops the change half way",
    judge: |dns| Box::pin(read(dns)),
};

/// Permissions to change DNS names, in each of the two clusters: find names, stop ExternalDNS, and store a journal.
const RIGHTS: Asked<'static> = Asked {
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

async fn read(dns: &Dns) -> Read<Judged> {
    let own = dns.read.rights(&RIGHTS).await?;
    let Some(mirror) = dns.mirror_if_given()? else { return Ok(own) };
    if own.verdict == Verdict::Fail {
        return Ok(own);
    }
    let of_mirror = mirror.rights(&RIGHTS).await?;
    let observed = format!("on the mirror: {}; here: {}", of_mirror.observed, own.observed);
    let worse = if of_mirror.verdict == Verdict::Pass { own } else { of_mirror };
    Ok(Judged { observed, ..worse })
}
