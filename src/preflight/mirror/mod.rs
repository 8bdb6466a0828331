//! Checks whether a second cluster, the mirror, can serve the same workloads as the first cluster, the source. Both are checked
//! before objects of some namespaces are copied.

pub mod capacity;
pub mod classes;
pub mod fixed;
pub mod issuers;
pub mod kinds;
pub mod placement;
pub mod templates;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::api::level;
use super::webhooks::{self, Admitted, Backends, Called};
use super::{Judged, Verdict, drain, first_few};
use crate::words::counted;

/// A kind that is copied.
pub struct Copied {
    /// API version and kind, as in `apps/v1` and `Deployment`.
    pub kind: (&'static str, &'static str),
    /// API group and resource, as in `apps` and `deployments`.
    pub resource: (&'static str, &'static str),
    /// Kind for the rules of webhooks.
    pub admitted: Admitted,
}

const fn copied(
    kind: (&'static str, &'static str),
    resource: (&'static str, &'static str),
    admitted: Admitted,
) -> Copied {
    Copied { kind, resource, admitted }
}

/// Kinds of Kubernetes itself that are copied. Custom resources are copied as well.
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

/// Namespaces that every cluster has. They are mirrored only if the user names them.
pub const OWN_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// The identity and version of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// uid of the namespace `kube-system`.
    pub uid: String,
    /// Version, as in `v1.36.3`.
    pub version: String,
    /// Version that the cluster emulates, if it differs, as in `1.33`.
    pub emulated: Option<String>,
}

impl Identity {
    fn told(&self) -> String {
        match &self.emulated {
            Some(emulated) if self.minor() != level(&self.version).map(|(minor, _)| minor) => {
                format!("{} (emulates {emulated})", self.version)
            }
            _ => self.version.clone(),
        }
    }

    fn minor(&self) -> Option<u32> {
        let emulated = self.emulated.as_deref().and_then(|text| text.split_once('.')?.1.parse().ok());
        emulated.or_else(|| level(&self.version).map(|(minor, _)| minor))
    }
}

/// Checks whether source and mirror are two clusters, and whether the mirror's minor version is the same or newer.
pub fn two(source: &Identity, mirror: &Identity) -> Judged {
    if source.uid == mirror.uid {
        return Judged::fail(
            "the mirror is the source: their namespaces `kube-system` have the same uid",
            "give the kubeconfig or the context of the other cluster: `--mirror-kubeconfig`, `--mirror-context`",
        );
    }
    let seen = format!("the source is {}, the mirror {}", source.told(), mirror.told());
    match (source.minor(), mirror.minor()) {
        (Some(of_source), Some(of_mirror)) if of_mirror < of_source => Judged::warn(
            format!("{seen}, which is older"),
            "upgrade the mirror to the source's minor version: an older one drops or rejects unknown fields",
        ),
        _ => Judged::pass(seen),
    }
}

/// Returns whether the cluster or a controller recreates an object, so that it is not copied: objects that every namespace has,
/// objects with a controller, and tokens of ServiceAccounts.
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

/// Checks the mirrored namespaces. `chosen`: namespaces that exist in the source. `missing`: named namespaces that do not exist
/// in the source. `there`: objects on the mirror that a copy would overwrite, as text.
pub fn namespaces(chosen: &[String], missing: &[String], there: &[String]) -> Judged {
    let names: Vec<String> = chosen.iter().map(|name| format!("`{name}`")).collect();
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        return Judged::fail(
            format!("not in the source: {}", missing.join(", ")),
            "name namespaces of the source (`kubectl get namespaces`): `--namespace`",
        );
    }
    if !there.is_empty() {
        return Judged::warn(
            format!(
                "{} on the mirror already: {}",
                counted(there.len(), "object is", "objects are"),
                first_few(there)
            ),
            "check their owners: delete them, or accept that they differ from the source; objects of an earlier copy are listed as well",
        );
    }
    Judged::pass(format!(
        "{} to mirror, none of their objects are on the mirror: {}",
        chosen.len(),
        first_few(&names)
    ))
}

/// How to get the role that lets `preflight` list Secrets.
const SECRETS_ROLE: &str = "bind the optional ClusterRole `netsurgeon-mirror-secrets` of deploy/rbac.yaml to this user, in both clusters";

/// Adds to a result that Secrets are not checked because the user has no permission to list them.
pub fn without_secrets(judged: Judged) -> Judged {
    let seen =
        format!("{}; Secrets are not checked: the user has no permission to list them", judged.observed);
    match judged.verdict {
        Verdict::Pass => Judged::warn(seen, SECRETS_ROLE),
        _ => Judged { observed: seen, remedy: format!("{}; {SECRETS_ROLE}", judged.remedy), ..judged },
    }
}

/// Returns the result of `pull-secrets` if the user has no permission to list Secrets.
pub fn no_pull_secrets() -> Judged {
    Judged::unknown(
        "Secrets of the source are not checked: the user has no permission to list them",
        format!("{SECRETS_ROLE}; or skip this check: `--skip pull-secrets`"),
    )
}

/// Checks the mirror's Nodes, as the check `nodes` of `preflight cni` does.
pub fn nodes(found: &[Node]) -> Judged {
    let mut judged = drain::nodes(found);
    if !judged.remedy.is_empty() {
        judged.remedy =
            "repair them, `kubectl uncordon` Nodes that should run Pods, and delete Nodes that no longer exist"
                .to_string();
    }
    judged
}

