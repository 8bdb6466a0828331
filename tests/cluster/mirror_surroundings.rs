//! What the copies of `netsurgeon mirror` meet in the mirror, on two real clusters: servers of webhooks, addresses without Pods, classes,
//! and the tools that deployed the source.

use serde_json::{Value, json};

use super::mirror_objects::of_cluster;
use super::mirror_pair::{NAMESPACE, PATIENCE, Pair, action, actions, config_map, object, object_in, stored};
use super::rig::api::{Api, object_path};
use super::rig::process::wait_until;
use super::rig::run::says;

fn service(name: &str, selector: &Value) -> Value {
    let spec = json!({"selector": selector, "ports": [{"name": "https", "port": 443}]});
    object("v1", "Service", name, &json!({"spec": spec}))
}

fn endpoints(name: &str) -> Value {
    let subset = json!({"addresses": [{"ip": "192.0.2.10"}], "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]});
    object("v1", "Endpoints", name, &json!({"subsets": [subset]}))
}

/// Webhooks of a server, each for objects that nobody creates.
fn webhooks(kind: &str, name: &str, servers: &[(&str, &str)]) -> Value {
    let webhook = |(at, (namespace, server)): (usize, &(&str, &str))| {
        json!({
            "name": format!("hook-{at}.example.com"), "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"namespace": namespace, "name": server}},
            "objectSelector": {"matchLabels": {"hook": "never"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        })
    };
    let all: Vec<Value> = servers.iter().enumerate().map(webhook).collect();
    of_cluster("admissionregistration.k8s.io/v1", kind, name, &json!({"webhooks": all}))
}

/// A slice of a server with a ready Pod.
fn ready_slice(server: &str) -> Value {
    let mut slice = object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "hook-ready",
        &json!({"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.20"], "conditions": {"ready": true}}], "ports": []}),
    );
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": server, "endpointslice.kubernetes.io/managed-by": "test.controller.k8s.io"});
    slice
}

fn ingress(class: &str) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 443}}});
    object(
        "networking.k8s.io/v1",
        "Ingress",
        "web",
        &json!({"spec": {"ingressClassName": class, "defaultBackend": backend}}),
    )
}

fn helm_record() -> Value {
    let mut record = object(
        "v1",
        "Secret",
        "sh.helm.release.v1.web.v3",
        &json!({"type": "helm.sh/release.v1", "stringData": {"release": "canary-of-helm"}}),
    );
    record["metadata"]["labels"] = json!({"owner": "helm", "name": "web", "version": "3"});
    record
}

/// Webhooks come last, and only if their server is ready; a webhook without a server would reject the objects of every client.
#[tokio::test]
async fn webhooks_are_copied_when_their_server_is_ready() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let own = webhooks("ValidatingWebhookConfiguration", "own", &[(NAMESPACE, "hook"), (NAMESPACE, "hook")]);
    let mutating = webhooks("MutatingWebhookConfiguration", "own", &[(NAMESPACE, "hook")]);
    let shared =
        webhooks("ValidatingWebhookConfiguration", "shared", &[(NAMESPACE, "hook"), ("other", "hook")]);
    let others = webhooks("MutatingWebhookConfiguration", "others", &[("other", "hook")]);
    for webhooks in [&own, &mutating, &shared, &others] {
        pair.source.api.create(webhooks).await;
    }
    pair.create(&[service("hook", &json!({"app": "hook"})), config_map("a", "1")]).await;
    let before = stored(&pair.mirror).await;

    let planned = pair.plan("");
    for webhooks in [&own, &mutating] {
        assert_eq!(action(&planned, webhooks)["action"], "create", "{planned}");
    }
    assert_eq!(action(&planned, &shared)["reason"], "shared-webhook");
    assert!(!planned.to_string().contains("\"others\""), "{planned}");
    let skipped = pair.apply().expect(3);
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        says(
            &skipped.err,
            &[&format!("{kind}.admissionregistration.k8s.io/own"), "`shop/hook`", "no ready Pod", "--wait"],
        );
    }
    let copied = async |webhooks: &Value| pair.mirror.api.find(&object_path(webhooks)).await;
    assert!(copied(&own).await.is_none() && copied(&mutating).await.is_none());
    assert!(pair.mirror.api.find(&object_path(&config_map("a", ""))).await.is_some());

    let slice = pair.mirror.api.create(&ready_slice("hook")).await;
    assert_eq!(actions(&pair.plan(""))["create"], 2);
    pair.apply().expect(0);
    assert_eq!(copied(&own).await.expect("it is copied")["webhooks"].as_array().map(Vec::len), Some(2));
    assert_eq!(actions(&pair.plan("")).keys().collect::<Vec<_>>(), ["left-out", "same"]);
    pair.run("verify --skip-readiness").expect(0);

    pair.mirror.api.delete(&object_path(&slice)).await;
    // The operations in the order of the message, which names the newest first.
    let several = pair.run("teardown --yes").expect(2);
    let ids: Vec<&str> = several.err.split('`').filter(|word| word.starts_with("mirror-")).collect();
    assert_eq!(ids.len(), 2, "{}", several.err);
    for id in ids {
        pair.run(&format!("teardown {id} --yes")).expect(0);
    }
    pair.forget_all();
    assert_eq!(stored(&pair.mirror).await, before);
}

