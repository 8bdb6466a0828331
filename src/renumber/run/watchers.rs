//! What is told what a renumbering of a live cluster does: the screen or the log, the metrics, and the cluster's own events.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use super::announce::Announcer;
use super::tally::{Goal, Tally};
use super::{RenumberSession, Way};
use crate::operation::{Event, Journal, Observer};
use crate::renumber::Renumbering;
use crate::session::progress::SharedProgress;
use crate::session::{Said, Voice};

/// They, until the operation has ended.
pub(super) struct Watchers<'a> {
    voice: &'a Voice,
    progress: Box<dyn Observer + 'a>,
    announcer: Option<Announcer<'a>>,
    /// How long it was asked to linger, in seconds, where that is longer than it can.
    asked: Option<u64>,
}

impl<'a> Watchers<'a> {
    /// Begins to watch.
    pub(super) fn new(
        session: &'a RenumberSession,
        (operation, work, journal): (&str, &'a Renumbering, &Journal),
        way: Way,
    ) -> Self {
        let voice = &session.voice;
        voice.about("operation", operation);
        let goal = match way {
            Way::Forward => Goal::Move,
            Way::Retire => Goal::Retire,
            Way::Back | Way::MovesBack => Goal::Back,
        };
        let tally = Tally::new(operation, goal, (work, journal), Instant::now());
        let tally: SharedProgress = Arc::new(Mutex::new(tally));
        session.show(tally.clone());
        let cluster = session.cluster().filter(|_| session.choices.events);
        let asked = session.choices.linger.as_secs();
        Self {
            voice,
            progress: voice.watch(tally),
            announcer: cluster.map(|cluster| Announcer::new(cluster, operation, work)),
            asked: Some(asked).filter(|asked| *asked > session.linger_of(work).as_secs()),
        }
    }

    /// Ends watching.
    pub(super) async fn finish(self) {
        let Self { voice, progress, announcer, .. } = self;
        drop(progress);
        if let Some(announcer) = announcer {
            announcer.finish(voice).await;
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
                "the new addresses answer for {seconds} s more, for clients that resolved a name a moment ago (`--linger`)"
            );
            if let Some(asked) = self.asked {
                let _ = write!(
                    text,
                    "; not for {asked} s, because in the bitmap era an API server frees an address that no Service has after 6 minutes"
                );
            }
            self.voice.say(Said::Note, &text, &[("seconds", Value::from(seconds))]);
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.event(event);
        }
    }
}
