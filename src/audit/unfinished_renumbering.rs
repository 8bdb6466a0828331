//! Uses of old addresses that belong to an unfinished renumbering.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::pods::Given;
use super::scan::Hit;
use crate::survey::Ours;
use crate::wire::Text;
use crate::wire::texts::Head;

/// Uses of old addresses that belong to an unfinished renumbering. They are not reported as findings.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Old addresses that Services hold as external IPs, each with the `namespace/name` of its Service.
    pub held: BTreeSet<(IpAddr, String)>,
    /// Addresses that Services gave up, each with the time of this change. Pods that started before this time can still use the
    /// address. `None` if no renumbering has a journal.
    pub given_up: Option<Vec<Given>>,
    /// Objects and addresses that belong to unfinished operations, according to the journals. A label on an object does not prove
    /// that the object belongs to an operation.
    pub ours: Ours,
}

impl Expected {
    /// Returns whether an unfinished operation created this object, keeps it, or will change it when the operation ends.
    pub(super) fn has_object(&self, head: &Head, namespace: &str, name: &str) -> bool {
        let keeps = |kind: &str| match kind {
            "Service" => {
                self.ours.services.contains(&(namespace.into(), name.into())) || is_sentinel(head, namespace)
            }
            "IPAddress" => name.parse().is_ok_and(|address| self.ours.addresses.contains_key(&address)),
            "ServiceCIDR" => self.ours.closed.contains(name),
            "RangeAllocation" => name != "servicenodeports",
            _ => false,
        };
        !self.ours.addresses.is_empty() && keeps(&head.kind)
    }

    /// Returns whether an operation moves this Service to another address, or the Service holds this address as an external IP.
    pub(super) fn has_address(&self, hit: &Hit, path: &str, namespace: &str, name: &str) -> bool {
        let Ok(address) = hit.found.parse::<IpAddr>() else { return false };
        if path.starts_with("spec.externalIPs") {
            return self.held.contains(&(address, format!("{namespace}/{name}")));
        }
        let is_its = |kept: &(Text, Text)| kept.0 == namespace && kept.1 == name;
        path.starts_with("spec.clusterIP") && self.ours.addresses.get(&address).is_some_and(is_its)
    }
}

/// Returns whether the Service is the sentinel of a barrier. Sentinels are in `kube-system`, where tenants do not create objects.
fn is_sentinel(head: &Head, namespace: &str) -> bool {
    let labels = &head.metadata.labels;
    namespace == "kube-system" && labels.get("netsurgeon.io/part").is_some_and(|part| part == "barrier")
}
