//! What belongs to one cluster, and is removed from a copy: a table, and the function that applies it.

use serde_json::{Map, Value};

/// A field or a set of keys that a copy does not have.
struct Row {
    /// Kind of the objects, as `GROUP/PLURAL`; empty for every kind.
    kind: &'static str,
    /// Path of a field, or of a map whose keys are removed. `*` stands for each item of a list.
    path: &'static str,
    /// Keys to remove from the map at the path. A key that ends with `*` is a prefix. If there are no keys, the field itself is
    /// removed.
    keys: &'static [&'static str],
    /// Why the copy does not have it, with the source of this knowledge.
    why: &'static str,
}

const fn every(path: &'static str, why: &'static str) -> Row {
    Row { kind: "", path, keys: &[], why }
}

const fn of(kind: &'static str, path: &'static str, why: &'static str) -> Row {
    Row { kind, path, keys: &[], why }
}

const fn keys(path: &'static str, keys: &'static [&'static str], why: &'static str) -> Row {
    Row { kind: "", path, keys, why }
}

/// The type of a Secret with a token of a ServiceAccount (`SecretTypeServiceAccountToken`, k8s.io/api `core/v1/types.go`).
pub(super) const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

const SET_BY_SERVER: &str =
    "the API server sets it (ObjectMeta, k8s.io/apimachinery/pkg/apis/meta/v1/types.go)";
const MANAGED: &str = "server-side apply refuses it (helm/helm#31361)";
const ADDRESS: &str = "the mirror allocates it (ServiceSpec, k8s.io/api/core/v1/types.go)";
const CONTROLLER: &str = "a controller of each cluster writes it";
const WHOLE_OBJECT: &str = "it contains a whole older object, also Secret data";
const GITOPS: &str =
    "the GitOps controller of the mirror would delete the copy (velero#7848, fluxcd/flux2#2421)";
const FINALIZERS: &str = "contains only finalizers (NamespaceSpec)";
const TAKEN: &str =
    "the mirror would take it from the source (velero#264, velero#3294, aws-load-balancer-controller#1470)";

/// What a copy does not have.
const ROWS: &[Row] = &[
    every("/status", CONTROLLER),
    every("/metadata/uid", SET_BY_SERVER),
    every("/metadata/resourceVersion", SET_BY_SERVER),
    every("/metadata/generation", SET_BY_SERVER),
    every("/metadata/creationTimestamp", SET_BY_SERVER),
    every("/metadata/deletionTimestamp", SET_BY_SERVER),
    every("/metadata/deletionGracePeriodSeconds", SET_BY_SERVER),
    every("/metadata/selfLink", SET_BY_SERVER),
    every("/metadata/managedFields", MANAGED),
    every("/metadata/generateName", "the copy has the name itself (velero#9392)"),
    every(
        "/metadata/ownerReferences",
        "owners have other uids in the mirror, so the collector would delete the copy",
    ),
    every("/metadata/finalizers", "only a controller of the mirror may add it (tigera/operator#2031)"),
    of("/namespaces", "/spec", FINALIZERS),
    of("/serviceaccounts", "/secrets", "names tokens of the source (velero#1608)"),
    of("/services", "/spec/healthCheckNodePort", ADDRESS),
    of("/services", "/spec/loadBalancerIP", TAKEN),
    of("/services", "/spec/externalIPs", TAKEN),
    of("apps/deployments", "/spec/template/metadata/creationTimestamp", SET_BY_SERVER),
    of("apps/daemonsets", "/spec/template/metadata/creationTimestamp", SET_BY_SERVER),
    of("apps/statefulsets", "/spec/template/metadata/creationTimestamp", SET_BY_SERVER),
    of("apps/replicasets", "/spec/template/metadata/creationTimestamp", SET_BY_SERVER),
    of("/replicationcontrollers", "/spec/template/metadata/creationTimestamp", SET_BY_SERVER),
    of("batch/cronjobs", "/spec/jobTemplate/metadata/creationTimestamp", SET_BY_SERVER),
    of("batch/cronjobs", "/spec/jobTemplate/spec/template/metadata/creationTimestamp", SET_BY_SERVER),
    keys("/metadata/labels", &["kubernetes.io/metadata.name"], SET_BY_SERVER),
    keys(
        "/metadata/labels",
        &["argocd.argoproj.io/instance", "kustomize.toolkit.fluxcd.io/*", "helm.toolkit.fluxcd.io/*"],
        GITOPS,
    ),
    keys("/metadata/annotations", &["argocd.argoproj.io/tracking-id"], GITOPS),
    keys(
        "/metadata/annotations",
        &[
            "kubectl.kubernetes.io/last-applied-configuration",
            "objectset.rio.cattle.io/applied",
            "banzaicloud.com/last-applied",
            "kapp.k14s.io/original",
            "kapp.k14s.io/original-diff*",
        ],
        WHOLE_OBJECT,
    ),
    keys(
        "/metadata/annotations",
        &[
            "deployment.kubernetes.io/*",
            "deprecated.daemonset.template.generation",
            "autoscaling.alpha.kubernetes.io/conditions",
            "autoscaling.alpha.kubernetes.io/current-metrics",
            "batch.kubernetes.io/*",
            "openshift.io/sa.scc.*",
        ],
        CONTROLLER,
    ),
    keys("/metadata/annotations", &["mirror.netsurgeon.io/*"], "it describes another copy"),
    keys(
        "/metadata/annotations",
        &[
            "service.beta.kubernetes.io/aws-load-balancer-name",
            "service.beta.kubernetes.io/aws-load-balancer-eip-allocations",
            "service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses",
            "alb.ingress.kubernetes.io/load-balancer-name",
            "alb.ingress.kubernetes.io/group.name",
            "kubernetes.io/ingress.global-static-ip-name",
            "service.beta.kubernetes.io/azure-pip-name",
            "service.beta.kubernetes.io/azure-load-balancer-ipv4",
            "metallb.io/loadBalancerIPs",
            "metallb.universe.tf/loadBalancerIPs",
            "kube-vip.io/loadbalancerIPs",
            "io.cilium/lb-ipam-ips",
            "lbipam.cilium.io/ips",
        ],
        TAKEN,
    ),
];

/// Removes from an object what belongs to one cluster. `kind`: the object's kind as `GROUP/PLURAL`, for example `apps/deployments` or
/// `/services`. With `keep_node_ports`, the copy of a Service has the same node ports.
pub(super) fn strip(kind: &str, object: &Value, keep_node_ports: bool) -> Value {
    let mut copy = object.clone();
    remove_rows(kind, &mut copy, |_| true);
    if kind == "/services" {
        strip_service(&mut copy, keep_node_ports);
    }
    if kind == "/secrets" && copy.get("type").and_then(Value::as_str) == Some(TOKEN_TYPE) {
        strip_token(&mut copy);
    }
    if kind == "networking.k8s.io/ingresses" {
        strip_ingress(&mut copy);
    }
    if WEBHOOKS.contains(&kind) {
        strip_certificates(&mut copy);
    }
    if kind == "rbac.authorization.k8s.io/clusterroles"
        && copy.get("aggregationRule").is_some_and(Value::is_object)
        && let Some(role) = copy.as_object_mut()
    {
        // A controller collects the rules (ClusterRole.aggregationRule, k8s.io/api/rbac/v1/types.go).
        role.remove("rules");
    }
    drop_empty_maps(&mut copy);
    copy
}

/// Returns what clients declare in an object: without the fields that each cluster writes itself, and without annotations that contain
/// whole objects.
pub(super) fn declared(kind: &str, object: &Value) -> Value {
    let mut copy = object.clone();
    let written = [SET_BY_SERVER, MANAGED, ADDRESS, CONTROLLER, WHOLE_OBJECT, FINALIZERS];
    remove_rows(kind, &mut copy, |row| written.contains(&row.why));
    if kind == "/services" {
        strip_addresses(&mut copy, false);
    }
    copy
}

/// Returns whether a manifest has a value besides its identity.
pub(super) fn has_values(manifest: &Value) -> bool {
    const IDENTITY: [&str; 3] = ["apiVersion", "kind", "metadata"];
    fn is_there(value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::Object(fields) => fields.values().any(is_there),
            Value::Array(items) => items.iter().any(is_there),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    let is_other = |name: &str| !IDENTITY.contains(&name);
    let mut fields = manifest.as_object().into_iter().flatten();
    let of_metadata = ["/metadata/labels", "/metadata/annotations"]
        .iter()
        .any(|path| manifest.pointer(path).is_some_and(is_there));
    of_metadata || fields.any(|(name, value)| is_other(name) && is_there(value))
}

fn remove_rows(kind: &str, object: &mut Value, is_due: impl Fn(&Row) -> bool) {
    for row in ROWS.iter().filter(|row| (row.kind.is_empty() || row.kind == kind) && is_due(row)) {
        if row.keys.is_empty() {
            remove(object, row.path);
        } else if let Some(map) = object.pointer_mut(row.path).and_then(Value::as_object_mut) {
            map.retain(|key, _| !row.keys.iter().any(|pattern| matches(key, pattern)));
        }
    }
}

fn matches(key: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(key == pattern, |start| key.starts_with(start))
}

fn remove(object: &mut Value, path: &str) {
    let Some((parent, name)) = path.rsplit_once('/') else { return };
    if let Some(map) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        map.remove(name);
    }
}

fn strip_service(service: &mut Value, keep_node_ports: bool) {
    strip_addresses(service, keep_node_ports);
    let Some(spec) = service.pointer_mut("/spec").and_then(Value::as_object_mut) else { return };
    // A copy without external IPs is reachable from outside only through one of these types (ValidateService,
    // pkg/apis/core/validation/validation.go).
    if !matches!(spec.get("type").and_then(Value::as_str), Some("NodePort" | "LoadBalancer")) {
        spec.remove("externalTrafficPolicy");
    }
}

/// Removes the addresses of a Service, except `None` of a headless Service, and its node ports.
fn strip_addresses(service: &mut Value, keep_node_ports: bool) {
    let Some(spec) = service.pointer_mut("/spec").and_then(Value::as_object_mut) else { return };
    if spec.get("clusterIP").and_then(Value::as_str) != Some("None") {
        spec.remove("clusterIP");
    }
    spec.remove("clusterIPs");
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !keep_node_ports {
            port.remove("nodePort");
        }
    }
}

