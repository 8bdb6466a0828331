//! Policies of others that select Pods of the test, and therefore may block its traffic.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::member::Role;
use super::objects::Settings;
use super::path::Path;
use crate::kube_api::{Cluster, Collection};

/// Kinds of policies beside NetworkPolicy, and whether they belong to a namespace. Only those that deny something are named; whether one
/// of them selects a Pod is not decided here, because each kind has a language of its own.
const FURTHER: [(&str, &str, bool); 9] = [
    ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy", false),
    ("policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy", false),
    ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", false),
    ("crd.projectcalico.org/v1", "GlobalNetworkPolicy", false),
    ("crd.projectcalico.org/v1", "NetworkPolicy", true),
    ("cilium.io/v2", "CiliumClusterwideNetworkPolicy", false),
    ("cilium.io/v2", "CiliumNetworkPolicy", true),
    ("crd.antrea.io/v1beta1", "ClusterNetworkPolicy", false),
    ("crd.antrea.io/v1beta1", "NetworkPolicy", true),
];

/// A policy that may block traffic of the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignPolicy {
    /// Kind and name, for example ``NetworkPolicy `default-deny` ``.
    pub name: String,
    /// Whether it isolates Pods for traffic to them.
    pub ingress: bool,
    /// Whether it isolates Pods for traffic from them.
    pub egress: bool,
    /// Whether it certainly selects Pods of the test.
    pub selects: bool,
}

/// Reads the policies that may block traffic of the test. Kinds that do not exist, or that the user must not read, are left out.
pub(super) async fn foreign_policies(cluster: &Cluster, settings: &Settings) -> Vec<ForeignPolicy> {
    let namespace = Some(settings.namespace.as_str());
    let pods = [Role::Pod, Role::Peer].map(|role| settings.pod(0, "", role));
    let labels: Vec<&Value> = pods.iter().filter_map(|pod| pod.pointer("/metadata/labels")).collect();
    let standard = Collection::new("networking.k8s.io/v1", "NetworkPolicy", namespace);
    let standard = cluster.list(&standard, None).await.unwrap_or_default();
    let mut found: Vec<ForeignPolicy> =
        standard.iter().filter_map(|policy| isolating(policy, &labels)).collect();
    for (api_version, kind, is_namespaced) in FURTHER {
        let collection = Collection::new(api_version, kind, namespace.filter(|_| is_namespaced));
        let policies = cluster.list(&collection, None).await.unwrap_or_default();
        found.extend(policies.iter().filter_map(|policy| denying(kind, policy)));
    }
    found
}

fn named(kind: &str, policy: &Value) -> String {
    format!("{kind} `{}`", policy.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default())
}

/// Returns a NetworkPolicy that selects Pods with these labels, and is not of a test.
fn isolating(policy: &Value, pods: &[&Value]) -> Option<ForeignPolicy> {
    let is_own =
        policy.pointer("/metadata/labels").is_some_and(|labels| labels.get(super::objects::RUN).is_some());
    let selector = policy.pointer("/spec/podSelector")?;
    if is_own || !pods.iter().any(|labels| is_selected(selector, labels)) {
        return None;
    }
    let types = policy.pointer("/spec/policyTypes").and_then(Value::as_array);
    let has = |name: &str| types.is_some_and(|types| types.iter().any(|one| one == name));
    Some(ForeignPolicy {
        name: named("NetworkPolicy", policy),
        ingress: types.is_none() || has("Ingress"),
        egress: has("Egress") || types.is_none() && policy.pointer("/spec/egress").is_some(),
        selects: true,
    })
}

/// Whether a label selector matches labels (`LabelSelectorAsSelector`, apimachinery/pkg/apis/meta/v1/helpers.go, v0.37.2).
fn is_selected(selector: &Value, labels: &Value) -> bool {
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let is_equal = equal.into_iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let is_matched = expressions.into_iter().flatten().all(|one| {
        let value = one.get("key").and_then(Value::as_str).and_then(|key| labels.get(key));
        let values = one.get("values").and_then(Value::as_array);
        let is_in = value.is_some_and(|value| values.is_some_and(|values| values.contains(value)));
        match one.get("operator").and_then(Value::as_str) {
            Some("In") => is_in,
            Some("NotIn") => !is_in,
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            _ => false,
        }
    });
    is_equal && is_matched
}

