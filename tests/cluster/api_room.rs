//! The Kubernetes API client on real API servers: found by a kubeconfig; objects are created, read, changed and deleted; every
//! rejection has its own error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use netsurgeon::kube_api::{
    Cluster as Api, ClusterError, ClusterOptions as ApiOptions, Collection, ObjectRef,
};
use serde_json::{Value, json};

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::pki::Authority;
use super::rig::process::{free_port, wait_until};
use super::rig::run::says;
use super::rig::workspace::Workspace;

const DEADLINE: Duration = Duration::from_mins(1);

/// Writes a kubeconfig for the first API server, with a user and an authority.
fn kubeconfig(cluster: &Cluster, workspace: &Workspace, user: &str, authority: &Path) -> PathBuf {
    let pair = cluster.credentials.authority.issue(workspace, user, user, None, &[]);
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": cluster.api_servers[0].url(), "certificate-authority": authority,
        }}],
        "users": [{"name": "u", "user": {"client-certificate": pair.certificate, "client-key": pair.key}}],
    });
    workspace.write(&format!("{user}.conf"), text.to_string())
}

/// Connects by a kubeconfig, with a short timeout.
async fn connect(kubeconfig: &Path) -> Result<Api, ClusterError> {
    let kubeconfig = Some(kubeconfig.to_path_buf());
    Api::connect(&ApiOptions { kubeconfig, context: None, timeout: Duration::from_secs(5) }).await
}

async fn admin(cluster: &Cluster) -> Api {
    let options = ApiOptions { kubeconfig: Some(cluster.kubeconfig().into()), ..ApiOptions::default() };
    Api::connect(&options).await.expect("the administrator can connect")
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": name}},
    })
}

fn service_ref(name: &str) -> ObjectRef<'_> {
    ObjectRef::new("v1", "Service", Some("default"), name)
}

#[tokio::test]
async fn objects_are_created_changed_and_deleted_in_objects_era() {
    objects(Era::Objects).await;
}

#[tokio::test]
async fn objects_are_created_changed_and_deleted_in_bitmap_era() {
    objects(Era::Bitmap).await;
}

async fn objects(era: Era) {
    let cluster = Cluster::start(ClusterOptions::new(era)).await;
    let api = admin(&cluster).await;
    let namespace = cluster.api.get("/api/v1/namespaces/kube-system").await;
    assert_eq!(api.identity().await.unwrap(), namespace["metadata"]["uid"]);

    let made = api.create(&service("web")).await.unwrap();
    let error = api.create(&service("web")).await.unwrap_err();
    assert!(matches!(error, ClusterError::AlreadyExists { .. }), "{error}");
    assert_eq!(error.to_string(), "Service `default/web` already exists");
    assert_eq!(api.get(&service_ref("web")).await.unwrap().unwrap()["spec"], made["spec"]);
    assert_eq!(api.get(&service_ref("none")).await.unwrap(), None);
    let change =
        json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"selector": {"app": null, "x": "y"}}});
    let changed = api.merge(&service_ref("web"), &change).await.unwrap();
    assert_eq!(changed["spec"]["selector"], json!({"x": "y"}));
    let stale =
        json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"a": "b"}}});
    let error = api.merge(&service_ref("web"), &stale).await.unwrap_err();
    assert!(matches!(error, ClusterError::Conflict { .. }), "{error}");

    let error = api.delete(&service_ref("web"), Some("another")).await.unwrap_err();
    assert!(matches!(error, ClusterError::Conflict { .. }), "{error}");
    api.delete(&service_ref("web"), made["metadata"]["uid"].as_str()).await.unwrap();
    api.delete(&service_ref("web"), None).await.expect("deletion of a missing object succeeds");
    assert_eq!(api.get(&service_ref("web")).await.unwrap(), None);

    let mut bad = service("bad");
    bad["spec"]["clusterIP"] = json!("10.97.0.1");
    let error = api.create(&bad).await.unwrap_err();
    assert!(matches!(error, ClusterError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("10.97.0.1"), "{error}");
    pages(&api).await;
    what_is_served(&api).await;
    applied(&api).await;
    conditions_without_a_time(&cluster, &api).await;
    kinds_that_are_not_served(&api).await;
    // 1.32 serves ServiceCIDRs only with the feature gate: without it the API itself is missing.
    let range = ObjectRef::new("networking.k8s.io/v1", "ServiceCIDR", None, "kubernetes");
    assert_eq!(api.get(&range).await.unwrap().is_some(), era == Era::Objects);
}

