//! `netsurgeon preflight mirror` on two clusters of which one can take over what the other serves, and on the same clusters with
//! one obstacle after the other.

mod around;
mod rights;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::objects::define;
use crate::rig::api::{Api, object_path};
use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::process::wait_until;
use crate::rig::registry::{Access, Registry};
use crate::rig::run::{has_line, says};
use crate::rig::workspace::Workspace;
use crate::serving_cluster::{DEADLINE, Run, command, run};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NODE: &str = "/api/v1/nodes/mirror-1";
const WIDGET: (&str, &str) = ("Widget", "widgets");
/// How long controllers may take.
const PATIENCE: Duration = Duration::from_mins(2);
const RBAC: &str = "rbac.authorization.k8s.io";

/// The clusters. The source has its own network, which the thread that started it is in; so does the mirror.
struct Pair {
    mirror: Cluster,
    source: Cluster,
}

impl Pair {
    /// Runs the program, as a user or as the administrator of both.
    fn run(&self, user: Option<&str>, words: &str) -> Run {
        let of = |cluster: &Cluster| match user {
            Some(user) => cluster.kubeconfig_as(0, user, None),
            None => cluster.kubeconfig().to_path_buf(),
        };
        let words = format!("preflight mirror --mirror-kubeconfig {} {words}", of(&self.mirror).display());
        let mut command = command(&self.source, &words);
        command.env("KUBECONFIG", of(&self.source)).env_remove("ETCDCTL_ENDPOINTS");
        run(&words, command)
    }

    /// Runs one check, of the namespace `shop`.
    fn only(&self, name: &str, words: &str) -> Value {
        let checks = checks(&self.run(None, &format!("-o json -n shop --only {name} {words}")));
        checks.into_iter().find(|check| check["name"] == name).expect("the check is listed")
    }

    /// Waits until a check has this verdict, for a reason: controllers and caches affect what is observed.
    async fn comes_out(&self, name: &str, verdict: &str, reason: &[&str]) {
        wait_until("the check has the verdict", PATIENCE, async || {
            let found = self.only(name, "");
            let is_said = has_line(found["observed"].as_str().unwrap_or_default(), reason);
            let has_remedy = verdict == "pass" || !found["remedy"].as_str().unwrap_or_default().is_empty();
            if found["verdict"] == verdict && is_said && has_remedy { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }
}

fn checks(ran: &Run) -> Vec<Value> {
    let shown: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.err));
    assert_eq!((&shown["version"], &shown["target"]), (&json!(1), &json!("mirror")));
    shown["checks"].as_array().expect("checks").clone()
}

#[tokio::test]
async fn mirror_checks_pass_or_name_the_fault() {
    let options =
        ClusterOptions { nodes: 1, controllers_as_themselves: true, ..ClusterOptions::new(Era::Objects) };
    let source = Cluster::start(options).await;
    let pair = Pair { mirror: Cluster::start(ClusterOptions::new(Era::Objects)).await, source };
    let storage = Workspace::create("images");
    let registry = Registry::start(storage.path(), Access::Open).await;
    registry.push("web", "1");
    with_a_shop(&pair.source.api, &registry.host).await;
    with_a_mirror(&pair.mirror.api).await;
    pair.comes_out("capacity", "pass", &["0.5 cores, 64 MiB, 1 Pod ", "1 node "]).await;
    for chosen in ["-n shop", ""] {
        let ran = pair.run(None, &format!("-o json --strict {chosen}"));
        let bad: Vec<Value> = checks(&ran).into_iter().filter(|check| check["verdict"] != "pass").collect();
        assert!(ran.code == 0 && bad.is_empty(), "{bad:?}");
    }
    for cluster in [&pair.source, &pair.mirror] {
        let ours: Vec<String> =
            cluster.etcd.keys("/").await.into_iter().filter(|key| key.contains("netsurgeon")).collect();
        assert_eq!(ours, Vec::<String>::new(), "nothing was written");
    }
    let shown = pair.run(None, "--namespace shop").expect(0);
    assert!(shown.err.contains("next: `netsurgeon mirror plan` with the same options"), "{}", shown.err);
    assert!(shown.err.contains("19 pass"), "{}", shown.err);

    with_other_clusters(&pair).await;
    with_other_namespaces(&pair).await;
    with_other_kinds(&pair).await;
    with_other_classes(&pair).await;
    without_secrets(&pair).await;
    with_data(&pair).await;
    with_other_nodes(&pair).await;
    with_less_room(&pair).await;
    around::with_issuers(&pair).await;
    rights::with_rights(&pair).await;
    around::with_fixed_addresses(&pair).await;
    around::with_webhooks(&pair).await;
    define(
        &pair.source.api,
        "kustomize.toolkit.fluxcd.io",
        "v1",
        ("Kustomization", "kustomizations"),
        "Namespaced",
    )
    .await;
    pair.comes_out("gitops", "warn", &["Flux"]).await;
}

/// The image is in a registry at this host.
fn deployment(registry: &str) -> Value {
    let labels = json!({"app": "web"});
    let requests = json!({"cpu": "500m", "memory": "64Mi"});
    let container =
        json!({"name": "web", "image": format!("{registry}/web:1"), "resources": {"requests": requests}});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [container], "imagePullSecrets": [{"name": "registry"}], "priorityClassName": "high",
                "nodeSelector": {"pool": "web"},
            }},
        },
    })
}

