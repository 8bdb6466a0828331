//! Limits how long the new addresses still answer in a rollback.

use std::time::Duration;

use crate::survey::Era;

/// Maximum linger time in the bitmap era. An API server frees an unused bit in the third round of its repair loop, after 6 to 9
/// minutes (`runOnce`, `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2). The remaining minute is a margin
/// for the steps before and after the linger time.
const LONGEST_ON_BITS: Duration = Duration::from_mins(5);

/// Returns how long the new addresses still answer: the requested time, but at most the maximum of the era.
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
