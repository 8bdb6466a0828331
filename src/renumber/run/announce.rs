//! Creates a Kubernetes event for each Service that moves, for users who inspect the Service and not the operation.
//!
//! Events are best effort and never block the operation, because a separate task writes them from a bounded queue. Events that do
//! not fit into the queue, or cannot be written, are counted and reported at the end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::kube_api::{Cluster, ServiceEvent};
use crate::operation::{Event, Observer};
use crate::renumber::{Move, Renumbering};
use crate::session::Ui;
use crate::words::counted;

/// Maximum number of events that wait to be written.
const MOST_WAITING: usize = 4096;
/// Number of events that are written concurrently.
const AT_ONCE: usize = 4;
/// Number of consecutive failures after which no more events are written. After this number of failures, the permission is
/// probably missing, or the API does not answer.
const GIVEN_UP_AFTER: usize = 10;
/// How long an operation waits for the last events at its end.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Writes an event for each Service that moves.
pub struct Announcer<'a> {
    moves: HashMap<String, &'a Move>,
    cluster: Cluster,
    operation: String,
    host: String,
    back: bool,
    queue: mpsc::Sender<ServiceEvent>,
    asked: usize,
    writer: JoinHandle<Option<String>>,
    written: Arc<AtomicUsize>,
}

impl<'a> Announcer<'a> {
    /// Starts the task that writes the events.
    pub fn new(cluster: &Cluster, operation: &str, work: &'a Renumbering) -> Self {
        let (queue, waiting) = mpsc::channel(MOST_WAITING);
        let written = Arc::new(AtomicUsize::new(0));
        Self {
            moves: work.moves.iter().map(|candidate| (candidate.id(), candidate)).collect(),
            cluster: cluster.clone(),
            operation: operation.to_string(),
            host: crate::host::name(),
            back: false,
            queue,
            asked: 0,
            writer: tokio::spawn(write(cluster.clone(), waiting, written.clone())),
            written,
        }
    }

    fn event_of(&self, candidate: &Move) -> ServiceEvent {
        let (old, new) = (candidate.old_address, candidate.new_address);
        let (reason, note) = if self.back {
            let note = format!("the cluster IP is {old} again; it was {new}");
            ("RenumberingUndone", note)
        } else {
            let note =
                format!("the cluster IP is now {new}; the old one, {old}, answers until it is retired");
            ("Renumbered", note)
        };
        ServiceEvent {
            namespace: candidate.namespace.to_string(),
            name: candidate.name.to_string(),
            uid: candidate.uid.to_string(),
            reason,
            action: "Renumber",
            note,
            operation: self.operation.clone(),
            host: self.host.clone(),
            time: self.cluster.clock().now().unwrap_or_else(OffsetDateTime::now_utc),
            unique: uuid::Uuid::new_v4().simple().to_string(),
        }
    }

    /// Waits at most [`LAST_WAIT`] for the last events, and reports the number of events that could not be written.
    pub async fn finish(self, ui: &Ui) {
        let Self { queue, asked, mut writer, written, .. } = self;
        drop(queue);
        let reason = if let Ok(ended) = timeout(LAST_WAIT, &mut writer).await {
            ended.ok().flatten()
        } else {
            writer.abort();
            None
        };
        let missing = asked.saturating_sub(written.load(Ordering::Relaxed));
        if missing > 0 {
            let reason = reason.unwrap_or_else(|| "the API server did not accept them in time".to_string());
            ui.note(&format!(
                "{} for moved Services could not be written (no step depends on them): {reason}",
                counted(missing, "Kubernetes event", "Kubernetes events")
            ));
        }
    }
}

impl Observer for Announcer<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::StageStarted { back, .. } => self.back = back,
            Event::StepDone { step } if step.id.kind() == "flip" => {
                let Some(candidate) = self.moves.get(step.subject) else { return };
                let event = self.event_of(candidate);
                self.asked = self.asked.saturating_add(1);
                // If the queue is full, this event is dropped, and counts as missing in the report at the end.
                let _ = self.queue.try_send(event);
            }
            _ => {}
        }
    }
}

/// Writes the events from the queue. Returns the reason for the first failure.
async fn write(
    cluster: Cluster,
    waiting: mpsc::Receiver<ServiceEvent>,
    written: Arc<AtomicUsize>,
) -> Option<String> {
    let events = futures_util::stream::unfold(waiting, async |mut waiting| {
        waiting.recv().await.map(|event| (event, waiting))
    });
    let attempts = events.map(async |event| cluster.announce(&event).await);
    let mut outcomes = std::pin::pin!(attempts.buffer_unordered(AT_ONCE));
    let (mut reason, mut in_a_row) = (None, 0_usize);
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Ok(()) => {
                written.fetch_add(1, Ordering::Relaxed);
                in_a_row = 0;
            }
            Err(error) => {
                tracing::debug!("an event was not written: {error}");
                reason.get_or_insert_with(|| error.to_string());
                in_a_row = in_a_row.saturating_add(1);
                if in_a_row >= GIVEN_UP_AFTER {
                    break;
                }
            }
        }
    }
    reason
}
