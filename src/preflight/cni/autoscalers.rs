//! `autoscalers`: whether an autoscaler adds and removes nodes.

use k8s_openapi::api::apps::v1::Deployment;

use super::Cni;
use crate::inventory::unread;
use crate::kube_api::accessors::{name, subject};
use crate::preflight::{Check, Judged, Read, Source};

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "autoscalers",
    why: "an autoscaler that adds and removes nodes disturbs a rolling change",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Cni) -> Read<Judged> {
    let groups = input.read.cluster()?.groups().await.map_err(unread)?;
    Ok(judge(&input.read.objects().await?, groups.contains("karpenter.sh")))
}

/// Checks for autoscalers, which add and remove nodes.
fn judge(deployments: &[Deployment], has_karpenter: bool) -> Judged {
    let is_one = |deployment: &&Deployment| {
        deployment.spec.as_ref().and_then(|spec| spec.replicas) != Some(0)
            && name(*deployment).contains("cluster-autoscaler")
    };
    let mut found: Vec<String> = deployments.iter().filter(is_one).map(subject).collect();
    if has_karpenter {
        found.push("Karpenter".to_string());
    }
    if found.is_empty() {
        return Judged::pass("no known autoscaler was found");
    }
    Judged::warn(
        format!("these autoscalers add and remove nodes: {}", found.join(", ")),
        "pause the autoscaler during the change: scale it to 0; for Karpenter, set `limits` of the NodePool to \
         prevent new nodes, and `disruption.budgets` with `nodes: \"0\"` to prevent removals. Otherwise the \
         autoscaler removes drained nodes, and adds nodes with the old network",
    )
}
