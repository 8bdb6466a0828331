//! One ConfigMap of records, with its concurrent writers.
//!
//! The first writer waits a moment for other writers ([`Writers::gather`]), and writes for all of them (group commit). So
//! concurrent steps need only a few writes. Each write names the `resourceVersion` that it replaces. A process that takes over the
//! operation first writes a higher epoch into the object. So a write of the previous holder fails, and the previous holder then
//! finds the higher epoch.

use std::sync::Mutex as Queue;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio::time::Instant;

use super::gather::{Writer, Writers};
use super::objects::{self, RecordMap, Records, Stored, named, place};
use crate::kube_api::{Cluster, ClusterError};
use crate::operation::OperationError;
use crate::store::{Action, CommitError, Expected, Key, Revision};

/// Maximum number of attempts to write, including retries after conflicts and lost answers.
const MOST_ATTEMPTS: u32 = 5;
/// Maximum size of the records of a ConfigMap, in bytes. The limit for the whole ConfigMap is 1 MiB (`MaxSecretSize` in
/// `pkg/apis/core/types.go`, v1.36.3, which also applies to ConfigMaps).
const MOST_BYTES: usize = 1_000_000;

/// The epoch of this process as a holder of the operation, and the revision that was written last.
pub(super) struct Fence {
    pub(super) epoch: u64,
    newest: AtomicI64,
    /// Counter of the writes of this process.
    pub(super) writes: Arc<AtomicU64>,
}

impl Fence {
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch, newest: AtomicI64::new(0), writes: Arc::default() }
    }

    /// Records the newest revision that previous holders wrote.
    pub(super) fn saw(&self, kept: &RecordMap) {
        let newest = kept.records.values().map(|stored| stored.revision.0).max().unwrap_or_default();
        self.newest.fetch_max(newest, Ordering::SeqCst);
    }

    fn next(&self) -> Revision {
        Revision(self.newest.fetch_add(1, Ordering::SeqCst).saturating_add(1))
    }
}

/// A change to a record.
#[derive(Debug)]
pub(super) struct RecordChange {
    pub(super) name: String,
    pub(super) expected: Expected,
    pub(super) action: Action,
}

/// A writer that waits for the outcome of its changes.
struct Waiting {
    changes: Vec<RecordChange>,
    /// Revision of the write; `None` before the first attempt.
    revision: Option<Revision>,
    tell: oneshot::Sender<Result<Revision, OperationError>>,
    _counted: Writer,
}

/// A ConfigMap of records.
pub(super) struct Shard {
    cluster: Cluster,
    namespace: String,
    name: String,
    waiting: Queue<Vec<Waiting>>,
    /// The cached object; `None` if it has to be read.
    kept: Mutex<Option<RecordMap>>,
}

