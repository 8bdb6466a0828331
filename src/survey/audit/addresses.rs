//! Compares Services with each other, with the ranges, and with the IPAddress objects.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Finding, Ours};
use crate::survey::{AddressRecord, ServiceRecord, Survey};
use crate::wire::Text;
use crate::wire::objects::{ALLOCATOR, MOVING};
use crate::words::list_or;

/// Checks the Services: both address fields agree, no address occurs twice, every address is in a range, and `default/kubernetes`
/// has the first address.
pub(super) fn services(survey: &Survey, ours: &Ours, findings: &mut Vec<Finding>) {
    let ranges = survey.service_ranges();
    let mut owners: HashMap<IpAddr, &ServiceRecord> = HashMap::new();
    for service in &survey.services {
        let subject = || format!("Service {}", service.subject());
        mismatch(service, findings);
        if service.is_labelled_ours() && !ours.has(service) && !service.is_sentinel() {
            findings.push(
                Finding::warning("labelled-stranger", subject())
                    .says(
                        "has netsurgeon's label, but no unfinished operation created it, so it is treated \
                         like any other Service"
                            .to_string(),
                    )
                    .values(
                        "app.kubernetes.io/managed-by: netsurgeon",
                        "another label, or an unfinished operation",
                    ),
            );
        }
        deletion(service, ours, findings);
        for address in &service.addresses {
            let other = owners.get(address).copied();
            // If a Service and its shadow have the same address, the Service is recorded as the owner, not the shadow.
            if other.is_none_or(|other| ours.has(other)) {
                owners.insert(*address, service);
            }
            if let Some(other) = other.filter(|other| !ours.shares(*address, other, service)) {
                findings.push(
                    Finding::error("duplicate-address", subject())
                        .says(format!("`{address}` is also the address of Service `{}`", other.subject()))
                        .values(address, "an address of its own"),
                );
            }
            if !ranges.iter().any(|range| range.is_usable(*address)) {
                let known = list_or(&ranges, "it has none");
                // A shadow has the old address of its Service until the address is retired. In the bitmap era the API server has
                // only one range for each family, so the old address can be outside this range.
                let finding = if ours.has(service) {
                    Finding::info("held-address", subject())
                        .says(format!("holds `{address}`, which is no longer in a Service range ({known})"))
                } else {
                    Finding::error("address-out-of-range", subject())
                        .says(format!("`{address}` is not in any Service range of the cluster ({known})"))
                };
                findings.push(finding.values(address, &known));
            }
        }
        if service.is_kubernetes() {
            not_first(survey, service, findings);
        }
    }
}

/// Checks whether a finalizer of netsurgeon blocks the deletion of a Service, and whether a deletion did not complete.
fn deletion(service: &ServiceRecord, ours: &Ours, findings: &mut Vec<Finding>) {
    let subject = || format!("Service {}", service.subject());
    if service.is_moving() && !ours.moves(service) {
        findings.push(
            Finding::warning("moving-finalizer", subject())
                .says(format!(
                    "has the finalizer `{MOVING}`, but no operation moves it: its deletion cannot complete"
                ))
                .values(MOVING, "no such finalizer, or an unfinished operation"),
        );
    }
    if service.is_left_over() {
        findings.push(
            Finding::warning("deletion-unfinished", subject())
                .says("was deleted and has no finalizer, but still exists: delete it again")
                .values("deletionTimestamp", "a finalizer, or no Service"),
        );
    }
}

fn mismatch(service: &ServiceRecord, findings: &mut Vec<Finding>) {
    let single = service.spec.cluster_ip.as_deref().unwrap_or_default();
    let first = service.spec.cluster_ips.first().map(Text::as_str);
    let subject = || format!("Service {}", service.subject());
    if first.is_some_and(|first| first != single) {
        findings.push(
            Finding::error("cluster-ip-mismatch", subject())
                .says("`clusterIP` and `clusterIPs[0]` differ: the API server rejects every update of this Service")
                .values(single, first.unwrap_or_default()),
        );
    }
    for text in service.spec.cluster_ips.iter().filter(|text| !matches!(text.as_str(), "" | "None")) {
        match text.parse::<IpAddr>() {
            Ok(address) if address.to_string() == *text => {}
            Ok(address) => findings.push(
                Finding::warning("address-not-canonical", subject())
                    .says(format!("`{text}` is not the canonical form of the address"))
                    .values(text, address),
            ),
            Err(_) => findings.push(
                Finding::error("address-invalid", subject())
                    .says(format!("`{text}` in `clusterIPs` is not an IP address"))
                    .values(text, "an IP address"),
            ),
        }
    }
}

