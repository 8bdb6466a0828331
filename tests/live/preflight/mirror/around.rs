//! The environment of the copied objects: certificate issuers, fixed addresses and ports, webhooks.

use serde_json::json;

use super::Pair;
use crate::preflight::objects::define;
use crate::rig::api::object_path;

/// The kinds of cert-manager, without a cert-manager: the test writes their status.
pub async fn with_issuers(pair: &Pair) {
    const GROUP: &str = "cert-manager.io";
    let (source, mirror) = (&pair.source.api, &pair.mirror.api);
    pair.comes_out("issuers", "pass", &["cert-manager"]).await;
    define(source, GROUP, "v1alpha2", ("Order", "orders"), "Namespaced").await;
    pair.comes_out("issuers", "unknown", &["`cert-manager.io`", "v1"]).await;
    define(source, GROUP, "v1", ("Certificate", "certificates"), "Namespaced").await;
    define(mirror, GROUP, "v1", ("Certificate", "certificates"), "Namespaced").await;
    define(source, GROUP, "v1", ("Issuer", "issuers"), "Namespaced").await;
    let version = format!("{GROUP}/v1");
    let reference = json!({"name": "acme", "kind": "ClusterIssuer"});
    source
        .create(&json!({
            "apiVersion": version, "kind": "Certificate", "metadata": {"name": "tls", "namespace": "shop"},
            "spec": {"issuerRef": reference},
        }))
        .await;
    pair.comes_out("issuers", "fail", &["1 issuer", "cert-manager"]).await;
    define(mirror, GROUP, "v1", ("ClusterIssuer", "clusterissuers"), "Cluster").await;
    pair.comes_out("issuers", "fail", &["ClusterIssuer `acme` is not on ", "(Certificate `shop/tls`)"]).await;
    let issuer = |status: &str, solver: &str| {
        json!({
            "apiVersion": version, "kind": "ClusterIssuer", "metadata": {"name": "acme"},
            "spec": {"acme": {"solvers": [{solver: {}}]}}, "status": {"conditions": [{"type": "Ready", "status": status}]},
        })
    };
    mirror.create(&issuer("False", "http01")).await;
    pair.comes_out("issuers", "fail", &["ClusterIssuer `acme` is not ready"]).await;
    let path = object_path(&issuer("True", "http01"));
    mirror.merge(&path, &issuer("True", "http01")).await;
    pair.comes_out("issuers", "warn", &["HTTP-01", "ClusterIssuer `acme`"]).await;
    mirror.merge(&path, &issuer("True", "dns01")).await;
    pair.comes_out("issuers", "pass", &["1 "]).await;
    let reference = json!({"name": "vault", "kind": "Signer", "group": "pki.example.com"});
    let other = json!({
        "apiVersion": version, "kind": "Certificate", "metadata": {"name": "internal", "namespace": "shop"},
        "spec": {"issuerRef": reference},
    });
    source.create(&other).await;
    pair.comes_out(
        "issuers",
        "warn",
        &["1 ", "Signer `vault` of `pki.example.com` (Certificate `shop/internal`)"],
    )
    .await;
    source.delete(&object_path(&other)).await;
}

pub async fn with_fixed_addresses(pair: &Pair) {
    let (source, mirror) = (&pair.source.api, &pair.mirror.api);
    let ports = |port: u16| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    source.create_service("shop", "door", ports(30080)).await;
    pair.comes_out("fixed-addresses", "pass", &[]).await;
    mirror.create_service("default", "other", ports(30080)).await;
    pair.comes_out("fixed-addresses", "fail", &["nodePort 30080", "`shop/door`", "`default/other`"]).await;
    mirror.delete("/api/v1/namespaces/default/services/other").await;
    source.delete("/api/v1/namespaces/shop/services/door").await;
    // A port that the API server chose is no explicit setting, even if the mirror uses it.
    let chosen =
        source.create_service("shop", "door", json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
    let port = chosen["spec"]["ports"][0]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
    mirror.create_service("default", "other", ports(port.expect("a port"))).await;
    pair.comes_out("fixed-addresses", "pass", &[]).await;
    source
        .merge("/api/v1/namespaces/shop/services/door", &json!({"spec": {"externalIPs": ["198.51.100.7"]}}))
        .await;
    pair.comes_out("fixed-addresses", "warn", &["`shop/door` (`externalIPs` 198.51.100.7)"]).await;
}

/// A webhook of the mirror that is called for Deployments, and one that is called for their namespace.
pub async fn with_webhooks(pair: &Pair) {
    let api = &pair.mirror.api;
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]});
    let service = json!({"namespace": "default", "name": "policy"});
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "policies"},
        "webhooks": [{
            "name": "check.example.com", "rules": [rule], "clientConfig": {"service": service}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    });
    pair.comes_out("mirror-webhooks", "pass", &["do not depend on a webhook"]).await;
    api.create(&configuration).await;
    pair.comes_out("mirror-webhooks", "fail", &["(on Deployments)", "Service `default/policy`", "exist"])
        .await;
    api.create_service("default", "policy", json!({"ports": [{"port": 443}]})).await;
    pair.comes_out("mirror-webhooks", "fail", &["Service `default/policy`", "endpoint"]).await;
    api.create(&json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "policy", "namespace": "default", "labels": {"kubernetes.io/service-name": "policy"}},
        "endpoints": [{"addresses": ["10.244.1.9"]}], "ports": [{"port": 8443}],
    }))
    .await;
    pair.comes_out("mirror-webhooks", "pass", &["1 webhook must admit", "ready"]).await;
    let mut namespaces = configuration.clone();
    namespaces["metadata"]["name"] = json!("namespaces");
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["namespaces"]});
    let webhook = &mut namespaces["webhooks"][0];
    webhook["rules"] = json!([rule]);
    webhook["clientConfig"]["service"]["name"] = json!("nobody");
    webhook["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": "shop"}});
    api.create(&namespaces).await;
    pair.comes_out("mirror-webhooks", "fail", &["(on Namespaces)", "Service `default/nobody`", "exist"])
        .await;
    let path = object_path(&namespaces);
    api.delete(&path).await;
    namespaces["webhooks"][0]["clientConfig"] = json!({"url": "https://policy.example.com/check"});
    api.create(&namespaces).await;
    pair.comes_out(
        "mirror-webhooks",
        "warn",
        &["1 webhook must admit", "; 1 ", "URL", "https://policy.example.com/check"],
    )
    .await;
    api.delete(&path).await;
}
