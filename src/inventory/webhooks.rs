//! Admission webhooks for the objects that a change writes. With `failurePolicy: Fail`, the API server rejects the objects if the
//! webhook is unavailable. Rules and selectors are evaluated as in the API server; `matchConditions` are not evaluated.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::Resource;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::selectors::selects;
use crate::kube_api::accessors::Labels;
use crate::kube_api::accessors::name;

/// A webhook, with the parts that matter for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Configuration and name of the webhook, for example `ValidatingWebhookConfiguration policies, webhook check.example`.
    pub name: String,
    /// Kinds of written objects for which the webhook is called, for example `Services`.
    pub asked: BTreeSet<&'static str>,
    /// Whether the webhook's rules match objects that the change writes, but its selectors exclude all of them.
    pub is_left_out: bool,
    /// Whether the webhook has `matchConditions`. With these conditions, the API server can skip the webhook.
    pub has_conditions: bool,
    /// Whether requests are rejected if the webhook is unavailable (`failurePolicy: Fail`, the default of `v1`).
    pub refuses: bool,
    /// Namespace and name of the webhook's Service.
    pub service: Option<(String, String)>,
    /// URL of the webhook, if it has no Service.
    pub url: Option<String>,
}

/// Kinds of objects that pass admission during a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdmittedKind {
    /// Services that move (clients can update them during the move), shadows, and sentinels of barriers.
    Service,
    /// Copies of endpoints, for shadows of Services without a selector.
    EndpointSlice,
    /// The ServiceCIDR of the new range.
    ServiceCidr,
    /// Pods of the workloads in the cluster.
    Pod,
    /// IPAddress objects. API servers create one for each sentinel and shadow, through admission.
    IpAddress,
    /// ConfigMaps that are copied to a mirror.
    ConfigMap,
    /// CronJobs that are copied to a mirror.
    CronJob,
    /// DaemonSets that are copied to a mirror.
    DaemonSet,
    /// Deployments that are copied to a mirror.
    Deployment,
    /// Ingresses that are copied to a mirror.
    Ingress,
    /// Jobs that are copied to a mirror.
    Job,
    /// Secrets that are copied to a mirror.
    Secret,
    /// ServiceAccounts that are copied to a mirror.
    ServiceAccount,
    /// NetworkPolicies that are copied to a mirror.
    NetworkPolicy,
    /// PodDisruptionBudgets that are copied to a mirror.
    PodDisruptionBudget,
    /// HorizontalPodAutoscalers that are copied to a mirror.
    HorizontalPodAutoscaler,
    /// Roles that are copied to a mirror.
    Role,
    /// RoleBindings that are copied to a mirror.
    RoleBinding,
    /// Namespaces of copied objects.
    Namespace,
}

