//! Counts of the used and free addresses or ports in a range.

use serde::Serialize;

/// Number of all, used and free addresses or ports in a range.
#[derive(Serialize)]
pub(super) struct Counts {
    /// Number of addresses or ports in the range.
    pub(super) capacity: u128,
    /// Number of addresses or ports that Services use.
    pub(super) used: u128,
    /// Number of addresses or ports that no Service uses.
    pub(super) free: u128,
    /// Number of addresses or ports in the static band, the low end of the range, which is reserved for static allocation.
    pub(super) static_band: u128,
    /// Number of used addresses or ports in the static band.
    pub(super) static_band_used: u128,
    /// Offsets of the used addresses or ports, ascending.
    #[serde(skip)]
    pub(super) offsets: Vec<u128>,
}

impl Counts {
    /// Returns the table cells for a range and its source.
    pub(super) fn cells(&self, range: String, source: String) -> [String; 6] {
        [
            range,
            self.capacity.to_string(),
            self.used.to_string(),
            self.free.to_string(),
            format!("{} of {}", self.static_band_used, self.static_band),
            source,
        ]
    }
}
