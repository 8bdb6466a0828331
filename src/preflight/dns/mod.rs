//! Checks before DNS names that point to a cluster are changed to point to its mirror.

mod dns_rights;
mod external_dns;
mod left_behind;
mod names;
mod owners;
mod probes;
mod record_space;
mod targets;
mod ttls;
mod twin_zones;
mod zone_servers;
mod zone_share;
mod zone_transfer;
mod zone_updates;

use super::{Check, shared};
use crate::dns::reader::CutoverReader;

/// The checks, in display order.
pub const CHECKS: &[Check<CutoverReader>] = &[
    zone_servers::CHECK,
    zone_updates::CHECK,
    zone_transfer::CHECK,
    twin_zones::CHECK,
    names::CHECK,
    ttls::CHECK,
    zone_share::CHECK,
    external_dns::CHECK,
    owners::CHECK,
    left_behind::CHECK,
    targets::CHECK,
    probes::CHECK,
    shared::gitops::check("a GitOps controller restores the old hosts and annotations"),
    dns_rights::CHECK,
    record_space::CHECK,
];

#[cfg(test)]
mod testing {
    //! Names and records for tests.

    use std::collections::BTreeSet;

    use crate::dns::reader::Entry;
    use crate::nameserver::{Record, RecordKind, RecordSet};

    pub fn record(name: &str, kind: RecordKind, ttl: u32, data: &str) -> Record {
        Record::new(name, kind, ttl, data)
    }

    pub fn entry(name: &str, records: &[Record]) -> Entry {
        Entry {
            name: name.into(),
            by: vec!["Ingress `shop/web`".into()],
            is_given: false,
            sets: RecordSet::group(records),
            has_tls: true,
            namespaces: BTreeSet::from(["shop".to_string()]),
            unfit: None,
        }
    }

    pub fn www() -> Entry {
        entry("www.example.com", &[record("www.example.com", RecordKind::A, 60, "192.0.2.1")])
    }
}
