//! Tests whether the nodes route external IPs, before the first Service moves. The test is needed only if the plan holds
//! addresses by external IPs.

use std::fmt::Write as _;
use std::time::Duration;

use super::RenumberSession;
use crate::kube_api::{BarrierRoute, ExternalIpTrial, ExternalIpsTried, SilentNode};
use crate::renumber::Renumbering;
use crate::renumber::hold::Hold;
use crate::session::Failure;
use crate::words::{counted, first_few};

/// Time limit for a kube-proxy to apply the test Services. By default, a kube-proxy applies them within a second.
const DEADLINE: Duration = Duration::from_secs(30);

impl RenumberSession {
    /// Tests whether the nodes route the external IPs of a test Service: an address of the new range, and the addresses of the
    /// nodes. Refuses the operation if a node does not route these external IPs. Reports the nodes that cannot be checked.
    pub async fn try_external_ips(&self, operation: &str, work: &Renumbering) -> Result<(), Failure> {
        let by_external_ip = work.moves.iter().find(|candidate| candidate.hold == Hold::ExternalIp);
        let (Some(cluster), Some(first)) = (self.cluster(), by_external_ip) else { return Ok(()) };
        if matches!(self.choices.barrier, BarrierRoute::Wait(_)) {
            self.ui.note(
                "did not test whether the nodes route external IPs: `--barrier SECONDS` queries no node",
            );
            return Ok(());
        }
        let trial = ExternalIpTrial {
            namespace: "kube-system".to_string(),
            operation: operation.to_string(),
            family: work.family,
            reach: self.choices.barrier,
            address: first.new_address,
            deadline: DEADLINE,
        };
        match cluster.try_external_ips(&trial).await {
            Ok(tried) if tried.not_routing.is_empty() => self.ui.progress(&words(&tried)),
            Ok(tried) => return Err(refused(&tried)),
            Err(error) => {
                self.ui.warn(&format!("could not test whether the nodes route external IPs: {error}"));
            }
        }
        Ok(())
    }
}

fn refused(tried: &ExternalIpsTried) -> Failure {
    let count = tried.not_routing.len();
    let text = format!(
        "kube-proxy on {} does not route external IPs: {}; with this plan the old addresses would not answer there; no Service \
         has moved",
        counted(count, "node", "nodes"),
        first_few(&tried.not_routing.iter().map(|node| format!("`{node}`")).collect::<Vec<_>>()),
    );
    Failure::refused(text)
        .hint(
            "hold old addresses by shadow Services: plan again with `--hold shadow` and the other options of this plan, then apply \
             the new plan",
        )
        .hint("or enable kube-proxy's feature gate `AllowServiceExternalIPs` on these nodes, and apply again")
}

fn words(tried: &ExternalIpsTried) -> String {
    let routing = counted(tried.routing.len(), "node routes", "nodes route");
    let mut text = format!("{routing} external IPs (checked with a test Service)");
    if tried.routing.is_empty() {
        text = if tried.answers_here {
            "this node routes external IPs (checked with a test Service)".to_string()
        } else {
            "whether nodes route external IPs was not verified".to_string()
        };
    }
    if !tried.unknown.is_empty() {
        let few = first_few(&tried.unknown.iter().map(SilentNode::to_string).collect::<Vec<_>>());
        let count = counted(tried.unknown.len(), "node", "nodes");
        let _ = write!(text, "; {count} cannot be checked from this host: {few}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_nodes_are_reported_in_one_truncated_list() {
        let silent = |number: usize| SilentNode { node: format!("n{number}"), seen: "no answer".into() };
        let tried = ExternalIpsTried {
            routing: vec!["n0".into()],
            unknown: (1..6).map(silent).collect(),
            ..ExternalIpsTried::default()
        };
        assert_eq!(
            words(&tried),
            "1 node routes external IPs (checked with a test Service); 5 nodes cannot be checked from this host: `n1` (no answer), \
             `n2` (no answer), `n3` (no answer), and 2 more"
        );
    }
}