impl AdmittedKind {
    /// Returns the operations on this kind, as in the rules of webhooks. Pods are only created.
    fn operations(self) -> &'static [&'static str] {
        match self {
            Self::Pod => &["CREATE", "*"],
            _ => &["CREATE", "UPDATE", "DELETE", "*"],
        }
    }

    /// Returns the display name, the API group, the versions, and the resource of this kind.
    fn names(self) -> (&'static str, &'static str, &'static [&'static str], &'static str) {
        let networking = "networking.k8s.io";
        let (rbac, of_rbac): (_, &[&str]) = ("rbac.authorization.k8s.io", &["v1", "v1beta1", "v1alpha1"]);
        match self {
            Self::Service => ("Services", "", &["v1"], "services"),
            Self::Pod => ("Pods", "", &["v1"], "pods"),
            Self::EndpointSlice => {
                ("EndpointSlices", "discovery.k8s.io", &["v1", "v1beta1"], "endpointslices")
            }
            // A rule for any of the versions matches (`matchPolicy: Equivalent`, the default of `v1`).
            Self::ServiceCidr => ("ServiceCIDRs", networking, &["v1", "v1beta1", "v1alpha1"], "servicecidrs"),
            Self::ConfigMap => ("ConfigMaps", "", &["v1"], "configmaps"),
            Self::CronJob => ("CronJobs", "batch", &["v1", "v1beta1"], "cronjobs"),
            Self::DaemonSet => ("DaemonSets", "apps", &["v1"], "daemonsets"),
            Self::Deployment => ("Deployments", "apps", &["v1"], "deployments"),
            Self::Ingress => ("Ingresses", networking, &["v1"], "ingresses"),
            Self::Job => ("Jobs", "batch", &["v1"], "jobs"),
            Self::Secret => ("Secrets", "", &["v1"], "secrets"),
            Self::ServiceAccount => ("ServiceAccounts", "", &["v1"], "serviceaccounts"),
            Self::NetworkPolicy => ("NetworkPolicies", networking, &["v1"], "networkpolicies"),
            Self::PodDisruptionBudget => {
                ("PodDisruptionBudgets", "policy", &["v1", "v1beta1"], "poddisruptionbudgets")
            }
            Self::HorizontalPodAutoscaler => (
                "HorizontalPodAutoscalers",
                "autoscaling",
                &["v1", "v2", "v2beta2", "v2beta1"],
                "horizontalpodautoscalers",
            ),
            Self::Role => ("Roles", rbac, of_rbac, "roles"),
            Self::RoleBinding => ("RoleBindings", rbac, of_rbac, "rolebindings"),
            Self::Namespace => ("Namespaces", "", &["v1"], "namespaces"),
            Self::IpAddress => ("IPAddresses", networking, &["v1", "v1beta1", "v1alpha1"], "ipaddresses"),
        }
    }
}

/// An object that passes admission, with the parts that rules and selectors match.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdmittedObject {
    kind: AdmittedKind,
    /// Labels of the object's Namespace. For a Namespace, these are its own labels. `None` for other cluster-scoped objects.
    namespace: Option<Labels>,
    labels: Labels,
}

impl AdmittedObject {
    /// Returns the object with the labels that selectors match. `namespaces`: labels of all Namespaces, by name. Returns `None`
    /// if the object's Namespace is not in `namespaces`, for example because it was deleted in the meantime.
    pub fn of(
        kind: AdmittedKind,
        object: &ObjectMeta,
        namespaces: &BTreeMap<String, Labels>,
    ) -> Option<Self> {
        let labels = object.labels.clone().unwrap_or_default();
        let namespace = match kind {
            AdmittedKind::ServiceCidr | AdmittedKind::IpAddress => None,
            // Same rule as `GetNamespaceLabels` (`predicates/namespace/matcher.go`, v1.36.3).
            AdmittedKind::Namespace => Some(labels.clone()),
            _ => Some(namespaces.get(object.namespace.as_ref()?)?.clone()),
        };
        Some(Self { kind, namespace, labels })
    }

    /// Returns whether a rule matches this object (`Matcher.Matches`,
    /// `apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go`, v1.36.3). `services/*` includes the Services
    /// themselves, and a Namespace has the scope `Cluster`.
    fn is_ruled_by(&self, rule: &RuleWithOperations) -> bool {
        let has = |list: &Option<Vec<String>>, wanted: &[&str]| {
            list.iter().flatten().any(|text| wanted.contains(&text.as_str()))
        };
        let (_, group, versions, resource) = self.kind.names();
        let is_in_one = self.namespace.is_some() && self.kind != AdmittedKind::Namespace;
        let scope = if is_in_one { "Namespaced" } else { "Cluster" };
        has(&rule.api_groups, &[group, "*"])
            && (has(&rule.api_versions, versions) || has(&rule.api_versions, &["*"]))
            && has(&rule.resources, &[resource, &format!("{resource}/*"), "*", "*/*"])
            && has(&rule.operations, self.kind.operations())
            && [None, Some("*"), Some(scope)].contains(&rule.scope.as_deref())
    }

