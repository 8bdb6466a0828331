//! How a cluster keeps its Service allocations: three eras, told by the keys that are there.
//!
//! The gates `MultiCIDRServiceAllocator` and `DisableAllocatorDualWrite` decide; they cannot be seen in
//! etcd, their effect can (`pkg/registry/core/rest/storage_core.go`, v1.36.3). The version of the API server
//! does not decide it: gates can be switched, and `--emulated-version` shifts them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::records::{AddressRecord, BitmapRecord, Manager};
use crate::wire::bitmap::Bitmap;

/// Where the truth of allocation lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Era {
    /// IPAddress and ServiceCIDR objects alone (1.34 and later).
    Objects,
    /// IPAddress objects and the bitmap must agree (1.33 by default).
    DualWrite,
    /// The bitmap alone (1.32 and earlier by default).
    Bitmap,
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Objects => "objects",
            Self::DualWrite => "dual-write",
            Self::Bitmap => "bitmap",
        })
    }
}

/// An era and why it is taken to be this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EraEvidence {
    /// The era.
    pub era: Era,
    /// What was seen, in a sentence.
    pub because: String,
    /// Whether there is a RangeAllocation of addresses that nobody maintains any more.
    pub bitmap_is_leftover: bool,
}

/// Tells the era from what is stored.
pub fn detect(addresses: &[AddressRecord], cidr_count: usize, bitmaps: &[BitmapRecord]) -> EraEvidence {
    let bitmap = bitmaps.iter().find(|bitmap| bitmap.name == "serviceips");
    let evidence = |era, because: &str, bitmap_is_leftover| EraEvidence {
        era,
        because: because.to_string(),
        bitmap_is_leftover,
    };
    match bitmap {
        _ if addresses.is_empty() && cidr_count == 0 => {
            evidence(Era::Bitmap, "there are no ServiceCIDR and no IPAddress objects", false)
        }
        None => {
            evidence(Era::Objects, "there are IPAddress objects and no RangeAllocation `serviceips`", false)
        }
        Some(bitmap) => match newest_is_marked(addresses, bitmap) {
            Some(false) => evidence(
                Era::Objects,
                "the newest IPAddress has no bit in the RangeAllocation, which so is a leftover",
                true,
            ),
            _ => evidence(
                Era::DualWrite,
                "there are IPAddress objects, and the RangeAllocation has a bit for the newest of them",
                false,
            ),
        },
    }
}

/// Under dual write every allocation sets its bit before it makes its IPAddress, so the newest one tells
/// whether the bitmap is still being written. `None` where no IPAddress lies in the bitmap's range.
fn newest_is_marked(addresses: &[AddressRecord], bitmap: &BitmapRecord) -> Option<bool> {
    let range = bitmap.cidr()?;
    let capacity = u64::try_from(range.bitmap_capacity()).ok()?;
    let bits = Bitmap::from_bytes(&bitmap.data, capacity).ok()?;
    let newest = addresses
        .iter()
        .filter(|record| record.managed_by == Manager::Allocator)
        .filter_map(|record| Some((record.create_revision, range.bit_of(record.address?)?)))
        .max()?;
    Some(bits.is_set(u64::try_from(newest.1).ok()?))
}
