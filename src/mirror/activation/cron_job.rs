//! Moves a `CronJob` from one cluster to the other, so that no scheduled time runs twice.
//!
//! 1. Note the resource version of the Jobs.
//! 2. Suspend the `CronJob`.
//! 3. Barrier: add a Job that does not exist, the *ghost*, to `status.active`, and wait until the controller removes it. The controller
//!    works on one `CronJob` at most once at a time. So it has then seen the suspension, and no Job is still being created. Nothing else
//!    shows this: a `CronJob` has no `observedGeneration`. The controller writes an event `MissingJob`.
//! 4. Find the latest scheduled time that has run ([`runs`]).
//! 5. Wait until its Jobs have finished.
//! 6. Write this time to the status in the other cluster.
//! 7. Unsuspend the `CronJob` in the other cluster.
//!
//! If the controller does not answer, or Jobs do not finish in time, the `CronJob` is unsuspended where it was active.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use super::jobs::{Runs, formatted, now, parsed, runs, suspended_at, unfinished};
use super::schedule::seconds_to_next;
use super::side::{ACTIVATION, Side, token_of};
use super::work::{HandOver, Waits};
use crate::inventory::text;
use crate::operation::{Ambient as _, Applied, Doing, Observed, StepFault, SystemAmbient};

/// Prefix of the names of ghosts.
const GHOST: &str = "netsurgeon-barrier-";
/// Pauses between two reads of an object.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A hand-over that would begin so few seconds before a scheduled time begins after it. This is a preference only: a scheduled time
/// during a hand-over is made up in the other cluster.
const MARGIN: u64 = 5;

/// The state before the step.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Before {
    /// Distinguishes this activation of the copy from others.
    token: String,
    /// Resource version of the Jobs in the source before the suspension.
    jobs: String,
}

/// A `CronJob` in both clusters.
pub(super) struct CronJob<'a> {
    pub source: Side<'a>,
    pub mirror: Side<'a>,
    pub waits: Waits,
}

fn is_quiet(live: &Value) -> bool {
    live.pointer("/spec/suspend") == Some(&Value::Bool(true))
}

fn before_of(doing: &Doing<'_, HandOver>) -> Option<Before> {
    serde_json::from_value(doing.before.clone()).ok()
}

