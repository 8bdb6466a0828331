//! `netsurgeon lock`: the API servers themselves reject changes, with the holder's message; the cluster keeps working; `unlock`
//! leaves nothing behind.

use std::process::Command;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::rig::api::Api;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::run::Run;
use super::rig::run::says;

const DEADLINE: Duration = Duration::from_mins(1);
/// With all permissions, so only admission can reject a request.
const MASTERS: Option<&str> = Some("system:masters");

/// Runs the program as the administrator, under a person's login name.
fn run_by(person: &str, cluster: &Cluster, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().current_dir("/").args(arguments);
    command.env("KUBECONFIG", cluster.kubeconfig()).env("USER", person);
    super::rig::run::run(&format!("{} (as {person})", arguments.join(" ")), command)
}

fn run(cluster: &Cluster, words: &str) -> Run {
    run_by("ops", cluster, &words.split_whitespace().collect::<Vec<_>>())
}

async fn start(era: Era, api_servers: u8) -> Cluster {
    let options =
        ClusterOptions { nodes: 1, api_servers, controllers_as_themselves: true, ..ClusterOptions::new(era) };
    let cluster = Cluster::start(options).await;
    wait_until("every API server is in the EndpointSlice", DEADLINE, async || {
        let slice =
            cluster.api.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await;
        let found = slice["endpoints"].as_array().map_or(0, |list| {
            list.iter().map(|endpoint| endpoint["addresses"].as_array().map_or(0, Vec::len)).sum()
        });
        if found == usize::from(api_servers) { Ok(()) } else { Err(slice.to_string()) }
    })
    .await;
    cluster
}

fn service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"port": 80}], "selector": {"app": name}},
    })
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/default/services/{name}")
}

async fn refused(api: &Api, method: Method, path: &str, body: Option<&Value>) -> String {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let outcome = api.request(method.clone(), path, content, body).await;
    outcome.err().unwrap_or_else(|| panic!("{method} {path} was accepted")).to_string()
}

/// Grants a group or service account all permissions of RBAC.
async fn let_all(cluster: &Cluster, name: &str, subject: Value) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    });
    cluster.api.create(&binding).await;
}

async fn service_account(cluster: &Cluster, name: &str) -> Api {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "ci"}});
    cluster.api.create(&account).await;
    let_all(cluster, name, json!({"kind": "ServiceAccount", "name": name, "namespace": "ci"})).await;
    cluster.api_as_service_account("ci", name).await
}

/// Nothing with the label of netsurgeon is left, of any kind that it creates.
async fn assert_nothing_left(cluster: &Cluster) {
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    for path in [
        format!("{policies}ies"),
        format!("{policies}ybindings"),
        "/api/v1/resourcequotas".to_string(),
        "/api/v1/services".to_string(),
        "/apis/apps/v1/deployments".to_string(),
    ] {
        let list = cluster
            .api
            .list(&format!("{path}?labelSelector=app.kubernetes.io/managed-by%3Dnetsurgeon"))
            .await;
        assert_eq!(list, Vec::<Value>::new(), "{path}");
    }
    assert_eq!(cluster.api.find(&path("netsurgeon-lock-probe")).await, None);
}