/// A Service without a selector has addresses that a client wrote: without them, its copy leads nowhere.
#[tokio::test]
async fn addresses_that_no_controller_writes_are_copied() {
    let pair = Pair::start(true).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let own = [service("db", &Value::Null), endpoints("db"), service("web", &json!({"app": "web"}))];
    pair.create(&own).await;
    // The controllers make Endpoints of the other Service, and a slice of each.
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    let has_slices = async |api: &Api, services: &[&str]| {
        wait_until("the controllers make slices", PATIENCE, async || {
            let found = api.get(&slices).await;
            let of = |one: &Value| {
                one["metadata"]["labels"]["kubernetes.io/service-name"].as_str().map(str::to_owned)
            };
            let found: Vec<String> =
                found["items"].as_array().expect("items").iter().filter_map(of).collect();
            let has_all = services.iter().all(|service| found.iter().any(|one| one == service));
            if has_all { Ok(()) } else { Err(found.join(", ")) }
        })
        .await;
    };
    has_slices(&pair.source.api, &["db", "web"]).await;
    let planned = pair.plan("");
    assert_eq!(action(&planned, &endpoints("db"))["action"], "create", "{planned}");
    let of_kind = |kind: &str| {
        let objects = planned["objects"].as_array().expect("objects").iter();
        objects.filter(|one| one["kind"] == kind).map(|one| one["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((of_kind("Endpoints"), of_kind("EndpointSlice")), (vec![json!("db")], vec![]));
    pair.apply().expect(0);
    // The controller of the mirror makes the slice from the copy.
    has_slices(&pair.mirror.api, &["db"]).await;
    assert_eq!(
        pair.mirror.api.get(&object_path(&endpoints("db"))).await["subsets"],
        endpoints("db")["subsets"]
    );
    assert_eq!(actions(&pair.plan(""))["same"], 4);
    pair.run("verify --skip-readiness").expect(0);
    pair.run("teardown --yes").expect(0);
    assert!(pair.mirror.api.find(&object_path(&endpoints("db"))).await.is_none());
}

/// What the plan of the copies cannot change is named: classes that the mirror does not have, and who deploys the source.
#[tokio::test]
async fn missing_classes_and_deployers_are_named() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let mut tracked = config_map("tracked", "1");
    tracked["metadata"]["annotations"] =
        json!({"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:shop/tracked"});
    pair.create(&[service("web", &json!({"app": "web"})), ingress("fast"), tracked, helm_record()]).await;
    let planned = pair.run(&format!("plan -n {NAMESPACE} --save {} -o json", pair.plan)).expect(0);
    says(&planned.err, &["no IngressClass `fast`", "Ingress shop/web"]);
    says(&planned.err, &["Argo CD deploys these objects", "ConfigMap shop/tracked"]);
    says(&planned.err, &["records of Helm releases", "shop/web"]);
    for text in [&planned.out, &planned.err] {
        assert!(!text.contains("canary-of-helm"), "{text}");
    }
    pair.apply().expect(0);

    let class = of_cluster(
        "networking.k8s.io/v1",
        "IngressClass",
        "fast",
        &json!({"spec": {"controller": "example.com/c"}}),
    );
    pair.mirror.api.create(&class).await;
    let warnings = pair.plan("")["warnings"].to_string();
    assert!(!warnings.contains("IngressClass") && warnings.contains("Argo CD"), "{warnings}");
}

/// Controllers of both clusters that own things outside of them by one name would delete each other's. Such a controller is not copied.
#[tokio::test]
async fn equal_owners_outside_of_the_clusters_refuse_a_plan() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
        api.create_namespace("dns").await;
    }
    let dns = |namespace: &str, owner: &str| {
        let container = json!({"name": "a", "image": "registry.example.com/external-dns:v0.23.0", "args": [format!("--txt-owner-id={owner}")]});
        let template = json!({"metadata": {"labels": {"app": "dns"}}, "spec": {"containers": [container]}});
        let spec = json!({"selector": {"matchLabels": {"app": "dns"}}, "template": template});
        object_in(namespace, "apps/v1", "Deployment", "external-dns", &json!({"spec": spec}))
    };
    pair.create(&[dns(NAMESPACE, "blue"), service("metrics", &json!({"app": "dns"})), config_map("a", "1")])
        .await;
    let planned = pair.plan("");
    assert_eq!(action(&planned, &dns(NAMESPACE, ""))["reason"], "outside-owner", "{planned}");
    let theirs = pair.mirror.api.create(&dns("dns", "blue")).await;
    let words = format!("plan -n {NAMESPACE} -o json");
    let refused = pair.run(&words).expect(1);
    says(&refused.err, &["`shop/external-dns`", "`dns/external-dns`", "--txt-owner-id=blue", "DNS records"]);
    says(&refused.err, &["another name", "--equal-owners allow"]);
    let allowed = pair.run(&format!("{words} --equal-owners allow")).expect(0).json();
    assert_eq!(actions(&allowed), actions(&planned));
    pair.mirror.api.delete(&object_path(&theirs)).await;
    pair.mirror.api.create(&dns("dns", "green")).await;
    assert_eq!(actions(&pair.plan("")), actions(&planned));
}