    /// Returns whether the selectors of a webhook select this object. Every `namespaceSelector` selects objects without a
    /// namespace (`MatchNamespaceSelector`, `predicates/namespace/matcher.go`; `MatchObjectSelector`,
    /// `predicates/object/matcher.go`, v1.36.3).
    fn is_selected_by(&self, webhook: &ValidatingWebhook) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|labels| selects(webhook.namespace_selector.as_ref(), labels))
            && selects(webhook.object_selector.as_ref(), &self.labels)
    }
}

/// Returns the webhooks of these configurations, each with the kinds of objects in `written` for which the API server calls it.
pub fn webhooks_for(
    mutating: Vec<MutatingWebhookConfiguration>,
    validating: Vec<ValidatingWebhookConfiguration>,
    written: &[AdmittedObject],
) -> Vec<Webhook> {
    let told = |kind: &str, of: &str, webhook: ValidatingWebhook| {
        judged(format!("{kind} `{of}`, webhook `{}`", webhook.name), webhook, written)
    };
    let mut found = Vec::new();
    for mut one in mutating {
        let webhooks = one.webhooks.take().into_iter().flatten().map(unchanging);
        found.extend(webhooks.map(|webhook| told(MutatingWebhookConfiguration::KIND, name(&one), webhook)));
    }
    for mut one in validating {
        let webhooks = one.webhooks.take().into_iter().flatten();
        found.extend(webhooks.map(|webhook| told(ValidatingWebhookConfiguration::KIND, name(&one), webhook)));
    }
    found
}

/// Converts a mutating webhook to a validating webhook. netsurgeon reads the same fields in both types.
fn unchanging(webhook: MutatingWebhook) -> ValidatingWebhook {
    ValidatingWebhook {
        name: webhook.name,
        client_config: webhook.client_config,
        failure_policy: webhook.failure_policy,
        match_conditions: webhook.match_conditions,
        namespace_selector: webhook.namespace_selector,
        object_selector: webhook.object_selector,
        rules: webhook.rules,
        ..ValidatingWebhook::default()
    }
}

fn judged(name: String, webhook: ValidatingWebhook, written: &[AdmittedObject]) -> Webhook {
    let rules = webhook.rules.as_deref().unwrap_or_default();
    let met = written.iter().filter(|one| rules.iter().any(|rule| one.is_ruled_by(rule)));
    let asked: BTreeSet<&str> =
        met.clone().filter(|one| one.is_selected_by(&webhook)).map(|one| one.kind.names().0).collect();
    Webhook {
        name,
        is_left_out: asked.is_empty() && met.count() > 0,
        asked,
        has_conditions: webhook.match_conditions.is_some_and(|list| !list.is_empty()),
        refuses: webhook.failure_policy.as_deref() != Some("Ignore"),
        service: webhook.client_config.service.map(|service| (service.namespace, service.name)),
        url: webhook.client_config.url,
    }
}

impl Webhook {
    /// Returns whether the change fails if the webhook does not answer.
    pub fn is_needed(&self) -> bool {
        !self.asked.is_empty() && self.refuses
    }

    /// Returns the name of the webhook, and the kinds for which it is called.
    pub fn told(&self) -> String {
        let asked = self.asked.iter().copied().collect::<Vec<_>>().join(" and ");
        let conditions = if self.has_conditions { "; its `matchConditions` are not evaluated" } else { "" };
        format!("{} (on {asked}{conditions})", self.name)
    }
}

/// Counts the ready endpoints in the EndpointSlices of a Service.
pub fn ready(slices: &[EndpointSlice]) -> usize {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let conditions = endpoints.map(|one| one.conditions.as_ref());
    conditions.filter(|conditions| conditions.and_then(|one| one.ready) != Some(false)).count()
}