#[tokio::test]
async fn two_api_servers_reject_changes_in_objects_era() {
    locked_out(Era::Objects, 2).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn api_server_rejects_changes_in_bitmap_era() {
    locked_out(Era::Bitmap, 1).await;
}

async fn locked_out(era: Era, api_servers: u8) {
    let cluster = start(era, api_servers).await;
    let mut held = service("default", "web");
    held["spec"]["externalIPs"] = json!(["203.0.113.9"]);
    cluster.api.create(&held).await;
    cluster.api.create_namespace("ci").await;
    let deployer = service_account(&cluster, "deployer").await;
    let other = service_account(&cluster, "other").await;
    let_all(
        &cluster,
        "sre",
        json!({"kind": "Group", "name": "sre", "apiGroup": "rbac.authorization.k8s.io"}),
    )
    .await;

    let lock = [
        "lock",
        "--reason",
        "Services \"move\"; deploys must wait\n",
        "--operation",
        "op-7",
        "--exempt-user",
        "robot",
        "--exempt-group",
        "sre",
        "--exempt-service-account",
        "ci/deployer",
        "-o",
        "json",
    ];
    let locked = run_by("ops", &cluster, &lock).expect(0).json();
    assert_eq!((&locked["version"], &locked["status"]), (&json!(1), &json!("locked")));
    assert_eq!(locked["api_servers"].as_array().map(Vec::len), Some(api_servers.into()), "{locked}");
    for number in 0..usize::from(api_servers) {
        assert_refuses(&cluster.api_as(number, "dev", MASTERS).await, &locked).await;
    }
    let words =
        refused(&other, Method::POST, "/api/v1/namespaces/default/services", Some(&service("default", "x")))
            .await;
    says(&words, &["system:serviceaccount:ci:other ", "create services"]);

    assert_lets_through(&cluster, &deployer).await;
    the_same_person_changes_it_another_may_not(&cluster, &lock, &locked).await;

    let unlocked = run(&cluster, "unlock -o json").expect(0).json();
    assert_eq!(unlocked["status"], "unlocked");
    assert_eq!(unlocked["api_servers"].as_array().map(Vec::len), Some(api_servers.into()), "{unlocked}");
    for number in 0..usize::from(api_servers) {
        let dev = cluster.api_as(number, "dev", MASTERS).await;
        dev.create(&service("default", &format!("after-{number}"))).await;
    }
    assert_nothing_left(&cluster).await;
    run(&cluster, "unlock").expect(0);
}

/// Exempt users pass, and so do harmless changes, and changes in the exempt namespace.
async fn assert_lets_through(cluster: &Cluster, deployer: &Api) {
    for (name, api) in [
        ("by-robot", &cluster.api_as(0, "robot", MASTERS).await),
        ("by-sre", &cluster.api_as(0, "alice", Some("sre")).await),
        ("by-deployer", deployer),
        ("by-holder", &cluster.api),
    ] {
        api.create(&service("default", name)).await;
        api.merge(&path(name), &json!({"spec": {"selector": {"app": "y"}}})).await;
        api.delete(&path(name)).await;
    }
    let dev = cluster.api_as(0, "dev", MASTERS).await;
    dev.merge(&path("web"), &json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["x.io/y"]}}))
        .await;
    dev.merge(&path("web"), &json!({"metadata": {"finalizers": null}})).await;
    dev.create(&service("kube-system", "other")).await;
}

/// The changes of a deploy pipeline are rejected, with a message that says what to do.
async fn assert_refuses(dev: &Api, locked: &Value) {
    let all = "/api/v1/namespaces/default/services";
    let created = refused(dev, Method::POST, all, Some(&service("default", "new"))).await;
    let since = locked["lock"]["since"].as_i64().expect("a time");
    let since = time::OffsetDateTime::from_unix_timestamp(since).expect("a time");
    for words in [
        "user dev ",
        "create services in namespace default",
        "Services \"move\"; deploys must wait (operation op-7)",
        " ops@",
        " admin ",
        &since.date().to_string(),
        "netsurgeon unlock",
    ] {
        assert!(created.contains(words), "{words}: {created}");
    }
    let changed =
        refused(dev, Method::PATCH, &path("web"), Some(&json!({"spec": {"selector": {"app": "z"}}}))).await;
    says(&changed, &["user dev ", "update services"]);
    // As `kubectl replace` sends it, from a file without external IPs.
    let mut replaced = service("default", "web");
    replaced["metadata"]["resourceVersion"] =
        dev.get(&path("web")).await["metadata"]["resourceVersion"].clone();
    refused(dev, Method::PUT, &path("web"), Some(&replaced)).await;
    let deleted = refused(dev, Method::DELETE, &path("web"), None).await;
    says(&deleted, &["user dev ", "delete services"]);
    refused(dev, Method::DELETE, all, None).await;
    let same = dev.get(&path("web")).await;
    assert_eq!(dev.replace(&same).await["spec"], same["spec"], "an unchanged object is accepted");
}

