//! How far an operation has come, on stderr: a bar that renews itself on a terminal; elsewhere a line per batch,
//! with the same figures.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::log::{self, Kind};
use super::output::{self, Output};
use super::tally::{Goal, SharedTally, Tally};
use crate::operation::{Event, Observer};

/// How often a bar is drawn, whether or not something has happened.
const TICK: Duration = Duration::from_millis(250);

/// The bar on the screen, which everything else that is printed must go around.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Prints something while no bar is on the screen.
pub(super) fn aside<T>(print: impl FnOnce() -> T) -> T {
    let bar = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// A bar on the screen until it is dropped.
struct Shown(ProgressBar);

impl Shown {
    /// Shows a bar, if somebody looks.
    fn new(length: Option<usize>, template: &str) -> Option<Self> {
        if !output::is_watched() || log::is_json() {
            return None;
        }
        let bar = length.map_or_else(ProgressBar::new_spinner, |length| ProgressBar::new(length as u64));
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(TICK);
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        Some(Self(bar))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        SHOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.0.finish_and_clear();
    }
}

/// Shows which stage is under way and how many steps are done, where that is all there is to know.
pub struct Spinner(Option<Shown>);

impl Spinner {
    /// Shows it, if somebody looks.
    pub fn new() -> Self {
        Self(Shown::new(None, "{spinner} {pos} steps ({per_sec})  {wide_msg}"))
    }
}

impl Observer for Spinner {
    fn event(&mut self, event: Event<'_>) {
        trace(&event);
        let Some(Shown(bar)) = &self.0 else { return };
        match event {
            Event::StageStarted { stage, back, .. } => {
                bar.set_message(format!("{}{}", if back { "back: " } else { "" }, stage.title));
            }
            Event::StepDone { .. } => bar.inc(1),
            _ => {}
        }
    }
}

/// Tells the log of `-v` what happens.
fn trace(event: &Event<'_>) {
    match event {
        Event::StageStarted { stage, steps, back } => {
            let batch = stage.batch.map(|batch| batch.saturating_add(1));
            tracing::info!(stage = stage.name, batch, steps, back, "{}", stage.title);
        }
        Event::StepStarted { step } => tracing::trace!(step = %step.id, "begun"),
        Event::StepDone { step } => tracing::debug!(step = %step.id, "done"),
        Event::StepSkipped { step } => tracing::debug!(step = %step.id, "done before"),
        // The command that ends with it says so.
        Event::StepFailed { step, error } => tracing::debug!(step = %step.id, "not done: {error}"),
        Event::Assumed { external } => tracing::info!("taken as done: {}", external.what),
        Event::LeftAlone { step, reason } => tracing::warn!(step = %step, "left alone: {reason}"),
    }
}

/// Shows how many Services are where they are going, how fast, and how long the rest takes.
pub struct Progress<'a> {
    output: &'a Output,
    tally: SharedTally,
    bar: Option<Shown>,
    /// Services that have come since the last line.
    unsaid: usize,
    /// As many as make a line where there are no batches; `None` where there are.
    line_after: Option<usize>,
}

impl<'a> Progress<'a> {
    /// Begins to show it.
    pub fn new(output: &'a Output, shared: SharedTally) -> Self {
        let tally = lock(&shared);
        let bar = Shown::new(Some(tally.services), "{bar:24} {prefix}  {elapsed}\n  {wide_msg}");
        let line_after = tally.services.div_ceil(tally.batches.max(1)).max(1);
        let line_after = (tally.goal == Goal::Retire).then_some(line_after);
        if let Some(Shown(bar)) = &bar {
            draw(bar, &tally);
        }
        drop(tally);
        Self { output, tally: shared, bar, unsaid: 0, line_after }
    }

    /// Says how far it is, where there is no bar and something to say.
    fn say(&mut self) {
        if self.unsaid == 0 || self.bar.is_some() {
            return;
        }
        self.unsaid = 0;
        let (tally, now) = (lock(&self.tally), Instant::now());
        let stage = match tally.stage.batch {
            0 => tally.stage.name.clone(),
            batch => format!("batch {batch} of {}, {}", tally.batches, tally.stage.name),
        };
        let text = format!("{}; {stage}", tally.words(now));
        self.output.say(Kind::Progress, &text, &tally.fields(now));
    }
}

fn lock(tally: &SharedTally) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn draw(bar: &ProgressBar, tally: &Tally) {
    bar.set_position(tally.there() as u64);
    bar.set_prefix(tally.words(Instant::now()));
    let stage = &tally.stage;
    bar.set_message(format!("{}{}", if stage.back { "back: " } else { "" }, stage.title));
}

impl Observer for Progress<'_> {
    fn event(&mut self, event: Event<'_>) {
        trace(&event);
        if let Event::StageStarted { stage, .. } = &event {
            let batch = stage.batch.map_or(0, |batch| batch.saturating_add(1));
            let has_ended = lock(&self.tally).stage.batch != batch;
            if has_ended {
                self.say();
            }
        }
        let came = lock(&self.tally).note(&event, Instant::now());
        self.unsaid = self.unsaid.saturating_add(usize::from(came));
        if self.line_after.is_some_and(|count| self.unsaid >= count) {
            self.say();
        }
        if let Some(Shown(bar)) = &self.bar {
            draw(bar, &lock(&self.tally));
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.say();
    }
}
