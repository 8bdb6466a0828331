//! `local-storage`: which Pods and volumes have data on one node.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::Cni;
use crate::inventory::drain::{has_local_data, is_on_one_node};
use crate::inventory::pod::TrimmedPod;
use crate::kube_api::accessors::{name, subject};
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "local-storage",
    why: "data on a node is lost, or unreachable, when the node is drained",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(input.read.pods().await?, &input.read.objects().await?)) }),
};

/// Checks for Pods with data on their node, and for volumes that exist on only one node.
fn judge(pods: &[TrimmedPod], volumes: &[PersistentVolume]) -> Judged {
    let pods: Vec<String> = pods.iter().filter(|pod| has_local_data(pod)).map(subject).collect();
    let bound = volumes.iter().filter(|one| is_on_one_node(one)).map(|volume| format!("`{}`", name(volume)));
    let bound: Vec<String> = bound.collect();
    let (mut seen, mut remedy) = (Vec::new(), Vec::new());
    if !bound.is_empty() {
        let volumes = counted(
            bound.len(),
            "PersistentVolume stores its data",
            "PersistentVolumes each store their data",
        );
        seen.push(format!("{volumes} on one node: {}", first_few(&bound)));
        remedy.push("Pods that use these volumes cannot run elsewhere: back the volumes up, and schedule the drain of their nodes");
    }
    if !pods.is_empty() {
        let with = counted(pods.len(), "Pod has", "Pods have");
        seen.push(format!("{with} an `emptyDir`, whose data is lost: {}", first_few(&pods)));
        remedy.push("make sure that each `emptyDir` has only temporary data; a drain needs `--delete-emptydir-data` for these Pods");
    }
    if seen.is_empty() {
        return Judged::pass("no Pod stores data on its node");
    }
    Judged::warn(seen.join("; "), remedy.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::cni::testing::{owned, pod, typed};

    #[test]
    fn data_on_a_node_is_a_warning() {
        let (disk, secret) = (json!({"emptyDir": {"medium": "Memory"}}), json!({"secret": {}}));
        assert_eq!(judge(&[pod(&owned("ReplicaSet"), &disk)], &[]).verdict, Verdict::Warn);
        assert_eq!(judge(&[pod(&owned("ReplicaSet"), &secret)], &[]).verdict, Verdict::Pass);
        assert_eq!(judge(&[pod(&owned("DaemonSet"), &disk)], &[]).verdict, Verdict::Pass, "it stays");
        let volume = |phase: &str| {
            typed(
                &json!({"metadata": {"name": "disk"}, "spec": {"local": {"path": "/x"}}, "status": {"phase": phase}}),
            )
        };
        assert_eq!(judge(&[], &[volume("Available")]).verdict, Verdict::Pass);
        let both = judge(&[pod(&owned("ReplicaSet"), &disk)], &[volume("Bound")]);
        assert!(
            both.observed.starts_with("1 PersistentVolume stores its data on one node: `disk`; 1 Pod has"),
            "{both:?}"
        );
    }
}
