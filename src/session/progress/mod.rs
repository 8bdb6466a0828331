//! Progress of an operation: the figures that a progress bar, a log line and a metric share. Each kind of operation counts its
//! own subjects.

mod pace;
mod stage_progress;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use self::pace::Pace;
pub use self::stage_progress::{StageFigures, StageProgress, SubjectWords};
use super::metrics::{Figures, Page};
use crate::operation::Event;

/// The progress of the running work, counted from the events of the executor.
pub trait Progress: Send {
    /// Counts an event. Returns whether the event shows that a subject has reached its target state.
    fn note(&mut self, event: &Event<'_>, now: Instant) -> bool;

    /// Returns how many subjects have reached their target state, and the total number of subjects.
    fn reached(&self) -> (usize, usize);

    /// Returns the number of subjects between two progress lines; `None` for one progress line per batch.
    fn line_after(&self) -> Option<usize>;

    /// Returns the figures as text, such as `150 of 600 Services moved (25 %), 12.5 a second, 36 s left`.
    fn words(&self, now: Instant) -> String;

    /// Returns the figures as fields of a log line.
    fn fields(&self, now: Instant) -> Vec<(&'static str, Value)>;

    /// Returns the number of the current batch, starting at 1; 0 if the current stage belongs to no batch.
    fn batch(&self) -> usize;

    /// Returns a text that describes the current stage. A bar and a line show the same text.
    fn stage_title(&self) -> String;

    /// Returns the description and the remaining time of the current wait, if the wait ends by itself.
    fn lingers(&self, now: Instant) -> Option<(String, Duration)>;

    /// Writes the progress as metrics.
    fn write(&self, page: &mut Page);
}

/// The progress of an operation, shared by everything that shows it.
pub type SharedProgress = Arc<Mutex<dyn Progress>>;

impl Figures for SharedProgress {
    fn write(&self, page: &mut Page) {
        self.lock().unwrap_or_else(PoisonError::into_inner).write(page);
    }
}
