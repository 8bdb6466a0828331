//! How long the new addresses go on answering on the way back.

use std::time::Duration;

use crate::survey::Era;

/// The longest where allocations are bits: an API server frees a bit that no Service has at its third round, 6 to 9 minutes
/// later (`runOnce`, `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2), and the steps around it take
/// their time.
const LONGEST_ON_BITS: Duration = Duration::from_mins(5);

/// Returns how long addresses linger of those asked for.
pub(super) fn longest(asked: Duration, era: Era) -> Duration {
    if era == Era::Bitmap { asked.min(LONGEST_ON_BITS) } else { asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By then the API servers have freed the bits of the addresses that linger.
    #[test]
    fn addresses_linger_less_long_where_they_are_bits() {
        let linger = |asked: u64, era| longest(Duration::from_secs(asked), era).as_secs();
        assert_eq!((linger(600, Era::Bitmap), linger(60, Era::Bitmap)), (300, 60));
        assert_eq!((linger(600, Era::Objects), linger(600, Era::DualWrite)), (600, 600));
    }
}
