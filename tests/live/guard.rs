//! Changes by clients to a Service whose old address is held, and the reaction of the guard (`renumber guard`), on a cluster that
//! has moved.

use std::process::{Child, Command, Stdio};

use http::Method;
use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::echo::PORT;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, Serving};

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/default/services/{name}")
}

/// A manifest as people keep it: no address, and no field of netsurgeon.
fn manifest(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "tcp", "port": 80, "targetPort": PORT}]},
    })
}

/// Holds of a Service: external IPs and the policy.
async fn hold(serving: &Serving, name: &str) -> (Value, Value) {
    let spec = serving.cluster.api.get(&path(name)).await["spec"].clone();
    (spec["externalIPs"].clone(), spec["externalTrafficPolicy"].clone())
}

fn held(old: &str) -> (Value, Value) {
    (json!([old]), json!("Local"))
}

async fn reservation(serving: &Serving, old: &str) -> Option<Value> {
    serving.cluster.api.find(&format!("/apis/networking.k8s.io/v1/ipaddresses/{old}")).await
}

/// Runs one pass of the guard; returns the events that it reported.
pub fn guard(serving: &Serving, words: &str, code: i32) -> Vec<Value> {
    let run = serving.netsurgeon(&format!("renumber guard --once -o json {words}")).expect(code);
    run.out.lines().map(|line| serde_json::from_str(line).expect("a JSON document a line")).collect()
}

pub fn told(events: &[Value]) -> Vec<String> {
    let word = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_string();
    events
        .iter()
        .map(|e| format!("{} {} {}", word(e, "event"), word(e, "code"), word(e, "subject")))
        .collect()
}

/// Protocol, section 8, row by row; each Service is for one row.
#[tokio::test]
async fn guard_repairs_holds_that_clients_break() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.apply("").await;
    assert_eq!(guard(&serving, "", 0), Vec::<Value>::new(), "everything is held");
    pinned_to_the_old_address(&serving).await;
    replaced_without_an_address(&serving).await;
    external_ips_cleared_by_a_patch(&serving).await;
    deleted_and_made_anew(&serving).await;
    replaced_by_force_with_the_old_address_pinned(&serving).await;
    turned_into_an_external_name(&serving).await;
    external_ips_of_its_own(&serving).await;
    retired_with_all_that(&serving).await;
}

