//! `network-policies`: which kinds of network policies exist.

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::Cni;
use crate::inventory::network_plugins::PLUGINS;
use crate::preflight::{Check, Judged, Read, Source};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "network-policies",
    why: "the new network does not enforce policies of a kind that it does not support",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Kinds of policies that several CNIs support, but not all. Each entry has the API version and the kind.
const SHARED_POLICIES: [(&str, &str); 2] = [
    ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"),
    ("policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy"),
];

async fn read(input: &Cni) -> Read<Judged> {
    let standard = input.read.objects::<NetworkPolicy>().await?.len();
    let mut own = Vec::new();
    let of_one = PLUGINS
        .iter()
        .flat_map(|plugin| plugin.policies.iter().map(|policy| (policy, format!("{}'s", plugin.name))));
    let of_some = SHARED_POLICIES.iter().map(|policy| (policy, "some CNIs'".to_string()));
    for ((api_version, kind), whose) in of_one.chain(of_some) {
        if let Some(found) = input.read.list_if_served(api_version, kind).await? {
            own.push((*kind, whose, found.len()));
        }
    }
    Ok(judge(standard, &own))
}

/// Checks the policies that exist now. `standard`: number of NetworkPolicies. `own`: kinds of policies that only some CNIs
/// support, each with the CNI and the number of policies.
fn judge(standard: usize, own: &[(&str, String, usize)]) -> Judged {
    let own: Vec<String> = own
        .iter()
        .filter(|(.., count)| *count > 0)
        .map(|(kind, whose, count)| format!("{count} {kind} ({whose})"))
        .collect();
    if !own.is_empty() {
        return Judged::warn(
            format!("{}; {}", counted(standard, "NetworkPolicy", "NetworkPolicies"), own.join(", ")),
            "the new CNI does not enforce policies of another CNI's kind: create equivalent NetworkPolicies, or policies of the new CNI's kind, before the change",
        );
    }
    match standard {
        0 => Judged::pass("no NetworkPolicies"),
        count => Judged::pass(format!(
            "{}: the new CNI must enforce NetworkPolicies, too (Flannel alone does not)",
            counted(count, "NetworkPolicy", "NetworkPolicies")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn policies_of_one_cni_are_a_warning() {
        assert_eq!(judge(0, &[]).verdict, Verdict::Pass);
        assert_eq!(judge(3, &[("CiliumNetworkPolicy", "Cilium's".to_string(), 0)]).verdict, Verdict::Pass);
        let own = judge(3, &[("CiliumNetworkPolicy", "Cilium's".to_string(), 2)]);
        assert_eq!(own.verdict, Verdict::Warn);
        assert_eq!(own.observed, "3 NetworkPolicies; 2 CiliumNetworkPolicy (Cilium's)");
    }
}
