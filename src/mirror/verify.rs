//! Compares every planned copy with the source and the mirror as they are now.

use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use super::activation::MovedCopies;
use super::copy::{Shape, copy, is_active};
use super::difference::Change;
use super::reader::{different, differing, planned_object};
use super::refusal::words;
use super::rules::{PULL_SECRET_TYPE, Rules, Uses, planned_pull_secret};
use super::work::{Entry, Mirror, Planned};
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
    /// The copy must be deleted, because the source has deleted the object.
    NotDeleted,
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
/// `reads_files`: whether the contents of pull secrets are compared with their files. Only a plan of the operator may name files.
pub async fn verify(
    (source, mirror): (&ReadOnly, &ReadOnly),
    plan: &Plan<Mirror>,
    (moved, reads_files): (&MovedCopies, bool),
) -> Result<Vec<Verified>, Failure> {
    let found = different(source, mirror).await?;
    if found != (plan.work.source.clone(), plan.header.cluster.clone()) {
        return Err(Failure::refused("the plan is for other clusters")
            .hint("check `--context` and `--mirror-context`, or `--kubeconfig` and `--mirror-kubeconfig`"));
    }
    let is_expected = |entry: &&Entry| entry.action.is_copied() || entry.action == Planned::Delete;
    let copied = plan.work.objects.iter().filter(is_expected);
    let checks = copied.map(async |entry| {
        let with = (moved, reads_files);
        let (state, fields, error) = match state((source, mirror), &plan.work, entry, with).await {
            Ok((state, changes)) => (state, changes.iter().map(Change::field).collect(), None),
            Err(reason) => (CopyState::Unknown, Vec::new(), Some(reason)),
        };
        Verified { object: entry.object.to_string(), state, fields, error }
    });
    Ok(stream::iter(checks).buffered(AT_ONCE).collect().await)
}

async fn state(
    (source, mirror): (&ReadOnly, &ReadOnly),
    work: &Mirror,
    entry: &Entry,
    (moved, reads_files): (&MovedCopies, bool),
) -> Result<(CopyState, Vec<Change>), String> {
    let is_secret = entry.object.is_secret();
    let failed = |error: ClusterError| words(&error, is_secret);
    let (object, target) = (entry.object.object(), work.target(&entry.object));
    if entry.action == Planned::Delete {
        let live = mirror.get(&target.object()).await.map_err(failed)?;
        let is_left =
            live.is_some_and(|live| Some(text(&live, "/metadata/uid")) == entry.mirror_uid.as_deref());
        let state = if is_left { CopyState::NotDeleted } else { CopyState::Equal };
        return Ok((state, Vec::new()));
    }
    let found = async {
        if entry.uid.is_empty() { Ok(None) } else { planned_object(source, &object, &entry.uid).await }
    };
    let target = target.object();
    let (found, live) = tokio::join!(found, mirror.get(&target));
    let (found, live) = (found.map_err(failed)?, live.map_err(failed)?);
    let live = live.filter(|live| text(live, "/metadata/deletionTimestamp").is_empty());
    let Some(live) = live else { return Ok((CopyState::Missing, Vec::new())) };
    let moved = moved.of(&entry.object.resource, &live);
    if moved.is_none() && is_active(&entry.object.resource, &live, entry.shape) == Some(true) {
        return Ok((CopyState::Active, Vec::new()));
    }
    let found = match found {
        // Without its file, only the type of a pull secret is known.
        None if entry.uid.is_empty() && !reads_files => {
            let is_right = text(&live, "/type") == PULL_SECRET_TYPE;
            let state = if is_right { CopyState::Equal } else { CopyState::Different };
            return Ok((state, Vec::new()));
        }
        None if entry.uid.is_empty() => {
            planned_pull_secret(&work.config, &entry.object, reads_files).map_err(|fault| fault.0)?
        }
        None => return Ok((CopyState::SourceMissing, Vec::new())),
        Some(found) => found,
    };
    let shape = Shape { moved, ..entry.shape };
    let rules = Rules { config: &work.config, uses: &Uses::default() };
    let manifest = copy(&entry.object.resource, &found, shape, rules).map_err(|fault| fault.0)?;
    let changes = differing(mirror, &manifest, &live).await.map_err(failed)?;
    let state = if changes.is_empty() { CopyState::Equal } else { CopyState::Different };
    Ok((state, changes))
}
