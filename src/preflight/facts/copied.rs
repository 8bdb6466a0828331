//! The kinds of objects that are copied to a mirror, and the objects of these kinds that are not copied.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::webhooks::Admitted;
use crate::preflight::{Judged, Verdict};

/// A kind that is copied.
pub struct Copied {
    /// API version and kind, for example `apps/v1` and `Deployment`.
    pub kind: (&'static str, &'static str),
    /// API group and resource, for example `apps` and `deployments`.
    pub resource: (&'static str, &'static str),
    /// The same kind, for comparison with the rules of webhooks.
    pub admitted: Admitted,
}

const fn copied(
    kind: (&'static str, &'static str),
    resource: (&'static str, &'static str),
    admitted: Admitted,
) -> Copied {
    Copied { kind, resource, admitted }
}

/// Built-in Kubernetes kinds that are copied. Custom resources are also copied.
pub const COPIED: [Copied; 14] = [
    copied(("v1", "Secret"), ("", "secrets"), Admitted::Secret),
    copied(("v1", "ConfigMap"), ("", "configmaps"), Admitted::ConfigMap),
    copied(("v1", "ServiceAccount"), ("", "serviceaccounts"), Admitted::ServiceAccount),
    copied(("v1", "Service"), ("", "services"), Admitted::Service),
    copied(("apps/v1", "Deployment"), ("apps", "deployments"), Admitted::Deployment),
    copied(("apps/v1", "DaemonSet"), ("apps", "daemonsets"), Admitted::DaemonSet),
    copied(("batch/v1", "Job"), ("batch", "jobs"), Admitted::Job),
    copied(("batch/v1", "CronJob"), ("batch", "cronjobs"), Admitted::CronJob),
    copied(("networking.k8s.io/v1", "Ingress"), ("networking.k8s.io", "ingresses"), Admitted::Ingress),
    copied(
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("networking.k8s.io", "networkpolicies"),
        Admitted::NetworkPolicy,
    ),
    copied(
        ("policy/v1", "PodDisruptionBudget"),
        ("policy", "poddisruptionbudgets"),
        Admitted::PodDisruptionBudget,
    ),
    copied(
        ("autoscaling/v1", "HorizontalPodAutoscaler"),
        ("autoscaling", "horizontalpodautoscalers"),
        Admitted::HorizontalPodAutoscaler,
    ),
    copied(("rbac.authorization.k8s.io/v1", "Role"), ("rbac.authorization.k8s.io", "roles"), Admitted::Role),
    copied(
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        Admitted::RoleBinding,
    ),
];

/// Verbs to read the namespaces, and the objects of each copied kind.
pub const READS: &[&str] = &["get", "list"];
/// API group and resource of Secrets.
pub const SECRETS: (&str, &str) = ("", "secrets");
/// API group and resource of namespaces.
pub const NAMESPACES: (&str, &str) = ("", "namespaces");

/// Returns whether an object is not copied, because the cluster or a controller recreates the object. Such objects are the
/// objects that every namespace has, objects with a controller, and tokens of ServiceAccounts.
pub fn is_made_anew(kind: &str, object: &ObjectMeta) -> bool {
    let name = object.name.as_deref().unwrap_or_default();
    let is_everywhere = match kind {
        "ConfigMap" => matches!(name, "kube-root-ca.crt" | "openshift-service-ca.crt"),
        "ServiceAccount" => name == "default",
        "Service" => name == "kubernetes" && object.namespace.as_deref() == Some("default"),
        "Secret" => object.annotations.iter().flatten().any(|(name, _)| name == SERVICE_ACCOUNT),
        _ => false,
    };
    is_everywhere || object.owner_references.iter().flatten().any(|owner| owner.controller == Some(true))
}

/// Annotation with the ServiceAccount of a token (`ServiceAccountNameKey`, `k8s.io/api/core/v1/types.go`, v1.36.3).
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// How to get the role that lets `preflight` list Secrets.
pub const SECRETS_ROLE: &str = "bind the optional ClusterRole `netsurgeon-mirror-secrets` of deploy/rbac.yaml to this user, in both clusters";

/// Adds a note to a result: Secrets are not checked, because the user has no permission to list them. A pass becomes a warning.
pub fn without_secrets(judged: Judged) -> Judged {
    let seen =
        format!("{}; Secrets are not checked: the user has no permission to list them", judged.observed);
    match judged.verdict {
        Verdict::Pass => Judged::warn(seen, SECRETS_ROLE),
        _ => Judged { observed: seen, remedy: format!("{}; {SECRETS_ROLE}", judged.remedy), ..judged },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::preflight::facts::webhooks::{Written, called};

    #[test]
    fn objects_that_a_controller_recreates_are_not_copied() {
        let named = |namespace: &str, name: &str| ObjectMeta {
            namespace: Some(namespace.to_string()),
            name: Some(name.to_string()),
            ..ObjectMeta::default()
        };
        assert!(is_made_anew("ConfigMap", &named("shop", "kube-root-ca.crt")));
        assert!(!is_made_anew("Secret", &named("shop", "kube-root-ca.crt")));
        assert!(is_made_anew("Service", &named("default", "kubernetes")));
        assert!(!is_made_anew("Service", &named("shop", "kubernetes")));
        let mut job = named("shop", "nightly-123");
        assert!(!is_made_anew("Job", &job));
        job.owner_references =
            serde_json::from_value(json!([{"kind": "CronJob", "controller": true}])).unwrap();
        assert!(is_made_anew("Job", &job));
        let mut token = named("shop", "web-token");
        token.annotations = Some([(SERVICE_ACCOUNT.to_string(), "web".to_string())].into());
        assert!(is_made_anew("Secret", &token));
    }

    #[test]
    fn secrets_that_are_not_checked_are_reported() {
        let passed = without_secrets(Judged::pass("fine"));
        assert_eq!(passed.verdict, Verdict::Warn);
        assert_eq!(passed.observed, "fine; Secrets are not checked: the user has no permission to list them");
        let failed = without_secrets(Judged::fail("bad", "repair it"));
        assert_eq!((failed.verdict, failed.remedy), (Verdict::Fail, format!("repair it; {SECRETS_ROLE}")));
    }

    /// Tests each kind with a webhook that has rules for only this kind.
    #[test]
    fn webhook_rules_match_every_copied_kind() {
        let object = ObjectMeta { namespace: Some("shop".to_string()), ..ObjectMeta::default() };
        let namespaces = BTreeMap::from([("shop".to_string(), BTreeMap::new())]);
        for one in &COPIED {
            let version = one.kind.0.rsplit('/').next();
            let rule = json!({
                "apiGroups": [one.resource.0], "apiVersions": [version], "resources": [one.resource.1], "operations": ["CREATE"],
            });
            let configuration =
                json!({"metadata": {"name": "x"}, "webhooks": [{"name": "x", "rules": [rule]}]});
            let written = [Written::of(one.admitted, &object, &namespaces).unwrap()];
            let found = called(Vec::new(), vec![serde_json::from_value(configuration).unwrap()], &written);
            assert_eq!(found[0].asked.len(), 1, "{}", one.kind.1);
        }
    }
}