fn secret() -> Value {
    let metadata = json!({"name": "registry", "namespace": "shop"});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": "not-to-be-read"}})
}

fn ingress_class() -> Value {
    let spec = json!({"controller": "example.com/ingress"});
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "edge"}, "spec": spec})
}

fn priority_class() -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
}

/// The objects that both clusters have.
async fn with_classes(api: &Api) {
    api.create(&ingress_class()).await;
    api.create(&priority_class()).await;
    define(api, "example.com", "v1", WIDGET, "Namespaced").await;
}

async fn with_a_shop(api: &Api, registry: &str) {
    with_classes(api).await;
    api.create_namespace("shop").await;
    api.create(&secret()).await;
    api.create_service("shop", "web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})).await;
    api.create(&deployment(registry)).await;
    let metadata = json!({"name": "web", "namespace": "shop"});
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    api.create(&json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata,
        "spec": {"ingressClassName": "edge", "defaultBackend": backend},
    }))
    .await;
    api.create(&json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})).await;
}

/// A node; the test writes the status that its kubelet would report.
async fn with_a_mirror(api: &Api) {
    with_classes(api).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mirror-1", "labels": {"pool": "web"}}});
    api.create(&node).await;
    // Admission taints a new node as not ready; the controller that removes the taint does not run.
    api.merge(NODE, &json!({"spec": {"taints": null}})).await;
    be_ready(api, "True").await;
    with_cpu(api, "2").await;
}

async fn be_ready(api: &Api, value: &str) {
    let status = json!({"conditions": [{"type": "Ready", "status": value}]});
    api.merge(&format!("{NODE}/status"), &json!({"status": status})).await;
}

async fn with_cpu(api: &Api, cpu: &str) {
    let room = json!({"cpu": cpu, "memory": "4Gi", "pods": "110"});
    let status = json!({"capacity": room, "allocatable": room});
    api.merge(&format!("{NODE}/status"), &json!({"status": status})).await;
}

/// No mirror, the source itself, and an older version.
async fn with_other_clusters(pair: &Pair) {
    let of = |words: &str, code: i32| {
        let words = format!("preflight mirror --only two-clusters {words}");
        run(&words, command(&pair.source, &words)).expect(code)
    };
    let none = of("", 2);
    says(&none.err, &["`--mirror-kubeconfig FILE`", "`--mirror-context NAME`"]);
    let own = of(&format!("--mirror-kubeconfig {}", pair.source.kubeconfig().display()), 3);
    says(&own.out, &["two-clusters", "fail", "`kube-system`", "UID"]);
    let gone = of("--mirror-kubeconfig /gone", 3);
    says(&gone.out, &["two-clusters", "/gone"]);
    let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Bitmap) };
    let old = Cluster::start(options).await;
    let by = |path: &Path| of(&format!("--mirror-kubeconfig {} --strict", path.display()), 3);
    let older = by(old.kubeconfig());
    says(&older.out, &["two-clusters", "warn", "v1.37.2", "v1.32.2"]);
}

async fn with_other_namespaces(pair: &Pair) {
    let gone = pair.only("namespaces", "-n gone");
    assert_eq!(gone["verdict"], "fail", "{gone}");
    says(gone["observed"].as_str().unwrap(), &["source", "`gone`"]);
    let api = &pair.mirror.api;
    api.create_namespace("shop").await;
    api.create_service("shop", "another", json!({"ports": [{"port": 80}]})).await;
    pair.comes_out("namespaces", "pass", &["1 ", "`shop`"]).await;
    api.create_service("shop", "web", json!({"ports": [{"port": 80}]})).await;
    api.create(&secret()).await;
    pair.comes_out("namespaces", "warn", &["2 objects", "Secret `shop/registry`, Service `shop/web`"]).await;
    api.delete("/api/v1/namespaces/shop/services/web").await;
    api.delete(&object_path(&secret())).await;
    pair.comes_out("namespaces", "pass", &["1 ", "`shop`"]).await;
}

