//! The plan of an activation: what moves from the source to the mirror, by reference.

use serde::{Deserialize, Serialize};

use crate::mirror::Reference;
use crate::operation::{Action, Effect, NoWait, OperationKind, Stage, Step, StepId, Work};

/// The kind of operation.
pub const KIND: &str = "mirror-activate";

/// Moves passive objects from the source to the mirror.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Activation {
    /// Identity of the source: uid of its namespace `kube-system`.
    pub source: String,
    /// The namespaces; empty for all.
    pub namespaces: Vec<String>,
    /// How long a step waits.
    pub waits: Waits,
    /// The passive copies.
    pub objects: Vec<Entry>,
}

/// How long a step waits, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// For the answer of the `CronJob` controller.
    pub controllers: u64,
    /// Until the Jobs of a `CronJob` have finished, and the Pods of a workload have ended.
    pub jobs: u64,
    /// Until a workload is available in the other cluster.
    pub ready: u64,
}

/// What happens to a passive copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moved {
    /// It moves to the mirror.
    Move,
    /// Its owner has suspended it in the source, or it has no replicas there. It stays as it is in both clusters.
    OwnerSuspended,
    /// An earlier activation has moved it.
    Active,
    /// It does not move, for the reason in [`Entry::reason`].
    LeftOut,
}

impl Moved {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::OwnerSuspended => "nothing to move",
            Self::Active => "active",
            Self::LeftOut => "left out",
        }
    }
}

/// A passive copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The object of the source.
    #[serde(flatten)]
    pub object: Reference,
    /// Namespace of the copy, if it differs from the namespace of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror_namespace: Option<String>,
    /// Uid of the object in the source; empty if it does not exist.
    pub uid: String,
    /// Uid of the copy.
    pub mirror_uid: String,
    /// What happens.
    pub action: Moved,
    /// Why the object does not move, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The facts of a `CronJob`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_job: Option<CronJobFacts>,
    /// The number of replicas of a workload in the mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

/// The facts of a `CronJob` of the source that decide when it can move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CronJobFacts {
    /// Its schedule.
    pub schedule: String,
    /// Its time zone; `None` if it has the time zone of the controller manager.
    pub time_zone: Option<String>,
    /// The next scheduled time in UTC; `None` if it cannot be computed here.
    pub next: Option<String>,
    /// Seconds after a scheduled time within which a missed run is made up; `None` for no limit.
    pub deadline: Option<i64>,
    /// Names of its running Jobs.
    pub running: Vec<String>,
}

/// Moves one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HandOver {
    /// The object of the source.
    pub object: Reference,
    /// Namespace of the copy.
    pub mirror_namespace: Option<String>,
    /// Uid of the object in the source.
    pub uid: String,
    /// Uid of the copy.
    pub mirror_uid: String,
    /// The number of replicas in the mirror; `None` for a `CronJob`.
    pub replicas: Option<i64>,
    /// How long the step waits.
    pub waits: Waits,
}

impl Effect for HandOver {
    type Wait = NoWait;
}

impl OperationKind for Activation {
    const NAME: &'static str = KIND;
    const VERSION: u32 = 1;
}

impl Entry {
    /// Returns the id of the step that moves the object.
    pub fn step(&self) -> StepId {
        StepId(format!("activate/{}", self.object.subject()))
    }

    fn hand_over(&self, waits: Waits) -> HandOver {
        HandOver {
            object: self.object.clone(),
            mirror_namespace: self.mirror_namespace.clone(),
            uid: self.uid.clone(),
            mirror_uid: self.mirror_uid.clone(),
            replicas: self.replicas,
            waits,
        }
    }
}

impl Activation {
    /// Returns the entries that move.
    pub fn moves(&self) -> impl Iterator<Item = &Entry> {
        self.objects.iter().filter(|entry| entry.action == Moved::Move)
    }
}

/// The stages: each with its name, its title, and whether it has the CronJobs.
const STAGES: [(&str, &str, bool); 2] =
    [("cron-jobs", "move the CronJobs", true), ("workloads", "move the workloads", false)];

impl Work for Activation {
    type Effect = HandOver;

    fn stages(&self) -> Vec<Stage> {
        let is_used = |is_cron_job: bool| self.moves().any(|entry| entry.cron_job.is_some() == is_cron_job);
        let used = STAGES.iter().filter(|(_, _, is_cron_job)| is_used(*is_cron_job)).enumerate();
        let stage = |(index, (name, title, _)): (usize, &(&str, &str, bool))| Stage {
            index,
            name: (*name).to_string(),
            batch: None,
            title: (*title).to_string(),
        };
        used.map(stage).collect()
    }

    fn steps(&self, stage: &Stage) -> Vec<Step<HandOver>> {
        let step = |entry: &Entry| Step {
            id: entry.step(),
            subject: entry.object.subject(),
            action: Action::Do(entry.hand_over(self.waits)),
            independent: false,
            back_of: Vec::new(),
        };
        let is_cron_job = STAGES.iter().any(|(name, _, is_cron_job)| *is_cron_job && *name == stage.name);
        self.moves().filter(|entry| entry.cron_job.is_some() == is_cron_job).map(step).collect()
    }
}
