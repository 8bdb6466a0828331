//! How far an operation has come: the figures that a progress bar, a line of the log and a metric have in common. Each kind of
//! operation counts its own subjects.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::metrics::{Figures, Page};
use crate::operation::Event;

/// What is under way, counted from the events of the executor.
pub trait Progress: Send {
    /// Counts an event. Returns whether a subject has reached its goal by it.
    fn note(&mut self, event: &Event<'_>, now: Instant) -> bool;

    /// How many subjects have reached their goal, and of how many.
    fn reached(&self) -> (usize, usize);

    /// How many subjects make a line where nothing else structures the work.
    fn line_after(&self) -> Option<usize>;

    /// The figures in words: `150 of 600 Services moved (25 %), 12.5 a second, 36 s left`.
    fn words(&self, now: Instant) -> String;

    /// The figures as fields of a line of the log.
    fn fields(&self, now: Instant) -> Vec<(&'static str, Value)>;

    /// The batch that is under way, from 1; 0 outside of batches.
    fn batch(&self) -> usize;

    /// The stage that is under way, short: `batch 2 of 4, flip`.
    fn stage(&self) -> String;

    /// The stage that is under way, as a sentence.
    fn stage_title(&self) -> String;

    /// What is waited for that ends by itself, in words, and how long it still takes.
    fn lingers(&self, now: Instant) -> Option<(String, Duration)>;

    /// Writes the metrics.
    fn write(&self, page: &mut Page);
}

/// The figures, shared by all who show them.
pub type SharedProgress = Arc<Mutex<dyn Progress>>;

impl Figures for SharedProgress {
    fn write(&self, page: &mut Page) {
        self.lock().unwrap_or_else(PoisonError::into_inner).write(page);
    }
}
