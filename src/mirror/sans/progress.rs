//! The progress: how many Certificates the current stage has changed.

use super::work::Sans;
use crate::operation::Stage;
use crate::session::progress::{StageFigures, StageProgress, SubjectWords};

/// The words for Certificates. The operation has no figures of its own.
pub(super) struct CertificateFigures;

/// Returns the progress figures.
pub(super) fn progress(operation: &str, work: &Sans) -> StageProgress<CertificateFigures> {
    StageProgress::new(operation, work.additions().count(), CertificateFigures)
}

impl StageFigures for CertificateFigures {
    const WORDS: SubjectWords = SubjectWords {
        one: "certificate",
        many: "certificates",
        fields: ["certificates", "certificates_issued", "certificates_skipped"],
        changed: "issued",
        back: "changed back",
        metrics: "netsurgeon_mirror_sans",
    };

    fn changes_subjects(&self, _stage: &Stage) -> bool {
        true
    }
}
