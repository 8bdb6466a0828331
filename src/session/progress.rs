//! Progress of an operation: the figures that a progress bar, a log line and a metric share. Each kind of operation counts its
//! own subjects.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::metrics::{Figures, Page};
use crate::operation::Event;

/// The running work, counted from the events of the executor.
pub trait Progress: Send {
    /// Counts an event. Returns whether a subject has reached its goal with it.
    fn note(&mut self, event: &Event<'_>, now: Instant) -> bool;

    /// Returns how many subjects have reached their goal, and the total.
    fn reached(&self) -> (usize, usize);

    /// Returns after how many subjects to print a line if nothing else structures the work.
    fn line_after(&self) -> Option<usize>;

    /// Returns the figures as text: `150 of 600 Services moved (25 %), 12.5 a second, 36 s left`.
    fn words(&self, now: Instant) -> String;

    /// Returns the figures as fields of a log line.
    fn fields(&self, now: Instant) -> Vec<(&'static str, Value)>;

    /// Returns the current batch, from 1; 0 outside of batches.
    fn batch(&self) -> usize;

    /// Returns the current stage, short: `batch 2 of 4, flip`.
    fn stage(&self) -> String;

    /// Returns the current stage, as a sentence.
    fn stage_title(&self) -> String;

    /// Returns a wait that ends by itself: its description and the time left.
    fn lingers(&self, now: Instant) -> Option<(String, Duration)>;

    /// Writes the metrics.
    fn write(&self, page: &mut Page);
}

/// The figures, shared by all that show them.
pub type SharedProgress = Arc<Mutex<dyn Progress>>;

impl Figures for SharedProgress {
    fn write(&self, page: &mut Page) {
        self.lock().unwrap_or_else(PoisonError::into_inner).write(page);
    }
}