/// An API server stores every condition that a controller writes into a Service's status, even with a time that was never set.
async fn conditions_without_a_time(cluster: &Cluster, api: &Api) {
    api.create(&service("odd")).await.unwrap();
    let condition = json!({"type": "example.com/X", "status": "True", "reason": "R", "message": "", "lastTransitionTime": null});
    let status = json!({"status": {"conditions": [condition]}});
    let path = "/api/v1/namespaces/default/services/odd/status";
    let patched = cluster
        .api
        .request(Method::PATCH, path, "application/merge-patch+json", Some(&status))
        .await
        .unwrap();
    assert_eq!(patched["status"]["conditions"][0].get("lastTransitionTime"), Some(&Value::Null));
    let name = |service: &Service| service.metadata.name.clone().unwrap_or_default();
    assert_eq!(name(&api.object::<Service>(Some("default"), "odd").await.unwrap().unwrap()), "odd");
    let all = api.objects::<Service>(Some("default"), None).await.unwrap();
    assert!(all.iter().any(|service| name(service) == "odd"), "{all:?}");
}

/// An applied object is created, or changed to the desired state, whichever client has changed it in between; fields of other
/// owners stay.
async fn applied(api: &Api) {
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "namespace": "default"}, "data": data});
    let object = ObjectRef::new("v1", "ConfigMap", Some("default"), "applied");
    api.apply(&map(json!({"a": "1", "b": "1"}))).await.unwrap();
    api.merge(&object, &json!({"data": {"a": "of others", "c": "of others"}})).await.unwrap();
    let made = api.apply(&map(json!({"a": "2"}))).await.unwrap();
    assert_eq!(made["data"], json!({"a": "2", "c": "of others"}));
    let read = api.object::<ConfigMap>(Some("default"), "applied").await.unwrap().unwrap();
    assert_eq!(read.data.unwrap().get("a").map(String::as_str), Some("2"));
    assert!(api.object::<ConfigMap>(Some("default"), "none").await.unwrap().is_none());
}

/// A kind that the API does not serve is reported as missing: no path is guessed. If its definition is created later, the kind is
/// found then.
async fn kinds_that_are_not_served(api: &Api) {
    let widgets = Collection::new("example.com/v1", "Widget", Some("default"));
    assert!(!api.serves(&widgets).await.unwrap());
    let error = api.list(&widgets, None).await.unwrap_err();
    assert!(matches!(error, ClusterError::NotFound { .. }), "{error}");
    let error = api.list(&Collection::new("v1", "Gadget", None), None).await.unwrap_err();
    says(&error.to_string(), &["`Gadget`", "`v1`"]);
    let error = api.create(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}})).await;
    assert!(matches!(error, Err(ClusterError::Manifest { .. })), "{error:?}");

    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    api.create(&definition).await.unwrap();
    wait_until("the kind is served", DEADLINE, async || match api.serves(&widgets).await {
        Ok(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    api.create(&widget).await.unwrap();
    assert_eq!(api.list(&widgets, None).await.unwrap().len(), 1);
}

/// Every kind is listed by the API that serves it, and of Secrets only the names are read.
async fn what_is_served(api: &Api) {
    let served = api.served_kinds().await.unwrap();
    assert_eq!(served.silent, []);
    let of = |group: &str, plural: &str| -> Vec<_> {
        served.kinds.iter().filter(|kind| kind.group == group && kind.plural == plural).collect()
    };
    let deployment = &of("apps", "deployments")[0];
    assert_eq!((deployment.version.as_str(), deployment.kind.as_str()), ("v1", "Deployment"));
    assert!(deployment.is_namespaced && deployment.verbs.contains("list"));
    assert!(!of("", "nodes")[0].is_namespaced && of("apps", "deployments/scale").is_empty());
    let versions: Vec<&str> =
        of("autoscaling", "horizontalpodautoscalers").iter().map(|kind| kind.version.as_str()).collect();
    assert_eq!(versions, ["v2", "v1"], "the preferred one comes first");

    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    let account = "kubernetes.io/service-account.name";
    let metadata = json!({
        "name": "closed", "namespace": "default", "labels": {"of": "names"},
        "annotations": {applied: "{\"stringData\": {\"a\": \"planted\"}}", account: "closed"},
    });
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "planted"}});
    api.create(&secret).await.unwrap();
    let secrets = &of("", "secrets")[0];
    let listed = api.list_metadata(&Collection::new("v1", "Secret", Some("default"))).await.unwrap();
    let first = api.first_of(secrets, None, &["kube-system"], |_| true).await.unwrap();
    for found in [listed, first.into_iter().collect()] {
        assert_eq!(found.len(), 1, "{found:?}");
        let kept = serde_json::to_value(&found[0]).unwrap();
        assert_eq!(kept["labels"]["of"], "names");
        assert_eq!(kept["annotations"], json!({account: "closed"}));
        assert!(!format!("{found:?}").contains("planted"), "{found:?}");
    }
    assert_eq!(api.first_of(secrets, None, &["default"], |_| true).await.unwrap(), None);
    assert_eq!(api.first_of(secrets, Some("kube-public"), &[], |_| true).await.unwrap(), None);
    assert_eq!(api.first_of(secrets, None, &["kube-system"], |_| false).await.unwrap(), None);
}