async fn undefine(api: &Api, name: &str) {
    let path = format!("{DEFINITIONS}/{name}");
    api.delete(&path).await;
    wait_until("the namespace is deleted", DEADLINE, async || {
        api.find(&path).await.map_or(Ok(()), |found| Err(found["status"].to_string()))
    })
    .await;
}

/// A kind that the mirror does not serve, or only in another version, or has not established; and an unavailable API of the
/// source.
async fn with_other_kinds(pair: &Pair) {
    let api = &pair.mirror.api;
    undefine(api, "widgets.example.com").await;
    pair.comes_out("kinds", "fail", &["example.com/v1 Widget", "`shop/web`"]).await;
    define(api, "example.com", "v2", WIDGET, "Namespaced").await;
    pair.comes_out("kinds", "warn", &["example.com/v1 Widget (on the mirror: v2)"]).await;
    undefine(api, "widgets.example.com").await;
    define(api, "example.com", "v1", ("Widget", "things"), "Namespaced").await;
    let versions = json!([{
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    }]);
    let names = json!({"kind": "Widget", "plural": "widgets", "singular": "widget"});
    let refused = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
    });
    api.create(&refused).await;
    pair.comes_out("kinds", "fail", &["example.com/v1 Widget", "CustomResourceDefinition", "Established"])
        .await;
    undefine(api, "widgets.example.com").await;
    undefine(api, "things.example.com").await;
    define(api, "example.com", "v1", WIDGET, "Namespaced").await;
    pair.comes_out("kinds", "pass", &[" kinds"]).await;

    let down = |group: &str| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
            "spec": {
                "group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
                "service": {"namespace": "default", "name": "nobody"},
            },
        })
    };
    pair.source.api.create(&down("custom.metrics.k8s.io")).await;
    pair.source.api.create(&down("down.example.com")).await;
    pair.comes_out("kinds", "unknown", &["`down.example.com`", "source", "status 503"]).await;
    pair.source.api.delete(&object_path(&down("down.example.com"))).await;
    pair.comes_out("kinds", "pass", &[" kinds"]).await;
}

async fn with_other_classes(pair: &Pair) {
    let api = &pair.mirror.api;
    api.delete("/apis/networking.k8s.io/v1/ingressclasses/edge").await;
    pair.comes_out("classes", "fail", &["IngressClass `edge` (Ingress `shop/web`)"]).await;
    api.create(&ingress_class()).await;
    api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/high").await;
    // The copy brings this class along.
    pair.comes_out("classes", "pass", &["2"]).await;
    pair.source.api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/high").await;
    pair.comes_out("classes", "fail", &["PriorityClass `high` (Deployment `shop/web`)"]).await;
    for api in [api, &pair.source.api] {
        api.create(&priority_class()).await;
    }
    pair.comes_out("classes", "pass", &["2"]).await;
}

