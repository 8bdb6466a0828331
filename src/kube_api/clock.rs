//! The clock of an API server, as its answers show it.
//!
//! Clocks of different machines differ: a laptop that slept, a host without NTP, a rescue system. Times that several processes
//! compare, and dates that are written to the cluster, therefore come from one clock: the clock of the API server. Each HTTP
//! answer of an API server has its time (`Date`, RFC 9110, section 6.6.1), in whole seconds. Between two answers, the monotonic
//! clock of this machine continues. The wall clock of this machine is not used.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

/// A `Date` can be this much older than the time at which the answer was sent: it has whole seconds, and a proxy can cache it for
/// a moment.
const COARSE: Duration = Duration::from_secs(2);

/// The clock of an API server.
///
/// The time is a lower bound: the API server's clock shows this time or up to about a second later. The bound becomes better with
/// each answer, and never falls behind while this machine sleeps for longer than until the next answer. If an answer proves that
/// the API server's clock was set back (or that another API server answers now), the clock follows.
#[derive(Debug, Default)]
pub struct Clock {
    known: Mutex<Option<Known>>,
}

/// The API server's clock showed at least this time at this moment.
#[derive(Debug, Clone, Copy)]
struct Known {
    time: OffsetDateTime,
    at: Instant,
}

impl Known {
    /// Returns the time at another moment, which can be earlier.
    fn at(self, moment: Instant) -> OffsetDateTime {
        let length = |duration: Duration| time::Duration::try_from(duration).unwrap_or(time::Duration::MAX);
        match moment.checked_duration_since(self.at) {
            Some(later) => self.time.saturating_add(length(later)),
            None => self.time.saturating_sub(length(self.at.saturating_duration_since(moment))),
        }
    }
}

impl Clock {
    /// Records the time in an answer. `sent`: when the request was sent. `received`: when the answer arrived.
    pub(super) fn saw(&self, date: OffsetDateTime, sent: Instant, received: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_still_right = known.is_some_and(|known| {
            known.at(received) >= date
                && known.at(sent) <= date.saturating_add(COARSE.try_into().unwrap_or_default())
        });
        if !is_still_right {
            *known = Some(Known { time: date, at: received });
        }
    }

    /// Returns the present time of the API server; `None` if no answer contained a time yet.
    pub fn now(&self) -> Option<OffsetDateTime> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.map(|known| known.at(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn clock_follows_the_answers_and_not_this_machine() {
        let (clock, start) = (Clock::default(), Instant::now());
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        let now = || clock.now().map(|now| now.unix_timestamp_nanos() / 1_000_000);
        assert_eq!(now(), None);
        clock.saw(date(1000), start, start);
        assert_eq!(now(), Some(1_000_000));
        tokio::time::advance(Duration::from_millis(800)).await;
        // The first answer was sent just before the second 1001 began.
        clock.saw(date(1001), after(700), after(800));
        assert_eq!(now(), Some(1_001_000));
        // This answer says nothing new: its second began up to 999 ms earlier.
        tokio::time::advance(Duration::from_millis(900)).await;
        clock.saw(date(1001), after(1690), after(1700));
        assert_eq!(now(), Some(1_001_900));
        // This machine slept for an hour, and its monotonic clock stood still.
        clock.saw(date(4601), after(1700), after(1700));
        assert_eq!(now(), Some(4_601_000));
        // The clock of the API server was set back.
        clock.saw(date(4501), after(1700), after(1700));
        assert_eq!(now(), Some(4_501_000));
    }
}
