//! `outside-owners`: whether controllers of both clusters own things outside of them by the same name.

use k8s_openapi::api::apps::v1::Deployment;

use super::Mirror;
use crate::inventory::outside_owner::{OutsideOwner, OwnerComparison};
use crate::preflight::{Check, Judged, Read, Source, first_few};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "outside-owners",
    why: "an ExternalDNS or a load balancer controller with the name of another cluster deletes what that cluster has made",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let (source, mirror) = tokio::try_join!(input.source.reader.objects(), input.target.objects())?;
    Ok(judge(&source, &mirror))
}

fn judge(source: &[Deployment], mirror: &[Deployment]) -> Judged {
    let owners = |all: &[Deployment]| all.iter().filter_map(OutsideOwner::of).collect::<Vec<_>>();
    let (source, mirror) = (owners(source), owners(mirror));
    let OwnerComparison { equal, unknown } = OwnerComparison::of(&source, &mirror);
    if !equal.is_empty() {
        return Judged::fail(first_few(&equal), OwnerComparison::REMEDY);
    }
    let unknown: Vec<String> =
        unknown.into_iter().map(|(why, subject)| format!("{why}: {subject}")).collect();
    if !unknown.is_empty() {
        return Judged::warn(
            first_few(&unknown),
            "compare this option in both clusters: the values must differ",
        );
    }
    Judged::pass("no ExternalDNS or AWS load balancer controller has the same name in both clusters")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::pod_templates::testing::typed;
    use crate::preflight::Verdict;

    #[test]
    fn equal_owners_fail() {
        let dns = |args: &[&str]| -> Vec<Deployment> {
            let container = json!({"name": "a", "image": "external-dns", "args": args});
            vec![typed(json!({"metadata": {"namespace": "dns", "name": "one"},
                "spec": {"template": {"spec": {"containers": [container]}}}}))]
        };
        for (source, mirror, expected) in [
            (dns(&["--txt-owner-id=blue"]), dns(&["--txt-owner-id=green"]), Verdict::Pass),
            (dns(&["--txt-owner-id=blue"]), dns(&["--txt-owner-id=blue"]), Verdict::Fail),
            (dns(&["--txt-owner-id=blue"]), dns(&["--txt-owner-id=$(ID)"]), Verdict::Warn),
            (dns(&[]), dns(&[]), Verdict::Fail),
            (dns(&[]), Vec::new(), Verdict::Pass),
        ] {
            assert_eq!(judge(&source, &mirror).verdict, expected);
        }
    }
}
