//! The Jobs of a `CronJob`: which scheduled times have run, and which Jobs still run.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::side::{MANAGER, Side};
use crate::inventory::text;
use crate::kube_api::{Cluster, ClusterError, Collection};
use crate::operation::{Ambient, StepFault};

/// The annotation of a Job with its scheduled time (Kubernetes 1.28 and later).
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The annotation of a Job that a person created from a `CronJob`.
const BY_HAND: &str = "cronjob.kubernetes.io/instantiate";

/// What is known about the runs of a `CronJob`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Runs {
    /// The latest scheduled time that has run.
    pub latest: Option<OffsetDateTime>,
    /// Names of the Jobs that have not finished.
    pub unfinished: Vec<String>,
    /// Whether every Job since the resource version is known.
    pub is_complete: bool,
    /// Whether a bookmark proves this ([`crate::kube_api::Replay::is_proven`]).
    pub is_proven: bool,
}

/// A Job.
struct Job {
    name: String,
    time: Option<OffsetDateTime>,
    is_finished: bool,
}

pub(super) fn jobs<'a>(side: &Side<'a>) -> Collection<'a> {
    Collection::new("batch/v1", "Job", side.object.collection.namespace)
}

/// Returns the present time of a cluster.
pub(super) fn now(cluster: &Cluster) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(Ambient::now(cluster.clock())).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Parses a time of an object.
pub(super) fn parsed(time: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(time, &Rfc3339).ok().map(|time| time.to_offset(time::UtcOffset::UTC))
}

/// Formats a time as Kubernetes does.
pub(super) fn formatted(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time).to_offset(time::UtcOffset::UTC);
    whole.format(&Rfc3339).unwrap_or_default()
}

/// Returns the Job, if this `CronJob` controls it.
fn of(job: &Value, side: &Side<'_>) -> Option<Job> {
    let owners = job.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["uid"] == side.uid && owner["controller"] == true)?;
    let name = text(job, "/metadata/name").to_string();
    let annotations = job.pointer("/metadata/annotations");
    let annotation = |name: &str| annotations.and_then(|all| all.get(name)).and_then(Value::as_str);
    let time = match (annotation(SCHEDULED), annotation(BY_HAND)) {
        (Some(time), _) => parsed(time),
        (None, Some(_)) => None,
        // The name ends with the scheduled time in minutes (`getJobName`, `pkg/controller/cronjob/cronjob_controllerv2.go`, 1.21).
        (None, None) => minutes(&name, side.object.name),
    };
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    let is_end = |condition: &Value| {
        matches!(condition["type"].as_str(), Some("Complete" | "Failed")) && condition["status"] == "True"
    };
    let is_finished = conditions.is_some_and(|conditions| conditions.iter().any(is_end));
    Some(Job { name, time, is_finished })
}

fn minutes(job: &str, cron_job: &str) -> Option<OffsetDateTime> {
    let digits = job.strip_prefix(cron_job)?.strip_prefix('-')?;
    let minutes: i64 = digits.parse().ok()?;
    OffsetDateTime::from_unix_timestamp(minutes.checked_mul(60)?).ok()
}

/// Reads the runs of a `CronJob`: its status, all its Jobs, and the Jobs since a resource version that are gone. The controller's own
/// write of the status can have failed, because the suspension changed the object; the Jobs show the run.
pub(super) async fn runs(side: &Side<'_>, since: Option<&str>) -> Result<Runs, StepFault> {
    let fault = |error: &ClusterError| side.fault(error);
    let live = side.read().await?;
    let keep = |job: Value| of(&job, side);
    let listed = side.api.list_as(&jobs(side), &keep).await.map_err(|error| fault(&error))?;
    let mut runs = Runs {
        latest: parsed(text(&live, "/status/lastScheduleTime")),
        unfinished: listed.iter().filter(|job| !job.is_finished).map(|job| job.name.clone()).collect(),
        ..Runs::default()
    };
    let replayed = match since {
        None => None,
        Some(since) => match side.api.replay(&jobs(side), since).await {
            Ok(replay) => Some(replay),
            Err(error) if error.is_too_old() => None,
            Err(error) => return Err(fault(&error)),
        },
    };
    let mut times: Vec<OffsetDateTime> = listed.iter().filter_map(|job| job.time).collect();
    if let Some(replay) = replayed {
        (runs.is_complete, runs.is_proven) = (true, replay.is_proven);
        times.extend(replay.objects.iter().filter_map(|job| of(job, side)?.time));
    } else {
        // A Job that ran just before the suspension can be gone. Its time is not run again: nothing runs twice.
        times.extend(Some(suspended_at(&live).unwrap_or_else(|| now(side.api))));
    }
    runs.latest = runs.latest.into_iter().chain(times).max();
    if runs.latest.is_none() {
        runs.latest = parsed(text(&live, "/metadata/creationTimestamp"));
    }
    Ok(runs)
}

/// Returns the names of the Jobs of a `CronJob` that have not finished.
pub(super) async fn unfinished(side: &Side<'_>) -> Result<Vec<String>, StepFault> {
    let keep = |job: Value| of(&job, side).filter(|job| !job.is_finished).map(|job| job.name);
    side.api.list_as(&jobs(side), &keep).await.map_err(|error| side.fault(&error))
}

/// Returns when this field manager suspended an object; `None` if another client did it.
pub(super) fn suspended_at(live: &Value) -> Option<OffsetDateTime> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let entry = entries
        .iter()
        .find(|entry| entry["manager"] == MANAGER && entry.pointer("/fieldsV1/f:spec/f:suspend").is_some())?;
    parsed(entry["time"].as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduled_time_is_in_the_name_of_older_jobs() {
        let time = |job: &str| minutes(job, "nightly").map(formatted);
        assert_eq!(time("nightly-29738880"), Some("2026-07-18T00:00:00Z".to_string()));
        for other in ["nightly-manual-7", "nightly-x", "nightlyb-29738880", "nightly"] {
            assert_eq!(time(other), None, "{other}");
        }
    }

    #[test]
    fn times_of_other_zones_are_compared_in_utc() {
        let time = parsed("2026-11-29T08:00:00+01:00").unwrap();
        assert_eq!(formatted(time), "2026-11-29T07:00:00Z");
    }
}