/// Returns a policy of another kind that denies something in a direction: by a rule `Deny` or `Drop`, or because it selects Pods and
/// does not allow everything.
fn denying(kind: &str, policy: &Value) -> Option<ForeignPolicy> {
    let spec = policy.get("spec")?;
    let rules = |name: &str| spec.get(name).and_then(Value::as_array);
    let denies = |name: &str| {
        rules(name).is_some_and(|rules| {
            rules.iter().any(|rule| {
                let action = rule.get("action").and_then(Value::as_str);
                matches!(action, Some("Deny" | "Drop" | "Reject"))
            })
        })
    };
    let is_of_calico = |name: &str| {
        let types = spec.get("types").and_then(Value::as_array);
        rules(name.to_lowercase().as_str()).is_none_or(Vec::is_empty)
            && types.is_some_and(|types| types.iter().any(|one| one == name))
    };
    let is_of_cilium = |name: &str| kind.starts_with("Cilium") && rules(name).is_some();
    let (ingress, egress) = (
        denies("ingress")
            || is_of_calico("Ingress")
            || is_of_cilium("ingress")
            || is_of_cilium("ingressDeny"),
        denies("egress") || is_of_calico("Egress") || is_of_cilium("egress") || is_of_cilium("egressDeny"),
    );
    let policy = ForeignPolicy { name: named(kind, policy), ingress, egress, selects: false };
    (ingress || egress).then_some(policy)
}

impl ForeignPolicy {
    /// Whether the policy can block a path.
    pub(super) fn concerns(&self, path: Path) -> bool {
        let (to_pods, from_pods) = match path {
            Path::PodToPodSameNode
            | Path::PodToPod
            | Path::Loss
            | Path::FullSize
            | Path::Transfer
            | Path::PodToService
            | Path::Hairpin
            | Path::StandingConnection
            | Path::PolicyAllow => (true, true),
            Path::NodeToPod | Path::NodeToService | Path::HostPort | Path::NodePort | Path::NodePortLocal => {
                (true, false)
            }
            Path::PodToNode | Path::DnsUdp | Path::DnsTcp | Path::ApiServer => (false, true),
            Path::Agent
            | Path::NodeObject
            | Path::NewPod
            | Path::NodeToNode
            | Path::Counters
            | Path::PolicyDeny => (false, false),
        };
        self.ingress && to_pods || self.egress && from_pods
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(spec: &Value) -> Value {
        json!({"metadata": {"name": "deny"}, "spec": spec})
    }

    #[test]
    fn policies_that_select_the_pods_are_found() {
        let labels = json!({"app": "test", "role": "pod"});
        let of = |spec: Value| isolating(&policy(&spec), &[&labels]);
        let deny = of(json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})).unwrap();
        assert!(deny.ingress && deny.egress && deny.selects && deny.name == "NetworkPolicy `deny`");
        assert!(deny.concerns(Path::DnsUdp) && !deny.concerns(Path::NodeToNode));
        let ingress = of(json!({"podSelector": {"matchLabels": {"app": "test"}}})).unwrap();
        assert!(ingress.ingress && !ingress.egress && !ingress.concerns(Path::DnsUdp));
        assert!(of(json!({"podSelector": {"matchLabels": {"app": "other"}}})).is_none());
        let unless = |key: &str| json!({"podSelector": {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}});
        assert!(of(unless("app")).is_none() && of(unless("other")).is_some());
        let mut own = policy(&json!({"podSelector": {}}));
        own["metadata"]["labels"] = json!({super::super::objects::RUN: "1"});
        assert!(isolating(&own, &[&labels]).is_none());
    }

    #[test]
    fn policies_of_other_kinds_are_named_if_they_deny() {
        let calico = |spec: Value| denying("GlobalNetworkPolicy", &policy(&spec));
        let deny = calico(json!({"types": ["Ingress", "Egress"], "egress": [{"action": "Allow"}]})).unwrap();
        assert!(deny.ingress && !deny.egress && !deny.selects);
        assert!(calico(json!({"types": ["Egress"], "egress": [{"action": "Allow"}]})).is_none());
        let admin = json!({"subject": {"namespaces": {}}, "ingress": [{"action": "Deny"}]});
        assert!(denying("AdminNetworkPolicy", &policy(&admin)).unwrap().ingress);
        let cilium = json!({"endpointSelector": {}, "ingress": [{}]});
        assert!(denying("CiliumClusterwideNetworkPolicy", &policy(&cilium)).unwrap().ingress);
    }
}