/// Number of ready endpoints of each Service, by namespace and name. `None` if the Service does not exist.
pub type Backends = BTreeMap<(String, String), Option<usize>>;

/// Returns the webhooks that must answer but cannot. Each text includes the reason.
pub fn dead(webhooks: &[Webhook], backends: &Backends) -> Vec<String> {
    let dead = webhooks.iter().filter(|webhook| webhook.is_needed()).filter_map(|webhook| {
        let service = webhook.service.as_ref()?;
        let what = match backends.get(service)? {
            None => "which does not exist",
            Some(0) => "which has no ready endpoint",
            Some(_) => return None,
        };
        Some(format!("{} needs Service `{}/{}`, {what}", webhook.told(), service.0, service.1))
    });
    dead.collect()
}

#[cfg(test)]
pub(crate) mod testing {
    //! Webhooks for tests.

    use serde_json::{Value, json};

    use super::*;

    fn labelled(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect()
    }

    /// Returns a Service in `shop`, a Service in `kube-system`, and address objects.
    fn written() -> Vec<AdmittedObject> {
        let namespaces = BTreeMap::from([
            ("shop".to_string(), labelled(&[("kubernetes.io/metadata.name", "shop"), ("team", "shop")])),
            ("kube-system".to_string(), labelled(&[("kubernetes.io/metadata.name", "kube-system")])),
        ]);
        let object = |namespace: &str, labels: Value| json!({"namespace": namespace, "labels": labels});
        let all = [
            (AdmittedKind::Service, object("shop", json!({"app": "web"}))),
            (
                AdmittedKind::Service,
                object("kube-system", json!({"app.kubernetes.io/managed-by": "netsurgeon"})),
            ),
            (AdmittedKind::Service, object("gone", json!({"app": "web"}))),
            (
                AdmittedKind::EndpointSlice,
                object("shop", json!({"app.kubernetes.io/managed-by": "netsurgeon"})),
            ),
            (AdmittedKind::ServiceCidr, json!({})),
            (AdmittedKind::IpAddress, json!({"labels": {"family": "IPv4"}})),
        ];
        let written =
            |(kind, object)| AdmittedObject::of(kind, &serde_json::from_value(object).unwrap(), &namespaces);
        let found: Vec<AdmittedObject> = all.into_iter().filter_map(written).collect();
        assert_eq!(found.len(), 5, "an object of a deleted Namespace is not written");
        found
    }

    /// Returns a webhook with these rules and other fields, and the kinds of the test objects for which it is called.
    pub fn configured(rules: &Value, more: &Value) -> Vec<Webhook> {
        let mut webhook = json!({"name": "check.example", "rules": rules});
        for (name, value) in more.as_object().unwrap() {
            webhook[name] = value.clone();
        }
        validating(&webhook, &written())
    }

    /// Returns the webhook of a configuration, and the kinds of objects in `written` for which it is called.
    pub fn validating(webhook: &Value, written: &[AdmittedObject]) -> Vec<Webhook> {
        let configuration = json!({"metadata": {"name": "policies"}, "webhooks": [webhook]});
        let validating =
            webhooks_for(Vec::new(), vec![serde_json::from_value(configuration.clone()).unwrap()], written);
        let mut mutating =
            webhooks_for(vec![serde_json::from_value(configuration).unwrap()], Vec::new(), written);
        for one in &mut mutating {
            one.name = one.name.replace("Mutating", "Validating");
        }
        assert_eq!(mutating, validating, "mutating and validating webhooks are judged alike");
        validating
    }

    /// Returns a rule for a resource of the group `""`.
    pub fn rules(resource: &str, operation: &str) -> Value {
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": [operation]}])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::testing::{configured, rules, validating};
    use super::*;

    fn asked(rules: &Value, more: &Value) -> Vec<&'static str> {
        configured(rules, more)[0].asked.iter().copied().collect()
    }

