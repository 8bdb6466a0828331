//! Where a cluster stores its Service allocations. There are three eras, and the keys in etcd show the era of a cluster.
//!
//! The feature gates `MultiCIDRServiceAllocator` and `DisableAllocatorDualWrite` select the era. etcd does not store the gates,
//! but the stored objects show their effect (`pkg/registry/core/rest/storage_core.go`, v1.36.3). The version of the API server
//! does not select the era, because gates can be switched, and `--emulated-version` changes their defaults.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::records::{AddressRecord, BitmapRecord, CidrRecord, ServiceRecord};
use crate::ip::{Item, Items};
use crate::wire::objects::ALLOCATOR;

/// Source of truth for allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Era {
    /// Only IPAddress and ServiceCIDR objects (1.34 and later).
    #[default]
    Objects,
    /// IPAddress objects and the bitmap, which must agree (1.33 by default).
    DualWrite,
    /// Only the bitmap (1.32 and earlier by default).
    Bitmap,
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An era and the evidence for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EraEvidence {
    /// The era.
    pub era: Era,
    /// The evidence, in a sentence.
    pub because: String,
    /// Whether the RangeAllocations of addresses are leftovers, which no API server updates.
    pub bitmap_is_leftover: bool,
}

/// Detects the era from the stored objects.
pub fn detect(
    services: &[ServiceRecord],
    addresses: &[AddressRecord],
    cidrs: &[CidrRecord],
    bitmaps: &[BitmapRecord],
) -> EraEvidence {
    let bitmap = bitmaps.iter().find(|bitmap| bitmap.name == "serviceips");
    let evidence = |era, because: &str, bitmap_is_leftover| EraEvidence {
        era,
        because: because.to_string(),
        bitmap_is_leftover,
    };
    match bitmap {
        _ if addresses.is_empty() && cidrs.is_empty() => {
            evidence(Era::Bitmap, "there are no ServiceCIDR objects and no IPAddress objects", false)
        }
        None => evidence(
            Era::Objects,
            "there are ServiceCIDR or IPAddress objects, but no RangeAllocation `serviceips`",
            false,
        ),
        Some(bitmap) if is_of_the_flag(cidrs, bitmap) && is_left_behind(services, addresses, bitmap) => {
            evidence(
                Era::Objects,
                "the RangeAllocation is a leftover: it did not change when a Service got an address, and it has no bit for that address",
                true,
            )
        }
        Some(_) => evidence(
            Era::DualWrite,
            "there are IPAddress objects, and the RangeAllocation is up to date with them",
            false,
        ),
    }
}

/// Returns whether the bitmap has a range of the ServiceCIDR `kubernetes`, which an API server created from its flag.
///
/// An API server with another range in its flag cannot use the bitmap. Under dual write, it then allocates addresses without setting
/// their bits (`AllocateService` and `AllocateNextService`, `cidrallocator.go`, v1.36.3), while the bitmap is in use by every API
/// server whose flag has its range. So if the ranges differ, a missing bit proves nothing.
fn is_of_the_flag(cidrs: &[CidrRecord], bitmap: &BitmapRecord) -> bool {
    let own = cidrs.iter().filter(|cidr| cidr.name == "kubernetes");
    bitmap.cidr().is_some_and(|range| own.flat_map(|cidr| &cidr.ranges).any(|of| *of == range))
}

