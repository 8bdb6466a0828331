//! The kinds of objects of a namespace: which of them a mirror gets as copies, which it makes itself, and which it does not get.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::webhooks::AdmittedKind;

/// What a mirror gets of the objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copying {
    /// A copy of each object. Contains the same kind, for comparison with the rules of webhooks.
    Copied(AdmittedKind),
    /// Objects of its own: the API server or a controller of the mirror creates them. Contains the reason.
    MadeAnew(&'static str),
    /// Nothing. Contains the reason.
    NotCopied(&'static str),
}

/// A kind of objects, and what a mirror gets of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindRule {
    /// API version and kind, for example `apps/v1` and `Deployment`.
    pub kind: (&'static str, &'static str),
    /// API group and resource, for example `apps` and `deployments`.
    pub resource: (&'static str, &'static str),
    /// What a mirror gets.
    pub copying: Copying,
}

/// A kind that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedKind {
    /// API version and kind, for example `apps/v1` and `Deployment`.
    pub kind: (&'static str, &'static str),
    /// API group and resource, for example `apps` and `deployments`.
    pub resource: (&'static str, &'static str),
    /// The same kind, for comparison with the rules of webhooks.
    pub admitted: AdmittedKind,
}

/// Returns the rule of a kind. `plural`: the name of its resource.
const fn rule(kind: (&'static str, &'static str), plural: &'static str, copying: Copying) -> KindRule {
    KindRule { kind, resource: (group_of(kind.0), plural), copying }
}

