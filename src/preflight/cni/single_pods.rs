//! `single-pods`: which workloads have one replica.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};

use super::Cni;
use crate::kube_api::accessors::subject;
use crate::preflight::{Check, Judged, Source, first_few};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "single-pods",
    why: "a workload with one replica is unavailable while its Pod moves",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(&input.read.objects().await?, &input.read.objects().await?)) }),
};

/// Checks for workloads with one replica, because they are unavailable while their Pod moves.
fn judge(deployments: &[Deployment], stateful_sets: &[StatefulSet]) -> Judged {
    let deployments =
        deployments.iter().map(|one| (subject(one), one.spec.as_ref().and_then(|spec| spec.replicas)));
    let stateful_sets =
        stateful_sets.iter().map(|one| (subject(one), one.spec.as_ref().and_then(|spec| spec.replicas)));
    let all: Vec<(String, Option<i32>)> = deployments.chain(stateful_sets).collect();
    let found = all.iter().filter(|(_, replicas)| replicas.is_none_or(|count| count == 1));
    let found: Vec<String> = found.map(|(subject, _)| subject.clone()).collect();
    if found.is_empty() {
        return Judged::pass(format!("no workload has exactly one replica (checked: {})", all.len()));
    }
    Judged::warn(
        format!("workloads with one replica ({} of {}): {}", found.len(), all.len(), first_few(&found)),
        "scale workloads that must stay available to two replicas on different nodes during the change",
    )
}