/// Services that are deleted, recreated, or without addresses now do not prevent the rest from being retired.
async fn retired_with_all_that(serving: &Serving) {
    let words =
        "renumber retire --forget --without-evidence --yes --confirm soak --confirm certificates-after";
    let retired = serving.netsurgeon(words).expect(0);
    says(&retired.err, &["warning: Service default/web-7 ", "`10.96.1.8`"]);
    let own = (json!(["203.0.113.7"]), json!("Cluster"));
    assert_eq!(hold(serving, "web-7").await, own, "without the policy of the hold");
    for name in ["web-1", "web-4"] {
        assert_eq!(hold(serving, name).await, (Value::Null, Value::Null), "{name}");
    }
    serving.assert_clean();
    assert!(serving.cluster.etcd.keys("/netsurgeon/").await.is_empty(), "nothing of netsurgeon is left");
    // The API server still accepts the Services.
    for name in ["web-2", "web-4"] {
        serving.cluster.api.merge(&path(name), &json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    }
}

/// `replace` and `apply` of a manifest that pins the old address are rejected; the hold stays.
async fn pinned_to_the_old_address(serving: &Serving) {
    let api = &serving.cluster.api;
    let mut pinned = manifest("web-1");
    pinned["spec"]["clusterIP"] = json!("10.96.1.2");
    let put = api.request(Method::PUT, &path("web-1"), "application/json", Some(&pinned)).await;
    let refused = put.expect_err("the API server rejects the update").to_string();
    assert!(refused.contains("may not change once set"), "{refused}");
    let url = format!("{}?fieldManager=pipeline&force=true", path("web-1"));
    let applied = api.request(Method::PATCH, &url, "application/apply-patch+yaml", Some(&pinned)).await;
    assert!(applied.is_err(), "{applied:?}");
    assert_eq!(hold(serving, "web-1").await, held("10.96.1.2"));
    assert_eq!(guard(serving, "", 0), Vec::<Value>::new());
}

/// `replace` without an address is accepted: hold and policy are dropped, the reservation stays; the guard restores both.
async fn replaced_without_an_address(serving: &Serving) {
    serving.cluster.api.replace(&manifest("web-2")).await;
    assert_eq!(hold(serving, "web-2").await, (Value::Null, Value::Null));
    assert!(reservation(serving, "10.96.1.3").await.is_some());
    let would = guard(serving, "--dry-run", 3);
    assert_eq!(told(&would), ["would-repair hold-put-back default/web-2"]);
    assert_eq!(hold(serving, "web-2").await, (Value::Null, Value::Null), "a dry run writes nothing");
    assert_eq!(told(&guard(serving, "", 0)), ["repaired hold-put-back default/web-2"]);
    assert_eq!(hold(serving, "web-2").await, held("10.96.1.3"));
    // The API server accepts the Service as the guard has left it.
    let path = path("web-2");
    serving.cluster.api.merge(&path, &json!({"metadata": {"labels": {"after": "the-guard"}}})).await;
    serving.netsurgeon("renumber verify").expect(0);
}

/// A merge patch `externalIPs: null`: the API server clears the policy itself.
async fn external_ips_cleared_by_a_patch(serving: &Serving) {
    serving.cluster.api.merge(&path("web-3"), &json!({"spec": {"externalIPs": null}})).await;
    assert_eq!(hold(serving, "web-3").await.0, Value::Null);
    assert_eq!(told(&guard(serving, "", 0)), ["repaired hold-put-back default/web-3"]);
    assert_eq!(hold(serving, "web-3").await, held("10.96.1.4"));
    // A deleted IPAddress is recreated.
    serving.cluster.api.delete("/apis/networking.k8s.io/v1/ipaddresses/10.96.1.4").await;
    assert_eq!(told(&guard(serving, "", 0)), ["repaired address-kept default/web-3"]);
    assert!(reservation(serving, "10.96.1.4").await.is_some());
}

/// A deleted Service: the old address is released. The Service is recreated without the address: it is held again, by name.
async fn deleted_and_made_anew(serving: &Serving) {
    let api = &serving.cluster.api;
    api.delete(&path("web-4")).await;
    assert!(reservation(serving, "10.96.1.5").await.is_some(), "the reservation has no Service");
    assert_eq!(told(&guard(serving, "", 0)), ["repaired hold-given-up default/web-4"]);
    assert_eq!(reservation(serving, "10.96.1.5").await, None);
    // In the new range, as after the old range is closed.
    let mut recreated = manifest("web-4");
    recreated["spec"]["clusterIP"] = json!("10.200.50.4");
    api.create(&recreated).await;
    let both = ["repaired address-kept default/web-4", "repaired hold-by-name default/web-4"];
    assert_eq!(told(&guard(serving, "", 0)), both);
    assert_eq!(hold(serving, "web-4").await, held("10.96.1.5"));
    assert!(reservation(serving, "10.96.1.5").await.is_some());
    serves(serving, "10.96.1.5").await;
}

/// `replace --force` with the old address pinned: the Service is deleted, and its creation is rejected, because the old range is
/// closed and the address is kept. The guard releases its hold.
async fn replaced_by_force_with_the_old_address_pinned(serving: &Serving) {
    let api = &serving.cluster.api;
    let mut pinned = manifest("web-5");
    pinned["spec"]["clusterIP"] = json!("10.96.1.6");
    api.delete(&path("web-5")).await;
    api.try_create(&pinned).await.expect_err("the old range is closed, and the address is kept");
    assert_eq!(told(&guard(serving, "", 0)), ["repaired hold-given-up default/web-5"]);
    let refused = api.try_create(&pinned).await.expect_err("the old range is closed");
    assert!(refused.to_string().contains("current range"), "{refused}");
    assert_eq!(guard(serving, "", 0), Vec::<Value>::new(), "nothing is held, and no Service to hold it for");
}

async fn turned_into_an_external_name(serving: &Serving) {
    let change = json!({"spec": {"type": "ExternalName", "externalName": "web.example.com", "clusterIP": null,
        "clusterIPs": null, "selector": null, "externalIPs": null, "externalTrafficPolicy": null}});
    serving.cluster.api.merge(&path("web-6"), &change).await;
    assert!(reservation(serving, "10.96.1.7").await.is_some(), "the reservation has no Service");
    assert_eq!(told(&guard(serving, "", 0)), ["repaired hold-given-up default/web-6"]);
    assert_eq!(reservation(serving, "10.96.1.7").await, None);
}

/// External IPs that a client sets for itself are kept and reported.
async fn external_ips_of_its_own(serving: &Serving) {
    serving.cluster.api.merge(&path("web-7"), &json!({"spec": {"externalIPs": ["203.0.113.7"]}})).await;
    let before = serving.cluster.api.get(&path("web-7")).await;
    assert_eq!(told(&guard(serving, "", 3)), ["wrong hold-missing default/web-7"]);
    assert_eq!(serving.cluster.api.get(&path("web-7")).await, before);
}

/// In the bitmap era there is no IPAddress to reserve: holds are restored and released all the same, by an external IP and by a
/// shadow.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn guard_repairs_holds_in_the_bitmap_era() {
    let mut serving = Serving::start(Era::Bitmap, ProxyMode::Iptables).await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.2.9"});
    serving.cluster.create_echo_service("np", &json!({"app": "web"}), &spec).await;
    serving.apply("").await;
    assert_eq!(guard(&serving, "", 0), Vec::<Value>::new(), "everything is held");
    let api = &serving.cluster.api;
    api.replace(&manifest("web-2")).await;
    assert_eq!(told(&guard(&serving, "", 0)), ["repaired hold-put-back default/web-2"]);
    assert_eq!(hold(&serving, "web-2").await, held("10.96.1.3"));
    serves(&serving, "10.96.1.3").await;

    api.delete(&path("web-4")).await;
    assert_eq!(guard(&serving, "", 0), Vec::<Value>::new(), "its hold is released");
    api.create(&manifest("web-4")).await;
    assert_eq!(told(&guard(&serving, "", 0)), ["repaired hold-by-name default/web-4"]);
    assert_eq!(hold(&serving, "web-4").await, held("10.96.1.5"));

    let labelled = "/api/v1/services?labelSelector=app.kubernetes.io/managed-by%3Dnetsurgeon";
    let shadow = api.list(labelled).await[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    api.delete(&path(&shadow)).await;
    assert_eq!(told(&guard(&serving, "", 0)), ["repaired shadow-put-back default/np"]);
    assert_eq!(serving.cluster_ip(&shadow).await, "10.96.2.9");
    serves(&serving, "10.96.2.9").await;
    let findings = serving.netsurgeon("renumber verify -o json").expect(3).json()["findings"].clone();
    assert_eq!(
        (findings.as_array().map_or(0, Vec::len), &findings[0]["subject"]),
        (1, &json!("Service default/web-4"))
    );
    serving.retire();
    assert_eq!(hold(&serving, "web-4").await, (Value::Null, Value::Null));
    serving.assert_clean();
}

/// An address answers from the client's Pod.
async fn serves(serving: &Serving, address: &str) {
    let target = Target::tcp(address, 80);
    let probe = serving.client.probe(&[target]);
    probe.wait_for_success(target, DEADLINE).await;
}

/// Runs the guard in the foreground, its output in a file.
fn foreground(serving: &Serving, file: &str) -> Child {
    let log = std::fs::File::create(serving.cluster.directory().join(file)).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().current_dir("/").args(["renumber", "guard", "--interval", "1", "-o", "json"]);
    command.env("ETCDCTL_ENDPOINTS", serving.cluster.etcd.endpoint()).stdin(Stdio::null()).stdout(log);
    command.spawn().expect("the guard starts")
}

async fn wait_for(serving: &Serving, file: &str, words: &str) {
    let file = serving.cluster.directory().join(file);
    wait_until(&format!("the guard prints {words}"), DEADLINE, async || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if text.contains(words) { Ok(()) } else { Err(text) }
    })
    .await;
}

