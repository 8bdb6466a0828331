//! Finds the names of a plan that have the records of a stage. If the record of a cutover in the cluster is lost, only the zone shows
//! how far the cutover went.

use futures_util::{StreamExt as _, stream};

use super::cutover::Cutover;
use super::provider::Provider;
use crate::nameserver::AT_ONCE;
use crate::session::Failure;
use crate::words::counted;

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
            let mut places = vec![work.start(name)];
            places.extend(work.places(name));
            provider.find(&places).await.ok().and_then(Result::ok)
        };
        let all: Vec<_> = stream::iter(work.names.iter().map(find)).buffer_unordered(AT_ONCE).collect().await;
        let old = all.iter().filter(|place| **place == Some(0)).count();
        let other = all.iter().filter(|place| place.is_none()).count();
        Self { old, staged: all.len().saturating_sub(old).saturating_sub(other), other }
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