/// Removes a token, which the mirror would not accept. A controller of the mirror fills the Secret with another one
/// (`pkg/controller/serviceaccount/tokens_controller.go`).
fn strip_token(secret: &mut Value) {
    remove(secret, "/data");
    if let Some(annotations) = secret.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubernetes.io/service-account.uid");
    }
    if let Some(labels) = secret.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|label, _| !label.starts_with("kubernetes.io/legacy-token-"));
    }
}

/// An API server refuses to create an Ingress with both forms of its class (kubernetes/kubernetes#115018).
fn strip_ingress(ingress: &mut Value) {
    if ingress.pointer("/spec/ingressClassName").is_some_and(Value::is_string)
        && let Some(annotations) = ingress.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.remove("kubernetes.io/ingress.class");
    }
}

/// Configurations of webhooks, as `GROUP/PLURAL`.
pub(super) const WEBHOOKS: [&str; 2] = [
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
    "admissionregistration.k8s.io/mutatingwebhookconfigurations",
];

/// Annotations of webhooks whose `caBundle` a controller writes (cert-manager `pkg/apis/meta/v1/types.go` and
/// `pkg/controller/cainjector`; openshift/service-ca-operator `pkg/controller/api/api.go`).
const INJECTED: [&str; 4] = [
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];

