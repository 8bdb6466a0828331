//! `source-rights`: whether the user has the permissions to read the copied objects, in all namespaces or in the named
//! namespaces.

use super::Mirror;
use crate::inventory::kinds::{NAMESPACES, READS, SECRETS, copied_kinds};
use crate::preflight::rights::{self, Asked, Need};
use crate::preflight::{Check, Judged, Read, Source, Verdict};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "source-rights",
    why: "objects that cannot be read are not copied",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let of_all = Asked { reads: &[(READS, NAMESPACES)], changes: &[], need: NEED };
    let copied = copied_kinds().map(|kind| kind.resource).filter(|resource| *resource != SECRETS);
    let copied: Vec<_> = copied.map(|resource| (READS, resource)).collect();
    let asked = Asked { reads: &copied, changes: &[(READS, SECRETS)], need: NEED };
    let mut judged = rights::check(&input.source.reader, &of_all, None).await?;
    for place in input.source.places().await? {
        // The check ends at the first missing permission that prevents the copy. A missing permission for Secrets does not
        // prevent the copy.
        if judged.verdict == Verdict::Fail {
            break;
        }
        let here = rights::check(&input.source.reader, &asked, place.as_deref()).await?;
        if judged.verdict == Verdict::Pass || here.verdict == Verdict::Fail {
            judged = here;
        }
    }
    Ok(judged)
}

/// Texts about the permissions to read the source. The permission to read Secrets is optional. Without this permission,
/// `preflight` reports that Secrets are not checked.
const NEED: Need = Need {
    operation: "copying from the source",
    reader: "can read everything except Secrets; Secrets would not be copied",
    read_role: "netsurgeon-mirror-source",
    remedy: "bind the optional ClusterRole `netsurgeon-mirror-secrets` of deploy/rbac.yaml to this user; its comment describes the permission",
};