async fn the_same_person_changes_it_another_may_not(cluster: &Cluster, lock: &[&str], locked: &Value) {
    for words in [&["lock", "--reason", "mine"][..], &["unlock"]] {
        let second = run_by("eve", cluster, words).expect(1);
        says(&second.err, &[" ops@"]);
        says(&second.err, &["--force"]);
    }
    let again = run_by("ops", cluster, lock).expect(0).json();
    assert_eq!(again["lock"], locked["lock"], "the lock is not changed");
    let shown = run(cluster, "lock status -o json").expect(0).json();
    assert_eq!((&shown["lock"], &shown["status"]), (&locked["lock"], &json!("locked")));
    let wider = [lock, &["--exempt-user", "dev"]].concat();
    run_by("ops", cluster, &wider).expect(0);
    cluster.api_as(0, "dev", MASTERS).await.create(&service("default", "allowed")).await;
    run_by("eve", cluster, &["lock", "--reason", "test", "--force"]).expect(0);
    let words =
        refused(&cluster.api_as(0, "dev", MASTERS).await, Method::DELETE, &path("allowed"), None).await;
    says(&words, &[" eve@"]);
    run_by("ops", cluster, &["lock", "--reason", "test", "--force"]).expect(0);
}

/// EndpointSlices are updated, namespaces and owned objects are deleted, load balancers get their addresses.
#[tokio::test]
async fn cluster_keeps_working_while_locked() {
    let cluster = start(Era::Objects, 1).await;
    let balanced = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}});
    cluster.api.create_service("default", "web", balanced).await;
    cluster.api.create_namespace("going").await;
    cluster.api.create(&service("going", "web")).await;
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map", "namespace": "default"}});
    let map = cluster.api.create(&map).await;
    let mut owned = service("default", "owned");
    let uid = &map["metadata"]["uid"];
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "map", "uid": uid}]);
    cluster.api.create(&owned).await;

    run(&cluster, "lock --reason test --what services").expect(0);
    let dev = cluster.api_as(0, "dev", MASTERS).await;
    let pod = cluster.create_pod(0, "web-1", &json!({"app": "web"})).await;
    wait_until("the EndpointSlice has the Pod", DEADLINE, async || {
        let all = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        let slices = dev.list(&format!("{all}?labelSelector=kubernetes.io/service-name%3Dweb")).await;
        let address = pod.address().to_string();
        let has = slices.iter().any(|slice| slice["endpoints"].to_string().contains(&address));
        if has { Ok(()) } else { Err(format!("{slices:?}")) }
    })
    .await;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.77"}]}}});
    dev.merge(&format!("{}/status", path("web")), &status).await;
    dev.delete("/api/v1/namespaces/default/configmaps/map").await;
    dev.delete("/api/v1/namespaces/going").await;
    for gone in [path("owned"), "/api/v1/namespaces/going".to_string()] {
        wait_until(&format!("{gone} is deleted"), DEADLINE, async || {
            dev.find(&gone).await.map_or(Ok(()), |found| Err(found.to_string()))
        })
        .await;
    }
    refused(&dev, Method::DELETE, &path("web"), None).await;
    run(&cluster, "unlock").expect(0);
    assert_nothing_left(&cluster).await;
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            },
        },
    })
}

async fn pods_of(api: &Api, name: &str, count: usize) -> Vec<Value> {
    let all = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}");
    wait_until(&format!("{count} Pods of {name}"), DEADLINE, async || {
        let pods = api.list(&all).await;
        if pods.len() == count { Ok(pods) } else { Err(format!("{} Pods", pods.len())) }
    })
    .await
}