/// The API server accepts these workloads and refuses their Pods: no dry run shows it, and `verify` names the reason.
#[tokio::test]
async fn pods_that_the_mirror_refuses_are_explained() {
    let pair = Pair::with_workload_controllers().await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let of_cpu = json!({"limits": [{"type": "Container", "max": {"cpu": "100m"}}]});
    pair.mirror.api.create(&object("v1", "LimitRange", "small", &json!({"spec": of_cpu}))).await;
    let workload = |name: &str, pod: &Value| {
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod});
        let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template});
        object("apps/v1", "Deployment", name, &json!({"spec": spec}))
    };
    let container = |cpu: &str| json!([{"name": "a", "image": "b", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}]);
    let class = of_cluster("node.k8s.io/v1", "RuntimeClass", "gvisor", &json!({"handler": "runsc"}));
    pair.source.api.create(&class).await;
    pair.create(&[
        service("all", &json!({"app": "large"})),
        service("other", &json!({"app": "sandboxed"})),
        workload("large", &json!({"containers": container("1")})),
        workload("sandboxed", &json!({"runtimeClassName": "gvisor", "containers": container("10m")})),
    ])
    .await;
    let planned = pair.run(&format!("plan -n {NAMESPACE} --save {} -o json", pair.plan)).expect(0);
    says(&planned.err, &["no RuntimeClass `gvisor`", "Deployment shop/sandboxed"]);
    pair.apply().expect(0);
    wait_until("the controllers say why there are no Pods", PATIENCE, async || {
        let found = pair.run("verify --wait 2").expect(3).out;
        let reasons = ["maximum cpu usage per Container", "RuntimeClass \"gvisor\" not found"];
        if reasons.iter().all(|reason| found.contains(reason)) { Ok(()) } else { Err(found) }
    })
    .await;
}
