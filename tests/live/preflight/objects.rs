//! Objects that are not ready for a move, one fault after the other: webhooks, deploy tools, pinned addresses, kubeadm's record,
//! announcements, and unreadable values.

use http::Method;
use serde_json::{Value, json};

use super::{fails, verdict, warns};
use crate::rig::api::Api;
use crate::rig::process::wait_until;
use crate::rig::run::{has_line, says};
use crate::serving_cluster::{DEADLINE, Serving};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Creates one fault after the other, and repairs it.
pub async fn each_in_turn(serving: &Serving) {
    with_webhooks(serving).await;
    with_selectors(serving).await;
    with_deploy_tools(serving).await;
    with_pinned_addresses(serving).await;
    with_a_record_out_of_step(serving).await;
    with_announcements(serving).await;
    with_an_encrypted_value(serving).await;
}

/// A webhook that is unavailable, one that answers, and one that is called at an address of the old range.
async fn with_webhooks(serving: &Serving) {
    let api = &serving.cluster.api;
    api.create_service("default", "nobody", json!({"ports": [{"port": 443}]})).await;
    let webhook = |config: Value| {
        let rule =
            json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"]});
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "kyverno-policies"},
            "webhooks": [{
                "name": "check.example.com", "rules": [rule], "clientConfig": config, "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                // It must not be called for the changes of this test.
                "matchConditions": [{"name": "never", "expression": "false"}],
            }],
        })
    };
    let by = |name: &str| webhook(json!({"service": {"namespace": "default", "name": name}}));
    let path = format!("{WEBHOOKS}/kyverno-policies");
    api.create(&by("nobody")).await;
    fails(serving, "webhooks", &["Service `default/nobody`", "endpoint"]);
    api.delete(&path).await;
    api.create(&by("gone")).await;
    fails(serving, "webhooks", &["Service `default/gone`", "exist"]);
    api.delete(&path).await;
    api.create(&by("web")).await;
    let found = warns(serving, "webhooks", &["1 ", "`check.example.com`", "Services", "`matchConditions`"]);
    says(found["remedy"].as_str().unwrap(), &["Kyverno", "`--hold shadow`"]);
    api.delete(&path).await;
    api.create(&webhook(json!({"url": "https://10.96.0.5:8443/check"}))).await;
    fails(serving, "webhooks", &["`check.example.com`", "`10.96.0.5`"]);
    api.delete(&path).await;
    api.delete(&format!("{SERVICES}/nobody")).await;
}

/// An unavailable webhook on Services, with selectors: netsurgeon reports a call exactly where the API server rejects the change.
async fn with_selectors(serving: &Serving) {
    let api = &serving.cluster.api;
    let path = format!("{WEBHOOKS}/selective");
    let webhook = |selectors: &Value| {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["services/*"]});
        let mut webhook = json!({
            "name": "check.example.com", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "gone"}},
        });
        for (name, selector) in selectors.as_object().unwrap() {
            webhook[name] = selector.clone();
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "selective"}, "webhooks": [webhook],
        })
    };
    let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let name = "kubernetes.io/metadata.name";
    let ours = "app.kubernetes.io/managed-by";
    let cases = [
        (json!({}), true),
        (json!({"namespaceSelector": expression(name, "NotIn", json!(["default", "kube-system"]))}), false),
        (json!({"namespaceSelector": expression(name, "NotIn", json!(["kube-system"]))}), true),
        (json!({"namespaceSelector": expression("policies", "Exists", json!([]))}), false),
        (json!({"objectSelector": expression(ours, "DoesNotExist", json!([]))}), true),
        (json!({"objectSelector": {"matchLabels": {"app": "other"}}}), false),
        (json!({"namespaceSelector": {"matchLabels": {name: "default"}}}), true),
        (json!({"objectSelector": expression("app", "In", json!(["other"]))}), false),
    ];
    for (selectors, is_asked) in cases {
        match api.find(&path).await {
            None => drop(api.create(&webhook(&selectors)).await),
            Some(found) => {
                let mut wanted = webhook(&selectors);
                wanted["metadata"] = found["metadata"].clone();
                api.replace(&wanted).await;
            }
        }
        let change = json!({"metadata": {"labels": {"tried": "yes"}}});
        wait_until("the API server uses the webhook", DEADLINE, async || {
            let words = format!("{SERVICES}/web?dryRun=All");
            let tried =
                api.request(Method::PATCH, &words, "application/merge-patch+json", Some(&change)).await;
            if tried.is_err() == is_asked { Ok(()) } else { Err(format!("{selectors}: {tried:?}")) }
        })
        .await;
        if is_asked {
            fails(serving, "webhooks", &["(on Services)", "Service `default/gone`", "exist"]);
        } else {
            let found = verdict(serving, "webhooks", "");
            assert_eq!(found["verdict"], "pass", "{selectors}: {found}");
            says(found["observed"].as_str().unwrap(), &["1 "]);
        }
    }
    api.delete(&path).await;
}