/// Removes the certificates of webhooks that a controller of each cluster writes.
fn strip_certificates(webhooks: &mut Value) {
    let annotations = webhooks.pointer("/metadata/annotations");
    if !INJECTED.iter().any(|name| annotations.is_some_and(|all| all.get(name).is_some())) {
        return;
    }
    let all = webhooks.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in all.into_iter().flatten() {
        remove(webhook, "/clientConfig/caBundle");
    }
}

/// Drops `labels` and `annotations` without a key: an apply of an empty map of a custom object writes each time
/// (kubernetes/kubernetes#124050).
fn drop_empty_maps(object: &mut Value) {
    let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) else { return };
    for name in ["labels", "annotations"] {
        if metadata.get(name).and_then(Value::as_object).is_some_and(Map::is_empty) {
            metadata.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copy_has_no_field_of_one_cluster() {
        let metadata = json!({
            "namespace": "shop", "name": "web", "uid": "1", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}], "finalizers": ["a/b"],
            "ownerReferences": [{"kind": "X"}], "generateName": "we",
            "labels": {"app": "web", "argocd.argoproj.io/instance": "shop", "kustomize.toolkit.fluxcd.io/name": "x"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "deployment.kubernetes.io/revision": "4"},
        });
        let template = json!({"metadata": {"creationTimestamp": null, "labels": {"app": "web"}}, "spec": {}});
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"replicas": 2, "template": template}, "status": {"replicas": 2},
        });
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "shop", "name": "web", "labels": {"app": "web"}},
            "spec": {"replicas": 2, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}}},
        });
        assert_eq!(strip("apps/deployments", &object, false), expected);
    }

    #[test]
    fn addresses_of_a_service_are_allocated_again() {
        let service = |spec: Value| json!({"kind": "Service", "metadata": {"name": "a"}, "spec": spec});
        let stripped = |spec: Value, keep| strip("/services", &service(spec), keep)["spec"].clone();
        let usual = json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "healthCheckNodePort": 3,
            "ports": [{"port": 80, "nodePort": 30080}], "externalIPs": ["192.0.2.1"], "loadBalancerIP": "192.0.2.2"});
        assert_eq!(stripped(usual.clone(), false), json!({"ports": [{"port": 80}]}));
        assert_eq!(stripped(usual, true), json!({"ports": [{"port": 80, "nodePort": 30080}]}));
        let external = |kind: &str| json!({"type": kind, "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local"});
        assert_eq!(stripped(external("ClusterIP"), false), json!({"type": "ClusterIP"}));
        let kept = json!({"type": "NodePort", "externalTrafficPolicy": "Local"});
        assert_eq!(stripped(external("NodePort"), false), kept);
        let headless = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        assert_eq!(stripped(headless, false), json!({"clusterIP": "None"}));
    }

    #[test]
    fn other_kinds_keep_what_is_theirs() {
        for (kind, object) in [
            (
                "example.com/widgets",
                json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "x"}, "secrets": [1]}),
            ),
            ("/configmaps", json!({"metadata": {"name": "a"}, "data": {"uid": "x", "status": "y"}})),
        ] {
            assert_eq!(strip(kind, &object, false), object, "{kind}");
        }
    }

    #[test]
    fn tokens_names_and_second_classes_are_dropped() {
        let account = json!({"metadata": {"name": "a"}, "secrets": [{"name": "a-token"}], "imagePullSecrets": [{"name": "r"}]});
        let stripped = json!({"metadata": {"name": "a"}, "imagePullSecrets": [{"name": "r"}]});
        assert_eq!(strip("/serviceaccounts", &account, false), stripped);
        let ingress = |class: Value| {
            json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "a", "alb.ingress.kubernetes.io/group.name": "g"}},
                   "spec": {"ingressClassName": class}})
        };
        let both = strip("networking.k8s.io/ingresses", &ingress(json!("a")), false);
        assert_eq!(both["metadata"], json!({}));
        let one = strip("networking.k8s.io/ingresses", &ingress(Value::Null), false);
        assert_eq!(one["metadata"]["annotations"], json!({"kubernetes.io/ingress.class": "a"}));
    }

    #[test]
    fn declared_fields_are_those_of_clients() {
        let service = json!({
            "metadata": {"name": "a", "uid": "1", "finalizers": ["a/b"], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}", "metallb.io/loadBalancerIPs": "192.0.2.1"}},
            "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "externalIPs": ["192.0.2.1"],
                "externalTrafficPolicy": "Local", "ports": [{"port": 80, "nodePort": 30080}]},
            "status": {},
        });
        let expected = json!({
            "metadata": {"name": "a", "finalizers": ["a/b"], "annotations": {"metallb.io/loadBalancerIPs": "192.0.2.1"}},
            "spec": {"externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local", "ports": [{"port": 80}]},
        });
        assert_eq!(declared("/services", &service), expected);
        let namespace = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        assert_eq!(declared("/namespaces", &namespace), json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn token_is_not_copied() {
        let metadata = json!({"name": "a", "labels": {"kubernetes.io/legacy-token-last-used": "2026-01-01"}, "annotations": {
            "kubernetes.io/service-account.name": "web", "kubernetes.io/service-account.uid": "1"}});
        let secret = json!({"type": TOKEN_TYPE, "metadata": metadata, "data": {"token": "x"}});
        let annotations = json!({"kubernetes.io/service-account.name": "web"});
        let expected = json!({"type": TOKEN_TYPE, "metadata": {"name": "a", "annotations": annotations}});
        assert_eq!(strip("/secrets", &secret, false), expected);
    }

    #[test]
    fn injected_certificates_are_not_copied() {
        let webhooks = |annotations: Value, bundle: Value| {
            let client = json!({"service": {"namespace": "shop", "name": "hook"}, "caBundle": bundle});
            json!({"metadata": {"name": "a", "annotations": annotations}, "webhooks": [{"name": "a.example.com", "clientConfig": client}]})
        };
        for resource in WEBHOOKS {
            let own = webhooks(json!({"a": "b"}), json!("QQ=="));
            assert_eq!(strip(resource, &own, false), own);
            let injected = webhooks(json!({"cert-manager.io/inject-ca-from": "shop/hook"}), json!("QQ=="));
            let copied = strip(resource, &injected, false);
            assert_eq!(
                copied["webhooks"][0]["clientConfig"],
                json!({"service": {"namespace": "shop", "name": "hook"}})
            );
        }
    }

    #[test]
    fn every_row_has_a_reason() {
        assert!(ROWS.iter().all(|row| row.why.len() > 10 && row.path.starts_with('/')));
    }
}
