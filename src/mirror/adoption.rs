//! Adopts objects that other clients created in the mirror: changes only the fields that differ from the copy, and restores them with
//! their managers.
//!
//! An update that changes a field takes it from its manager (`fieldmanager/structuredmerge.go`, k8s.io/apimachinery). The record
//! contains the previous values, and the entries of `metadata.managedFields` for these fields. A rollback needs two requests: the
//! first one restores the values, and the second one their managers. An API server accepts other managers only if no value changes.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::environment::{Before, Clusters, Undo, refuse_foreign};
use super::field_managers::restored;
use super::ledger::created_uid;
use super::object_write;
use super::refusal::fault;
use super::work::Copy;
use crate::inventory::text;
use crate::operation::{Applied, Doing, StepFault};

/// Maximum time until the controllers of the mirror create the objects of a new namespace. They usually need less than a second.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

impl Clusters<'_> {
    /// Returns the object to adopt. If the plan did not know it, a controller creates it: the ServiceAccount `default` of a new
    /// namespace. `None` if no controller does.
    pub(super) async fn awaited(&self, doing: &Doing<'_, Copy>) -> Result<Option<Value>, StepFault> {
        let effect = doing.effect;
        if effect.mirror_uid.is_some() {
            return self.planned_live(effect).await.map(Some);
        }
        let started = Instant::now();
        loop {
            let live = self.live(effect).await?;
            if live.is_some() || started.elapsed() >= PATIENCE {
                return Ok(live);
            }
            tokio::select! {
                () = doing.stop.asked() => {
                    return Err(StepFault::InDoubt("stopped before the mirror created the object".to_string()));
                }
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// Changes the fields that differ.
    pub(super) async fn adopt(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        let (effect, before) = (doing.effect, Before::of(doing));
        let live = if before.absent { self.live(effect).await? } else { self.awaited(doing).await? };
        let Some(live) = live else { return self.create(doing).await };
        self.change(doing, &live, &self.copy(effect).await?).await
    }

    /// Restores the previous values that still are those of the copy, and their managers.
    pub(super) async fn give_back(&self, doing: &Doing<'_, Copy>) -> Result<Applied, StepFault> {
        if created_uid(&doing.made).is_some() {
            return self.delete(doing).await;
        }
        let (effect, before) = (doing.effect, Before::of(doing));
        let Some(mut live) = self.live(effect).await? else { return Ok(Applied::NOTHING) };
        let planned = effect.mirror_uid.as_deref().or_else(|| doing.made.get("uid").and_then(Value::as_str));
        if planned.is_some_and(|uid| uid != text(&live, "/metadata/uid")) {
            return Err(StepFault::Skip("another client has replaced the object".to_string()));
        }
        let changes = before.changes.unwrap_or_default();
        let Undo { due, foreign } = Undo::of(&changes, &live);
        if !due.is_empty() {
            doing.fence.still_ours().await?;
            let version = text(&live, "/metadata/resourceVersion").to_string();
            let written = object_write::patch(self.mirror, (&live, &due), &version).await;
            live = written.map_err(|error| fault(&error, effect.object.is_secret()))?;
        }
        let ours = changes.iter().filter(|change| !foreign.contains(&change.field()));
        let paths: Vec<&[String]> = ours.map(|change| change.path.as_slice()).collect();
        if let Some(managers) = restored(&live, &before.managers, &paths) {
            doing.fence.still_ours().await?;
            let version = text(&live, "/metadata/resourceVersion");
            let written = object_write::patch(self.mirror, (&live, &[managers]), version).await;
            written.map_err(|error| fault(&error, effect.object.is_secret()))?;
        }
        refuse_foreign(&foreign)
    }
}
