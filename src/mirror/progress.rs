//! The progress of a mirror operation: how many objects the current stage has changed.

use super::work::Mirror;
use crate::operation::Stage;
use crate::session::progress::{StageFigures, StageProgress, SubjectWords};

/// The words for objects. A mirror operation has no figures of its own.
pub(super) struct Objects;

/// Returns the progress figures of a mirror operation.
pub(super) fn progress(operation: &str, work: &Mirror) -> StageProgress<Objects> {
    StageProgress::new(operation, work.changes().count(), Objects)
}

impl StageFigures for Objects {
    const WORDS: SubjectWords = SubjectWords {
        one: "object",
        many: "objects",
        fields: ["objects", "objects_changed", "objects_skipped"],
        changed: "changed",
        back: "reverted",
        metrics: "netsurgeon_mirror",
    };

    fn changes_subjects(&self, _stage: &Stage) -> bool {
        true
    }
}
