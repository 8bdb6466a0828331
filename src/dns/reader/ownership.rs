//! Reads the ownership records of ExternalDNS for the names of a cutover.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};

use super::{CutoverReader, LEADING};
use crate::dns::external_dns::owner;
use crate::inventory::Read;
use crate::inventory::external_dns::{Controller, ownership_names};
use crate::inventory::published_hosts::is_in;
use crate::nameserver::{AT_ONCE, RecordKind, RecordSet, is_name};

/// Reads, for every name, the TXT record sets that contain ownership records.
pub(super) async fn read(reader: &CutoverReader) -> Read<BTreeMap<String, Vec<RecordSet>>> {
    let own = reader.controllers().await?;
    let entries = reader.entries().await?;
    let mut found: BTreeMap<String, Vec<RecordSet>> =
        entries.iter().map(|entry| (entry.name.clone(), Vec::new())).collect();
    // Query the ownership records for every record type. A Route 53 alias is an A record, but older versions of ExternalDNS
    // recorded it as a CNAME.
    let asked = entries.iter().flat_map(|entry| {
        let names = LEADING.iter().flat_map(|kind| places(&entry.name, *kind, own));
        let names: BTreeSet<String> =
            names.filter(|name| is_in(&reader.zone.name, name) && is_name(name)).collect();
        names.into_iter().map(|name| (entry.name.clone(), name))
    });
    let asked = asked.map(async |(of, name)| {
        let sets = reader.zone.present(&name, &[RecordKind::Txt]).await;
        (of, sets)
    });
    for (of, sets) in stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await {
        let owned = sets?.into_iter().filter(|set| set.data.iter().any(|text| owner(text).is_some()));
        found.entry(of).or_default().extend(owned);
    }
    Ok(found)
}

/// Returns the names of the TXT records in which ExternalDNS can record the owner of a name and record type. Includes the names
/// with the affixes of these controllers, and the names without affixes.
fn places(name: &str, kind: RecordKind, controllers: &[Controller]) -> BTreeSet<String> {
    let plain = (String::new(), String::new(), "*".to_string());
    let affixes: BTreeSet<_> =
        controllers.iter().filter_map(|one| one.affixes.as_ref()).chain([&plain]).collect();
    affixes.into_iter().flat_map(|affixes| ownership_names(name, kind, affixes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::external_dns::testing::controller;

    #[test]
    fn ownership_names_include_affixes_and_record_types() {
        let plain = places("www.example.com", RecordKind::A, &[]);
        assert_eq!(plain, BTreeSet::from(["a-www.example.com".to_string(), "www.example.com".to_string()]));
        let affixed = [controller("blue", &["--txt-prefix=%{record_type}-own.", "--txt-suffix=-x"])];
        let names = places("www.example.com", RecordKind::Cname, &affixed);
        assert!(names.contains("cname-own.www-x.example.com"), "{names:?}");
        assert_eq!(
            owner("\"heritage=external-dns,external-dns/owner=blue,external-dns/resource=x\"").as_deref(),
            Some("blue")
        );
        assert_eq!(owner("\"v=spf1 -all\""), None);
        let replaced = [controller("blue", &["--txt-wildcard-replacement=any"])];
        assert!(places("*.example.com", RecordKind::A, &replaced).contains("a-any.example.com"));
        assert!(places("*.example.com", RecordKind::A, &[]).contains("a-*.example.com"));
    }
}
