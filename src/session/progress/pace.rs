//! The rate of a run in subjects per second, and the remaining time at this rate. The rate does not include the time in which
//! the operation waits for an operator, for a gate, or for a wait with a fixed end.

use std::time::{Duration, Instant};

/// Measures the rate of a run. The caller passes the current time.
#[derive(Debug, Clone)]
pub struct Pace {
    start: Instant,
    idle: Duration,
    idle_since: Option<Instant>,
}

impl Pace {
    /// Starts a measurement.
    pub fn new(now: Instant) -> Self {
        Self { start: now, idle: Duration::ZERO, idle_since: None }
    }

    /// Records the start of idle time.
    pub fn rest(&mut self, now: Instant) {
        self.idle_since.get_or_insert(now);
    }

    /// Records the end of idle time.
    pub fn wake(&mut self, now: Instant) {
        if let Some(since) = self.idle_since.take() {
            self.idle = self.idle.saturating_add(now.saturating_duration_since(since));
        }
    }

    fn active(&self, now: Instant) -> Duration {
        let resting = self.idle_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        now.saturating_duration_since(self.start).saturating_sub(self.idle).saturating_sub(resting)
    }

    /// Returns the rate in subjects per second, and the remaining time for `left` subjects. `reached`: how many subjects this
    /// measurement has seen. Returns `None` if it has seen none.
    pub fn of(&self, reached: usize, left: usize, now: Instant) -> Option<(f64, Duration)> {
        let reached = u32::try_from(reached).ok().filter(|reached| *reached > 0)?;
        let per_second = f64::from(reached) / self.active(now).as_secs_f64().max(0.001);
        let left = f64::from(u32::try_from(left).unwrap_or(u32::MAX));
        let left = Duration::try_from_secs_f64((left / per_second).round()).ok()?;
        Some((per_second, left))
    }
}
