//! `dns-rights`: whether the user has the permissions that a cutover needs, in both clusters.

use std::collections::BTreeSet;

use crate::dns::Published;
use crate::dns::reader::CutoverReader;
use crate::inventory::host_object::HostObjectKind;
use crate::preflight::rights::{self, Asked, Need, READER};
use crate::preflight::{Check, Judged, Read, Source, Verdict};

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "dns-rights",
    why: "a missing permission stops the change half way",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

/// Permissions to read the objects that contain names, and the Deployments of ExternalDNS, in each cluster.
const READS: Asked<'static> = Asked {
    reads: &[
        (&["list"], ("networking.k8s.io", "ingresses")),
        (&["list"], ("", "services")),
        (&["get", "list"], ("apps", "deployments")),
        (&["create"], ("authorization.k8s.io", "subjectaccessreviews")),
    ],
    changes: &[],
    need: NEED,
};

/// Permissions to store the record of a cutover, in the namespace of the records.
const RECORDS: Asked<'static> = Asked {
    reads: &[],
    changes: &[(&["get", "list", "create", "update", "delete"], ("", "configmaps"))],
    need: NEED,
};

/// Permissions to acquire the Lease of the cluster, in its namespace.
const LEASE: Asked<'static> = Asked {
    reads: &[],
    changes: &[(&["get", "patch"], ("coordination.k8s.io", "leases@netsurgeon"))],
    need: NEED,
};

/// Permissions to change the annotations from which ExternalDNS publishes names.
const ANNOTATES: Need = Need {
    remedy: "bind the ClusterRole `netsurgeon-dns-annotations` of deploy/rbac.yaml to the user who runs `dns cutover`",
    ..NEED
};
const ON_INGRESSES: Asked<'static> = Asked {
    reads: &[],
    changes: &[(&["get", "patch"], ("networking.k8s.io", "ingresses"))],
    need: ANNOTATES,
};
const ON_SERVICES: Asked<'static> =
    Asked { reads: &[], changes: &[(&["get", "patch"], ("", "services"))], need: ANNOTATES };

/// Namespace of the records of operations, and namespace of the Lease.
const NAMESPACES: [(&str, Asked<'static>); 2] = [("netsurgeon", RECORDS), ("kube-system", LEASE)];

const NEED: Need = Need {
    operation: "the cutover",
    reader: READER,
    read_role: "netsurgeon-dns",
    remedy: "bind the Roles `netsurgeon-dns-cutover` of deploy/rbac.yaml to the user who runs `dns cutover`",
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    let own = rights::check(&dns.read, &READS, None).await?;
    if own.verdict == Verdict::Fail {
        return Ok(own);
    }
    if let Some(mirror) = dns.mirror_if_given()? {
        let of_mirror = rights::check(mirror, &READS, None).await?;
        if of_mirror.verdict != Verdict::Pass {
            let observed = format!("on the mirror: {}; here: {}", of_mirror.observed, own.observed);
            return Ok(Judged { observed, ..of_mirror });
        }
    }
    for (namespace, asked) in &NAMESPACES {
        let judged = rights::check(&dns.read, asked, Some(namespace)).await?;
        if judged.verdict != Verdict::Pass {
            return Ok(judged);
        }
    }
    if !dns.zone.is_published() {
        return Ok(own);
    }
    let mut places = BTreeSet::new();
    for entry in dns.entries().await? {
        // `zone-updates` reports names without an object.
        if let Ok(Published { object, .. }) = dns.published(entry).await? {
            places.insert((object.kind, object.namespace));
        }
    }
    for (kind, namespace) in places {
        let asked = match kind {
            HostObjectKind::Ingress => &ON_INGRESSES,
            HostObjectKind::Service => &ON_SERVICES,
        };
        let judged = rights::check(&dns.read, asked, Some(&namespace)).await?;
        if judged.verdict != Verdict::Pass {
            return Ok(judged);
        }
    }
    Ok(own)
}
