//! `network-policies`: which kinds of network policies exist.

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::Cni;
use crate::inventory::plugin_reader::plugin_policies;
use crate::preflight::{Check, Judged, Read, Source};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Cni> = Check {
    name: "network-policies",
    why: "the new network does not enforce policies of a kind that it does not support",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Cni) -> Read<Judged> {
    let standard = input.read.objects::<NetworkPolicy>().await?.len();
    Ok(judge(standard, &plugin_policies(&input.read.read_only()?).await?))
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
