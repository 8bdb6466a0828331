//! Reads the passive copies and their objects in the source, and creates the plan of an activation. Writes nothing.

use std::cmp::Reverse;

use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use time::OffsetDateTime;

use super::jobs::{formatted, now};
use super::ledger::{Copied, InForce, copied, in_force};
use super::schedule::next;
use super::work::{Activation, CronJobFacts, Entry, Moved, Waits};
use super::workload::replicas;
use crate::inventory::{AT_ONCE, text};
use crate::kube_api::{Cluster, ClusterError, ReadOnly};
use crate::mirror::reader::different;
use crate::mirror::wish;
use crate::operation::Plan;
use crate::session::Failure;
use crate::store::Revision;

/// The kind of `CronJob`s, as `GROUP/PLURAL`.
const CRON_JOBS: &str = "batch/cronjobs";
/// The kinds whose copies can be passive.
const KINDS: [&str; 3] = [CRON_JOBS, "apps/deployments", "apps/statefulsets"];

/// Reads both clusters.
pub struct ActivationReader<'a> {
    source: &'a ReadOnly,
    mirror: &'a Cluster,
    namespaces: &'a [String],
    waits: Waits,
}

impl<'a> ActivationReader<'a> {
    /// Returns a reader. `namespaces`: the namespaces of the source; empty for all.
    pub fn new(source: &'a ReadOnly, mirror: &'a Cluster, namespaces: &'a [String], waits: Waits) -> Self {
        Self { source, mirror, namespaces, waits }
    }

    /// Creates the plan. Fails if a record of a mirror operation cannot be read, because its copies would be missing in the plan.
    pub async fn plan(&self) -> Result<Plan<Activation>, Failure> {
        let (source, mirror) = different(self.source, &ReadOnly::new(self.mirror.clone())).await?;
        let (copies, unread) = copied(self.mirror, &KINDS).await?;
        if let Some((operation, why)) = unread.first() {
            return Err(Failure::refused(format!(
                "the record of the mirror operation `{operation}` cannot be read, so its copies are not known: {why}"
            )));
        }
        let in_force = in_force(self.mirror).await?;
        let now = now(self.mirror);
        let is_wanted = |copy: &Copied| {
            let namespace = copy.object.namespace.as_deref().unwrap_or_default();
            self.namespaces.is_empty() || self.namespaces.iter().any(|wanted| wanted == namespace)
        };
        let entries = copies.into_iter().filter(is_wanted).map(|copy| self.entry(copy, &in_force, now));
        let entries: Vec<Result<Option<Entry>, ClusterError>> =
            stream::iter(entries).buffered(AT_ONCE).collect().await;
        let mut objects: Vec<Entry> =
            entries.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
        // A CronJob whose next time is near comes later.
        objects
            .sort_by_cached_key(|entry| (Reverse(next_of(entry).map(str::to_string)), entry.object.clone()));
        let mut namespaces = self.namespaces.to_vec();
        namespaces.sort_unstable();
        namespaces.dedup();
        let work = Activation { source, namespaces, waits: self.waits, objects };
        Ok(Plan::new(&mirror, Revision(0), work))
    }

    /// Returns the entry of a copy; `None` if the copy does not exist any more, or was never passive.
    async fn entry(
        &self,
        copy: Copied,
        in_force: &[InForce],
        now: OffsetDateTime,
    ) -> Result<Option<Entry>, ClusterError> {
        let (object, target) = (copy.object.object(), copy.copy.object());
        let (found, live) = tokio::try_join!(self.source.get(&object), self.mirror.get(&target))?;
        let live = live.filter(|live| text(live, "/metadata/uid") == copy.mirror_uid);
        let Some(live) = live else { return Ok(None) };
        let is_cron_job = copy.object.resource == CRON_JOBS;
        let wanted = if is_cron_job { None } else { Some(wanted_replicas(&live)) };
        if wanted == Some(None) {
            return Ok(None);
        }
        let is_moved = in_force.iter().any(|one| one.entry.mirror_uid == copy.mirror_uid);
        let found = found.as_ref();
        let (action, reason) = decide(is_cron_job, found, &live, is_moved);
        let uid = found.map_or_else(String::new, |found| text(found, "/metadata/uid").to_string());
        let cron_job = if is_cron_job { Some(facts(found.unwrap_or(&live), now)) } else { None };
        let Copied { object, copy, mirror_uid } = copy;
        let replicas = wanted.flatten();
        let mirror_namespace = copy.namespace.filter(|name| Some(name) != object.namespace.as_ref());
        Ok(Some(Entry { object, mirror_namespace, uid, mirror_uid, action, reason, cron_job, replicas }))
    }
}

