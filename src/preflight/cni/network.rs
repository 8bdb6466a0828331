//! `network`: which CNI is installed, and whether its agents are ready.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;

use super::Cni;
use crate::inventory::network_plugins::{agent, wanted};
use crate::kube_api::accessors::subject;
use crate::preflight::{Check, Judged, Source};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "network",
    why: "existing network faults look like faults of the change",
    needs: &[Source::Api],
    judge: |input| Box::pin(async { Ok(judge(input.daemon_sets().await?)) }),
};

/// Checks which CNI is installed, based on the DaemonSets of its agents.
fn judge(daemon_sets: &[DaemonSet]) -> Judged {
    let (mut found, mut short) = (BTreeMap::<&str, (&str, i32)>::new(), Vec::new());
    for daemon_set in daemon_sets {
        let Some((whose, image)) = agent(daemon_set) else { continue };
        let wanted = wanted(daemon_set);
        if wanted == 0 {
            // The DaemonSet is left over from an earlier CNI, or is for nodes that do not exist.
            continue;
        }
        let ready = daemon_set.status.as_ref().map_or(0, |status| status.number_ready);
        if ready < wanted {
            short.push(format!("{whose} is ready on {ready} of {wanted} nodes ({})", subject(daemon_set)));
        }
        // Some CNIs have one DaemonSet for each kind of node.
        let (_, nodes) = found.entry(whose).or_insert((image, 0));
        *nodes = nodes.saturating_add(wanted);
    }
    let told: Vec<String> = found
        .iter()
        .map(|(whose, (image, nodes))| {
            format!(
                "{whose} (`{image}`), on {}",
                counted(usize::try_from(*nodes).unwrap_or_default(), "node", "nodes")
            )
        })
        .collect();
    let seen = told.join(", ");
    if !short.is_empty() {
        return Judged::fail(
            short.join(", "),
            "repair the CNI first: existing faults look like faults of the change",
        );
    }
    match found.len() {
        0 => Judged::warn(
            "no DaemonSet of a known CNI",
            "find out which CNI is in use: check `/etc/cni/net.d` on a node",
        ),
        1 => Judged::pass(seen),
        _ => Judged::warn(
            seen,
            "complete or clean up the earlier change of the CNI: `/etc/cni/net.d` on each node shows the CNI in use",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;

    fn daemon_set(containers: &[&str], ready: u8) -> DaemonSet {
        let images = ["x:1", "y:2"].iter();
        let containers =
            containers.iter().zip(images).map(|(name, image)| json!({"name": name, "image": image}));
        let object = json!({
            "metadata": {"namespace": "kube-system", "name": "agent"},
            "spec": {"template": {"spec": {"containers": containers.collect::<Vec<_>>()}}},
            "status": {"desiredNumberScheduled": 2, "numberReady": ready},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn cni_is_recognized_by_its_agents() {
        let one = |container: &str, ready: u8| daemon_set(&[container], ready);
        assert_eq!(judge(&[one("cilium-agent", 2)]), Judged::pass("Cilium (`x:1`), on 2 nodes"));
        assert_eq!(judge(&[one("cilium-agent", 1)]).verdict, Verdict::Fail);
        assert_eq!(judge(&[one("fluentd", 1)]).verdict, Verdict::Warn);
        let canal = daemon_set(&["calico-node", "kube-flannel"], 2);
        assert_eq!(judge(&[canal]), Judged::pass("Canal (`x:1`), on 2 nodes"));
        let by_architecture = judge(&[one("kube-flannel", 2), one("kube-flannel", 2)]);
        assert_eq!(by_architecture, Judged::pass("Flannel (`x:1`), on 4 nodes"));
        let two = judge(&[one("weave", 2), one("calico-node", 2)]);
        assert_eq!(two.verdict, Verdict::Warn);
        assert!(two.observed.starts_with("Calico (`x:1`), on 2 nodes, Weave"), "{two:?}");
    }
}
