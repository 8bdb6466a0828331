//! How many datagrams a server received, by series.

use std::collections::{BTreeSet, VecDeque};

/// The number of series that are kept; the oldest one is dropped first.
const MOST_SERIES: usize = 20_000;
/// The longest series.
const MOST_NUMBERS: u32 = 10_000;

/// The datagrams of the latest series.
#[derive(Debug, Default)]
pub(super) struct SeriesCounts {
    series: std::collections::HashMap<u64, Series>,
    order: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct Series {
    numbers: BTreeSet<u32>,
    duplicates: u16,
}

impl SeriesCounts {
    /// Records a datagram. Datagrams of the series 0 are not recorded.
    pub(super) fn record(&mut self, key: u64, number: u32) {
        if key == 0 || number >= MOST_NUMBERS {
            return;
        }
        if !self.series.contains_key(&key) {
            self.order.push_back(key);
            if self.order.len() > MOST_SERIES
                && let Some(oldest) = self.order.pop_front()
            {
                self.series.remove(&oldest);
            }
        }
        let series = self.series.entry(key).or_default();
        if !series.numbers.insert(number) {
            series.duplicates = series.duplicates.saturating_add(1);
        }
    }

    /// Returns the number of different datagrams of a series, and the number of datagrams that arrived more than once.
    pub(super) fn of(&self, key: u64) -> (u16, u16) {
        self.series.get(&key).map_or((0, 0), |series| {
            (u16::try_from(series.numbers.len()).unwrap_or(u16::MAX), series.duplicates)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_counted_and_bounded() {
        let mut received = SeriesCounts::default();
        for number in [0, 1, 1, 2] {
            received.record(5, number);
        }
        received.record(0, 1);
        assert_eq!((received.of(5), received.of(0), received.of(6)), ((3, 1), (0, 0), (0, 0)));
        for key in 6..=u64::try_from(MOST_SERIES).unwrap() + 5 {
            received.record(key, 0);
        }
        assert_eq!(received.of(5), (0, 0), "the oldest series is dropped");
        assert_eq!(received.series.len(), MOST_SERIES);
    }
}
