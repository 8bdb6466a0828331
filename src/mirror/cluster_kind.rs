//! Kinds without a namespace whose objects the copied objects can need: definitions of custom resources, PriorityClasses, ClusterRoles,
//! ClusterRoleBindings, and webhooks whose server is copied. Other kinds without a namespace, such as StorageClasses, belong to the installation of a cluster.

use std::collections::BTreeSet;

use serde_json::Value;

use super::class::{Classes, add_classes};
use super::left_out::{self, Reason};
use super::strip;
use crate::inventory::{list, text};

/// A kind without a namespace: `GROUP/PLURAL`, API version and kind.
pub(super) type ClusterKind = (&'static str, &'static str, &'static str);

pub(super) const DEFINITION: ClusterKind =
    ("apiextensions.k8s.io/customresourcedefinitions", "apiextensions.k8s.io/v1", "CustomResourceDefinition");
pub(super) const PRIORITY_CLASS: ClusterKind =
    ("scheduling.k8s.io/priorityclasses", "scheduling.k8s.io/v1", "PriorityClass");
pub(super) const CLUSTER_ROLE: ClusterKind =
    ("rbac.authorization.k8s.io/clusterroles", "rbac.authorization.k8s.io/v1", "ClusterRole");
pub(super) const CLUSTER_ROLE_BINDING: ClusterKind =
    ("rbac.authorization.k8s.io/clusterrolebindings", "rbac.authorization.k8s.io/v1", "ClusterRoleBinding");

const VALIDATING: ClusterKind =
    (strip::WEBHOOKS[0], "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
const MUTATING: ClusterKind =
    (strip::WEBHOOKS[1], "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration");
pub(super) const WEBHOOKS: [ClusterKind; 2] = [VALIDATING, MUTATING];

/// Every such kind.
pub(super) const CLUSTER_KINDS: [ClusterKind; 6] =
    [DEFINITION, PRIORITY_CLASS, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, VALIDATING, MUTATING];

/// The names of objects without a namespace that copied objects refer to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub priority_classes: BTreeSet<String>,
    pub cluster_roles: BTreeSet<String>,
    /// Classes, which are not copied.
    pub classes: Classes,
}

impl Needs {
    /// Adds what an object refers to.
    pub(super) fn add(&mut self, kind: &str, object: &Value) {
        let class = match kind {
            "batch/cronjobs" => text(object, "/spec/jobTemplate/spec/template/spec/priorityClassName"),
            _ => text(object, "/spec/template/spec/priorityClassName"),
        };
        // Every cluster has the classes of the system (SystemPriorityClasses, pkg/apis/scheduling/helpers.go).
        if !class.is_empty() && !class.starts_with("system-") {
            self.priority_classes.insert(class.to_string());
        }
        add_classes(&mut self.classes, kind, object);
        let role = text(object, "/roleRef/name");
        let is_binding = kind.starts_with("rbac.authorization.k8s.io/");
        if is_binding && text(object, "/roleRef/kind") == "ClusterRole" && !is_bootstrapped(role) {
            self.cluster_roles.insert(role.to_string());
        }
    }
}

/// Returns whether every cluster has a ClusterRole (plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go).
fn is_bootstrapped(role: &str) -> bool {
    role.starts_with("system:") || matches!(role, "cluster-admin" | "admin" | "edit" | "view")
}

/// Returns whether a ClusterRoleBinding names a ServiceAccount of these namespaces.
pub(super) fn binds_one_of(binding: &Value, namespaces: &[String]) -> bool {
    list(binding, "/subjects").iter().any(|subject| is_account_of(subject, namespaces))
}

fn is_account_of(subject: &Value, namespaces: &[String]) -> bool {
    let namespace = text(subject, "/namespace");
    text(subject, "/kind") == "ServiceAccount" && namespaces.iter().any(|name| name == namespace)
}

/// Returns whether a webhook of a configuration calls a Service of these namespaces.
pub(super) fn calls_one_of(configuration: &Value, namespaces: &[String]) -> bool {
    list(configuration, "/webhooks").iter().any(|webhook| is_call_to(webhook, namespaces))
}

fn is_call_to(webhook: &Value, namespaces: &[String]) -> bool {
    let namespace = text(webhook, "/clientConfig/service/namespace");
    namespaces.iter().any(|name| name == namespace)
}

/// Returns why a needed object is not copied.
pub(super) fn why_not(kind: &str, object: &Value, namespaces: &[String]) -> Option<Reason> {
    match kind {
        // A copy would give permissions to users and to ServiceAccounts that the operator did not choose.
        kind if kind == CLUSTER_ROLE_BINDING.0 => {
            let mut subjects = list(object, "/subjects").iter();
            subjects.any(|subject| !is_account_of(subject, namespaces)).then_some(left_out::SHARED_BINDING)
        }
        kind if strip::WEBHOOKS.contains(&kind) => {
            let mut webhooks = list(object, "/webhooks").iter();
            webhooks.any(|webhook| !is_call_to(webhook, namespaces)).then_some(left_out::SHARED_WEBHOOK)
        }
        // The API server cannot read any object of the kind until the webhook answers (kubernetes/kubernetes#123835).
        kind if kind == DEFINITION.0 => {
            (text(object, "/spec/conversion/strategy") == "Webhook").then_some(left_out::CONVERSION_WEBHOOK)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_collected() {
        let mut needs = Needs::default();
        let with = |class: &str| json!({"spec": {"template": {"spec": {"priorityClassName": class}}}});
        let role = |kind: &str, name: &str| json!({"roleRef": {"kind": kind, "name": name}});
        needs.add("apps/deployments", &with("high"));
        needs.add("apps/deployments", &with("system-cluster-critical"));
        needs.add("batch/cronjobs", &json!({"spec": {"jobTemplate": {"spec": with("low")["spec"]}}}));
        let bindings = "rbac.authorization.k8s.io/rolebindings";
        for (kind, name) in
            [("ClusterRole", "reader"), ("Role", "own"), ("ClusterRole", "view"), ("ClusterRole", "system:x")]
        {
            needs.add(bindings, &role(kind, name));
        }
        needs.add("example.com/widgets", &role("ClusterRole", "other"));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<BTreeSet<_>>();
        assert_eq!(needs.priority_classes, names(&["high", "low"]));
        assert_eq!(needs.cluster_roles, names(&["reader"]));
    }

    #[test]
    fn shared_objects_are_not_copied() {
        let account =
            |namespace: &str| json!({"kind": "ServiceAccount", "namespace": namespace, "name": "a"});
        let group = json!({"kind": "Group", "name": "dev"});
        let namespaces = ["shop".to_string()];
        for (subjects, binds, reason) in [
            (json!([account("shop")]), true, None),
            (json!([account("shop"), account("pay")]), true, Some("shared-binding")),
            (json!([account("shop"), group]), true, Some("shared-binding")),
            (json!([account("pay")]), false, Some("shared-binding")),
        ] {
            let binding = json!({"subjects": subjects});
            assert_eq!(binds_one_of(&binding, &namespaces), binds, "{binding}");
            let found = why_not(CLUSTER_ROLE_BINDING.0, &binding, &namespaces).map(|reason| reason.code);
            assert_eq!(found, reason, "{binding}");
        }
        let client =
            |namespace: &str| json!({"clientConfig": {"service": {"namespace": namespace, "name": "hook"}}});
        let by_address = json!({"clientConfig": {"url": "https://hook.example.com/"}});
        for (webhooks, calls, reason) in [
            (json!([client("shop"), client("shop")]), true, None),
            (json!([client("shop"), client("pay")]), true, Some("shared-webhook")),
            (json!([client("shop"), by_address]), true, Some("shared-webhook")),
            (json!([by_address]), false, Some("shared-webhook")),
        ] {
            let configuration = json!({"webhooks": webhooks});
            assert_eq!(calls_one_of(&configuration, &namespaces), calls, "{configuration}");
            for (kind, ..) in WEBHOOKS {
                let found = why_not(kind, &configuration, &namespaces).map(|reason| reason.code);
                assert_eq!(found, reason, "{configuration}");
            }
        }
        let definition = |strategy: &str| json!({"spec": {"conversion": {"strategy": strategy}}});
        assert_eq!(why_not(DEFINITION.0, &definition("None"), &namespaces), None);
        let refused = why_not(DEFINITION.0, &definition("Webhook"), &namespaces);
        assert_eq!(refused, Some(left_out::CONVERSION_WEBHOOK));
    }
}
