//! Replays the changes of a collection since an earlier revision, from a watch. A list shows only the objects that exist now; a
//! replay also shows the objects that were created and deleted in between.

use std::time::Duration;

use kube::api::{ListParams, WatchParams};
use serde::Deserialize;
use serde_json::Value;

use super::connection::{Call, Verb};
use super::{Cluster, ClusterError, Collection};

/// Duration of a watch. An API server sends a bookmark two seconds before the end of a watch (`nextBookmarkTime`,
/// `staging/src/k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go`, v1.36.3), so a shorter watch has none.
const WATCH: Duration = Duration::from_secs(4);
/// Number of watches after which a replay ends without a proof.
const MOST_WATCHES: usize = 4;

/// The changes of a collection since an earlier revision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replay {
    /// The metadata of each object that was created, changed or deleted, once for each change.
    pub objects: Vec<Value>,
    /// Whether a bookmark proves that the watch has shown every change up to the present revision. API servers before 1.31 can
    /// lack such a bookmark; the watch then lasted some seconds longer than the changes in question.
    pub is_proven: bool,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// The resource version of a list or of an object; `None` if it is not a number.
fn revision(version: &str) -> Option<u64> {
    version.parse().ok()
}

fn version(object: &Value) -> &str {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

impl Cluster {
    /// Returns the present resource version of a collection.
    pub async fn revision_of(&self, collection: &Collection<'_>) -> Result<String, ClusterError> {
        // A list without a limit lets the watch cache of the API server request its progress from etcd. A bookmark then proves more.
        match self.revision_with(collection, None).await {
            Err(ClusterError::TooLarge { .. }) => self.revision_with(collection, Some(1)).await,
            outcome => outcome,
        }
    }

    async fn revision_with(
        &self,
        collection: &Collection<'_>,
        limit: Option<u32>,
    ) -> Result<String, ClusterError> {
        let place = self.connection.place(collection).await?;
        let options = ListParams { limit, ..ListParams::default() };
        let call = Call::new(Verb::List, place.requests.list_metadata(&options), &place.subject)?;
        let found: Value = self.connection.json(&call).await?;
        Ok(version(&found).to_string())
    }

    /// Returns every change of a collection since a resource version. Fails with status 410 if the API server no longer has the
    /// changes since then ([`ClusterError::is_too_old`]).
    pub async fn replay(&self, collection: &Collection<'_>, since: &str) -> Result<Replay, ClusterError> {
        let target = revision(&self.revision_of(collection).await?);
        let (mut replay, mut from) = (Replay::default(), since.to_string());
        for _ in 0..MOST_WATCHES {
            let (objects, reached) = self.watched(collection, &from).await?;
            replay.objects.extend(objects);
            let Some(reached) = reached else { continue };
            replay.is_proven =
                revision(&reached).zip(target).is_some_and(|(reached, target)| reached >= target);
            if replay.is_proven {
                break;
            }
            from = reached;
        }
        Ok(replay)
    }

    /// Returns the changes that one watch shows, and the last resource version in it.
    async fn watched(
        &self,
        collection: &Collection<'_>,
        from: &str,
    ) -> Result<(Vec<Value>, Option<String>), ClusterError> {
        let place = self.connection.place(collection).await?;
        let timeout = u32::try_from(WATCH.as_secs()).unwrap_or_default();
        let options = WatchParams { timeout: Some(timeout), bookmarks: true, ..WatchParams::default() };
        let call = Call::new(Verb::Watch, place.requests.watch_metadata(&options, from), &place.subject)?;
        let answer = self.connection.request(&call).await?;
        let (mut objects, mut reached) = (Vec::new(), None);
        for line in answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Event = self.connection.read(&call, line)?;
            if event.kind == "ERROR" {
                return Err(self.ended(&place.subject, &event.object));
            }
            reached = Some(version(&event.object).to_string());
            if event.kind != "BOOKMARK" {
                objects.push(event.object);
            }
        }
        Ok((objects, reached))
    }

    /// Returns the error that ended a watch: a `Status` object.
    fn ended(&self, subject: &str, status: &Value) -> ClusterError {
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
        let reason = status["message"].as_str().unwrap_or_default().to_string();
        let (server, subject) = (self.server().to_string(), subject.to_string());
        ClusterError::Server { server, verb: "watch", subject, code, reason }
    }
}

impl ClusterError {
    /// Returns whether the API server no longer has the changes since the requested resource version.
    pub fn is_too_old(&self) -> bool {
        matches!(self, Self::Server { code: 410, .. })
    }
}
