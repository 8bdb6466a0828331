//! `host-ports`: which Pods have a host port that the CNI maps.

use super::Cni;
use crate::inventory::host_ports::mapped;
use crate::inventory::pod::TrimmedPod;
use crate::preflight::{Check, Judged, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "host-ports",
    why: "`hostPort` works only if the CNI plug-in implements it",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(input.read.pods().await?)) }),
};

/// Checks for Pods with a mapped host port. The CNI maps host ports only if it is configured to do so.
fn judge(pods: &[TrimmedPod]) -> Judged {
    let found = mapped(pods);
    if found.is_empty() {
        return Judged::pass("no Pod uses `hostPort`");
    }
    Judged::warn(
        format!("{} `hostPort`: {}", counted(found.len(), "Pod uses", "Pods use"), first_few(&found)),
        "make sure that the new CNI maps host ports: with the plug-in `portmap` in its configuration (the manifests of Calico and Flannel have \
         it), or with Cilium's kube-proxy replacement",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inventory::host_ports::testing::pod;
    use crate::preflight::Verdict;

    #[test]
    fn mapped_host_port_is_a_warning() {
        assert_eq!(judge(&[pod("agent", true, 80, "TCP")]).verdict, Verdict::Pass, "the node's own network");
        let judged = judge(&[pod("web", false, 80, "TCP"), pod("dns", false, 53, "UDP")]);
        assert_eq!(judged.verdict, Verdict::Warn);
        assert_eq!(judged.observed, "2 Pods use `hostPort`: `shop/web` (80/TCP), `shop/dns` (53/UDP)");
        let mut ended = pod("job", false, 80, "TCP");
        ended.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
        assert_eq!(judge(&[ended]).verdict, Verdict::Pass);
    }
}
