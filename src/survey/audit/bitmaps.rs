//! Compares the RangeAllocations of addresses with the Services.

use std::collections::BTreeSet;

use super::{Finding, Ours};
use crate::ip::{Item, Items, ServiceCidr};
use crate::survey::{BitmapRecord, Era, Survey};
use crate::wire::bitmap::Bitmap;

/// Checks that every address of a Service has a bit, that every bit has a Service, and that the range is equal to the range of
/// the ServiceCIDR. An unfinished operation keeps the bits of the old and the new addresses of the Services that it moves, so
/// these bits are accepted.
pub(super) fn addresses(survey: &Survey, ours: &Ours, findings: &mut Vec<Finding>) {
    let bitmaps = survey.bitmaps.iter().filter(|bitmap| bitmap.name != "servicenodeports");
    for bitmap in bitmaps {
        let subject = format!("RangeAllocation {}", bitmap.name);
        if survey.era.bitmap_is_leftover {
            findings.push(
                Finding::info("bitmap-leftover", subject)
                    .says("is left over from an earlier Kubernetes version; API servers allocate addresses without it")
                    .values(&bitmap.range, "no such key"),
            );
            continue;
        }
        match readable(bitmap) {
            Err(reason) => findings.push(
                Finding::error("bitmap-unreadable", subject)
                    .says(reason)
                    .values(&bitmap.range, "a range and its bits"),
            ),
            Ok((range, bits)) => compare((survey, ours), &subject, &range, &bits, findings),
        }
    }
    if survey.era.era == Era::Bitmap && survey.bitmaps.iter().all(|bitmap| bitmap.name != "serviceips") {
        findings.push(
            Finding::error("bitmap-missing", "RangeAllocation serviceips")
                .says("does not exist: the API server creates it when it starts")
                .values("no key", "a RangeAllocation"),
        );
    }
}

/// Reads a RangeAllocation of addresses.
fn readable(bitmap: &BitmapRecord) -> Result<(ServiceCidr, Bitmap), String> {
    match bitmap.read() {
        Some((Items::Addresses(range), bits)) => Ok((range, bits.map_err(|error| error.to_string())?)),
        _ => Err(format!("`{}` is not an address range that a bitmap can represent", bitmap.range)),
    }
}

fn compare(
    (survey, ours): (&Survey, &Ours),
    subject: &str,
    range: &ServiceCidr,
    bits: &Bitmap,
    findings: &mut Vec<Finding>,
) {
    let configured = survey.service_ranges();
    let family: Vec<String> =
        configured.iter().filter(|c| c.family() == range.family()).map(ToString::to_string).collect();
    if survey.era.era == Era::DualWrite && !configured.contains(range) {
        findings.push(
            Finding::error("bitmap-range-differs", subject)
                .says(
                    "no ServiceCIDR has the range of this bitmap: API servers that still write the bitmap (feature gate \
                     `DisableAllocatorDualWrite` off, the default up to 1.33) reject every Service that requests a specific address"
                        .to_string(),
                )
                .values(range, family.join(" or ")),
        );
    }
    let items = Items::Addresses(*range);
    let mut wanted = BTreeSet::new();
    for service in &survey.services {
        for address in &service.addresses {
            let Some(bit) = items.bit(Item::Address(*address)) else { continue };
            wanted.insert(bit);
            if !bits.is_set(bit) {
                findings.push(
                    Finding::error("service-without-bit", format!("Service {}", service.subject()))
                        .says(format!("`{address}` is free in {subject}, so another Service can get it"))
                        .values("free", "allocated"),
                );
            }
        }
    }
    for bit in bits.iter_set().filter(|bit| !wanted.contains(bit)) {
        let Some(Item::Address(address)) = items.item(bit) else { continue };
        if ours.addresses.contains_key(&address) {
            continue;
        }
        findings.push(
            Finding::error("bit-without-service", format!("{subject} {address}"))
                .says(format!("`{address}` is allocated, but no Service has it"))
                .values("allocated", "free"),
        );
    }
}
