//! The range of API servers, as stored objects show it. This evidence needs no flag, so it also shows an API server whose flags
//! netsurgeon cannot read.

use crate::ip::ServiceCidr;
use crate::renumber::Renumbering;
use crate::session::LiveEtcd;
use crate::store::ReadStore as _;
use crate::survey::{BitmapRecord, CidrRecord, Era, Layout, Survey};
use crate::wire::objects::{self, RangeAllocation};

/// In the bitmap era, returns a message if the RangeAllocation does not have the range that the flag must have. Every API server
/// writes the range of its own flag, when it starts and every three minutes (`Repair.runOnce`,
/// `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2). Returns `None` if the object cannot be read.
pub(super) async fn allocation_differs(store: &LiveEtcd, work: &Renumbering, back: bool) -> Option<String> {
    let bitmap = work.bitmap.as_ref().filter(|_| work.era == Era::Bitmap)?;
    let wanted = if back { bitmap.from.clone() } else { work.to.to_string() };
    let entry = store.get(&Layout::new(&work.prefix).range(&bitmap.name)).await.ok()??;
    let found: RangeAllocation = objects::decode(&entry.value).ok()?;
    let found = found.range.unwrap_or_default();
    (found != wanted).then(|| differs(&bitmap.name, &found, &wanted))
}

fn differs(name: &str, found: &str, wanted: &str) -> String {
    format!(
        "RangeAllocation `{name}` has `{found}`, but `{wanted}` is required: an API server runs with that range \
         (`--service-cluster-ip-range`), or has not started yet"
    )
}

/// Returns a message if a stored object shows that an API server still has another range, after the flags were changed:
///
/// * The ServiceCIDR `kubernetes` is not being deleted, and has another range. Every API server without this object creates it from
///   its own flag (`default_servicecidr_controller.go`, v1.36.3).
/// * A RangeAllocation has another range. In the bitmap era, every API server writes the range of its own flag. Under dual write,
///   netsurgeon has written the new range, and only another client writes another range.
pub(super) fn contradiction(work: &Renumbering, survey: &Survey) -> Option<String> {
    of_cidrs(&work.flag, &survey.service_cidrs).or_else(|| of_bitmaps(work, &survey.bitmaps))
}

fn of_cidrs(flag: &[ServiceCidr], cidrs: &[CidrRecord]) -> Option<String> {
    let own = cidrs.iter().find(|cidr| cidr.name == "kubernetes" && !cidr.terminating)?;
    let list = |ranges: &[ServiceCidr]| {
        ranges.iter().map(|range| format!("`{range}`")).collect::<Vec<_>>().join(" and ")
    };
    (own.ranges != flag).then(|| {
        format!(
            "ServiceCIDR `kubernetes` has {}, but {} is required: an API server still has that range in its flag",
            list(&own.ranges),
            list(flag)
        )
    })
}

fn of_bitmaps(work: &Renumbering, bitmaps: &[BitmapRecord]) -> Option<String> {
    let planned = work.bitmap.as_ref()?;
    let (found, wanted) = (bitmaps.iter().find(|found| found.name == planned.name)?, work.to.to_string());
    (found.range != wanted).then(|| differs(&found.name, &found.range, &wanted))
}
