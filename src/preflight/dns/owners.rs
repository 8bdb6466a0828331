//! `owners`: whether another cluster's ExternalDNS owns a name to change.
//!
//! The names of ownership records are defined in `registry/txt` of ExternalDNS v0.23.

use std::collections::{BTreeMap, BTreeSet};

use crate::dns::external_dns::{HOLDER, owner};
use crate::dns::reader::CutoverReader;
use crate::inventory::external_dns::Controller;
use crate::nameserver::RecordSet;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::all_of;

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "owners",
    why: "a name that another cluster's ExternalDNS owns must not be changed",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

async fn read(dns: &CutoverReader) -> Read<Judged> {
    let owned = dns.owned().await?;
    let owners = |sets: &Vec<RecordSet>| -> BTreeSet<String> {
        sets.iter().flat_map(|set| &set.data).filter_map(|text| owner(text)).collect()
    };
    let found = owned.iter().map(|(name, sets)| (name.clone(), owners(sets))).collect();
    Ok(judge(&found, dns.controllers().await?))
}

/// Checks the owners of names. `found`: names, each with the owners in its ownership records. `own`: ExternalDNS instances of
/// this cluster.
fn judge(found: &BTreeMap<String, BTreeSet<String>>, own: &[Controller]) -> Judged {
    let elsewhere = |one: &Controller| one.registry.as_deref().is_some_and(|registry| registry != "txt");
    if let Some(one) = own.iter().find(|one| elsewhere(one)) {
        return Judged::unknown(
            format!(
                "{} does not record the owners of names in the zone (`--registry={}`)",
                one.subject,
                one.registry.as_deref().unwrap_or_default()
            ),
            "check the owners of the names in that registry",
        );
    }
    if let Some(one) = own.iter().find(|one| one.registry.is_none() || one.affixes.is_none()) {
        return Judged::unknown(
            format!(
                "the Deployment {} does not show `{}`, so its ownership records cannot be found",
                one.subject,
                one.untold().unwrap_or_default()
            ),
            "give the options of ExternalDNS as arguments of its container (`envFrom` hides them), or check the owners of the names yourself",
        );
    }
    // netsurgeon owns a name if its cutover has not ended, or if it ended and the mirror has no ExternalDNS.
    let ours: BTreeSet<&str> = own.iter().filter_map(|one| one.owner.as_deref()).chain([HOLDER]).collect();
    let (mut foreign, mut owned) = (Vec::new(), 0_usize);
    for (name, owners) in found {
        let others = owners.iter().filter(|owner| !ours.contains(owner.as_str()));
        let others: Vec<String> = others.map(|owner| format!("`{owner}`")).collect();
        if !others.is_empty() {
            foreign.push(format!("`{name}` (owner {})", others.join(" and ")));
        } else if !owners.is_empty() {
            owned = owned.saturating_add(1);
        }
    }
    if let (Some(one), false) = (own.iter().find(|one| one.owner.is_none()), foreign.is_empty()) {
        return Judged::unknown(
            format!(
                "{}: the owner may be {}; that Deployment does not show its owner id",
                first_few(&foreign),
                one.subject
            ),
            "check `--txt-owner-id` in the ConfigMap or Secret that sets the environment of its container",
        );
    }
    if !foreign.is_empty() {
        return Judged::fail(
            format!("another cluster's ExternalDNS owns {}", first_few(&foreign)),
            "find this ExternalDNS, and make it release the names first: otherwise it reverts the change, or deletes the records; if it runs in this \
             cluster, name its Deployment: `--external-dns NAMESPACE/NAME`",
        );
    }
    let free = found.len().saturating_sub(owned);
    Judged::pass(match (owned, free) {
        (0, free) => format!("no ExternalDNS owns any of the names ({free} checked)"),
        (owned, 0) => format!("this cluster's ExternalDNS owns {}", all_of(owned, "name", "names")),
        (owned, free) => {
            format!("names that this cluster's ExternalDNS owns: {owned}; names without an owner: {free}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::external_dns::testing::controller;
    use crate::preflight::Verdict;

    #[test]
    fn owner_of_another_cluster_fails() {
        let own = [controller("blue", &[])];
        let of = |owners: &[&str]| {
            let owners = owners.iter().map(ToString::to_string).collect();
            BTreeMap::from([("www.example.com".to_string(), owners)])
        };
        assert_eq!(judge(&of(&["blue"]), &own).observed, "this cluster's ExternalDNS owns 1 name");
        assert_eq!(judge(&of(&[]), &own).verdict, Verdict::Pass);
        let elsewhere = [controller("blue", &["--registry=dynamodb"])];
        assert_eq!(judge(&of(&[]), &elsewhere).verdict, Verdict::Unknown);
        assert_eq!(judge(&of(&["red"]), &[controller("$(X)", &[])]).verdict, Verdict::Unknown);
        let both = judge(&of(&["blue", "green"]), &own);
        assert_eq!(both.verdict, Verdict::Fail);
        assert!(both.observed.ends_with("`www.example.com` (owner `green`)"), "{both:?}");
    }
}
