//! `external-dns`: whether an ExternalDNS of the cluster or of its mirror reverts changes.

use super::{Dns, controllers};
use crate::preflight::facts::external_dns::Controller;
use crate::preflight::{Check, Judged, Read, first_few};
use crate::words::quoted_or;

/// The check.
pub const CHECK: Check<Dns> = Check {
    name: "external-dns",
    why: "ExternalDNS reverts or deletes records that it manages",
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &Dns) -> Read<Judged> {
    let of_mirror = match dns.mirror_if_given()? {
        Some(mirror) => controllers(mirror).await?,
        None => Vec::new(),
    };
    Ok(judge(dns.controllers().await?, &of_mirror, dns.zone.is_published()))
}

/// Checks the running ExternalDNS instances of the cluster and of its mirror. Each instance reverts changes to the records that
/// it manages. `is_published`: whether ExternalDNS itself makes the changes.
fn judge(own: &[Controller], mirror: &[Controller], is_published: bool) -> Judged {
    let runs = |list: &[Controller]| list.iter().filter(|one| one.runs).cloned().collect::<Vec<_>>();
    let (own, mirror) = (runs(own), runs(mirror));
    let told = |one: &Controller| {
        let owner = quoted_or(one.owner.as_deref(), "unknown");
        format!("{} (owner {owner}, policy `{}`, provider `{}`)", one.subject, one.policy, one.provider)
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
    let keeping: Vec<&Controller> = own.iter().filter(|one| one.policy != "create-only").collect();
    let without: Vec<String> =
        keeping.iter().filter(|one| one.registry != "txt").map(|one| told(one)).collect();
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
    use crate::preflight::Verdict;
    use crate::preflight::facts::external_dns::testing::controller;

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