/// Returns whether a Service has an address that was allocated after the last change to the bitmap, and that has no bit in the
/// bitmap.
///
/// Under dual write an API server sets the bit, then creates the IPAddress, then the Service (`AllocateService`,
/// `pkg/registry/core/service/ipallocator/cidrallocator.go`, v1.36.3). Every allocation or release changes the bitmap. A missing
/// bit alone does not prove that the bitmap is a leftover, because the deletion of a Service first clears the bit and then
/// deletes the IPAddress.
fn is_left_behind(services: &[ServiceRecord], addresses: &[AddressRecord], bitmap: &BitmapRecord) -> bool {
    let Some((items @ Items::Addresses(range), Ok(bits))) = bitmap.read() else { return false };
    // The bitmap of an IPv6 range has bits for at most the first 65,535 addresses after the network address.
    let is_marked = |address: &IpAddr| items.bit(Item::Address(*address)).is_some_and(|bit| bits.is_set(bit));
    let newer = addresses
        .iter()
        .filter(|record| record.managed_by == ALLOCATOR && record.create_revision > bitmap.mod_revision);
    let addresses = newer.filter_map(|record| record.address);
    let passed_by: HashSet<IpAddr> =
        addresses.filter(|address| range.contains(*address) && !is_marked(address)).collect();
    services.iter().flat_map(|service| &service.addresses).any(|address| passed_by.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Key, Revision};
    use crate::wire::StoredService;
    use crate::wire::bitmap::Bitmap;

    const BITMAP_CHANGED: Revision = Revision(100);

    fn address(text: &str, revision: i64) -> AddressRecord {
        AddressRecord {
            key: Key::from(format!("/registry/ipaddresses/{text}")),
            create_revision: Revision(revision),
            mod_revision: Revision(revision),
            name: text.into(),
            address: text.parse().ok(),
            parent: ("default".into(), "web".into()),
            managed_by: ALLOCATOR.into(),
            created: None,
        }
    }

    /// Returns the era if Service `web` has the address `listed`. In the bitmap, only the bit for 10.96.0.9 is set.
    fn told(listed: &str, addresses: &[AddressRecord]) -> Era {
        told_with("10.96.0.0/16", listed, addresses)
    }

    /// The same if the ServiceCIDR `kubernetes` has this range.
    fn told_with(own: &str, listed: &str, addresses: &[AddressRecord]) -> Era {
        let mut service = ServiceRecord::of(
            Key::from("/registry/services/specs/default/web"),
            Revision(1),
            StoredService::default(),
        );
        service.addresses = vec![listed.parse().unwrap()];
        let mut bits = Bitmap::empty((1 << 16) - 2);
        bits.set(8, true);
        let bitmap = BitmapRecord {
            key: Key::from("/registry/ranges/serviceips"),
            name: "serviceips".to_string(),
            mod_revision: BITMAP_CHANGED,
            range: "10.96.0.0/16".to_string(),
            data: bits.to_bytes(),
        };
        let cidr = CidrRecord {
            key: Key::from("/registry/servicecidrs/kubernetes"),
            name: "kubernetes".to_string(),
            ranges: vec![own.parse().unwrap()],
            terminating: false,
        };
        detect(&[service], addresses, &[cidr], &[bitmap]).era
    }

    #[test]
    fn bitmap_without_a_later_allocation_is_a_leftover() {
        let [old, new] = [99, 101].map(|revision| [address("10.96.0.9", 5), address("10.96.0.77", revision)]);
        assert_eq!(told("10.96.0.77", &new), Era::Objects);
        // The address was allocated before the last change to the bitmap. Its bit was cleared later, so the bitmap is still in
        // use.
        assert_eq!(told("10.96.0.77", &old), Era::DualWrite);
        // An API server has another range in its flag, so it cannot set the bit.
        assert_eq!(told_with("10.200.0.0/16", "10.96.0.77", &new), Era::DualWrite);
        // If an API server stops while it deletes a Service, the bit is free, but the IPAddress still exists.
        assert_eq!(told("10.96.0.9", &new), Era::DualWrite);
        assert_eq!(told("10.96.0.9", &old), Era::DualWrite);
        // The first address has a bit, and the second address is in another range.
        assert_eq!(told("10.96.0.9", &[address("10.96.0.9", 101)]), Era::DualWrite);
        assert_eq!(told("10.200.0.9", &[address("10.200.0.9", 101)]), Era::DualWrite);
    }
}
