//! `left-behind`: names that this cluster's ExternalDNS publishes, and that do not change.
//!
//! ExternalDNS can read objects that netsurgeon does not read, for example DNSEndpoints and the routes of service meshes. The
//! ownership records in the zone list all its names, whatever their source is.

use std::collections::{BTreeMap, BTreeSet};

use crate::dns::external_dns::{owner, resource};
use crate::dns::reader::{CutoverReader, LEADING};
use crate::inventory::external_dns::{Controller, ownership_names};
use crate::nameserver::{RecordKind, RecordSet};
use crate::preflight::{Check, Judged, Read, Source};
use crate::words::{and_more, counted};

/// The check.
pub const CHECK: Check<CutoverReader> = Check {
    name: "left-behind",
    why: "a name that does not change stays at the old cluster",
    needs: &[Source::Api, Source::Mirror],
    judge: |dns| Box::pin(read(dns)),
};

/// Maximum number of names to list.
const MOST: usize = 50;

async fn read(dns: &CutoverReader) -> Read<Judged> {
    let own = dns.controllers().await?;
    if own.is_empty() {
        return Ok(Judged::pass("no ExternalDNS runs in this cluster"));
    }
    let selected = dns.selected().await?;
    let known = selected.entries.iter().map(|entry| entry.name.as_str());
    let known = known.chain(selected.left_out.iter().map(|one| one.name.as_str())).collect();
    Ok(match dns.zone.records().await? {
        Ok(zone) => judge(&owned(zone, own), &known, !dns.options.name.is_empty()),
        Err(unread) => Judged::warn(
            format!("the names that ExternalDNS owns cannot be listed: {}", unread.observed),
            "allow zone transfers for the key that changes the zone (`allow-transfer` in BIND)",
        ),
    })
}

/// Returns the names that these instances of ExternalDNS own, each with the objects that the ownership records contain.
fn owned(zone: &[RecordSet], own: &[Controller]) -> BTreeMap<String, BTreeSet<String>> {
    let owners: BTreeSet<&str> = own.iter().filter_map(|one| one.owner.as_deref()).collect();
    let texts = zone.iter().filter(|set| set.kind == RecordKind::Txt);
    let texts: BTreeMap<&str, &RecordSet> = texts.map(|set| (set.name.as_str(), set)).collect();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for set in zone.iter().filter(|set| LEADING.contains(&set.kind)) {
        let places =
            own.iter().filter_map(|one| Some(ownership_names(&set.name, set.kind, one.affixes.as_ref()?)));
        let records = places.flatten().filter_map(|place| texts.get(place.as_str()));
        for text in records.flat_map(|set| &set.data) {
            if owner(text).is_some_and(|owner| owners.contains(owner.as_str())) {
                let objects = found.entry(set.name.clone()).or_default();
                objects.extend(resource(text));
            }
        }
    }
    found
}

/// Lists the owned names that do not change. `known`: names that change, and names that another check lists. `is_chosen`: whether
/// the user selected the names to change.
fn judge(owned: &BTreeMap<String, BTreeSet<String>>, known: &BTreeSet<&str>, is_chosen: bool) -> Judged {
    let others: Vec<_> = owned.iter().filter(|(name, _)| !known.contains(name.as_str())).collect();
    if others.is_empty() {
        return Judged::pass(
            "every name that this cluster's ExternalDNS owns changes or is listed by the check `names`",
        );
    }
    let count = counted(others.len(), "other name", "other names");
    if is_chosen {
        return Judged::pass(format!("this cluster's ExternalDNS owns {count}, which you did not select"));
    }
    let told = others.iter().take(MOST).map(|(name, objects)| {
        let objects: Vec<String> = objects.iter().map(|object| format!("`{object}`")).collect();
        let by =
            if objects.is_empty() { "no object in its TXT record".to_string() } else { objects.join(", ") };
        format!("`{name}` ({by})")
    });
    let told: Vec<String> = told.collect();
    Judged::warn(
        format!(
            "this cluster's ExternalDNS owns {count} that the cutover does not change: {}{}",
            told.join(", "),
            and_more(others.len().saturating_sub(MOST))
        ),
        "copy the objects to the mirror, and change these names there yourself, or add an Ingress with each name in both clusters; netsurgeon reads the \
         names of Ingresses, Services and routes of the Gateway API",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::external_dns::testing::controller;
    use crate::preflight::Verdict;

    #[test]
    fn owned_name_that_does_not_change_is_listed() {
        let text = |owner: &str| {
            format!(
                "\"heritage=external-dns,external-dns/owner={owner},external-dns/resource=crd/shop/mail\""
            )
        };
        let set = |name: &str, kind, data: String| {
            RecordSet::new(format!("{name}.example.com"), kind, 60, vec![data])
        };
        let at = || "192.0.2.1".to_string();
        let zone = [
            set("mail", RecordKind::A, at()),
            set("a-mail", RecordKind::Txt, text("blue")),
            set("*.wild", RecordKind::A, at()),
            set("a-*.wild", RecordKind::Txt, text("blue")),
            set("theirs", RecordKind::A, at()),
            set("a-theirs", RecordKind::Txt, text("red")),
            set("plain", RecordKind::A, at()),
        ];
        let owned = owned(&zone, &[controller("blue", &[])]);
        assert_eq!(owned.keys().collect::<Vec<_>>(), ["*.wild.example.com", "mail.example.com"]);
        let listed = judge(&owned, &BTreeSet::from(["*.wild.example.com"]), false);
        assert_eq!(listed.verdict, Verdict::Warn);
        assert!(
            listed.observed.contains("1 other name that")
                && listed.observed.contains("`mail.example.com` (`crd/shop/mail`)")
        );
        assert_eq!(judge(&owned, &BTreeSet::new(), true).verdict, Verdict::Pass);
        let all = owned.keys().map(String::as_str).collect();
        assert_eq!(judge(&owned, &all, false).verdict, Verdict::Pass);
    }
}
