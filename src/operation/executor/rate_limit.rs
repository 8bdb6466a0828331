//! Limits the number of writes per second, to protect the clients that watch the written objects.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A rate limit that gives each writer its own time slot. The slots are evenly spaced.
pub(super) struct RateLimit {
    /// The time between slots; `None` for no limit.
    every: Option<Duration>,
    /// Time of the next free slot.
    next: Mutex<Option<Instant>>,
}

impl RateLimit {
    pub(super) fn new(rate: Option<NonZeroU32>) -> Self {
        let every = rate.and_then(|rate| Duration::from_secs(1).checked_div(rate.get()));
        Self { every, next: Mutex::new(None) }
    }

    /// Waits for the next free slot.
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
    async fn rate_is_shared_by_concurrent_writers() {
        let rate_limit = RateLimit::new(NonZeroU32::new(10));
        let begun = Instant::now();
        let mut moments = Vec::new();
        for _ in 0..5 {
            let both = futures_util::future::join(rate_limit.turn(), rate_limit.turn());
            both.await;
            moments.push(begun.elapsed().as_millis());
        }
        assert_eq!(moments, [100, 300, 500, 700, 900]);
        // Unused slots do not accumulate.
        tokio::time::advance(Duration::from_mins(1)).await;
        let begun = Instant::now();
        futures_util::future::join3(rate_limit.turn(), rate_limit.turn(), rate_limit.turn()).await;
        assert_eq!(begun.elapsed().as_millis(), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_means_no_wait() {
        let (rate_limit, begun) = (RateLimit::new(None), Instant::now());
        for _ in 0..1000 {
            rate_limit.turn().await;
        }
        assert!(begun.elapsed().is_zero());
    }
}
