//! How far an operation has come, on stderr: a line that renews itself on a terminal, nothing elsewhere
//! (the outcome is printed in any case; `-v` logs every stage).

use indicatif::{ProgressBar, ProgressStyle};

use crate::operation::{Event, Observer};

/// Shows the stage that is under way and the number of steps done.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Returns a progress line; it draws itself only on a terminal.
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} steps ({per_sec})  {msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::StageStarted { stage, steps, back } => {
                tracing::info!(stage = stage.name, steps, back, "{}", stage.title);
                let direction = if back { "back: " } else { "" };
                self.bar.set_message(format!("{direction}{}", stage.title));
            }
            Event::StepDone { step } => {
                tracing::debug!(step = %step.id, "done");
                self.bar.inc(1);
            }
            Event::StepSkipped { step } => tracing::debug!(step = %step.id, "done before"),
            Event::Assumed { external } => tracing::info!("taken as done: {}", external.what),
            Event::LeftAlone { step, reason } => tracing::warn!(step = %step, "left alone: {reason}"),
        }
    }
}