    #[test]
    fn rules_match_groups_versions_resources_operations_and_scope() {
        let meets = |rules: Value| asked(&rules, &json!({})) == ["Services"];
        assert!(
            meets(rules("services", "UPDATE")) && meets(rules("*", "*")) && meets(rules("*/*", "CREATE"))
        );
        assert!(meets(rules("services/*", "DELETE")), "it includes the Services themselves");
        assert!(!meets(rules("services/status", "UPDATE")) && !meets(rules("pods", "*")));
        assert!(!meets(rules("services", "CONNECT")));
        assert!(!meets(
            json!([{"apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}])
        ));
        assert!(!meets(json!(null)));
        let of_scope = |scope: Value| {
            let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"], "scope": scope});
            asked(&json!([rule]), &json!({}))
        };
        let all = ["EndpointSlices", "IPAddresses", "ServiceCIDRs", "Services"];
        assert_eq!(of_scope(json!("Namespaced")), ["EndpointSlices", "Services"]);
        assert_eq!(of_scope(json!("Cluster")), ["IPAddresses", "ServiceCIDRs"]);
        assert_eq!(of_scope(json!("*")), all);
        assert_eq!(of_scope(json!(null)), all);
    }

    /// Tests which objects the selectors exclude. Every `namespaceSelector` selects objects without a namespace.
    #[test]
    fn selectors_exclude_unselected_objects() {
        let all =
            json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}]);
        let records = ["IPAddresses", "ServiceCIDRs"];
        let by = |kind: &str, requirement: Value| {
            let selector = json!({"matchExpressions": [requirement]});
            asked(&all, &json!({kind: selector}))
        };
        let name = "kubernetes.io/metadata.name";
        let without = |names: &[&str]| {
            by("namespaceSelector", json!({"key": name, "operator": "NotIn", "values": names}))
        };
        assert_eq!(without(&["kube-system"]).len(), 4, "all in `shop`");
        assert_eq!(without(&["kube-system", "shop"]), records);
        let of_team = |operator: &str| by("namespaceSelector", json!({"key": "team", "operator": operator}));
        assert_eq!(of_team("Exists").len(), 4, "those in `shop`");
        assert_eq!(of_team("DoesNotExist").len(), 3, "that in `kube-system`");
        assert_eq!(by("objectSelector", json!({"key": "family", "operator": "Exists"})), ["IPAddresses"]);
        assert_eq!(asked(&all, &json!({"objectSelector": {"matchLabels": {"app": "web"}}})), ["Services"]);
        // Each Service matches one of the selectors, but no Service matches both.
        let both = json!({
            "namespaceSelector": {"matchLabels": {name: "kube-system"}}, "objectSelector": {"matchLabels": {"app": "web"}},
        });
        assert_eq!(asked(&rules("services", "*"), &both), Vec::<&str>::new());
        let left_out = configured(&rules("services", "*"), &both);
        assert!(left_out[0].is_left_out && !configured(&rules("pods", "*"), &both)[0].is_left_out);
    }

    #[test]
    fn namespace_is_selected_by_its_own_labels() {
        let shop = serde_json::from_value(json!({"name": "shop", "labels": {"team": "shop"}})).unwrap();
        let written = [AdmittedObject::of(AdmittedKind::Namespace, &shop, &BTreeMap::new()).unwrap()];
        let is_asked = |scope: &str, selector: Value| {
            let rule = json!({
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"], "operations": ["CREATE"], "scope": scope,
            });
            let webhook = json!({"name": "check.example", "rules": [rule], "namespaceSelector": selector});
            validating(&webhook, &written)[0].asked.contains("Namespaces")
        };
        assert!(is_asked("*", json!({})) && is_asked("Cluster", json!({"matchLabels": {"team": "shop"}})));
        assert!(!is_asked("*", json!({"matchLabels": {"team": "till"}})));
        assert!(!is_asked("Namespaced", json!({})), "a Namespace is cluster-scoped");
    }
}
