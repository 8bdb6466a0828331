//! Compares every planned copy with the source and the mirror as they are now.

use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use super::activation::MovedCopies;
use super::copy::{Shape, copy, is_active};
use super::difference::Change;
use super::reader::{different, differing, planned_object};
use super::refusal::words;
use super::work::{Entry, Mirror};
use crate::inventory::{AT_ONCE, text};
use crate::kube_api::{ClusterError, ReadOnly};
use crate::operation::Plan;
use crate::session::Failure;

/// The state of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyState {
    /// The mirror has the copy, and it is equal to the object of the source.
    Equal,
    /// The mirror does not have the copy.
    Missing,
    /// Fields of the copy have other values.
    Different,
    /// The copy must be passive, but it is active.
    Active,
    /// The source has deleted or replaced the object.
    SourceMissing,
    /// The object could not be read.
    Unknown,
}

/// A planned copy, as it is now.
#[derive(Debug, Clone, Serialize)]
pub struct Verified {
    /// The object, for people, for example `Deployment shop/web`.
    pub object: String,
    /// The state.
    pub state: CopyState,
    /// Paths of the fields that differ, without their values.
    pub fields: Vec<String>,
    /// Why the state is not known.
    pub error: Option<String>,
}

/// Checks every planned copy. A copy that an activation has moved must be active. Fails if the clusters are not those of the plan.
pub async fn verify(
    source: &ReadOnly,
    mirror: &ReadOnly,
    plan: &Plan<Mirror>,
    moved: &MovedCopies,
) -> Result<Vec<Verified>, Failure> {
    let found = different(source, mirror).await?;
    if found != (plan.work.source.clone(), plan.header.cluster.clone()) {
        return Err(Failure::refused("the plan is for other clusters")
            .hint("check `--context` and `--mirror-context`, or `--kubeconfig` and `--mirror-kubeconfig`"));
    }
    let copied = plan.work.objects.iter().filter(|entry| entry.action.is_copied());
    let checks = copied.map(async |entry| {
        let (state, fields, error) = match state((source, mirror), entry, moved).await {
            Ok((state, changes)) => (state, changes.iter().map(Change::field).collect(), None),
            Err(error) => (CopyState::Unknown, Vec::new(), Some(words(&error, entry.object.is_secret()))),
        };
        Verified { object: entry.object.to_string(), state, fields, error }
    });
    Ok(stream::iter(checks).buffered(AT_ONCE).collect().await)
}

async fn state(
    (source, mirror): (&ReadOnly, &ReadOnly),
    entry: &Entry,
    moved: &MovedCopies,
) -> Result<(CopyState, Vec<Change>), ClusterError> {
    let object = entry.object.object();
    let (found, live) = tokio::try_join!(planned_object(source, &object, &entry.uid), mirror.get(&object))?;
    let live = live.filter(|live| text(live, "/metadata/deletionTimestamp").is_empty());
    let Some(live) = live else { return Ok((CopyState::Missing, Vec::new())) };
    let moved = moved.of(&entry.object.resource, &live);
    if moved.is_none() && is_active(&entry.object.resource, &live) == Some(true) {
        return Ok((CopyState::Active, Vec::new()));
    }
    let Some(found) = found else { return Ok((CopyState::SourceMissing, Vec::new())) };
    let manifest = copy(&entry.object.resource, &found, Shape { moved, ..entry.shape });
    let changes = differing(mirror, &manifest, &live).await?;
    let state = if changes.is_empty() { CopyState::Equal } else { CopyState::Different };
    Ok((state, changes))
}
