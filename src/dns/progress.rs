//! The progress of a cutover: how many names the current stage has changed.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::cutover::{Cutover, Share};
use super::stages::{changes_names, is_of_rollback, is_way_home};
use crate::operation::Event;
use crate::session::metrics::Page;
use crate::session::progress::Progress;
use crate::words::{counted, titled};

/// The progress figures of a cutover.
pub(super) struct NameProgress {
    operation: String,
    shares: Vec<Share>,
    /// Number of names in the most recently started stage that changes names. `changed` counts the names that this stage has
    /// changed.
    names: usize,
    changed: usize,
    skipped: usize,
    stage: String,
    title: String,
    /// Number of the share to which the current stage belongs, from 1; 0 if the stage belongs to no share.
    batch: usize,
    back: bool,
    /// The share of clients that the mirror gets after the most recently started stage with a share, in percent.
    share: Share,
    waits_until: Option<Instant>,
}

impl NameProgress {
    pub(super) fn new(operation: &str, work: &Cutover) -> Self {
        Self {
            operation: operation.to_string(),
            shares: work.shares.clone(),
            names: work.names.len(),
            changed: 0,
            skipped: 0,
            stage: String::new(),
            title: String::new(),
            batch: 0,
            back: false,
            share: 0,
            waits_until: None,
        }
    }

    /// Counts one changed name if `is_name` is true. Returns `is_name`.
    fn count(&mut self, is_name: bool) -> bool {
        self.changed = self.changed.saturating_add(usize::from(is_name));
        is_name
    }

    /// Returns the share of clients on the mirror after a stage; 0 before the first stage. `stage` is the number of the stage,
    /// from 1.
    fn share_of(&self, stage: usize) -> Share {
        stage.checked_sub(1).and_then(|stage| self.shares.get(stage).copied()).unwrap_or_default()
    }
}

impl Progress for NameProgress {
    fn note(&mut self, event: &Event<'_>, now: Instant) -> bool {
        match event {
            Event::StageStarted { stage, back: false, .. } if is_of_rollback(stage) => {}
            Event::StageStarted { stage, steps, back } => {
                self.stage.clone_from(&stage.name);
                self.title = titled(&stage.title, *back);
                self.batch = stage.batch.map_or(0, |batch| batch.saturating_add(1));
                self.back = *back;
                if self.batch > 0 {
                    self.share = self.share_of(self.batch.saturating_sub(usize::from(*back)));
                }
                if is_way_home(stage) {
                    self.share = 0;
                }
                if changes_names(stage) {
                    (self.changed, self.names) = (0, *steps);
                }
            }
            Event::StepStarted { left, .. } => {
                self.waits_until = left.and_then(|left| now.checked_add(left));
            }
            Event::StepDone { step } => {
                self.waits_until = None;
                return self.count(!step.subject.is_empty());
            }
            // An earlier run changed the name and reported the change, so this run only counts the name.
            Event::StepSkipped { step } => {
                self.count(!step.subject.is_empty());
            }
            Event::LeftAlone { .. } => self.skipped = self.skipped.saturating_add(1),
            Event::StepFailed { .. } | Event::CheckpointAsked { .. } | Event::CheckpointAnswered => {}
        }
        false
    }

    fn reached(&self) -> (usize, usize) {
        (self.changed, self.names)
    }

    fn line_after(&self) -> Option<usize> {
        Some(self.names.max(1))
    }

    fn words(&self, _now: Instant) -> String {
        let done = if self.back { "back at the old records" } else { "changed" };
        format!("{} of {} {done}", self.changed, counted(self.names, "name", "names"))
    }

    fn fields(&self, _now: Instant) -> Vec<(&'static str, Value)> {
        vec![
            ("direction", Value::from(if self.back { "back" } else { "forward" })),
            ("stage", Value::from(self.stage.as_str())),
            ("share", Value::from(self.share)),
            ("names", Value::from(self.names)),
            ("names_changed", Value::from(self.changed)),
            ("names_skipped", Value::from(self.skipped)),
        ]
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn stage_title(&self) -> String {
        self.title.clone()
    }

    fn lingers(&self, now: Instant) -> Option<(String, Duration)> {
        Some((self.title.clone(), self.waits_until?.saturating_duration_since(now)))
    }

    fn write(&self, page: &mut Page) {
        let stage = [("operation", self.operation.as_str()), ("stage", self.stage.as_str())];
        page.info("netsurgeon_dns_stage_info", "The current stage of the cutover.", &stage);
        let share = "Share of clients that the current stage sends to the mirror, in percent.";
        page.gauge("netsurgeon_dns_share_percent", share, self.share);
        page.family("netsurgeon_dns_names", "gauge", "Names of the current stage, by state.");
        let waiting = self.names.saturating_sub(self.changed);
        page.sample("netsurgeon_dns_names", &[("state", "changed")], self.changed);
        page.sample("netsurgeon_dns_names", &[("state", "waiting")], waiting);
        page.gauge("netsurgeon_dns_names_skipped", "Names that were skipped.", self.skipped);
    }
}
