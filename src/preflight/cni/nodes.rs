//! `nodes`: whether every node can run Pods.

use k8s_openapi::api::core::v1::Node;

use super::Cni;
use crate::kube_api::accessors::{has_condition, is_closed, name};
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::all_of;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "nodes",
    why: "Pods of a drained node must be able to run on other nodes",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(input.read.nodes().await?)) }),
};

/// Checks the Nodes: each must be ready, without pressure, and schedulable.
pub fn judge(nodes: &[Node]) -> Judged {
    let unready = nodes.iter().filter(|node| !has_condition(node, "Ready"));
    let unready: Vec<String> = unready.map(|node| format!("`{}`", name(node))).collect();
    if nodes.is_empty() {
        return Judged::fail("there are no Nodes", "is this the right cluster?");
    }
    if !unready.is_empty() {
        return Judged::fail(
            format!("{} of {} Nodes not ready: {}", unready.len(), nodes.len(), first_few(&unready)),
            "repair them, or delete Nodes that no longer exist, before the change",
        );
    }
    let troubled = nodes.iter().filter_map(|node| {
        let list = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];
        let trouble = list.into_iter().find(|of| has_condition(node, of));
        Some(format!("`{}` ({})", name(node), trouble.or(is_closed(node).then_some("cordoned"))?))
    });
    let troubled: Vec<String> = troubled.collect();
    if troubled.is_empty() {
        return Judged::pass(all_of(nodes.len(), "Node is ready", "Nodes are ready"));
    }
    Judged::warn(
        format!("attention needed on {} of {} Nodes: {}", troubled.len(), nodes.len(), first_few(&troubled)),
        "find out why, and `kubectl uncordon` Nodes that should run Pods: the Pods of a drained node need another node",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn nodes_must_be_ready_and_schedulable() {
        let node = |ready: &str, pressure: &str, closed: bool| {
            serde_json::from_value(json!({
                "metadata": {"name": "a"}, "spec": {"unschedulable": closed},
                "status": {"conditions": [
                    {"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": pressure},
                ]},
            }))
            .unwrap()
        };
        assert_eq!(judge(&[node("True", "False", false)]).verdict, Verdict::Pass);
        assert_eq!(judge(&[node("Unknown", "False", false)]).verdict, Verdict::Fail);
        assert_eq!(
            judge(&[node("True", "True", false)]).observed,
            "attention needed on 1 of 1 Nodes: `a` (DiskPressure)"
        );
        assert_eq!(
            judge(&[node("True", "False", true)]).observed,
            "attention needed on 1 of 1 Nodes: `a` (cordoned)"
        );
        assert_eq!(judge(&[]).verdict, Verdict::Fail);
    }
}
