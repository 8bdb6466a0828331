//! How long the new addresses still answer in a rollback.

use std::time::Duration;

use crate::survey::Era;

/// The maximum in the bitmap era: an API server frees a bit that no Service uses in its third round, 6 to 9 minutes later
/// (`runOnce`, `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2). The difference is for the steps around
/// it.
const LONGEST_ON_BITS: Duration = Duration::from_mins(5);

/// Returns how long addresses linger: the requested time, or the maximum of the era.
pub(super) fn longest(asked: Duration, era: Era) -> Duration {
    if era == Era::Bitmap { asked.min(LONGEST_ON_BITS) } else { asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linger_is_limited_in_bitmap_era() {
        let linger = |asked: u64, era| longest(Duration::from_secs(asked), era).as_secs();
        assert_eq!((linger(600, Era::Bitmap), linger(60, Era::Bitmap)), (300, 60));
        assert_eq!((linger(600, Era::Objects), linger(600, Era::DualWrite)), (600, 600));
    }
}