/// Returns the group of an API version, for example `apps` of `apps/v1`; empty for `v1`.
const fn group_of(api_version: &'static str) -> &'static str {
    let (mut rest, mut length) = (api_version.as_bytes(), 0_usize);
    while let [byte, others @ ..] = rest {
        if *byte == b'/' {
            return api_version.split_at(length).0;
        }
        (rest, length) = (others, length.saturating_add(1));
    }
    ""
}

const OF_THE_CLUSTER: &str = "describes what happens in one cluster";
const BY_CONTROLLER: &str = "a controller creates it from copied objects";
const WITH_DATA: &str = "its data stays in the source";
const FROM_GIT: &str =
    "it would deploy the manifests from Git over the copies; let the tool of the mirror deploy them instead";
const RUNS_AGAIN: &str = "a copy would do the same work again";
const SCHEDULED: &str = "it would run at its scheduled times in both clusters";

/// Every kind about which something is known. Other kinds of a namespace, such as custom resources, are copied.
pub const KINDS: [KindRule; 39] = {
    use Copying::{Copied, MadeAnew, NotCopied};
    [
        rule(("v1", "Secret"), SECRETS.1, Copied(AdmittedKind::Secret)),
        rule(("v1", "ConfigMap"), "configmaps", Copied(AdmittedKind::ConfigMap)),
        rule(("v1", "ServiceAccount"), "serviceaccounts", Copied(AdmittedKind::ServiceAccount)),
        rule(("v1", "Service"), "services", Copied(AdmittedKind::Service)),
        rule(("apps/v1", "Deployment"), "deployments", Copied(AdmittedKind::Deployment)),
        rule(("apps/v1", "DaemonSet"), "daemonsets", Copied(AdmittedKind::DaemonSet)),
        rule(("batch/v1", "Job"), "jobs", Copied(AdmittedKind::Job)),
        rule(("batch/v1", "CronJob"), "cronjobs", Copied(AdmittedKind::CronJob)),
        rule(("networking.k8s.io/v1", "Ingress"), "ingresses", Copied(AdmittedKind::Ingress)),
        rule(
            ("networking.k8s.io/v1", "NetworkPolicy"),
            "networkpolicies",
            Copied(AdmittedKind::NetworkPolicy),
        ),
        rule(
            ("policy/v1", "PodDisruptionBudget"),
            "poddisruptionbudgets",
            Copied(AdmittedKind::PodDisruptionBudget),
        ),
        rule(
            ("autoscaling/v1", "HorizontalPodAutoscaler"),
            "horizontalpodautoscalers",
            Copied(AdmittedKind::HorizontalPodAutoscaler),
        ),
        rule(("rbac.authorization.k8s.io/v1", "Role"), "roles", Copied(AdmittedKind::Role)),
        rule(
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            "rolebindings",
            Copied(AdmittedKind::RoleBinding),
        ),
        rule(("v1", "Pod"), "pods", MadeAnew(BY_CONTROLLER)),
        rule(("apps/v1", "ReplicaSet"), "replicasets", MadeAnew(BY_CONTROLLER)),
        rule(("apps/v1", "ControllerRevision"), "controllerrevisions", MadeAnew(BY_CONTROLLER)),
        rule(("v1", "Endpoints"), "endpoints", MadeAnew(BY_CONTROLLER)),
        rule(("discovery.k8s.io/v1", "EndpointSlice"), "endpointslices", MadeAnew(BY_CONTROLLER)),
        rule(("cilium.io/v2", "CiliumEndpoint"), "ciliumendpoints", MadeAnew(BY_CONTROLLER)),
        rule(("resource.k8s.io/v1", "ResourceClaim"), "resourceclaims", MadeAnew(BY_CONTROLLER)),
        rule(("storage.k8s.io/v1", "CSIStorageCapacity"), "csistoragecapacities", MadeAnew(OF_THE_CLUSTER)),
        rule(("v1", "Event"), "events", MadeAnew(OF_THE_CLUSTER)),
        rule(("events.k8s.io/v1", "Event"), "events", MadeAnew(OF_THE_CLUSTER)),
        rule(("coordination.k8s.io/v1", "Lease"), "leases", MadeAnew("a process of the source holds it")),
        rule(("apps/v1", "StatefulSet"), "statefulsets", NotCopied(WITH_DATA)),
        rule(("v1", "PersistentVolumeClaim"), "persistentvolumeclaims", NotCopied(WITH_DATA)),
        rule(("argoproj.io/v1alpha1", "Application"), "applications", NotCopied(FROM_GIT)),
        rule(("argoproj.io/v1alpha1", "ApplicationSet"), "applicationsets", NotCopied(FROM_GIT)),
        rule(("argoproj.io/v1alpha1", "Workflow"), "workflows", NotCopied(RUNS_AGAIN)),
        rule(("argoproj.io/v1alpha1", "CronWorkflow"), "cronworkflows", NotCopied(SCHEDULED)),
        rule(("tekton.dev/v1", "PipelineRun"), "pipelineruns", NotCopied(RUNS_AGAIN)),
        rule(("tekton.dev/v1", "TaskRun"), "taskruns", NotCopied(RUNS_AGAIN)),
        rule(
            ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
            "sparkapplications",
            NotCopied(RUNS_AGAIN),
        ),
        rule(("ray.io/v1", "RayJob"), "rayjobs", NotCopied(RUNS_AGAIN)),
        rule(
            ("keda.sh/v1alpha1", "ScaledJob"),
            "scaledjobs",
            NotCopied("its Jobs would take work from the same queue in both clusters"),
        ),
        rule(("kustomize.toolkit.fluxcd.io/v1", "Kustomization"), "kustomizations", NotCopied(FROM_GIT)),
        rule(("helm.toolkit.fluxcd.io/v2", "HelmRelease"), "helmreleases", NotCopied(FROM_GIT)),
        rule(
            ("elbv2.k8s.aws/v1beta1", "TargetGroupBinding"),
            "targetgroupbindings",
            NotCopied(
                "the controller of a second cluster removes the first cluster's Pods from the target group",
            ),
        ),
    ]
};

/// Ends of API groups whose kinds a mirror does not get, each with the reason.
pub const GROUPS_NOT_COPIED: [(&str, &str); 17] = [
    ("metrics.k8s.io", "it is computed, not stored"),
    ("crossplane.io", OUTSIDE),
    ("upbound.io", OUTSIDE),
    ("services.k8s.aws", OUTSIDE),
    ("cnrm.cloud.google.com", OUTSIDE),
    ("cluster.x-k8s.io", OUTSIDE),
    ("velero.io", "it stands for backups of the source"),
    ("kafka.strimzi.io", WITH_DATA),
    ("acid.zalan.do", WITH_DATA),
    ("postgresql.cnpg.io", WITH_DATA),
    ("mongodbcommunity.mongodb.com", WITH_DATA),
    ("psmdb.percona.com", WITH_DATA),
    ("pxc.percona.com", WITH_DATA),
    ("couchbase.com", WITH_DATA),
    ("cassandra.datastax.com", WITH_DATA),
    ("rabbitmq.com", WITH_DATA),
    ("elasticsearch.k8s.elastic.co", WITH_DATA),
];

const OUTSIDE: &str = "it stands for something outside the cluster, which two clusters must not manage";

/// Returns the kinds that are copied and that every cluster serves.
pub fn copied_kinds() -> impl Iterator<Item = CopiedKind> {
    KINDS.into_iter().filter_map(|rule| match rule.copying {
        Copying::Copied(admitted) => Some(CopiedKind { kind: rule.kind, resource: rule.resource, admitted }),
        Copying::MadeAnew(_) | Copying::NotCopied(_) => None,
    })
}

/// Returns what happens to the objects of a kind; `None` if [`KINDS`] does not contain the kind.
pub fn copying_of(group: &str, resource: &str) -> Option<Copying> {
    KINDS.iter().find(|rule| rule.resource == (group, resource)).map(|rule| rule.copying)
}

/// Returns why objects of a kind are not copied; `None` if they are copied. `verbs`: what the API server offers for the kind. If it
/// does not offer `create`, as for OLM's PackageManifest, the API server computes the objects.
pub fn why_not_copied(group: &str, resource: &str, verbs: &BTreeSet<String>) -> Option<&'static str> {
    match copying_of(group, resource) {
        Some(Copying::MadeAnew(why) | Copying::NotCopied(why)) => return Some(why),
        Some(Copying::Copied(_)) | None => {}
    }
    if !is_stored(verbs) {
        return Some("it cannot be listed or created");
    }
    let of_group = GROUPS_NOT_COPIED.iter().find(|(end, _)| is_of_group(group, end));
    of_group.map(|(_, why)| *why)
}

