//! Checks the node ports of Services for duplicates, and compares them with their RangeAllocation. This RangeAllocation is a
//! bitmap in every era (`pkg/registry/core/service/portallocator/allocator.go`, v1.36.3: bit 0 is the first port).

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::ip::{Item, Items};
use crate::survey::Survey;
use crate::wire::bitmap::Bitmap;

/// Checks that no two Services have the same node port, that each port has a bit, and that each bit has a Service.
pub(super) fn node_ports(survey: &Survey, findings: &mut Vec<Finding>) {
    let mut owners: BTreeMap<u16, String> = BTreeMap::new();
    for service in &survey.services {
        let ports: BTreeSet<u16> = service.node_ports().collect();
        for port in ports {
            if let Some(other) = owners.insert(port, service.subject()) {
                findings.push(
                    Finding::error("duplicate-node-port", format!("Service {}", service.subject()))
                        .says(format!("node port {port} is also a node port of Service `{other}`"))
                        .values(port, "a port of its own"),
                );
            }
        }
    }
    let Some(record) = survey.bitmaps.iter().find(|bitmap| bitmap.name == "servicenodeports") else { return };
    let Some((items @ Items::Ports(..), Ok(bits))) = record.read() else {
        findings.push(
            Finding::error("bitmap-unreadable", "RangeAllocation servicenodeports")
                .says(format!("the port range `{}` is invalid, or does not match the bits", record.range))
                .values(&record.range, "a range such as 30000-32767"),
        );
        return;
    };
    compare(&owners, &items, &bits, findings);
}

fn compare(owners: &BTreeMap<u16, String>, items: &Items, bits: &Bitmap, findings: &mut Vec<Finding>) {
    for (port, owner) in owners {
        match items.bit(Item::Port(*port)) {
            None => findings.push(
                Finding::warning("node-port-out-of-range", format!("Service {owner}"))
                    .says(format!("node port {port} is outside the range of the RangeAllocation"))
                    .values(port, "a port of the range"),
            ),
            Some(bit) if !bits.is_set(bit) => findings.push(
                Finding::error("node-port-without-bit", format!("Service {owner}"))
                    .says(format!(
                        "node port {port} is free in the RangeAllocation, so another Service can get it"
                    ))
                    .values("free", "allocated"),
            ),
            Some(_) => {}
        }
    }
    for bit in bits.iter_set() {
        if let Some(Item::Port(port)) = items.item(bit)
            && !owners.contains_key(&port)
        {
            findings.push(
                Finding::error("bit-without-node-port", format!("RangeAllocation servicenodeports {port}"))
                    .says(format!("port {port} is allocated, but no Service has it"))
                    .values("allocated", "free"),
            );
        }
    }
}
