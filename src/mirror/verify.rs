//! Compares every planned copy with the source and the mirror as they are now.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::activation::MovedCopies;
use super::copy::{Shape, copy, is_active};
use super::difference::Change;
use super::reader::{different, differing, planned_object};
use super::readiness::why_not_ready;
use super::refusal::words;
use super::rules::{PULL_SECRET_TYPE, Rules, Uses, planned_pull_secret};
use super::work::{Entry, Mirror, Planned};
use crate::inventory::{AT_ONCE, text};
use crate::kube_api::{ClusterError, ReadOnly};
use crate::operation::Plan;
use crate::session::Failure;

/// Pause between two checks of workloads that are not ready.
const PAUSE: Duration = Duration::from_secs(2);

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
    /// The copy is equal, but its Pods are not ready.
    NotReady,
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
    /// Why the state is not known, or why the Pods are not ready.
    pub error: Option<String>,
}

/// How copies are compared.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// The copies that activations have moved. They must be active.
    pub moved: &'a MovedCopies,
    /// Whether the contents of pull secrets are compared with their files. Only a plan of the operator may name files.
    pub reads_files: bool,
    /// Whether the Pods of workloads must be ready; `None`: they need not. The time is how long to wait for them.
    pub patience: Option<Duration>,
}

/// Checks every planned copy. Fails if the clusters are not those of the plan. Waits for the Pods of workloads as long as
/// [`Comparison::patience`] says; `waiting` gets the number of workloads that are not ready.
pub async fn verify(
    clusters: (&ReadOnly, &ReadOnly),
    plan: &Plan<Mirror>,
    comparison: Comparison<'_>,
    mut waiting: impl FnMut(usize),
) -> Result<Vec<Verified>, Failure> {
    let found = different(clusters.0, clusters.1).await?;
    if found != (plan.work.source.clone(), plan.header.cluster.clone()) {
        return Err(Failure::refused("the plan is for other clusters")
            .hint("check `--context` and `--mirror-context`, or `--kubeconfig` and `--mirror-kubeconfig`"));
    }
    let is_expected = |entry: &&Entry| entry.action.is_copied() || entry.action == Planned::Delete;
    let copied: Vec<&Entry> = plan.work.objects.iter().filter(is_expected).collect();
    let check = async |entry: &Entry| verified(clusters, &plan.work, entry, comparison).await;
    let checks = copied.iter().map(|entry| check(entry));
    let mut found: Vec<Verified> = stream::iter(checks).buffered(AT_ONCE).collect().await;
    let started = Instant::now();
    loop {
        let all = found.iter_mut().zip(copied.iter().copied());
        let late: Vec<(&mut Verified, &Entry)> =
            all.filter(|(one, _)| one.state == CopyState::NotReady).collect();
        if late.is_empty() || started.elapsed() >= comparison.patience.unwrap_or_default() {
            return Ok(found);
        }
        waiting(late.len());
        sleep(PAUSE).await;
        for (one, entry) in late {
            *one = check(entry).await;
        }
    }
}

/// Checks one copy.
async fn verified(
    clusters: (&ReadOnly, &ReadOnly),
    work: &Mirror,
    entry: &Entry,
    comparison: Comparison<'_>,
) -> Verified {
    let (state, fields, error) = match state(clusters, work, entry, comparison).await {
        Ok(Finding { state, changes, detail }) => {
            (state, changes.iter().map(Change::field).collect(), detail)
        }
        Err(reason) => (CopyState::Unknown, Vec::new(), Some(reason)),
    };
    Verified { object: entry.object.to_string(), state, fields, error }
}

/// The state of a copy, with what explains it.
struct Finding {
    state: CopyState,
    changes: Vec<Change>,
    detail: Option<String>,
}

impl From<CopyState> for Finding {
    fn from(state: CopyState) -> Self {
        Self { state, changes: Vec::new(), detail: None }
    }
}

async fn state(
    (source, mirror): (&ReadOnly, &ReadOnly),
    work: &Mirror,
    entry: &Entry,
    Comparison { moved, reads_files, patience }: Comparison<'_>,
) -> Result<Finding, String> {
    let is_secret = entry.object.is_secret();
    let failed = |error: ClusterError| words(&error, is_secret);
    let (object, target) = (entry.object.object(), work.target(&entry.object));
    if entry.action == Planned::Delete {
        let live = mirror.get(&target.object()).await.map_err(failed)?;
        let is_left =
            live.is_some_and(|live| Some(text(&live, "/metadata/uid")) == entry.mirror_uid.as_deref());
        let state = if is_left { CopyState::NotDeleted } else { CopyState::Equal };
        return Ok(state.into());
    }
    let found = async {
        if entry.uid.is_empty() { Ok(None) } else { planned_object(source, &object, &entry.uid).await }
    };
    let target = target.object();
    let (found, live) = tokio::join!(found, mirror.get(&target));
    let (found, live) = (found.map_err(failed)?, live.map_err(failed)?);
    let live = live.filter(|live| text(live, "/metadata/deletionTimestamp").is_empty());
    let Some(live) = live else { return Ok(CopyState::Missing.into()) };
    let moved = moved.of(&entry.object.resource, &live);
    if moved.is_none() && is_active(&entry.object.resource, &live, entry.shape) == Some(true) {
        return Ok(CopyState::Active.into());
    }
    let found = match found {
        // Without its file, only the type of a pull secret is known.
        None if entry.uid.is_empty() && !reads_files => {
            let is_right = text(&live, "/type") == PULL_SECRET_TYPE;
            let state = if is_right { CopyState::Equal } else { CopyState::Different };
            return Ok(state.into());
        }
        None if entry.uid.is_empty() => {
            planned_pull_secret(&work.config, &entry.object, reads_files).map_err(|fault| fault.0)?
        }
        None => return Ok(CopyState::SourceMissing.into()),
        Some(found) => found,
    };
    let shape = Shape { moved, ..entry.shape };
    let rules = Rules { config: &work.config, uses: &Uses::default() };
    let manifest = copy(&entry.object.resource, &found, shape, rules).map_err(|fault| fault.0)?;
    let changes = differing(mirror, &manifest, &live).await.map_err(failed)?;
    if !changes.is_empty() {
        return Ok(Finding { changes, ..CopyState::Different.into() });
    }
    let detail = patience.and_then(|_| why_not_ready(&entry.object.resource, &live));
    let state = if detail.is_some() { CopyState::NotReady } else { CopyState::Equal };
    Ok(Finding { detail, ..state.into() })
}
