//! Rules about webhooks and NetworkPolicies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer};

use super::{Effect, Input, Observation, Rule};
use crate::inventory::used_ranges::used_addresses;
use crate::ip::ServiceCidr;
use crate::kube_api::accessors::subject;
use crate::words::{counted, first_few};

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "pod-webhooks",
        why: "while the Pod network is down, the API server cannot call these webhooks, and rejects or delays the Pods that repair the network",
        judge: pod_webhooks,
    },
    Rule {
        name: "network-policies",
        why: "CNIs enforce NetworkPolicies differently: after the change, allowed traffic can be denied, and denied traffic allowed",
        judge: network_policies,
    },
    Rule {
        name: "plug-in-policies",
        why: "the new CNI does not enforce policies of another CNI's kind",
        judge: plug_in_policies,
    },
    Rule {
        name: "policy-addresses",
        why: "for addresses of nodes and Pods in `ipBlock`, CNIs differ, and Pods get other addresses",
        judge: policy_addresses,
    },
];

fn pod_webhooks(input: &Input<'_>) -> Option<Observation> {
    let found = &input.view.webhooks;
    let narrow = "narrow them for the time of the change (`namespaceSelector`), and restore them afterwards";
    if !found.own.is_empty() {
        return Some(Observation::blocks(
            format!("webhooks on the Pod network must admit the Pods of a CNI: {}", first_few(&found.own)),
            format!("exclude the namespaces of both CNIs: {narrow}"),
        ));
    }
    if !found.all.is_empty() {
        return Some(Observation::accept(
            format!("webhooks on the Pod network must admit Pods: {}", first_few(&found.all)),
            format!("run their backends in the host network, or {narrow}"),
        ));
    }
    (!found.ignored.is_empty()).then(|| {
        Observation::note(
            format!(
                "webhooks on the Pod network are called for Pods, with `failurePolicy: Ignore`: {}",
                first_few(&found.ignored)
            ),
            format!("while they do not answer, each creation takes their `timeoutSeconds` longer; {narrow}"),
        )
    })
}

fn network_policies(input: &Input<'_>) -> Option<Observation> {
    let policies: Vec<String> = input.view.policies.iter().map(subject).collect();
    if policies.is_empty() {
        return None;
    }
    let count = counted(policies.len(), "NetworkPolicy", "NetworkPolicies");
    let named = format!("{count}: {}", first_few(&policies));
    let new = input.new.plugin;
    let before = input.old.traits().map(|traits| traits.enforces_policies).collect::<Vec<_>>();
    let is_enforced = before.contains(&Some(true));
    Some(match input.new.traits().and_then(|traits| traits.enforces_policies) {
        Some(false) => Observation::accept(
            format!("{new} does not enforce NetworkPolicies, and there are {named}"),
            "install a policy engine beside it, or accept that all traffic is allowed",
        ),
        None => Observation::accept(
            format!("{new} enforces NetworkPolicies only if this is enabled, and there are {named}"),
            "enable it in the manifests",
        ),
        Some(true) if !is_enforced && !before.is_empty() => Observation::accept(
            format!(
                "{} might not enforce NetworkPolicies, but {new} does; there are {named}",
                input.old.name()
            ),
            "read each policy: it takes effect with the change. Test the paths that must stay open, or delete policies that are wrong",
        ),
        Some(true) => Observation::of(
            Effect::Note,
            named,
            "test the paths that the policies allow and deny on the canary node: some CNIs let traffic of Services or of nodes pass that \
             others deny",
        ),
    })
}

fn plug_in_policies(input: &Input<'_>) -> Option<Observation> {
    let of_new = format!("{}'s", input.new.plugin);
    let found = input.view.plugin_policies.iter().filter(|(_, whose, count)| *count > 0 && *whose != of_new);
    let found: Vec<String> = found.map(|(kind, whose, count)| format!("{count} {kind} ({whose})")).collect();
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!("policies of other kinds: {}", first_few(&found)),
            "export them (`kubectl get KIND -A -o yaml`), and create equivalent NetworkPolicies, or policies of the new CNI's kind, before \
             the change",
        )
    })
}

fn policy_addresses(input: &Input<'_>) -> Option<Observation> {
    let view = input.view;
    let addresses = used_addresses(&view.nodes, &[], &view.pods);
    let mut found = BTreeSet::new();
    for policy in &view.policies {
        for range in blocks(policy) {
            // A block for everything is no statement about nodes or Pods.
            let met =
                addresses.iter().find(|(_, address)| range.prefix_len() > 0 && range.contains(*address));
            if let Some((who, address)) = met {
                found.insert(format!("{} (`{range}` contains `{address}` of {who})", subject(policy)));
            }
        }
    }
    let found: Vec<String> = found.into_iter().collect();
    (!found.is_empty()).then(|| {
        Observation::accept(
            format!("NetworkPolicies with addresses of nodes or Pods: {}", first_few(&found)),
            "use selectors instead of addresses of Pods; for nodes, test on the canary node that the policy has the same effect",
        )
    })
}

/// Returns the ranges in the rules of a policy.
fn blocks(policy: &NetworkPolicy) -> Vec<ServiceCidr> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    let from = spec.ingress.iter().flatten().flat_map(|rule| rule.from.iter().flatten());
    let to = spec.egress.iter().flatten().flat_map(|rule| rule.to.iter().flatten());
    let block = |peer: &NetworkPolicyPeer| {
        let cidr = &peer.ip_block.as_ref()?.cidr;
        cidr.parse().ok().or_else(|| single(cidr))
    };
    from.chain(to).filter_map(block).collect()
}

/// Reads a range of one address, such as `192.0.2.1/32`.
fn single(cidr: &str) -> Option<ServiceCidr> {
    let address: IpAddr = cidr.split('/').next()?.parse().ok()?;
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 }).parse().ok()
}