impl CronJob<'_> {
    pub async fn before(&self) -> Result<Value, StepFault> {
        let (source, mirror) = (self.source.read().await?, self.mirror.read().await?);
        if is_quiet(&source) {
            return Err(StepFault::Skip("the source has suspended the CronJob since the plan".to_string()));
        }
        if !is_quiet(&mirror) {
            return Err(self.mirror.woken());
        }
        let jobs = super::jobs::jobs(&self.source);
        let version = self.source.api.revision_of(&jobs).await.map_err(|error| self.source.fault(&error))?;
        Ok(json!(Before { token: SystemAmbient.uid(), jobs: version }))
    }

    pub async fn observe(&self, doing: &Doing<'_, HandOver>) -> Result<Observed, StepFault> {
        // A rollback compares the objects itself.
        let Some(before) = before_of(doing).filter(|_| !doing.back) else { return Ok(Observed::NotDone) };
        let (source, mirror) = (self.source.read().await?, self.mirror.read().await?);
        if is_quiet(&mirror) {
            return Ok(Observed::NotDone);
        }
        if token_of(&mirror).0 == before.token && is_quiet(&source) {
            return Ok(Observed::Done(made(&mirror, None)));
        }
        Ok(Observed::Changed("another client has activated the CronJob in the mirror".to_string()))
    }

    /// Moves the `CronJob` to the mirror.
    pub async fn activate(&self, doing: &Doing<'_, HandOver>) -> Result<Applied, StepFault> {
        let Some(before) = before_of(doing) else {
            return Err(StepFault::Halt("the record of the step has no previous state".to_string()));
        };
        self.wait_for_a_quiet_moment(doing).await?;
        let live = self.suspend(&self.source, doing, None).await?;
        if is_quiet(&live) && suspended_at(&live).is_none() {
            return Err(StepFault::Skip("the source has suspended the CronJob since the plan".to_string()));
        }
        match self.move_to_mirror(doing, &before).await {
            Err(StepFault::Skip(why)) => self.return_to_source(doing, &before, why).await,
            outcome => outcome,
        }
    }

    async fn move_to_mirror(
        &self,
        doing: &Doing<'_, HandOver>,
        before: &Before,
    ) -> Result<Applied, StepFault> {
        let found = self.quieten(&self.source, doing, Some(&before.jobs)).await?;
        self.write_time(&self.mirror, doing, found.latest).await?;
        self.wake((&self.source, &self.mirror), doing, Some(&before.token)).await?;
        Ok(Applied::Made(made(&self.mirror.read().await?, Some(&found))))
    }

    /// Unsuspends the `CronJob` in the source again, after it could not move. Returns why it could not move.
    async fn return_to_source(
        &self,
        doing: &Doing<'_, HandOver>,
        before: &Before,
        why: String,
    ) -> Result<Applied, StepFault> {
        let mirror = self.mirror.find().await?;
        if let Some(mirror) = mirror.filter(|mirror| !is_quiet(mirror) && token_of(mirror).0 == before.token)
        {
            return Ok(Applied::Made(made(&mirror, None)));
        }
        let jobs = Some(before.jobs.as_str());
        let woken = self.wake_again((&self.mirror, &self.source), doing, (jobs, None)).await;
        woken.map_err(|fault| suspended_in_both(&why, fault))?;
        Err(StepFault::Skip(format!("{why}; the CronJob is active in the source, as before")))
    }

    /// Unsuspends the `CronJob` in the second cluster, where it was active before, without a proof that it is quiet there: it was never
    /// active in the first one since. `jobs`: the resource version of the Jobs before the suspension.
    async fn wake_again(
        &self,
        (from, to): (&Side<'_>, &Side<'_>),
        doing: &Doing<'_, HandOver>,
        (jobs, token): (Option<&str>, Option<&str>),
    ) -> Result<(), StepFault> {
        if from.find().await?.is_some() {
            self.put_ghost(from, doing, true).await?;
        }
        if to.find().await?.is_none() {
            return Ok(());
        }
        match runs(to, jobs).await {
            Ok(found) if found.is_complete => self.write_time(to, doing, found.latest).await?,
            // The controller itself then decides from its own status.
            Ok(_) | Err(StepFault::Skip(_)) => {}
            Err(fault) => return Err(fault),
        }
        self.wake((from, to), doing, token).await
    }

    /// Moves the `CronJob` back to the source.
    pub async fn deactivate(&self, doing: &Doing<'_, HandOver>) -> Result<Applied, StepFault> {
        let Some(before) = before_of(doing) else { return Ok(Applied::NOTHING) };
        let source = self.source.read().await?;
        let Some(mirror) = self.mirror.find().await? else {
            let why = "the mirror has deleted or replaced the copy, so its last run is not known; unsuspend the CronJob in the source";
            return Err(StepFault::Skip(why.to_string()));
        };
        if !is_quiet(&source) {
            if !is_quiet(&mirror) {
                return Err(StepFault::Skip(
                    "another client has activated the CronJob in both clusters".to_string(),
                ));
            }
            // A suspension of an earlier process can still be under way.
            self.put_ghost(&self.source, doing, false).await?;
            return Ok(Applied::NOTHING);
        }
        if token_of(&mirror).0 != before.token {
            // It was suspended in the source, but never active in the mirror.
            let jobs = Some(before.jobs.as_str());
            self.wake_again((&self.mirror, &self.source), doing, (jobs, None)).await?;
            return Ok(Applied::NOTHING);
        }
        match self.move_to_source(doing, &before).await {
            Err(StepFault::Skip(why)) => self.return_to_mirror(doing, &before, why).await,
            outcome => outcome,
        }
    }

    async fn move_to_source(
        &self,
        doing: &Doing<'_, HandOver>,
        before: &Before,
    ) -> Result<Applied, StepFault> {
        let jobs = super::jobs::jobs(&self.mirror);
        let version = self.mirror.api.revision_of(&jobs).await.map_err(|error| self.mirror.fault(&error))?;
        // The annotation keeps the resource version, if this process is killed.
        let note = format!("{} {version}", before.token);
        let live = self.suspend(&self.mirror, doing, Some(&note)).await?;
        let version = if is_quiet(&live) { token_of(&live).1 } else { Some(version) };
        let found = self.quieten(&self.mirror, doing, version.as_deref()).await?;
        self.write_time(&self.source, doing, found.latest).await?;
        self.forget_token(doing).await?;
        self.wake((&self.mirror, &self.source), doing, None).await?;
        Ok(Applied::NOTHING)
    }

    async fn return_to_mirror(
        &self,
        doing: &Doing<'_, HandOver>,
        before: &Before,
        why: String,
    ) -> Result<Applied, StepFault> {
        let mirror = self.mirror.read().await?;
        if !is_quiet(&mirror) {
            return Err(StepFault::Skip(why));
        }
        if token_of(&mirror).0 != before.token {
            // Only the last request is missing.
            return Err(StepFault::Retry { why, after: None });
        }
        let jobs = token_of(&mirror).1;
        let token = Some(before.token.as_str());
        let woken = self.wake_again((&self.source, &self.mirror), doing, (jobs.as_deref(), token)).await;
        woken.map_err(|fault| suspended_in_both(&why, fault))?;
        Err(StepFault::Skip(format!("{why}; the CronJob is active in the mirror, as before")))
    }

    /// Suspends the `CronJob`. Returns the object before the change.
    async fn suspend(
        &self,
        side: &Side<'_>,
        doing: &Doing<'_, HandOver>,
        note: Option<&str>,
    ) -> Result<Value, StepFault> {
        let change = |live: &Value| {
            let metadata = note.map_or_else(|| json!({}), |note| json!({"annotations": {ACTIVATION: note}}));
            Ok((!is_quiet(live)).then(|| json!({"metadata": metadata, "spec": {"suspend": true}})))
        };
        side.change(doing, None, change).await
    }

    /// Proves that a suspended `CronJob` is quiet, and returns its runs. `since`: the resource version of the Jobs before the
    /// suspension.
    async fn quieten(
        &self,
        side: &Side<'_>,
        doing: &Doing<'_, HandOver>,
        since: Option<&str>,
    ) -> Result<Runs, StepFault> {
        let ghost = self.put_ghost(side, doing, true).await?;
        let ghosts = || side.left_of(&ghost).boxed();
        if !within(self.waits.controllers, doing, ghosts).await?.is_empty() {
            return Err(StepFault::Skip(format!(
                "the CronJob controller of the {} has not answered within {} s",
                side.cluster, self.waits.controllers
            )));
        }
        let found = runs(side, since).await?;
        if found.unfinished.is_empty() {
            return Ok(found);
        }
        let left = within(self.waits.jobs, doing, || unfinished(side).boxed()).await?;
        if left.is_empty() {
            return Ok(found);
        }
        let (seconds, jobs) = (self.waits.jobs, left.join(", "));
        Err(StepFault::Skip(format!(
            "these Jobs of the {} have not finished within {seconds} s: {jobs}",
            side.cluster
        )))
    }

    /// Adds a ghost to the active Jobs. Returns its uid. This also changes the resource version, so every request fails that an
    /// earlier process has prepared.
    async fn put_ghost(
        &self,
        side: &Side<'_>,
        doing: &Doing<'_, HandOver>,
        must_be_quiet: bool,
    ) -> Result<String, StepFault> {
        let uid = SystemAmbient.uid();
        let change = |live: &Value| {
            if must_be_quiet && !is_quiet(live) {
                return Err(side.woken());
            }
            let active = live.pointer("/status/active").and_then(Value::as_array).cloned();
            let mut active = active.unwrap_or_default();
            active.retain(|job| !text(job, "/name").starts_with(GHOST));
            active.push(json!({
                "apiVersion": "batch/v1", "kind": "Job", "namespace": side.object.collection.namespace,
                "name": format!("{GHOST}{}", uid.get(..8).unwrap_or_default()), "uid": uid,
            }));
            Ok(Some(json!({"status": {"active": active}})))
        };
        side.change(doing, Some("status"), change).await?;
        Ok(uid)
    }

    /// Writes the latest scheduled time that has run to the status of a suspended `CronJob`. Never writes an earlier time.
    async fn write_time(
        &self,
        side: &Side<'_>,
        doing: &Doing<'_, HandOver>,
        latest: Option<OffsetDateTime>,
    ) -> Result<(), StepFault> {
        let change = |live: &Value| {
            if !is_quiet(live) {
                return Err(side.woken());
            }
            let known = parsed(text(live, "/status/lastScheduleTime"));
            let later = latest.filter(|latest| known.is_none_or(|known| *latest > known));
            Ok(later.map(|time| json!({"status": {"lastScheduleTime": formatted(time)}})))
        };
        side.change(doing, Some("status"), change).await.map(drop)
    }

    /// Unsuspends the `CronJob` in the second cluster. It must still be suspended in the first one.
    async fn wake(
        &self,
        (from, to): (&Side<'_>, &Side<'_>),
        doing: &Doing<'_, HandOver>,
        token: Option<&str>,
    ) -> Result<(), StepFault> {
        if !is_quiet(&from.read().await?) {
            return Err(from.woken());
        }
        let change = |live: &Value| {
            if !is_quiet(live) {
                return Err(to.woken());
            }
            let metadata =
                token.map_or_else(|| json!({}), |token| json!({"annotations": {ACTIVATION: token}}));
            Ok(Some(json!({"metadata": metadata, "spec": {"suspend": false}})))
        };
        to.change(doing, None, change).await.map(drop)
    }

    async fn forget_token(&self, doing: &Doing<'_, HandOver>) -> Result<(), StepFault> {
        let change = |live: &Value| {
            let has_one = !token_of(live).0.is_empty();
            Ok(has_one.then(|| json!({"metadata": {"annotations": {ACTIVATION: null}}})))
        };
        self.mirror.change(doing, None, change).await.map(drop)
    }

    /// Waits until a scheduled time has passed, if it is very near.
    async fn wait_for_a_quiet_moment(&self, doing: &Doing<'_, HandOver>) -> Result<(), StepFault> {
        let live = self.source.read().await?;
        if is_quiet(&live) {
            return Ok(());
        }
        let next = seconds_to_next(&live, now(self.source.api));
        let Some(next) = next.filter(|next| *next <= MARGIN) else {
            return Ok(());
        };
        let until = Duration::from_secs(next.saturating_add(MARGIN));
        tokio::select! {
            biased;
            () = doing.stop.asked() => Err(StepFault::InDoubt("stopped on request".to_string())),
            () = sleep(until) => Ok(()),
        }
    }
}

