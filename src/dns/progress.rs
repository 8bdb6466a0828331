//! The progress of a cutover: how many names the current stage has changed, and the mirror's share of the clients.

use serde_json::Value;

use super::cutover::{Cutover, Share};
use super::stages::{changes_names, is_of_rollback, is_way_home};
use crate::operation::Stage;
use crate::session::metrics::Page;
use crate::session::progress::{StageFigures, StageProgress, SubjectWords};

/// The share of the clients that the mirror gets, by stage.
pub(super) struct Shares {
    shares: Vec<Share>,
    /// The share after the most recently started stage with a share, in percent.
    now: Share,
}

/// Returns the progress figures of a cutover.
pub(super) fn progress(operation: &str, work: &Cutover) -> StageProgress<Shares> {
    StageProgress::new(operation, work.names.len(), Shares { shares: work.shares.clone(), now: 0 })
}

impl StageFigures for Shares {
    const WORDS: SubjectWords = SubjectWords {
        one: "name",
        many: "names",
        fields: ["names", "names_changed", "names_skipped"],
        changed: "changed",
        back: "back at the old records",
        metrics: "netsurgeon_dns",
    };

    fn changes_subjects(&self, stage: &Stage) -> bool {
        changes_names(stage)
    }

    fn is_shown(&self, stage: &Stage, back: bool) -> bool {
        back || !is_of_rollback(stage)
    }

    fn stage_started(&mut self, stage: &Stage, back: bool) {
        if let Some(batch) = stage.batch {
            // Forward, the mirror gets the share of this stage; in a rollback, the share of the stage before.
            let place = if back { batch.checked_sub(1) } else { Some(batch) };
            self.now = place.and_then(|place| self.shares.get(place).copied()).unwrap_or_default();
        }
        if is_way_home(stage) {
            self.now = 0;
        }
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![("share", Value::from(self.now))]
    }

    fn write(&self, page: &mut Page) {
        let share = "Share of clients that the current stage sends to the mirror, in percent.";
        page.gauge("netsurgeon_dns_share_percent", share, self.now);
    }
}