impl Shard {
    pub(super) fn new(cluster: &Cluster, namespace: &str, name: String, kept: Option<RecordMap>) -> Self {
        Self {
            cluster: cluster.clone(),
            namespace: namespace.to_string(),
            name,
            waiting: Queue::default(),
            kept: Mutex::new(kept),
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the current object into the cache, and returns the object.
    pub(super) async fn read(&self) -> Result<RecordMap, OperationError> {
        let mut kept = self.kept.lock().await;
        *kept = None;
        let read = self.fetch().await?;
        *kept = Some(read.clone());
        Ok(read)
    }

    /// Reads the current object, without waiting for writes in progress.
    pub(super) async fn fetch(&self) -> Result<RecordMap, OperationError> {
        match self.cluster.get(&named(&self.namespace, &self.name)).await? {
            Some(object) => RecordMap::of(object),
            None => Err(self.gone()),
        }
    }

    fn place(&self) -> String {
        place(&self.namespace, &self.name)
    }

    fn gone(&self) -> OperationError {
        objects::missing(&self.namespace, &self.name)
    }

    /// Writes the epoch of this process into the object, and returns the names of its records. Must be called before any other use
    /// of the object.
    pub(super) async fn take(&self, fence: &Fence) -> Result<Vec<String>, OperationError> {
        let mut kept = self.kept.lock().await;
        let mut last = None;
        for _ in 0..MOST_ATTEMPTS {
            let found = self.fetch().await?;
            if found.epoch > fence.epoch {
                return Err(self.lost());
            }
            // An earlier attempt succeeded, but its answer was lost.
            let outcome = if found.epoch == fence.epoch {
                Ok(Ok(found))
            } else {
                self.cluster.replace(&found.with(fence.epoch, &found.records)).await.map(RecordMap::of)
            };
            match outcome {
                Ok(taken) => {
                    let taken = taken?;
                    fence.saw(&taken);
                    let names = taken.records.keys().cloned().collect();
                    *kept = Some(taken);
                    return Ok(names);
                }
                Err(error) if may_have_happened(&error) => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.map_or_else(|| self.contended(), OperationError::from))
    }

    fn contended(&self) -> OperationError {
        OperationError::Contended { what: self.place(), attempts: MOST_ATTEMPTS }
    }

    /// Changes all given records, or none.
    pub(super) async fn write(
        &self,
        changes: Vec<RecordChange>,
        (fence, writers): (&Fence, &Arc<Writers>),
    ) -> Result<Revision, OperationError> {
        let (tell, mut told) = oneshot::channel();
        self.queue().push(Waiting { changes, revision: None, tell, _counted: writers.enter() });
        let kept = self.kept.lock().await;
        // A writer that has its outcome must not gather: the other writers with an outcome wait behind it for the lock.
        let outcome = match told.try_recv() {
            Err(TryRecvError::Empty) => {
                writers.gather().await;
                let all = std::mem::take(&mut *self.queue());
                let begun = Instant::now();
                self.commit(kept, all, fence).await;
                writers.took(begun.elapsed());
                told.try_recv()
            }
            outcome => outcome,
        };
        outcome.unwrap_or_else(|_| Err(unknown("the write was cancelled before its result was received")))
    }

    /// Writes the changes of all given writers, and sends each writer its outcome.
    async fn commit(
        &self,
        mut kept: MutexGuard<'_, Option<RecordMap>>,
        mut all: Vec<Waiting>,
        fence: &Fence,
    ) {
        let mut lost = None;
        for _ in 0..MOST_ATTEMPTS {
            // The cache stays empty until the API server answers, even if this task is cancelled here.
            let before = match kept.take() {
                Some(before) => Ok(before),
                None => self.fetch().await,
            };
            let before = match before {
                Ok(before) if before.epoch == fence.epoch => before,
                Ok(_) => return tell(all, || self.lost()),
                Err(error) => return tell_failure(all, lost.is_some(), error),
            };
            all = told_of_what_is_there(all, &before.records);
            let mut records = before.records.clone();
            all = applied(all, &mut records, fence);
            if all.is_empty() {
                *kept = Some(before);
                return;
            }
            let object = before.with(fence.epoch, &records);
            if object.pointer("/data/records").and_then(|text| text.as_str()).map_or(0, str::len) > MOST_BYTES
            {
                *kept = Some(before);
                return tell(all, || full(&self.place()));
            }
            match self.cluster.replace(&object).await.map(RecordMap::of) {
                Ok(Ok(after)) => {
                    fence.writes.fetch_add(1, Ordering::Relaxed);
                    *kept = Some(after);
                    return all.into_iter().for_each(Waiting::told);
                }
                Ok(Err(error)) => return tell_failure(all, true, error),
                Err(error) if may_have_happened(&error) => lost = Some(error),
                Err(error) => return tell_failure(all, false, error.into()),
            }
        }
        let conflicts = || "another client changed it before each attempt".to_string();
        let reason = lost.map_or_else(conflicts, |error| error.to_string());
        tell(all, || unknown(&reason));
    }

    fn lost(&self) -> OperationError {
        OperationError::LockLost { to: format!("another process took over (epoch in {})", self.place()) }
    }
}

impl Waiting {
    fn told(self) {
        let revision = self.revision.unwrap_or_default();
        let _ = self.tell.send(Ok(revision));
    }

    /// Returns whether an earlier attempt of this writer succeeded, although its answer was lost.
    fn is_there(&self, records: &Records) -> bool {
        self.revision.is_some_and(|revision| {
            self.changes.iter().all(|change| match (&change.action, records.get(&change.name)) {
                (Action::Put(_), Some(stored)) => stored.revision == revision,
                (Action::Delete, found) => found.is_none(),
                (Action::Put(_), None) => false,
            })
        })
    }

    /// Applies the changes of this writer. Fails if the revision of a record differs from the expected revision.
    fn apply(&mut self, records: &mut Records, fence: &Fence) -> Result<(), OperationError> {
        for RecordChange { name, expected, .. } in &self.changes {
            let found = records.get(name).map(|stored| stored.revision);
            let holds = match expected {
                Expected::Absent => found.is_none(),
                Expected::At(revision) => found == Some(*revision),
            };
            if !holds {
                let (key, expected) = (Key::from(name.as_str()), *expected);
                return Err(CommitError::Conflict { key, expected, found }.into());
            }
        }
        let mut values = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            values.push(match &change.action {
                Action::Put(value) => Some(raw(value)?),
                Action::Delete => None,
            });
        }
        let revision = *self.revision.get_or_insert_with(|| fence.next());
        for (change, value) in self.changes.iter().zip(values) {
            match value {
                Some(value) => drop(records.insert(change.name.clone(), Stored { revision, value })),
                None => drop(records.remove(&change.name)),
            }
        }
        Ok(())
    }
}

fn told_of_what_is_there(all: Vec<Waiting>, records: &Records) -> Vec<Waiting> {
    let (there, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.is_there(records));
    there.into_iter().for_each(Waiting::told);
    rest
}

/// Applies the changes of the writers and returns the writers without a conflict. The other writers receive their error.
fn applied(all: Vec<Waiting>, records: &mut Records, fence: &Fence) -> Vec<Waiting> {
    let mut rest = Vec::with_capacity(all.len());
    for mut one in all {
        match one.apply(records, fence) {
            Ok(()) => rest.push(one),
            Err(error) => drop(one.tell.send(Err(error))),
        }
    }
    rest
}

fn tell(all: Vec<Waiting>, error: impl Fn() -> OperationError) {
    for one in all {
        let _ = one.tell.send(Err(error()));
    }
}

/// Sends the error to the first writer, and the text of the error to the other writers.
fn tell_failure(all: Vec<Waiting>, is_in_doubt: bool, error: OperationError) {
    let reason = error.to_string();
    let mut first = Some(error).filter(|_| !is_in_doubt);
    for one in all {
        let told = first.take().unwrap_or_else(|| {
            if is_in_doubt {
                unknown(&reason)
            } else {
                CommitError::Refused { reason: reason.clone() }.into()
            }
        });
        let _ = one.tell.send(Err(told));
    }
}

/// Returns whether to read the object again after this error. The change may have succeeded, or the object shows why the change
/// failed.
pub(super) fn may_have_happened(error: &ClusterError) -> bool {
    match error {
        ClusterError::Conflict { .. }
        | ClusterError::TimedOut { .. }
        | ClusterError::Unreachable { .. }
        | ClusterError::NotReady { .. }
        | ClusterError::Answer { .. } => true,
        ClusterError::Server { code, .. } => *code >= 500,
        _ => false,
    }
}

fn raw(value: &[u8]) -> Result<Box<RawValue>, OperationError> {
    serde_json::from_slice(value)
        .map_err(|error| CommitError::Refused { reason: format!("the record is not JSON: {error}") }.into())
}

fn unknown(reason: &str) -> OperationError {
    CommitError::OutcomeUnknown { reason: reason.to_string() }.into()
}

fn full(place: &str) -> OperationError {
    let reason = format!("{place} would contain more than {MOST_BYTES} bytes of records");
    CommitError::Refused { reason }.into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::future::join_all;
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::kube_api::ClusterOptions;

    /// Answers each request like an API server without conflicts: a replaced object is returned. Counts the writes.
    async fn serve(connection: TcpStream, writes: &AtomicUsize) {
        let mut connection = BufReader::new(connection);
        loop {
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let start = head.len();
                if connection.read_line(&mut head).await.unwrap() == 0 {
                    return;
                }
                let line = head.split_at(start).1.to_ascii_lowercase();
                length =
                    line.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
            }
            let mut body = vec![0; length];
            connection.read_exact(&mut body).await.unwrap();
            if head.starts_with("PUT ") {
                writes.fetch_add(1, Ordering::SeqCst);
            } else if head.starts_with("GET /api/v1/namespaces/kube-system ") {
                body = json!({"metadata": {"name": "kube-system", "uid": "u"}}).to_string().into_bytes();
            } else {
                let kind = |name, kind, namespaced| json!({"name": name, "kind": kind, "namespaced": namespaced, "singularName": "", "verbs": []});
                let kinds = [kind("namespaces", "Namespace", false), kind("configmaps", "ConfigMap", true)];
                body = json!({"groupVersion": "v1", "resources": kinds}).to_string().into_bytes();
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            connection.write_all(&[head.into_bytes(), body].concat()).await.unwrap();
        }
    }

    async fn api(writes: Arc<AtomicUsize>) -> Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let writes = writes.clone();
                tokio::spawn(async move { serve(connection, &writes).await });
            }
        });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let options = ClusterOptions { kubeconfig: Some(file), ..ClusterOptions::default() };
        Cluster::connect(&options).await.unwrap()
    }

    /// Each writer writes again at once, as a step that starts after another step ended.
    #[tokio::test]
    async fn writers_that_return_at_once_share_each_write() {
        const WRITERS: usize = 32;
        const ROUNDS: usize = 20;
        let writes = Arc::new(AtomicUsize::new(0));
        let object = objects::shard("op", 0, "u");
        let api = api(writes.clone()).await;
        let shard =
            Shard::new(&api, objects::NAMESPACE, "records".into(), Some(RecordMap::of(object).unwrap()));
        let (fence, all): (Fence, Arc<Writers>) = (Fence::new(1), Arc::default());
        all.set_running(WRITERS);
        let write_all = async |number: usize| {
            let mut expected = Expected::Absent;
            for round in 0..ROUNDS {
                let action = Action::Put(json!(round).to_string().into_bytes());
                let change = RecordChange { name: format!("steps/{number}"), expected, action };
                expected = Expected::At(shard.write(vec![change], (&fence, &all)).await.unwrap());
            }
        };
        join_all((0..WRITERS).map(write_all)).await;
        let writes = writes.load(Ordering::SeqCst);
        assert_eq!(writes, ROUNDS, "{} records", WRITERS * ROUNDS);
        let records = shard.kept.lock().await.take().unwrap().records;
        let last = (ROUNDS - 1).to_string();
        let is_last = |stored: &Stored| stored.value.get() == last;
        assert!(records.len() == WRITERS && records.values().all(is_last), "{records:?}");
    }
}