async fn without_secrets(pair: &Pair) {
    let path = object_path(&secret());
    pair.source.api.delete(&path).await;
    pair.comes_out("pull-secrets", "fail", &["`shop/registry` (Deployment `shop/web`)"]).await;
    pair.source.api.create(&secret()).await;
    pair.comes_out("pull-secrets", "pass", &["1 "]).await;
    // A workload without Pods, which gets its Secret from the ServiceAccount of every namespace. A mirror plan adopts it.
    let mut idle = deployment("registry.test");
    idle["metadata"]["name"] = json!("idle");
    idle["spec"]["replicas"] = json!(0);
    idle["spec"]["template"]["spec"]["imagePullSecrets"] = json!([]);
    idle["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "nowhere"});
    pair.source.api.create(&idle).await;
    pair.comes_out("placement", "pass", &["(1 template, 1 node)", "; 1 template was skipped"]).await;
    let account = "/api/v1/namespaces/shop/serviceaccounts/default";
    let with = |names: Value| json!({"imagePullSecrets": names});
    wait_until("its controller creates it", DEADLINE, async || {
        pair.source.api.find(account).await.map(|_| ()).ok_or_else(|| "there is none".to_string())
    })
    .await;
    pair.source.api.merge(account, &with(json!([{"name": "registry"}]))).await;
    pair.comes_out("pull-secrets", "pass", &["1 "]).await;
    pair.comes_out("planned-objects", "pass", &["objects can be copied"]).await;
    pair.source.api.merge(account, &with(json!([]))).await;
    pair.source.api.delete(&object_path(&idle)).await;
}

async fn with_data(pair: &Pair) {
    let api = &pair.source.api;
    let metadata = json!({"name": "data", "namespace": "shop"});
    let claim = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
    });
    let claimed =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim});
    let labels = json!({"app": "db"});
    let container = json!({"name": "db", "image": "registry.test/db:1"});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "shop"},
        "spec": {
            "serviceName": "db", "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    });
    api.create(&claimed).await;
    api.create(&set).await;
    pair.comes_out(
        "stateless",
        "warn",
        &["StatefulSets (1): `shop/db`; PersistentVolumeClaims (1): `shop/data`"],
    )
    .await;
    pair.comes_out(
        "classes",
        "warn",
        &["StorageClass `fast` (PersistentVolumeClaim `shop/data`, StatefulSet `shop/db`)"],
    )
    .await;
    api.delete(&object_path(&set)).await;
    // The controller that removes the finalizer of a claim does not run.
    api.merge(&object_path(&claimed), &json!({"metadata": {"finalizers": null}})).await;
    api.delete(&object_path(&claimed)).await;
    pair.comes_out("stateless", "pass", &[]).await;
    api.create_service("shop", "outside", json!({"ports": [{"port": 5432}]})).await;
    let bare = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": "shop"}, "spec": {"containers": [container]},
    });
    api.create(&bare).await;
    pair.comes_out("stateless", "warn", &["Pods ", "(1): `shop/bare`", "Services ", "(1): `shop/outside`"])
        .await;
    api.delete(&format!("{}?gracePeriodSeconds=0", object_path(&bare))).await;
    api.delete("/api/v1/namespaces/shop/services/outside").await;
    pair.comes_out("stateless", "pass", &[]).await;
}

async fn with_other_nodes(pair: &Pair) {
    let api = &pair.mirror.api;
    api.merge(NODE, &json!({"metadata": {"labels": {"pool": "db"}}})).await;
    pair.comes_out("placement", "fail", &["Deployment `shop/web` (", "`pool=web`"]).await;
    api.merge(NODE, &json!({"metadata": {"labels": {"pool": "web"}}})).await;
    let taint = json!({"key": "only", "value": "db", "effect": "NoSchedule"});
    api.merge(NODE, &json!({"spec": {"taints": [taint]}})).await;
    pair.comes_out("placement", "fail", &["Deployment `shop/web` (", "`only`", "`mirror-1`"]).await;
    api.merge(NODE, &json!({"spec": {"taints": null}})).await;
    pair.comes_out("placement", "pass", &["(1 template"]).await;
    api.merge(NODE, &json!({"spec": {"unschedulable": true}})).await;
    pair.comes_out("mirror-nodes", "warn", &["`mirror-1` (cordoned)"]).await;
    api.merge(NODE, &json!({"spec": {"unschedulable": null}})).await;
    be_ready(api, "Unknown").await;
    pair.comes_out("mirror-nodes", "fail", &["1 of 1 ", "`mirror-1`"]).await;
    be_ready(api, "True").await;
    pair.comes_out("mirror-nodes", "pass", &["1 "]).await;
}

async fn with_less_room(pair: &Pair) {
    let api = &pair.mirror.api;
    with_cpu(api, "600m").await;
    pair.comes_out("capacity", "warn", &["0.6 cores, 4 GiB, 110 Pods", "84 %", "`cpu`"]).await;
    with_cpu(api, "400m").await;
    pair.comes_out("capacity", "fail", &["0.4 cores, 4 GiB, 110 Pods", "`cpu`"]).await;
    with_cpu(api, "2").await;
    let container =
        json!({"name": "a", "image": "registry.test/a:1", "resources": {"requests": {"cpu": "1600m"}}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "there", "namespace": "default"},
        "spec": {"nodeName": "mirror-1", "containers": [container]},
    });
    api.create(&pod).await;
    pair.comes_out("capacity", "fail", &["0.4 cores, 4 GiB, 109 Pods", "`cpu`"]).await;
    // No kubelet would report its end.
    api.delete(&format!("{}?gracePeriodSeconds=0", object_path(&pod))).await;
    // Pods of an earlier copy do not reduce the capacity: the new copy replaces them.
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true});
    let mut copy = pod.clone();
    copy["metadata"] = json!({"name": "there", "namespace": "shop", "ownerReferences": [owner]});
    api.create(&copy).await;
    pair.comes_out("capacity", "pass", &["2 cores, 4 GiB, 110 Pods"]).await;
    api.delete(&format!("{}?gracePeriodSeconds=0", object_path(&copy))).await;
    pair.comes_out("capacity", "pass", &["2 cores, 4 GiB, 110 Pods"]).await;
}
