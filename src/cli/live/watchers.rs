//! Everybody who is told what an operation on a live cluster does: the screen or the log, the metrics, and the
//! cluster's own events.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use super::{Api, LiveArgs, Session, Way};
use crate::cli::announce::Announcer;
use crate::cli::log::{self, Kind};
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::tally::{Goal, Tally};
use crate::operation::{Event, Journal, Observer};
use crate::renumber::Renumbering;

/// They, until the operation has ended.
pub(super) struct Watchers<'a> {
    output: &'a Output,
    progress: Progress<'a>,
    announcer: Option<Announcer<'a>>,
    /// How long it was asked to linger, in seconds, where that is longer than it can.
    asked: Option<u64>,
}

impl<'a> Watchers<'a> {
    /// Begins to watch.
    pub(super) fn new(
        output: &'a Output,
        session: &Session,
        args: &LiveArgs,
        (operation, work, journal): (&str, &'a Renumbering, &Journal),
        way: Way,
    ) -> Self {
        log::about("operation", operation);
        let goal = match way {
            Way::Forward => Goal::Move,
            Way::Retire => Goal::Retire,
            Way::Back | Way::MovesBack => Goal::Back,
        };
        let tally = Tally::new(operation, goal, (work, journal), Instant::now());
        let tally = Arc::new(Mutex::new(tally));
        if let Some(metrics) = &session.metrics {
            metrics.show(tally.clone());
            let url = metrics.url();
            output.say(Kind::Note, &format!("metrics are at {url}"), &[("url", Value::from(url.as_str()))]);
        }
        let announcer = match &session.api {
            Api::Answers(cluster) if !args.no_events => Some(Announcer::new(cluster, operation, work)),
            _ => None,
        };
        Self {
            output,
            progress: Progress::new(output, tally),
            announcer,
            asked: Some(args.linger).filter(|asked| *asked > args.linger_of(work).as_secs()),
        }
    }

    /// Ends watching.
    pub(super) async fn finish(self) {
        let Self { output, progress, announcer, .. } = self;
        drop(progress);
        if let Some(announcer) = announcer {
            announcer.finish(output).await;
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
            self.output.say(Kind::Note, &text, &[("seconds", Value::from(seconds))]);
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.event(event);
        }
    }
}