/// Two guards in the foreground: a dropped hold is restored, and traffic with it. While another process has the lock nothing is
/// written. Both guards end with the renumbering, whose rollback is complete.
#[tokio::test]
async fn guard_runs_until_the_renumbering_ends() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.apply("").await;
    let mut guards = ["one.log", "two.log"].map(|file| (file, foreground(&serving, file)));
    for (file, _) in &guards {
        wait_for(&serving, file, "\"watching\"").await;
    }
    serving.cluster.api.replace(&manifest("web-2")).await;
    wait_until("the hold is restored", DEADLINE, async || {
        let found = hold(&serving, "web-2").await;
        if found == held("10.96.1.3") { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    serves(&serving, "10.96.1.3").await;

    let cluster = serving.cluster.api.get("/api/v1/namespaces/kube-system").await;
    let lock = format!("/netsurgeon/{}/lock", cluster["metadata"]["uid"].as_str().expect("a uid"));
    let claim =
        json!({"holder": "alice@host-2", "pid": 7, "operation": "x", "purpose": "a test", "since": 0});
    serving.cluster.etcd.put(&lock, claim.to_string().into_bytes()).await;
    for (file, _) in &guards {
        wait_for(&serving, file, "alice@host-2").await;
    }
    serving.cluster.api.replace(&manifest("web-3")).await;
    assert_eq!(told(&guard(&serving, "", 6)), ["busy  "]);
    assert_eq!(hold(&serving, "web-3").await, (Value::Null, Value::Null), "nothing is written");
    serving.cluster.etcd.delete(&lock).await;
    wait_until("the hold is restored", DEADLINE, async || {
        let found = hold(&serving, "web-3").await;
        if found == held("10.96.1.4") { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;

    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon("renumber rollback --yes --linger 0 --confirm flags").expect(0);
    for (file, child) in &mut guards {
        wait_for(&serving, file, "\"ended\"").await;
        assert!(child.wait().expect("a child").success(), "{file}");
    }
    assert_eq!(serving.cluster_ip("web-3").await, "10.96.1.4");
    assert_eq!(hold(&serving, "web-3").await, (Value::Null, Value::Null));
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// A shadow that a client deletes through the API is recreated, its address first. A shadow whose Service was changed is changed
/// in the same way, through the API.
#[tokio::test]
async fn guard_recreates_a_deleted_shadow() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.2.9"});
    serving.cluster.create_echo_service("np", &json!({"app": "web"}), &spec).await;
    serving.apply("").await;
    let labelled = "/api/v1/services?labelSelector=app.kubernetes.io/managed-by%3Dnetsurgeon";
    let shadows = serving.cluster.api.list(labelled).await;
    let name = shadows[0]["metadata"]["name"].as_str().expect("a name").to_string();
    assert_eq!((shadows.len(), &shadows[0]["spec"]["clusterIP"]), (1, &json!("10.96.2.9")));
    serving.cluster.api.delete(&path(&name)).await;
    let twice = ["repaired address-kept default/np", "repaired shadow-put-back default/np"];
    assert_eq!(told(&guard(&serving, "", 0)), twice, "its address, then the shadow itself");
    assert_eq!(serving.cluster_ip(&name).await, "10.96.2.9");
    serves(&serving, "10.96.2.9").await;
    serving.netsurgeon("renumber verify").expect(0);

    serving.cluster.api.merge(&path("np"), &json!({"spec": {"selector": {"app": "web", "tier": "a"}}})).await;
    assert_eq!(told(&guard(&serving, "--dry-run", 3)), ["would-repair shadow-follows default/np"]);
    let elsewhere = guard(&serving, "--kubeconfig /nonexistent", 3);
    assert_eq!(told(&elsewhere), ["wrong shadow-behind default/np"], "the repair needs the API");
    assert_eq!(told(&guard(&serving, "", 0)), ["repaired shadow-follows default/np"]);
    let ports = json!([{"name": "tcp", "port": 8080, "targetPort": PORT}, {"name": "more", "port": 9090}]);
    let change = json!({"spec": {"selector": {"app": "web", "tier": null}, "ports": ports}});
    serving.cluster.api.merge(&path("np"), &change).await;
    assert_eq!(told(&guard(&serving, "", 0)), ["repaired shadow-follows default/np"]);
    let spec = serving.cluster.api.get(&path(&name)).await["spec"].clone();
    assert_eq!(spec["selector"], json!({"app": "web"}));
    assert_eq!((&spec["ports"][0]["port"], &spec["ports"][1]["port"]), (&json!(8080), &json!(9090)));
    assert_eq!(spec["clusterIP"], "10.96.2.9");
    assert_eq!(guard(&serving, "", 0), Vec::<Value>::new());
    serving.cluster.api.delete(&path("np")).await;
    assert_eq!(told(&guard(&serving, "", 0)), ["repaired hold-given-up default/np"]);
    assert_eq!(serving.cluster.api.find(&path(&name)).await, None);
}