/// Returns the number of replicas that a passive copy gets when it is activated; `None` if the copy was never passive.
fn wanted_replicas(live: &Value) -> Option<i64> {
    let all = live.pointer("/metadata/annotations")?;
    all.get(wish::REPLICAS)?.as_str()?.parse().ok()
}

fn is_suspended(object: &Value) -> bool {
    object.pointer("/spec/suspend") == Some(&Value::Bool(true))
}

fn is_quiet(is_cron_job: bool, object: &Value) -> bool {
    if is_cron_job { is_suspended(object) } else { replicas(object) == 0 }
}

/// Decides what happens to a copy. `found`: its object in the source. `is_moved`: whether an activation has moved it.
fn decide(is_cron_job: bool, found: Option<&Value>, live: &Value, is_moved: bool) -> (Moved, Option<String>) {
    let left_out = |reason: &str| (Moved::LeftOut, Some(reason.to_string()));
    if is_moved {
        return (Moved::Active, None);
    }
    let Some(found) = found else { return left_out("the source has no such object") };
    if !text(found, "/metadata/deletionTimestamp").is_empty() {
        return left_out("the source is deleting the object");
    }
    if !text(live, "/metadata/deletionTimestamp").is_empty() {
        return left_out("the mirror is deleting the copy");
    }
    if !is_quiet(is_cron_job, live) {
        return left_out("another client has activated the copy in the mirror");
    }
    if is_quiet(is_cron_job, found) {
        let reason =
            if is_cron_job { "its owner has suspended it" } else { "it has no replicas in the source" };
        return (Moved::OwnerSuspended, Some(reason.to_string()));
    }
    (Moved::Move, None)
}

fn facts(cron_job: &Value, now: OffsetDateTime) -> CronJobFacts {
    let zone = text(cron_job, "/spec/timeZone");
    let active = cron_job.pointer("/status/active").and_then(Value::as_array);
    let names = active.into_iter().flatten().map(|job| text(job, "/name").to_string());
    CronJobFacts {
        schedule: text(cron_job, "/spec/schedule").to_string(),
        time_zone: (!zone.is_empty()).then(|| zone.to_string()),
        next: next(cron_job, now).map(formatted),
        deadline: cron_job.pointer("/spec/startingDeadlineSeconds").and_then(Value::as_i64),
        running: names.collect(),
    }
}

fn next_of(entry: &Entry) -> Option<&str> {
    entry.cron_job.as_ref()?.next.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_of_both_clusters_decides() {
        let cron_job = |suspend: bool| json!({"spec": {"suspend": suspend}});
        let going =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"suspend": true}});
        for (found, live, is_moved, expected) in [
            (Some(cron_job(false)), cron_job(true), false, Moved::Move),
            (Some(cron_job(true)), cron_job(true), false, Moved::OwnerSuspended),
            (Some(cron_job(true)), cron_job(false), true, Moved::Active),
            (Some(cron_job(false)), cron_job(false), false, Moved::LeftOut),
            (None, cron_job(true), false, Moved::LeftOut),
            (Some(going.clone()), cron_job(true), false, Moved::LeftOut),
            (Some(cron_job(false)), going, false, Moved::LeftOut),
        ] {
            assert_eq!(decide(true, found.as_ref(), &live, is_moved).0, expected, "{found:?} {live}");
        }
        let workload = |replicas: i64| json!({"spec": {"replicas": replicas}});
        for (found, live, expected) in [
            (workload(3), workload(0), Moved::Move),
            (json!({"spec": {}}), workload(0), Moved::Move),
            (workload(0), workload(0), Moved::OwnerSuspended),
            (workload(3), workload(1), Moved::LeftOut),
        ] {
            assert_eq!(decide(false, Some(&found), &live, false).0, expected, "{found} {live}");
        }
    }

    #[test]
    fn only_a_passive_copy_has_wanted_replicas() {
        let copy =
            |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 0}});
        assert_eq!(wanted_replicas(&copy(json!({(wish::REPLICAS): "3"}))), Some(3));
        assert_eq!(wanted_replicas(&copy(json!({(wish::REPLICAS): "x"}))), None);
        assert_eq!(wanted_replicas(&copy(json!({}))), None);
    }
}
