//! Shows the progress of an operation on stderr: a bar on a terminal, otherwise one line per batch with the same figures.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::beside_bar;
use super::log::{self, MessageKind};
use super::output::{self, Output};
use super::terminal_escape::neutral_line;
use crate::operation::{Event, Observer};
use crate::session::Countdown;
use crate::session::progress::{Progress as Figures, SharedProgress};
use crate::words::{in_words, titled};

/// Time between two redraws of a bar, even if there are no events.
const TICK: Duration = Duration::from_millis(250);
/// Time between two lines of a countdown if stderr is not a terminal.
const COUNT: Duration = Duration::from_secs(10);

/// A bar that stays on the screen until this value is dropped.
struct ShownBar(ProgressBar);

impl ShownBar {
    /// Shows a bar, if stderr is a terminal.
    fn new(length: Option<usize>, style: impl FnOnce() -> Option<ProgressStyle>) -> Option<Self> {
        if !output::is_watched() || log::is_json() {
            return None;
        }
        let bar = length.map_or_else(ProgressBar::new_spinner, |length| ProgressBar::new(length as u64));
        if let Some(style) = style() {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(TICK);
        beside_bar::show(Some(bar.clone()));
        Some(Self(bar))
    }
}

impl Drop for ShownBar {
    fn drop(&mut self) {
        beside_bar::show(None);
        self.0.finish_and_clear();
    }
}

/// Shows the current stage and the number of completed steps. Used if no other figures about the operation are known.
pub struct Spinner(Option<ShownBar>);

impl Spinner {
    /// Shows the spinner, if stderr is a terminal.
    pub fn new() -> Self {
        Self(ShownBar::new(None, || {
            ProgressStyle::with_template("{spinner} {pos} steps ({per_sec})  {wide_msg}").ok()
        }))
    }
}

impl Observer for Spinner {
    fn event(&mut self, event: Event<'_>) {
        trace(&event);
        let Some(ShownBar(bar)) = &self.0 else { return };
        match event {
            Event::StageStarted { stage, back, .. } => {
                bar.set_message(neutral_line(&titled(&stage.title, back), false).into_owned());
            }
            Event::StepDone { .. } => bar.inc(1),
            _ => {}
        }
    }
}

/// Returns a function that shows the remaining time of a wait. On a terminal, redraws one line. Otherwise prints a line every ten
/// seconds.
pub fn countdown(output: &Output) -> Countdown<'_> {
    let (mut bar, mut said) = (None, None::<Duration>);
    Box::new(move |left, text| {
        let line = format!("{text}: {} left", in_words(left));
        if said.is_none() {
            bar = ShownBar::new(None, || ProgressStyle::with_template("{spinner} {wide_msg}").ok());
        }
        if let Some(ShownBar(bar)) = &bar {
            bar.set_message(neutral_line(&line, false).into_owned());
            said = Some(left);
        } else if said.is_none_or(|said| said.saturating_sub(left) >= COUNT) {
            output.say(MessageKind::Progress, &line, &[("seconds_left", left.as_secs().into())]);
            said = Some(left);
        }
    })
}

/// Writes events to the log that `-v` enables.
fn trace(event: &Event<'_>) {
    match event {
        Event::StageStarted { stage, steps, back } => {
            let batch = stage.batch.map(|batch| batch.saturating_add(1));
            tracing::info!(stage = stage.name, batch, steps, back, "{}", stage.title);
        }
        Event::StepStarted { step, .. } => tracing::trace!(step = %step.id, "started"),
        Event::StepDone { step } => tracing::debug!(step = %step.id, "done"),
        Event::StepSkipped { step } => tracing::debug!(step = %step.id, "already done"),
        // The command reports the error when it ends.
        Event::StepFailed { step, error } => tracing::debug!(step = %step.id, "not done: {error}"),
        Event::CheckpointAsked { stage } => tracing::debug!(stage = stage.name, "checking the gates"),
        Event::CheckpointAnswered => {}
        Event::LeftAlone { step, reason } => tracing::warn!(step = %step, "skipped: {reason}"),
    }
}

