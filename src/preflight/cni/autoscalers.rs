//! `autoscalers`: whether an autoscaler adds and removes nodes.

use k8s_openapi::api::apps::v1::Deployment;

use super::Cni;
use crate::inventory::autoscalers::{REMEDY, autoscalers};
use crate::inventory::unread;
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
    let found = autoscalers(deployments, has_karpenter);
    if found.is_empty() {
        return Judged::pass("no known autoscaler was found");
    }
    Judged::warn(format!("these autoscalers add and remove nodes: {}", found.join(", ")), REMEDY)
}