/// Checks the mirror's webhooks that must admit copied objects. A webhook with a URL is not tested.
pub fn webhooks(webhooks: &[Called], backends: &Backends) -> Judged {
    let dead = webhooks::dead(webhooks, backends);
    if !dead.is_empty() {
        return Judged::fail(
            first_few(&dead),
            "start the webhook's backend on the mirror, or delete its configuration there until then: without the backend the API server rejects \
             the copied objects",
        );
    }
    let (by_service, by_url): (Vec<&Called>, Vec<&Called>) =
        webhooks.iter().filter(|webhook| webhook.is_needed()).partition(|webhook| webhook.service.is_some());
    let can = format!("webhooks that must admit copied objects: {}, all ready", by_service.len());
    if by_url.is_empty() {
        return Judged::pass(can);
    }
    let told =
        by_url.iter().map(|one| format!("{} at {}", one.told(), one.url.as_deref().unwrap_or("no URL")));
    Judged::warn(
        format!(
            "{can}; {} more with a URL, not tested: {}",
            by_url.len(),
            first_few(&told.collect::<Vec<_>>())
        ),
        "make sure that the mirror's API servers reach it, by its name and with its `caBundle`: test it there with `kubectl create \
         --dry-run=server` of an object that its rules match",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::preflight::Verdict;
    use crate::preflight::webhooks::{Written, called};

    fn identity(uid: &str, version: &str, emulated: Option<&str>) -> Identity {
        Identity { uid: uid.into(), version: version.into(), emulated: emulated.map(str::to_string) }
    }

    #[test]
    fn mirror_must_be_another_cluster_and_not_older() {
        let source = identity("a", "v1.34.2+k3s1", None);
        assert_eq!(two(&source, &identity("a", "v1.36.3", None)).verdict, Verdict::Fail);
        assert_eq!(two(&source, &identity("b", "v1.34.0", None)).verdict, Verdict::Pass);
        assert_eq!(two(&source, &identity("b", "v1.36.3", Some("1.36"))).verdict, Verdict::Pass);
        let older = two(&source, &identity("b", "v1.36.3", Some("1.33")));
        assert_eq!(
            older.observed,
            "the source is v1.34.2+k3s1, the mirror v1.36.3 (emulates 1.33), which is older"
        );
        assert_eq!(two(&source, &identity("b", "v1.32.2", None)).verdict, Verdict::Warn);
    }

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
    fn namespaces_must_be_in_the_source_and_empty_on_the_mirror() {
        let shop = ["shop".to_string()];
        assert_eq!(
            namespaces(&shop, &[], &[]).observed,
            "1 to mirror, none of their objects are on the mirror: `shop`"
        );
        assert_eq!(namespaces(&shop, &["till".into()], &[]).observed, "not in the source: `till`");
        let there = namespaces(&shop, &[], &["Service `shop/web`".into()]);
        assert_eq!(
            (there.verdict, there.observed.as_str()),
            (Verdict::Warn, "1 object is on the mirror already: Service `shop/web`")
        );
    }

    #[test]
    fn secrets_that_are_not_checked_are_reported() {
        let passed = without_secrets(Judged::pass("fine"));
        assert_eq!(passed.verdict, Verdict::Warn);
        assert_eq!(passed.observed, "fine; Secrets are not checked: the user has no permission to list them");
        let failed = without_secrets(Judged::fail("bad", "repair it"));
        assert_eq!((failed.verdict, failed.remedy), (Verdict::Fail, format!("repair it; {SECRETS_ROLE}")));
        assert!(no_pull_secrets().remedy.ends_with("`--skip pull-secrets`"));
    }

    /// Covers each kind with a webhook whose rules match only this kind.
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

    #[test]
    fn webhook_without_a_ready_backend_on_the_mirror_fails() {
        let called = |service: Option<(String, String)>, refuses: bool| Called {
            name: "ValidatingWebhookConfiguration `x`, webhook `x`".into(),
            asked: ["Services"].into(),
            is_left_out: false,
            has_conditions: false,
            refuses,
            service,
            url: None,
        };
        let place = || ("shop".to_string(), "hook".to_string());
        let of = |refuses: bool, ready: Option<usize>| {
            webhooks(&[called(Some(place()), refuses)], &BTreeMap::from([(place(), ready)]))
        };
        assert_eq!(of(true, Some(1)).observed, "webhooks that must admit copied objects: 1, all ready");
        assert_eq!(of(false, None).verdict, Verdict::Pass, "its failure is ignored");
        assert!(
            of(true, Some(0))
                .observed
                .ends_with("(on Services) needs Service `shop/hook`, which has no ready endpoint")
        );
        assert_eq!(of(true, None).verdict, Verdict::Fail);
        let outside = Called { url: Some("https://policy.example.com/check".into()), ..called(None, true) };
        let judged = webhooks(std::slice::from_ref(&outside), &BTreeMap::new());
        assert_eq!(judged.verdict, Verdict::Warn, "it is not tested");
        assert!(
            judged
                .observed
                .starts_with("webhooks that must admit copied objects: 0, all ready; 1 more with a URL")
                && judged.observed.ends_with("(on Services) at https://policy.example.com/check"),
            "{}",
            judged.observed
        );
        let ignored = Called { refuses: false, ..outside };
        assert_eq!(webhooks(&[ignored], &BTreeMap::new()).verdict, Verdict::Pass);
    }
}