impl Side<'_> {
    /// Returns the uid of a ghost that the controller has not removed.
    async fn left_of(&self, ghost: &str) -> Result<Vec<String>, StepFault> {
        let live = self.read().await?;
        if !is_quiet(&live) {
            return Err(self.woken());
        }
        Ok(is_active_job(&live, ghost).then(|| ghost.to_string()).into_iter().collect())
    }
}

/// Returns the fault if an object could not be activated again where it was active. The operation stops, so that the object is not
/// forgotten.
pub(super) fn suspended_in_both(why: &str, fault: StepFault) -> StepFault {
    match fault {
        StepFault::Skip(text) => StepFault::Halt(format!(
            "{why}; it is not active in either cluster now, because it cannot go back: {text}"
        )),
        other => other,
    }
}

fn is_active_job(live: &Value, uid: &str) -> bool {
    let active = live.pointer("/status/active").and_then(Value::as_array);
    active.is_some_and(|active| active.iter().any(|job| job["uid"] == uid))
}

/// Returns the result of the step, for the record and the report.
fn made(mirror: &Value, found: Option<&Runs>) -> Value {
    json!({
        "active": true, "uid": text(mirror, "/metadata/uid"), "wish": {"suspend": false},
        "last_run": found.and_then(|found| found.latest).map(formatted),
        "is_proven": found.map(|found| found.is_complete && found.is_proven),
    })
}

/// Repeats a read until it returns nothing, up to a number of seconds. Returns what it returned last. Fails if a stop is requested.
pub(super) async fn within<'f>(
    seconds: u64,
    doing: &Doing<'_, HandOver>,
    left: impl Fn() -> BoxFuture<'f, Result<Vec<String>, StepFault>> + Send,
) -> Result<Vec<String>, StepFault> {
    let (start, limit, mut pause) = (Instant::now(), Duration::from_secs(seconds), FIRST_PAUSE);
    loop {
        let found = left().await?;
        if found.is_empty() || start.elapsed() >= limit {
            return Ok(found);
        }
        tokio::select! {
            biased;
            () = doing.stop.asked() => return Err(StepFault::Skip("stopped on request".to_string())),
            () = sleep(pause) => pause = pause.saturating_mul(2).min(LONGEST_PAUSE),
        }
    }
}