/// With workloads locked, controllers and autoscalers still work: they scale, and replace evicted Pods.
#[tokio::test]
async fn locked_workloads_still_scale() {
    let cluster = start(Era::Objects, 1).await;
    cluster.api.create(&deployment("shop")).await;
    pods_of(&cluster.api, "shop", 1).await;
    run(&cluster, "lock --reason test --what deploys --namespace default").expect(0);
    let dev = cluster.api_as(0, "dev", MASTERS).await;
    let all = "/apis/apps/v1/namespaces/default/deployments";
    refused(&dev, Method::POST, all, Some(&deployment("new"))).await;
    let image = json!({"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}});
    refused(&dev, Method::PATCH, &format!("{all}/shop"), Some(&image)).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hand", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    });
    refused(&dev, Method::POST, "/api/v1/namespaces/default/pods", Some(&pod)).await;
    dev.create(&service("default", "free")).await;

    dev.merge(&format!("{all}/shop/scale"), &json!({"spec": {"replicas": 2}})).await;
    let pods = pods_of(&dev, "shop", 2).await;
    let evicted = pods[0]["metadata"]["name"].as_str().expect("a name");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": evicted, "namespace": "default"},
    });
    let path = format!("/api/v1/namespaces/default/pods/{evicted}/eviction");
    dev.request(Method::POST, &path, "application/json", Some(&eviction)).await.expect("an eviction");
    wait_until("a new Pod replaces the evicted one", DEADLINE, async || {
        let pods = pods_of(&dev, "shop", 2).await;
        let names: Vec<_> =
            pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default()).collect();
        if names.contains(&evicted) { Err(format!("{names:?}")) } else { Ok(()) }
    })
    .await;
    run(&cluster, "unlock").expect(0);
    assert_nothing_left(&cluster).await;
}

/// For API servers without admission policies there are quotas, whose limits netsurgeon reports.
#[tokio::test]
async fn quotas_reject_new_objects() {
    let cluster = start(Era::Bitmap, 1).await;
    cluster.api.create(&service("default", "web")).await;
    cluster.api.create_namespace("shop").await;
    let locked = run(&cluster, "lock --reason test --with quota -o json").expect(0).json();
    assert!(locked["not_covered"].as_array().is_some_and(|list| !list.is_empty()), "{locked}");
    let dev = cluster.api_as(0, "dev", MASTERS).await;
    for (namespace, api) in [("default", &dev), ("shop", &dev), ("default", &cluster.api)] {
        let all = format!("/api/v1/namespaces/{namespace}/services");
        let words = refused(api, Method::POST, &all, Some(&service(namespace, "new"))).await;
        assert!(words.contains("netsurgeon-lock"), "{words}");
    }
    dev.create(&service("kube-system", "other")).await;
    dev.merge(&path("web"), &json!({"spec": {"selector": {"app": "z"}}})).await;
    // The change from quotas to the policy leaves no gap.
    run(&cluster, "lock --reason test").expect(0);
    assert_eq!(cluster.api.list("/api/v1/resourcequotas").await, Vec::<Value>::new());
    refused(&dev, Method::DELETE, &path("web"), None).await;
    run(&cluster, "lock --reason test --with quota -n shop").expect(0);
    dev.delete(&path("web")).await;
    let shown = run(&cluster, "lock status -o json").expect(0).json();
    assert!(shown["not_covered"].as_array().is_some_and(|list| !list.is_empty()), "{shown}");
    says(&shown["objects"].to_string(), &["ResourceQuota `shop/netsurgeon-lock`"]);
    assert_eq!(shown["status"], "locked");
    run(&cluster, "unlock").expect(0);
    dev.create(&service("shop", "new")).await;
    assert_nothing_left(&cluster).await;

    // A namespace that was created later, or that an interrupted `lock` did not reach, has no quota.
    run(&cluster, "lock --reason test --with quota").expect(0);
    assert_eq!(run(&cluster, "lock status -o json").expect(0).json()["status"], "locked");
    cluster.api.create_namespace("later").await;
    assert_eq!(run(&cluster, "lock status -o json").expect(0).json()["status"], "incomplete");
    says(&run(&cluster, "lock status").expect(0).err, &["incomplete", "nothing in later;"]);
    run(&cluster, "lock --reason test --with quota").expect(0);
    assert_eq!(run(&cluster, "lock status -o json").expect(0).json()["status"], "locked");
    run(&cluster, "unlock").expect(0);
    assert_nothing_left(&cluster).await;
}