/// Returns whether objects of a kind are copied only because the operator asks for it: no controller of the mirror creates them, the
/// API server stores them, and they are of a custom resource.
pub fn can_be_included(group: &str, resource: &str, verbs: &BTreeSet<String>) -> bool {
    let is_made = matches!(copying_of(group, resource), Some(Copying::MadeAnew(_)));
    !is_made && is_stored(verbs) && group.contains('.') && !is_of_metrics(group)
}

/// Returns whether the API server stores objects of a kind, so that they can be listed and created.
fn is_stored(verbs: &BTreeSet<String>) -> bool {
    ["list", "create"].iter().all(|verb| verbs.contains(*verb))
}

/// Returns whether an API group contains only metrics.
pub fn is_of_metrics(group: &str) -> bool {
    is_of_group(group, "metrics.k8s.io")
}

fn is_of_group(group: &str, end: &str) -> bool {
    group.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Verbs to read the namespaces, and the objects of each copied kind.
pub const READS: &[&str] = &["get", "list"];
/// API group and resource of Secrets.
pub const SECRETS: (&str, &str) = ("", "secrets");
/// API group and resource of namespaces.
pub const NAMESPACES: (&str, &str) = ("", "namespaces");

/// Returns whether an object of a copied kind is not copied, because the cluster or a controller recreates the object. Such objects
/// are the objects that every namespace has, objects with a controller, and tokens of ServiceAccounts. An object that a Pod or a
/// Node owns is a lock of a process, such as `leader-for-life`.
pub fn is_made_anew(kind: &str, object: &ObjectMeta) -> bool {
    let name = object.name.as_deref().unwrap_or_default();
    let is_everywhere = match kind {
        "ConfigMap" => matches!(name, "kube-root-ca.crt" | "openshift-service-ca.crt"),
        "ServiceAccount" => name == "default",
        "Service" => name == "kubernetes" && object.namespace.as_deref() == Some("default"),
        "Secret" => object.annotations.iter().flatten().any(|(name, _)| name == SERVICE_ACCOUNT),
        _ => false,
    };
    let mut owners = object.owner_references.iter().flatten();
    is_everywhere
        || owners.any(|owner| owner.controller == Some(true) || matches!(owner.kind.as_str(), "Pod" | "Node"))
}

/// Annotation with the ServiceAccount of a token (`ServiceAccountNameKey`, `k8s.io/api/core/v1/types.go`, v1.36.3).
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::inventory::webhooks::{AdmittedObject, webhooks_for};

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
        let mut lock = named("shop", "leader");
        lock.owner_references = serde_json::from_value(json!([{"kind": "Pod"}])).unwrap();
        assert!(is_made_anew("ConfigMap", &lock));
        let mut token = named("shop", "web-token");
        token.annotations = Some([(SERVICE_ACCOUNT.to_string(), "web".to_string())].into());
        assert!(is_made_anew("Secret", &token));
    }

    /// Tests each kind with a webhook that has rules for only this kind.
    #[test]
    fn webhook_rules_match_every_copied_kind() {
        let object = ObjectMeta { namespace: Some("shop".to_string()), ..ObjectMeta::default() };
        let namespaces = BTreeMap::from([("shop".to_string(), BTreeMap::new())]);
        for one in copied_kinds() {
            let version = one.kind.0.rsplit('/').next();
            let rule = json!({
                "apiGroups": [one.resource.0], "apiVersions": [version], "resources": [one.resource.1], "operations": ["CREATE"],
            });
            let configuration =
                json!({"metadata": {"name": "x"}, "webhooks": [{"name": "x", "rules": [rule]}]});
            let written = [AdmittedObject::of(one.admitted, &object, &namespaces).unwrap()];
            let found =
                webhooks_for(Vec::new(), vec![serde_json::from_value(configuration).unwrap()], &written);
            assert_eq!(found[0].asked.len(), 1, "{}", one.kind.1);
        }
    }

    #[test]
    fn kind_has_one_rule() {
        let resources: BTreeSet<_> = KINDS.iter().map(|rule| rule.resource).collect();
        assert_eq!(resources.len(), KINDS.len());
    }

    #[test]
    fn kinds_that_cannot_be_created_are_not_copied() {
        let all = ["get", "list", "create"].map(str::to_string);
        let (all, shown) = (BTreeSet::from(all.clone()), BTreeSet::from([all[0].clone(), all[1].clone()]));
        let is_copied = |group, resource, verbs| why_not_copied(group, resource, verbs).is_none();
        assert!(is_copied("apps", "deployments", &all) && !is_copied("", "pods", &all));
        assert!(!is_copied("custom.metrics.k8s.io", "pods", &all));
        assert!(!is_copied("packages.operators.coreos.com", "packagemanifests", &shown));
        assert!(
            !is_copied("s3.services.k8s.aws", "buckets", &all) && is_copied("example.com", "buckets", &all)
        );
        assert!(is_copied("mycrossplane.io", "widgets", &all));
    }
}
