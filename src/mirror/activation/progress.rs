//! The progress of an activation: how many objects the current stage has moved.

use super::work::Activation;
use crate::operation::Stage;
use crate::session::progress::{StageFigures, StageProgress, SubjectWords};

/// The words for objects. An activation has no figures of its own.
pub(super) struct Objects;

/// Returns the progress figures of an activation.
pub(super) fn progress(operation: &str, work: &Activation) -> StageProgress<Objects> {
    StageProgress::new(operation, work.moves().count(), Objects)
}

impl StageFigures for Objects {
    const WORDS: SubjectWords = SubjectWords {
        one: "object",
        many: "objects",
        fields: ["objects", "objects_moved", "objects_skipped"],
        changed: "moved",
        back: "moved back",
        metrics: "netsurgeon_mirror_activation",
    };

    fn changes_subjects(&self, _stage: &Stage) -> bool {
        true
    }
}
