//! `external-dns`: whether an ExternalDNS of the cluster or of its mirror reverts changes.

use crate::dns::reader::CutoverReader;
use crate::inventory::external_dns::Controller;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::quoted_or;

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "external-dns",
    why: "ExternalDNS reverts or deletes records that it manages",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    let (here, of_mirror) = (dns.instances().await?, dns.of_mirror().await?);
    let judged = judge(&here.found, &of_mirror.found, dns.zone.is_published());
    Ok(beside(judged, &here.ignored, &of_mirror.ignored))
}

/// Adds the Deployments that look like ExternalDNS and are ignored.
fn beside(judged: Judged, here: &[String], mirror: &[String]) -> Judged {
    let of = |list: &[String], place: &str, option: &str| {
        let told = || {
            format!(
                "{} {place}: its service account cannot list objects of all namespaces (`{option}`)",
                first_few(list)
            )
        };
        (!list.is_empty()).then(told)
    };
    let both = [of(here, "here", "--external-dns"), of(mirror, "on the mirror", "--mirror-external-dns")];
    let told: Vec<String> = both.into_iter().flatten().collect();
    if told.is_empty() {
        return judged;
    }
    Judged {
        observed: format!("{}; not treated as ExternalDNS: {}", judged.observed, told.join("; ")),
        ..judged
    }
}

/// Checks the running ExternalDNS instances of the cluster and of its mirror. Each instance reverts changes to the records that
/// it manages. `is_published`: whether ExternalDNS itself makes the changes.
fn judge(own: &[Controller], mirror: &[Controller], is_published: bool) -> Judged {
    let runs = |list: &[Controller]| list.iter().filter(|one| one.runs).cloned().collect::<Vec<_>>();
    let (own, mirror) = (runs(own), runs(mirror));
    let told = |one: &Controller| {
        let known = |value: &Option<String>| quoted_or(value.as_deref(), "unknown");
        let (owner, policy, provider) = (known(&one.owner), known(&one.policy), known(&one.provider));
        format!("{} (owner {owner}, policy {policy}, provider {provider})", one.subject)
    };
    for one in own.iter().filter(|one| one.owner.is_some()) {
        if let Some(other) = mirror.iter().find(|other| other.owner == one.owner) {
            return Judged::fail(
                format!(
                    "{} here and {} on the mirror have the same owner: each reverts the other's records",
                    told(one),
                    told(other)
                ),
                "set another `--txt-owner-id` for the ExternalDNS on the mirror, or scale it to 0 until the cutover",
            );
        }
    }
    // Only with the policy `create-only`, ExternalDNS leaves its existing records unchanged (`plan/policy.go`).
    let keeping: Vec<&Controller> =
        own.iter().filter(|one| one.policy.as_deref() != Some("create-only")).collect();
    let without: Vec<String> =
        keeping.iter().filter(|one| !one.has_readable_owners()).map(|one| told(one)).collect();
    if !without.is_empty() && !is_published {
        return Judged::warn(
            format!(
                "these ExternalDNS instances manage records from the objects of this cluster, without readable TXT records: {}",
                first_few(&without)
            ),
            "scale each of them to 0 before the names change (`kubectl scale deployment NAME --replicas 0`): otherwise they revert the \
             changes, and with the policy `sync` they delete records that no object of this cluster names",
        );
    }
    match (own.as_slice(), keeping.is_empty()) {
        ([], _) => Judged::pass("no ExternalDNS runs in this cluster"),
        (some, _) if is_published => Judged::pass(some.iter().map(told).collect::<Vec<_>>().join(", ")),
        (some, true) => Judged::pass(some.iter().map(told).collect::<Vec<_>>().join(", ")),
        (some, false) => Judged::pass(format!(
            "{}; `dns cutover` first makes netsurgeon the owner of the names",
            some.iter().map(told).collect::<Vec<_>>().join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::external_dns::testing::controller;
    use crate::preflight::Verdict;

    #[test]
    fn deployment_of_another_user_is_named() {
        let judged = beside(Judged::pass("fine"), &["`tenant/external-dns`".to_string()], &[]);
        assert_eq!(judged.verdict, Verdict::Pass);
        assert!(judged.observed.contains("`tenant/external-dns` here"), "{judged:?}");
    }

    #[test]
    fn same_owner_on_both_clusters_fails() {
        let (blue, green) = (controller("blue", &["--policy=create-only"]), controller("green", &[]));
        let (blue, green) = ([blue], [green]);
        assert_eq!(judge(&blue, &green, false).verdict, Verdict::Pass);
        assert_eq!(judge(&green, &[], false).verdict, Verdict::Pass, "it changes only records of its owner");
        let noop = [controller("blue", &["--policy=upsert-only", "--registry=noop"])];
        assert_eq!(judge(&noop, &[], false).verdict, Verdict::Warn, "it records no owner");
        let untold = [controller("$(CLUSTER)", &["--policy=create-only"])];
        assert_eq!(judge(&untold, &untold, false).verdict, Verdict::Pass, "their owners may differ");
        assert_eq!(judge(&blue, &blue, false).verdict, Verdict::Fail);
        assert_eq!(judge(&[], &blue, false).verdict, Verdict::Pass);
    }
}
