//! Finds the names of a plan that have the records of a stage. If the record of a cutover in the cluster is lost, only the zone shows
//! how far the cutover went.

use futures_util::{StreamExt as _, stream};

use super::cutover::Cutover;
use super::provider::Provider;
use crate::nameserver::AT_ONCE;
use crate::session::{Failure, counted};

/// How many names of a plan have which records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Names with the records from before the cutover.
    pub old: usize,
    /// Names with the records of a stage.
    pub staged: usize,
    /// Names with other records, and names that could not be read.
    pub other: usize,
}

impl Whereabouts {
    /// Reads all names of a plan.
    pub(super) async fn of(work: &Cutover, provider: &dyn Provider) -> Self {
        let find = |name| async move {
            match provider.find(&[work.start(name)]).await {
                Ok(Ok(_)) => (1, 0),
                Ok(Err(_)) if matches!(provider.find(&work.places(name)).await, Ok(Ok(_))) => (0, 1),
                _ => (0, 0),
            }
        };
        let all: Vec<_> = stream::iter(work.names.iter().map(find)).buffer_unordered(AT_ONCE).collect().await;
        let old = all.iter().map(|(old, _)| old).sum();
        let staged = all.iter().map(|(_, staged)| staged).sum();
        Self { old, staged, other: all.len().saturating_sub(old).saturating_sub(staged) }
    }
}

/// Fails if names already have the records of a stage although the cutover has no record: the record was lost.
pub(super) async fn refuse_unrecorded(work: &Cutover, provider: &dyn Provider) -> Result<(), Failure> {
    let staged = Whereabouts::of(work, provider).await.staged;
    if staged == 0 {
        return Ok(());
    }
    let names = counted(staged, "name has", "names have");
    Err(Failure::refused(format!(
        "{names} the records of a stage of this plan, but the cluster has no journal of it: the journal was deleted"
    ))
    .hint(PLANNED_ROLLBACK))
}

/// Hint for a cutover whose journal is lost.
pub const PLANNED_ROLLBACK: &str =
    "to roll the cutover back with its plan: `netsurgeon dns rollback --plan FILE`";