fn not_first(survey: &Survey, service: &ServiceRecord, findings: &mut Vec<Finding>) {
    let firsts: Vec<IpAddr> =
        survey.service_ranges().iter().filter_map(crate::ip::ServiceCidr::first).collect();
    for address in service.addresses.iter().filter(|address| !firsts.contains(address)) {
        let expected = firsts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        findings.push(
            Finding::warning("kubernetes-not-first", format!("Service {}", service.subject()))
                .says(format!(
                    "has `{address}`, which is not the first address of a range; if the Service is recreated, it gets the first address"
                ))
                .values(address, expected),
        );
    }
}

/// Checks that every address of a Service has an IPAddress object. Each object must refer to a Service with the address, and have
/// the allocator's label. If an operation keeps an object, the Service does not have to list the address.
pub(super) fn ip_addresses(survey: &Survey, ours: &Ours, findings: &mut Vec<Finding>) {
    let by_name: HashMap<(&str, &str), &ServiceRecord> =
        survey.services.iter().map(|s| ((s.namespace.as_str(), s.name.as_str()), s)).collect();
    let mut objects: HashMap<IpAddr, &AddressRecord> = HashMap::new();
    for record in &survey.addresses {
        let Some(address) = record.address else {
            findings.push(
                Finding::error("ip-address-invalid", format!("IPAddress {}", record.name))
                    .says("its name is not an IP address")
                    .values(&record.name, "an IP address"),
            );
            continue;
        };
        objects.insert(address, record);
        let parent = by_name.get(&(record.parent.0.as_str(), record.parent.1.as_str())).copied();
        if parent.is_none() || !ours.keeps(address, &record.parent) {
            reference(record, address, parent, findings);
        }
    }
    for service in survey.services.iter().filter(|service| !ours.has(service)) {
        for address in &service.addresses {
            owned(service, *address, objects.get(address).copied(), findings);
        }
    }
}

fn reference(
    record: &AddressRecord,
    address: IpAddr,
    parent: Option<&ServiceRecord>,
    findings: &mut Vec<Finding>,
) {
    let subject = format!("IPAddress {}", record.name);
    let parent_name = format!("{}/{}", record.parent.0, record.parent.1);
    match parent {
        None => findings.push(
            Finding::error("ip-address-orphan", subject)
                .says(format!("refers to Service `{parent_name}`, which does not exist"))
                .values(&parent_name, "an existing Service"),
        ),
        Some(service) if !service.addresses.contains(&address) => {
            let listed = list_or(&service.addresses, "none");
            findings.push(
                Finding::error("ip-address-wrong-reference", subject)
                    .says(format!("refers to Service `{parent_name}`, which has other addresses ({listed})"))
                    .values(&parent_name, "a Service with this address"),
            );
        }
        Some(_) => {}
    }
}

fn owned(
    service: &ServiceRecord,
    address: IpAddr,
    object: Option<&AddressRecord>,
    findings: &mut Vec<Finding>,
) {
    let Some(object) = object else {
        findings.push(
            Finding::error("ip-address-missing", format!("Service {}", service.subject()))
                .says(format!("IPAddress `{address}` is missing, so another Service can get the address"))
                .values("no object", format!("IPAddress {address}")),
        );
        return;
    };
    let subject = || format!("IPAddress {address}");
    if (&object.parent.0, &object.parent.1) != (&service.namespace, &service.name) {
        findings.push(
            Finding::error("ip-address-wrong-reference", subject())
                .says(format!(
                    "is an address of Service `{}`, but refers to another Service",
                    service.subject()
                ))
                .values(format!("{}/{}", object.parent.0, object.parent.1), service.subject()),
        );
    } else if object.managed_by != ALLOCATOR {
        findings.push(
            Finding::error("ip-address-wrong-label", subject())
                .says("is in use, but does not have the allocator's label: the repair loop will recreate it")
                .values(&object.managed_by, ALLOCATOR),
        );
    }
}