/// More objects than a page holds.
async fn pages(api: &Api) {
    for number in 0..510 {
        let manifest = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("m{number}"), "namespace": "default", "labels": {"of": "pages"}},
        });
        api.create(&manifest).await.unwrap();
    }
    let maps = Collection::new("v1", "ConfigMap", Some("default"));
    assert_eq!(api.list(&maps, Some("of=pages")).await.unwrap().len(), 510);
    assert_eq!(api.list(&maps, Some("of in (nothing)")).await.unwrap(), Vec::<Value>::new());
    let typed = api.objects::<ConfigMap>(Some("default"), Some("of=pages")).await.unwrap();
    assert_eq!(typed.len(), 510);
    // By name it is the last of all objects, which are read a hundred at a time.
    let served = api.served_kinds().await.unwrap().kinds;
    let kind = served.iter().find(|kind| kind.group.is_empty() && kind.plural == "configmaps").unwrap();
    let first = async |name: &str| {
        api.first_of(kind, Some("default"), &[], |one| one.name.as_deref() == Some(name)).await.unwrap()
    };
    assert_eq!(first("m99").await.unwrap().name.as_deref(), Some("m99"));
    assert_eq!(first("none").await, None);
}

#[tokio::test]
async fn rejections_have_distinct_errors() {
    let cluster = Cluster::start(ClusterOptions::new(Era::Objects)).await;
    let workspace = Workspace::create("kubeconfigs");
    let authority = &cluster.credentials.authority.certificate;

    let error = connect(&kubeconfig(&cluster, &workspace, "eve", authority)).await.err().expect("a refusal");
    assert!(matches!(error, ClusterError::Forbidden { .. }), "{error}");
    let text = error.to_string();
    says(&text, &["get Namespace `kube-system`", "\"eve\"", "namespaces"]);
    assert!(error.hint().is_some_and(|hint| hint.contains("deploy/rbac.yaml")));

    let other = Authority::create(&workspace, "other", "other");
    let error = connect(&kubeconfig(&cluster, &workspace, "mallory", &other.certificate)).await;
    let error = error.err().expect("a refusal");
    assert!(matches!(error, ClusterError::Untrusted { .. }), "{error}");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");

    // A certificate of another cluster's authority.
    let stranger = other.issue(&workspace, "stranger", "stranger", Some("system:masters"), &[]);
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let admin_pair = &cluster.credentials.admin;
    let text = text
        .replace(admin_pair.certificate.to_str().unwrap(), stranger.certificate.to_str().unwrap())
        .replace(admin_pair.key.to_str().unwrap(), stranger.key.to_str().unwrap());
    let error = connect(&workspace.write("stranger.conf", &text)).await.err().expect("a refusal");
    assert!(matches!(error, ClusterError::Unauthorized { .. }), "{error}");

    let nowhere = format!("https://127.0.0.1:{}", free_port());
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let text = text.replace(&cluster.api_servers[0].url(), &nowhere);
    let error = connect(&workspace.write("nowhere.conf", text)).await.err().expect("a refusal");
    assert!(matches!(error, ClusterError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&nowhere) && error.is_transient(), "{error}");
}

#[tokio::test]
async fn admission_error_contains_its_message() {
    let cluster = Cluster::start(ClusterOptions::new(Era::Objects)).await;
    let api = admin(&cluster).await;
    let kind = "ValidatingAdmissionPolicy";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "frozen"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"],
            }]},
            "validations": [{"expression": "false", "message": "Services are frozen until the move is over"}],
        },
    });
    api.create(&policy).await.unwrap();
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}Binding"),
        "metadata": {"name": "frozen"},
        "spec": {"policyName": "frozen", "validationActions": ["Deny"]},
    });
    api.create(&binding).await.unwrap();
    let error =
        wait_until("the policy is in force", DEADLINE, async || match api.create(&service("web")).await {
            Err(error @ ClusterError::Refused { .. }) => Ok(error),
            Err(error) => Err(error.to_string()),
            Ok(_) => {
                api.delete(&service_ref("web"), None).await.map_err(|error| error.to_string())?;
                Err("a Service was created".to_string())
            }
        })
        .await;
    assert!(error.to_string().contains("Services are frozen until the move is over"), "{error}");
}

/// A stopped server accepts connections and does not answer.
#[tokio::test]
async fn silent_server_times_out() {
    let mut cluster = Cluster::start(ClusterOptions::new(Era::Objects)).await;
    let api = connect(cluster.kubeconfig()).await.expect("a connection");
    cluster.pause_api_server(0);
    let started = std::time::Instant::now();
    let error = api.create(&service("web")).await.unwrap_err();
    assert!(matches!(error, ClusterError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    cluster.resume_api_server(0);
}
