//! Not more than so many writes a second, for the sake of those who watch what is written.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Gives everybody a moment of their own, evenly spaced.
pub(super) struct Pace {
    /// `None` for as fast as it goes.
    every: Option<Duration>,
    /// The next moment that is free.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(super) fn new(rate: Option<NonZeroU32>) -> Self {
        let every = rate.and_then(|rate| Duration::from_secs(1).checked_div(rate.get()));
        Self { every, next: Mutex::new(None) }
    }

    /// Waits for the next moment that nobody else has.
    pub(super) async fn turn(&self) {
        let Some(every) = self.every else { return };
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let at = next.map_or(now, |next| next.max(now));
            *next = at.checked_add(every);
            at
        };
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn as_many_a_second_as_asked_for_whoever_asks() {
        let pace = Pace::new(NonZeroU32::new(10));
        let begun = Instant::now();
        let mut moments = Vec::new();
        for _ in 0..5 {
            let both = futures_util::future::join(pace.turn(), pace.turn());
            both.await;
            moments.push(begun.elapsed().as_millis());
        }
        assert_eq!(moments, [100, 300, 500, 700, 900]);
        // Time not used is not saved up.
        tokio::time::advance(Duration::from_mins(1)).await;
        let begun = Instant::now();
        futures_util::future::join3(pace.turn(), pace.turn(), pace.turn()).await;
        assert_eq!(begun.elapsed().as_millis(), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nobody_waits() {
        let (pace, begun) = (Pace::new(None), Instant::now());
        for _ in 0..1000 {
            pace.turn().await;
        }
        assert!(begun.elapsed().is_zero());
    }
}
