//! `bare-pods`: Pods without a controller that recreates them.

use super::Cni;
use crate::inventory::drain::is_bare;
use crate::inventory::pod::TrimmedPod;
use crate::kube_api::accessors::subject;
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "bare-pods",
    why: "a Pod without a controller is not recreated",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(input.read.pods().await?)) }),
};

/// Checks for Pods without a controller that recreates them.
fn judge(pods: &[TrimmedPod]) -> Judged {
    let found = pods.iter().filter(|pod| is_bare(pod));
    let found: Vec<String> = found.map(subject).collect();
    if found.is_empty() {
        return Judged::pass("every Pod has a controller");
    }
    Judged::warn(
        format!("{} no controller: {}", counted(found.len(), "Pod has", "Pods have"), first_few(&found)),
        "give them a controller (such as a Deployment), or accept that a drain deletes them (`kubectl drain --force`)",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::cni::testing::{owned, pod, typed};

    #[test]
    fn pod_without_controller_is_a_warning() {
        let volume = json!({"configMap": {}});
        assert_eq!(judge(&[pod(&owned("ReplicaSet"), &volume)]).verdict, Verdict::Pass);
        assert_eq!(judge(&[pod(&Value::Null, &volume)]).observed, "1 Pod has no controller: `shop/web`");
        let mut mirrored = pod(&Value::Null, &volume);
        mirrored.metadata.annotations = typed(&json!({"kubernetes.io/config.mirror": "x"}));
        assert_eq!(judge(&[mirrored]).verdict, Verdict::Pass, "the kubelet recreates it");
        let mut over = pod(&Value::Null, &volume);
        over.status = typed(&json!({"phase": "Succeeded"}));
        assert_eq!(judge(&[over]).verdict, Verdict::Pass);
    }
}
