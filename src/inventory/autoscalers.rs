//! Autoscalers, which add and remove nodes.

use k8s_openapi::api::apps::v1::Deployment;

use crate::kube_api::accessors::{name, subject};

/// What to do about autoscalers during a change of the nodes.
pub const REMEDY: &str = "pause the autoscaler during the change: scale it to 0; for Karpenter, set `limits` of the NodePool to \
                          prevent new nodes, and `disruption.budgets` with `nodes: \"0\"` to prevent removals. Otherwise the \
                          autoscaler removes drained nodes, and adds nodes with the old network";

/// Returns the autoscalers that run.
pub fn autoscalers(deployments: &[Deployment], has_karpenter: bool) -> Vec<String> {
    let is_one = |deployment: &&Deployment| {
        deployment.spec.as_ref().and_then(|spec| spec.replicas) != Some(0)
            && name(*deployment).contains("cluster-autoscaler")
    };
    let mut found: Vec<String> = deployments.iter().filter(is_one).map(subject).collect();
    if has_karpenter {
        found.push("Karpenter".to_string());
    }
    found
}
