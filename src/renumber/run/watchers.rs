//! The outputs of a renumbering on a live cluster: terminal or log, metrics, and Kubernetes events.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use super::announce::Announcer;
use super::progress::{Goal, MoveProgress};
use super::{Direction, RenumberSession};
use crate::operation::{Event, Journal, Observer};
use crate::renumber::Renumbering;
use crate::session::progress::SharedProgress;
use crate::session::{MessageKind, Ui};

/// Outputs that stay open until a run of an operation ends.
pub(super) struct Watchers<'a> {
    ui: &'a Ui,
    progress: Box<dyn Observer + 'a>,
    announcer: Option<Announcer<'a>>,
    /// The requested linger time in seconds, if it is longer than the maximum.
    asked: Option<u64>,
}

impl<'a> Watchers<'a> {
    /// Opens the outputs.
    pub(super) fn new(
        session: &'a RenumberSession,
        (operation, work, journal): (&str, &'a Renumbering, &Journal),
        way: Direction,
    ) -> Self {
        let ui = &session.ui;
        ui.about("operation", operation);
        let goal = match way {
            Direction::Forward => Goal::Move,
            Direction::Retire => Goal::Retire,
            Direction::Back | Direction::MovesBack => Goal::Back,
        };
        let progress = MoveProgress::new(operation, goal, (work, journal), Instant::now());
        let progress: SharedProgress = Arc::new(Mutex::new(progress));
        session.show(progress.clone());
        let cluster = session.cluster().filter(|_| session.choices.events);
        let asked = session.choices.linger.as_secs();
        Self {
            ui,
            progress: ui.watch(progress),
            announcer: cluster.map(|cluster| Announcer::new(cluster, operation, work)),
            asked: Some(asked).filter(|asked| *asked > session.linger_of(work).as_secs()),
        }
    }

    /// Closes the outputs.
    pub(super) async fn finish(self) {
        let Self { ui, progress, announcer, .. } = self;
        drop(progress);
        if let Some(announcer) = announcer {
            announcer.finish(ui).await;
        }
    }
}

impl Observer for Watchers<'_> {
    fn event(&mut self, event: Event<'_>) {
        self.progress.event(event);
        if let Event::StepStarted { left: Some(left), .. } = event
            && !left.is_zero()
        {
            let seconds = left.as_secs();
            let mut text = format!(
                "the new addresses continue to answer for {seconds} s, for clients that have cached them from DNS (`--linger`)"
            );
            if let Some(asked) = self.asked {
                let _ = write!(
                    text,
                    "; the requested {asked} s are too long: in the bitmap era an API server frees an unused address after 6 \
                     minutes"
                );
            }
            self.ui.say(MessageKind::Note, &text, &[("seconds", Value::from(seconds))]);
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.event(event);
        }
    }
}
