//! Lets the records of concurrent steps share a write.
//!
//! etcd stores each write of a ConfigMap as a whole new value. So a write waits a moment for the records of the other running
//! steps. It does not wait if all running steps wait for a write, or half of many, or if only a few steps run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// Minimum number of running steps for which a write waits.
const FEW: usize = 4;
/// Number of writers that are enough for a write if at most twice as many steps run. If more steps run, half of them is enough: the
/// others continue meanwhile, so that the API server does not wait for this process.
const ENOUGH: usize = 16;
/// Limits for the time that a write waits after the last arrival of another writer. The time is twice the duration of a slow
/// write: the slower the API server answers, the longer is the time between the ends of two steps.
const QUIET: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// Maximum time for which a write waits, as a multiple of this time.
const LONGEST: u32 = 10;
/// How often a write looks for other writers. It counts its looks, because on a busy machine, time can pass in which no step runs.
const LOOK: Duration = Duration::from_millis(1);

/// The writers of all ConfigMaps of an operation.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// Number of running steps.
    running: AtomicUsize,
    /// Number of writers that have no outcome yet.
    waiting: AtomicUsize,
    /// Duration of a slow write, in microseconds. Decreases with each faster write.
    slow: AtomicU64,
}

/// A writer without an outcome. Counts until it is dropped.
pub(super) struct Writer(Arc<Writers>);

impl Writers {
    pub(super) fn set_running(&self, steps: usize) {
        self.running.store(steps, Ordering::SeqCst);
    }

    /// Counts a writer.
    pub(super) fn enter(self: &Arc<Self>) -> Writer {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Writer(self.clone())
    }

    /// Records the duration of a write.
    pub(super) fn took(&self, last: Duration) {
        let last = u64::try_from(last.as_micros()).unwrap_or(u64::MAX);
        let slow = self.slow.load(Ordering::SeqCst);
        self.slow.store(last.max(slow.saturating_sub(slow >> 4)), Ordering::SeqCst);
    }

    /// Waits until no further writer is to be expected soon.
    pub(super) async fn gather(&self) {
        let slow = Duration::from_micros(self.slow.load(Ordering::SeqCst));
        let quiet = slow.saturating_mul(2).clamp(QUIET.0, QUIET.1);
        let looks = u32::try_from(quiet.as_millis()).unwrap_or(u32::MAX);
        let (mut known, mut unchanged) = (self.waiting.load(Ordering::SeqCst), 0_u32);
        for _ in 0..looks.saturating_mul(LONGEST) {
            let running = self.running.load(Ordering::SeqCst);
            let enough = running.min(ENOUGH.max(running.div_ceil(2)));
            if running < FEW || known >= enough || unchanged >= looks {
                return;
            }
            sleep(LOOK).await;
            let waiting = self.waiting.load(Ordering::SeqCst);
            unchanged = if waiting == known { unchanged.saturating_add(1) } else { 0 };
            known = waiting;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    async fn gathered(running: usize, waiting: usize) -> Duration {
        let writers = Arc::new(Writers::default());
        writers.set_running(running);
        let entered: Vec<_> = (0..waiting).map(|_| writers.enter()).collect();
        let begun = Instant::now();
        writers.gather().await;
        drop(entered);
        assert_eq!(writers.waiting.load(Ordering::SeqCst), 0);
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn write_waits_only_for_running_steps() {
        for (running, waiting) in [(0, 1), (1, 1), (3, 1), (8, 8), (16, 16), (20, 16), (32, 16), (50, 25)] {
            assert!(gathered(running, waiting).await.is_zero(), "{waiting} of {running}");
        }
        for (running, waiting) in [(8, 7), (16, 15), (32, 15), (50, 24)] {
            assert_eq!(gathered(running, waiting).await, QUIET.0, "{waiting} of {running}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn write_waits_while_writers_arrive_and_not_longer() {
        let writers = Arc::new(Writers::default());
        writers.set_running(1_000);
        let first = writers.enter();
        let arrive = async {
            let mut all = Vec::new();
            for _ in 0..100 {
                sleep(QUIET.0 / 2).await;
                all.push(writers.enter());
            }
            all.len()
        };
        let begun = Instant::now();
        let gather = async {
            writers.gather().await;
            begun.elapsed()
        };
        let (waited, arrived) = tokio::join!(gather, arrive);
        assert_eq!((waited, arrived), (QUIET.0 * LONGEST, 100));
        drop(first);
    }
}
