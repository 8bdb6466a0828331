//! Counts the node ports of a survey for `ranges show`. Node ports are allocated in a bitmap in every storage era.

use std::collections::BTreeSet;

use serde::Serialize;

use super::counts::Counts;
use crate::ip::Items;
use crate::report::picture::{Picture, Subject};
use crate::survey::{ServiceRecord, Survey};

/// The allocation of node ports.
#[derive(Serialize)]
pub(super) struct NodePorts {
    /// The range, for example `30000-32767`.
    range: String,
    #[serde(flatten)]
    counts: Counts,
    /// The first port.
    #[serde(skip)]
    first: u16,
}

impl NodePorts {
    /// Counts the node ports that Services use. Returns `None` if there is no readable RangeAllocation for node ports.
    pub(super) fn of(survey: &Survey) -> Option<Self> {
        let record = survey.bitmaps.iter().find(|bitmap| bitmap.name == "servicenodeports")?;
        let items = Items::parse(&record.range)?;
        let Items::Ports(first, last) = items else { return None };
        let capacity = u128::from(items.capacity());
        let taken: BTreeSet<u16> = survey.services.iter().flat_map(ServiceRecord::node_ports).collect();
        let offsets: Vec<u128> =
            taken.range(first..=last).filter_map(|port| port.checked_sub(first)).map(u128::from).collect();
        let static_band = static_band(capacity);
        let used = offsets.len() as u128;
        let counts = Counts {
            capacity,
            used,
            free: capacity.saturating_sub(used),
            static_band,
            static_band_used: offsets.iter().filter(|offset| **offset < static_band).count() as u128,
            offsets,
        };
        Some(Self { range: record.range.clone(), counts, first })
    }

    pub(super) fn cells(&self) -> [String; 6] {
        self.counts.cells(self.range.clone(), "RangeAllocation servicenodeports".to_string())
    }

    pub(super) fn picture(&self) -> Picture {
        let Counts { capacity, static_band, offsets, .. } = &self.counts;
        let subject = Subject {
            title: format!("Node ports {}", self.range),
            unit: "ports",
            size: *capacity,
            capacity: *capacity,
            band: (0, *static_band),
            offsets,
        };
        Picture::new(subject, |offset| u128::from(self.first).saturating_add(offset).to_string())
    }
}

/// Returns the number of ports in the static band, the low end of the range, which is reserved for static allocation. The number
/// is `min(max(16, size/32), 128)`, or 0 for ranges of 16 ports or fewer (`pkg/registry/core/service/portallocator/allocator.go`
/// `calculateRangeOffset`, v1.36.3).
fn static_band(size: u128) -> u128 {
    const LEAST: u128 = 16;
    const MOST: u128 = 128;
    const STEP: u128 = 32;
    if size <= LEAST { 0 } else { size.checked_div(STEP).unwrap_or(0).clamp(LEAST, MOST) }
}