/// Shows the number of completed subjects, the rate, and the remaining time.
pub struct Progress<'a> {
    output: &'a Output,
    figures: SharedProgress,
    bar: Option<ShownBar>,
    /// The task that prints the countdown, if there is no bar.
    counting: Option<JoinHandle<()>>,
    /// Number of subjects that were completed since the last line.
    unsaid: usize,
    /// Number of completed subjects after which the next line is printed, if the operation has no batches. `None` if there are
    /// batches.
    line_after: Option<usize>,
}

impl<'a> Progress<'a> {
    /// Starts to show the progress.
    pub fn new(output: &'a Output, figures: SharedProgress) -> Self {
        let ((reached, all), line_after) = {
            let figures = lock(&figures);
            (figures.reached(), figures.line_after())
        };
        // A redraw of the bar locks the progress figures, so this code must not hold the lock here.
        let bar = ShownBar::new(Some(all), || style(&figures));
        if let Some(ShownBar(bar)) = &bar {
            bar.set_position(reached as u64);
        }
        let counting = bar.is_none().then(|| tokio::spawn(count_down(output.clone(), figures.clone())));
        Self { output, figures, bar, counting, unsaid: 0, line_after }
    }

    /// Prints the progress, if there is no bar and something has changed.
    fn say(&mut self) {
        if self.unsaid == 0 || self.bar.is_some() {
            return;
        }
        self.unsaid = 0;
        let (figures, now) = (lock(&self.figures), Instant::now());
        let text = format!("{}: {}", figures.stage_title(), figures.words(now));
        self.output.say(MessageKind::Progress, &text, &figures.fields(now));
    }
}

fn lock(figures: &SharedProgress) -> MutexGuard<'_, dyn Figures + 'static> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the style of the bar. Each redraw reads the current progress, so a countdown continues even if
/// there are no events.
fn style(shared: &SharedProgress) -> Option<ProgressStyle> {
    let style = ProgressStyle::with_template("{bar:24} {figures}  {elapsed}\n  {stage}").ok()?;
    let (figures, stage) = (shared.clone(), shared.clone());
    let figures = move |_: &ProgressState, line: &mut dyn std::fmt::Write| {
        let _ = line.write_str(&lock(&figures).words(Instant::now()));
    };
    let stage = move |_: &ProgressState, line: &mut dyn std::fmt::Write| {
        let figures = lock(&stage);
        let text = lingering(&*figures).map_or_else(|| figures.stage_title(), |(text, _)| text);
        let _ = line.write_str(&neutral_line(&text, false));
    };
    Some(style.with_key("figures", figures).with_key("stage", stage))
}

/// Returns the text and the remaining time of the current wait, if the length of the wait is known.
fn lingering(figures: &dyn Figures) -> Option<(String, Duration)> {
    let (what, left) = figures.lingers(Instant::now())?;
    Some((format!("{what}: {} left", in_words(left)), left))
}

/// Prints the remaining time of the current wait every ten seconds, if the length of the wait is known.
async fn count_down(output: Output, figures: SharedProgress) {
    loop {
        sleep(COUNT).await;
        let lingering = lingering(&*lock(&figures)).filter(|(_, left)| left.as_secs() > 0);
        if let Some((text, left)) = lingering {
            output.say(MessageKind::Progress, &text, &[("seconds_left", left.as_secs().into())]);
        }
    }
}

impl Observer for Progress<'_> {
    fn event(&mut self, event: Event<'_>) {
        trace(&event);
        if let Event::StageStarted { stage, .. } = &event {
            let batch = stage.batch.map_or(0, |batch| batch.saturating_add(1));
            let has_ended = lock(&self.figures).batch() != batch;
            if has_ended {
                self.say();
            }
        }
        let came = lock(&self.figures).note(&event, Instant::now());
        self.unsaid = self.unsaid.saturating_add(usize::from(came));
        if self.line_after.is_some_and(|count| self.unsaid >= count) {
            self.say();
        }
        if let Some(ShownBar(bar)) = &self.bar {
            let (reached, _) = lock(&self.figures).reached();
            bar.set_position(reached as u64);
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(counting) = &self.counting {
            counting.abort();
        }
        self.say();
    }
}