/// Without a controller manager, the API server ignores the quotas.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn quotas_that_are_not_counted_reject_nothing() {
    let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
    let cluster = Cluster::start(options).await;
    let words = "lock --reason test --with quota --deadline 3 --through-kubeconfig";
    says(&run(&cluster, words).expect(5).err, &["ResourceQuota", "controller manager"]);
    assert_eq!(run(&cluster, "lock status -o json").expect(0).json()["status"], "incomplete");
    says(&run(&cluster, "lock status").expect(0).err, &["incomplete", "nothing in default,"]);
    run(&cluster, "unlock --through-kubeconfig").expect(0);
    assert_nothing_left(&cluster).await;
}

/// An incomplete lock, as after a kill, is recognised, and can be completed and removed.
#[tokio::test]
async fn incomplete_lock_is_reported_and_repaired() {
    let cluster = start(Era::Objects, 1).await;
    let planned = run(&cluster, "lock --reason test --dry-run -o json").expect(0).json();
    assert_nothing_left(&cluster).await;
    cluster.api.create(&planned["items"][0]).await;
    assert_eq!(run(&cluster, "lock status -o json").expect(0).json()["status"], "incomplete");
    let missing = run(&cluster, "lock --reason test -n nowhere").expect(1);
    says(&missing.err, &["namespace `nowhere`"]);
    run(&cluster, "lock --reason test").expect(0);
    assert_eq!(run(&cluster, "lock status -o json").expect(0).json()["status"], "locked");
    run(&cluster, "unlock").expect(0);
    assert_nothing_left(&cluster).await;
    let yaml = run(&cluster, "lock --reason test --dry-run").expect(0).out;
    assert!(yaml.matches("---").count() == 2 && yaml.contains("failurePolicy: Fail"), "{yaml}");
}

/// When the time is over, no process of netsurgeon runs: the cluster itself accepts changes again.
#[tokio::test]
async fn lock_with_duration_ends_automatically() {
    let cluster = start(Era::Objects, 2).await;
    let locked = run(&cluster, "lock --reason test --for 25s -o json").expect(0).json();
    assert_eq!(locked["lock"]["seconds"], 25);
    let all = "/api/v1/namespaces/default/services";
    let dev = cluster.api_as(0, "dev", MASTERS).await;
    let words = refused(&dev, Method::POST, all, Some(&service("default", "early"))).await;
    let end = locked["lock"]["since"].as_i64().expect("a time") + 25;
    let end = time::OffsetDateTime::from_unix_timestamp(end).expect("a time");
    let end = end.format(&time::format_description::well_known::Rfc3339).expect("a text");
    says(&words, &[&end]);
    let endless = run(&cluster, "lock --reason test --what all").expect(1);
    says(&endless.err, &["ends by itself", "`--for`"]);
    says(&endless.err, &["`netsurgeon unlock`"]);
    let shown = run(&cluster, "lock status").expect(0).out;
    says(&shown, &["Job `kube-system/netsurgeon-lock-"]);
    says(&shown, &[&end]);
    for number in 0..2 {
        let dev = cluster.api_as(number, "dev", MASTERS).await;
        wait_until("the lock has ended", DEADLINE, async || {
            let late = service("default", &format!("late-{number}"));
            let outcome = dev.request(Method::POST, all, "application/json", Some(&late)).await;
            outcome.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
    dev.delete(&path("late-0")).await;
    let ended = run(&cluster, "lock status -o json").expect(0);
    assert_eq!(ended.json()["status"], "ended", "{}", ended.err);
    // The lock has ended, so another person may lock, without a time limit.
    let again = run_by("eve", &cluster, &["lock", "--reason", "mine", "-o", "json"]).expect(0).json();
    assert_eq!((&again["status"], &again["lock"]["seconds"]), (&json!("locked"), &Value::Null));
    refused(&dev, Method::POST, all, Some(&service("default", "later"))).await;
    run_by("eve", &cluster, &["unlock"]).expect(0);
    assert_nothing_left(&cluster).await;
    let jobs = cluster.api.list("/apis/batch/v1/jobs").await;
    assert_eq!(jobs, Vec::<Value>::new(), "no timer is left");
    let quota = run(&cluster, "lock --reason test --with quota --for 1h").expect(1);
    says(&quota.err, &["ResourceQuota"]);
    says(&quota.err, &["`--for`", "`netsurgeon unlock`"]);
}