/// Defines a kind of object, as the program does that it belongs to.
pub async fn define(api: &Api, group: &str, version: &str, (kind, plural): (&str, &str), scope: &str) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let name = format!("{plural}.{group}");
    let mut metadata = json!({"name": name});
    if group.ends_with(".k8s.io") {
        metadata["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for tests"});
    }
    api.create(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
        "spec": {
            "group": group, "scope": scope, "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}],
        },
    })).await;
    let path = format!("/apis/{group}/{version}/{plural}");
    wait_until("the kind is served", DEADLINE, async || {
        api.find(&path).await.map(drop).ok_or_else(|| "not found".to_string())
    })
    .await;
}

async fn undefine(serving: &Serving, name: &str) {
    serving.cluster.api.delete(&format!("{DEFINITIONS}/{name}")).await;
}

async fn with_deploy_tools(serving: &Serving) {
    define(&serving.cluster.api, "argoproj.io", "v1alpha1", ("Application", "applications"), "Namespaced")
        .await;
    define(&serving.cluster.api, "fleet.cattle.io", "v1alpha1", ("Bundle", "bundles"), "Namespaced").await;
    wait_until("both are found", DEADLINE, async || {
        let found = verdict(serving, "gitops", "");
        if has_line(found["observed"].as_str().unwrap(), &["Argo CD", "Rancher Fleet"]) {
            Ok(())
        } else {
            Err(found.to_string())
        }
    })
    .await;
    let found = warns(serving, "gitops", &["Argo CD"]);
    assert!(found["remedy"].as_str().unwrap().contains("netsurgeon lock"), "{found}");
    undefine(serving, "applications.argoproj.io").await;
    undefine(serving, "bundles.fleet.cattle.io").await;
}

/// One Service is pinned by its field manager, one by kubectl's annotation; the allocator chose the address of a third.
async fn with_pinned_addresses(serving: &Serving) {
    let api = &serving.cluster.api;
    let service = |name: &str, annotations: Value, spec: Value| {
        let metadata = json!({"namespace": "default", "name": name, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    };
    let ports = json!([{"port": 80}]);
    api.apply(&service("a-applied", json!({}), json!({"clusterIP": "10.96.7.7", "ports": ports}))).await;
    let applied = json!({"spec": {"clusterIP": "10.96.7.8"}}).to_string();
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
    api.create(&service("a-noted", annotations, json!({"ports": ports}))).await;
    api.apply(&service("a-free", json!({}), json!({"ports": ports}))).await;
    let found =
        warns(serving, "pinned", &["`default/a-applied`", "`rig`", "`default/a-noted`", "`kubectl apply`"]);
    let seen = found["observed"].as_str().unwrap();
    assert!(!seen.contains("a-free") && !seen.contains("default/kubernetes"), "{found}");
    for name in ["a-applied", "a-noted", "a-free"] {
        api.delete(&format!("{SERVICES}/{name}")).await;
    }
}

async fn with_a_record_out_of_step(serving: &Serving) {
    let path = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";
    let record = |subnet: &str| {
        let text = format!("kind: ClusterConfiguration\nnetworking:\n  serviceSubnet: {subnet}\n");
        let metadata = json!({"namespace": "kube-system", "name": "kubeadm-config"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ClusterConfiguration": text}})
    };
    serving.cluster.api.create(&record("10.96.0.0/12")).await;
    fails(serving, "kubeadm-config", &["`10.96.0.0/12`", "`10.96.0.0/16`"]);
    serving.cluster.api.replace(&record("10.96.0.0/16")).await;
    assert_eq!(verdict(serving, "kubeadm-config", "")["verdict"], "pass");
    serving.cluster.api.delete(path).await;
}

async fn with_announcements(serving: &Serving) {
    let api = &serving.cluster.api;
    define(
        &serving.cluster.api,
        "cilium.io",
        "v2",
        ("CiliumBGPAdvertisement", "ciliumbgpadvertisements"),
        "Cluster",
    )
    .await;
    let service = json!({"advertisementType": "Service", "service": {"addresses": ["ClusterIP"]}});
    api.create(&json!({
        "apiVersion": "cilium.io/v2", "kind": "CiliumBGPAdvertisement", "metadata": {"name": "out"},
        "spec": {"advertisements": [service]},
    }))
    .await;
    let labels = json!({"k8s-app": "kube-router"});
    let container = json!({"name": "kube-router", "image": "x", "args": ["--run-router=true", "--advertise-cluster-ip=true"]});
    api.create(&json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "kube-system", "name": "kube-router"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }))
    .await;
    wait_until("the kind is found", DEADLINE, async || {
        let found = verdict(serving, "advertised", "");
        if found["observed"].as_str().unwrap_or_default().contains("`out`") {
            Ok(())
        } else {
            Err(found.to_string())
        }
    })
    .await;
    warns(serving, "advertised", &["CiliumBGPAdvertisement `out`", "DaemonSet `kube-system/kube-router`"]);
    undefine(serving, "ciliumbgpadvertisements.cilium.io").await;
    api.delete("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-router").await;
}

/// A value as an API server with a key writes it.
async fn with_an_encrypted_value(serving: &Serving) {
    let (etcd, key) = (&serving.cluster.etcd, "/registry/ranges/encrypted");
    etcd.put(key, "k8s:enc:secretbox:v1:key1:0123456789").await;
    fails(serving, "encryption", &["`secretbox`", "`key1`", "1 in `ranges`"]);
    etcd.delete(key).await;
    assert_eq!(verdict(serving, "encryption", "")["verdict"], "pass");
}
