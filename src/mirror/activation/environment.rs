//! The environment of an activation: moves objects between the clusters.

use async_trait::async_trait;
use serde_json::Value;

use super::cron_job::CronJob;
use super::side::Side;
use super::work::HandOver;
use super::workload::Workload;
use crate::kube_api::{Cluster, ObjectRef};
use crate::operation::{
    Answer, Applied, Doing, Environment, Manual, NoWait, Observed, Records, StepFault, Wait,
};

/// Both clusters.
pub(super) struct BothClusters<'a> {
    pub source: &'a Cluster,
    pub mirror: &'a Cluster,
}

/// An object of either kind, in both clusters.
enum Subject<'a> {
    CronJob(CronJob<'a>),
    Workload(Workload<'a>),
}

impl BothClusters<'_> {
    fn subject<'s>(&'s self, effect: &'s HandOver) -> Subject<'s> {
        let object = effect.object.object();
        let source = Side { api: self.source, object, uid: &effect.uid, cluster: "source" };
        let namespace = effect.mirror_namespace.as_deref().or(object.collection.namespace);
        let copy =
            ObjectRef::new(object.collection.api_version, object.collection.kind, namespace, object.name);
        let mirror = Side { api: self.mirror, object: copy, uid: &effect.mirror_uid, cluster: "mirror" };
        let waits = effect.waits;
        match effect.replicas {
            None => Subject::CronJob(CronJob { source, mirror, waits }),
            Some(wanted) => Subject::Workload(Workload { source, mirror, wanted, waits }),
        }
    }
}

#[async_trait]
impl Environment<HandOver> for BothClusters<'_> {
    async fn before(&self, doing: &Doing<'_, HandOver>) -> Result<Value, StepFault> {
        match self.subject(doing.effect) {
            Subject::CronJob(cron_job) => cron_job.before().await,
            Subject::Workload(workload) => workload.before().await,
        }
    }

    async fn apply(&self, doing: &Doing<'_, HandOver>) -> Result<Applied, StepFault> {
        match (self.subject(doing.effect), doing.back) {
            (Subject::CronJob(cron_job), false) => cron_job.activate(doing).await,
            (Subject::CronJob(cron_job), true) => cron_job.deactivate(doing).await,
            (Subject::Workload(workload), false) => workload.activate(doing).await,
            (Subject::Workload(workload), true) => workload.deactivate(doing).await,
        }
    }

    async fn observe(&self, doing: &Doing<'_, HandOver>) -> Result<Observed, StepFault> {
        match self.subject(doing.effect) {
            Subject::CronJob(cron_job) => cron_job.observe(doing).await,
            Subject::Workload(workload) => workload.observe(doing).await,
        }
    }

    async fn wait(&self, wait: &Wait<NoWait>, _: Records<'_>) -> Result<(), StepFault> {
        match wait.kind {}
    }

    async fn manual(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        Err(StepFault::Halt(format!("an activation has no manual step: {}", manual.what)))
    }
}
