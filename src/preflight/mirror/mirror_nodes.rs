//! `mirror-nodes`: whether the Nodes of the mirror can run Pods.

use k8s_openapi::api::core::v1::Node;

use super::Mirror;
use crate::preflight::cni::nodes;
use crate::preflight::{Check, Judged, Source};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "mirror-nodes",
    why: "the copied workloads run on these nodes",
    needs: &[Source::Mirror],
    judge: |input| Box::pin(async { Ok(judge(input.target.nodes().await?)) }),
};

/// Checks the mirror's Nodes in the same way as the check `nodes` of `preflight cni`.
fn judge(found: &[Node]) -> Judged {
    let mut judged = nodes::judge(found);
    if !judged.remedy.is_empty() {
        judged.remedy =
            "repair them, `kubectl uncordon` Nodes that should run Pods, and delete Nodes that no longer exist"
                .to_string();
    }
    judged
}
