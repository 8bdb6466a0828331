//! A hostile tenant: with the role `edit` in a namespace, and every permission in `default` except for Secrets, it forges the
//! objects that netsurgeon works with, and stores very large objects, while a renumbering runs.

use serde_json::{Value, json};

use super::rig::api::Api;
use super::rig::cluster::Era;
use super::rig::memory::{take_peak, under_time};
use super::rig::proxy::ProxyMode;
use super::serving_cluster::{NEW_RANGE, Run, Serving, lines_of, run};

/// Characters that clear a screen, reverse text, and start a line.
const HOSTILE: &str = "\u{1b}[2J\u{9b}31m\u{202e}\nerror: all is lost\u{7}";
/// Whole megabytes that it stores.
const LARGE: usize = 40;

/// The memory limit of each command, in KiB.
const MEMORY: u64 = 200 * 1024;
/// The largest ConfigMap, and the largest of any object, of which etcd accepts 1.5 MiB.
const LARGEST_MAP: usize = 1_040_000;
const LARGEST: usize = 1_400_000;

/// The tenant: its own namespace, and all of `default` except Secrets.
async fn tenant(serving: &Serving) -> Api {
    let cluster = &serving.cluster;
    cluster.api.create_namespace("tenant").await;
    let group = "rbac.authorization.k8s.io";
    let own = json!({"apiGroup": group, "kind": "User", "name": "mallory"});
    // A controller that the rig does not run aggregates `edit`; these are its permissions that matter here.
    let core = [
        "services",
        "configmaps",
        "endpoints",
        "events",
        "pods",
        "persistentvolumeclaims",
        "serviceaccounts",
    ];
    let rules = json!([
        {"apiGroups": [""], "resources": core, "verbs": ["*"]},
        {"apiGroups": ["apps", "batch", "networking.k8s.io", "discovery.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    ]);
    for namespace in ["tenant", "default"] {
        let meta = json!({"name": "mallory", "namespace": namespace});
        let role =
            json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": meta, "rules": rules});
        cluster.api.create(&role).await;
        let role = json!({"apiGroup": group, "kind": "Role", "name": "mallory"});
        cluster
            .api
            .create(&json!({
                "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [own],
            }))
            .await;
    }
    cluster.api_as(0, "mallory", None).await
}

fn service(namespace: &str, name: &str, labels: &Value, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels,
            "annotations": {"netsurgeon.io/stands-in-for": "web", "netsurgeon.io/operation": "mine", "note": HOSTILE},
        },
        "spec": {"ports": [{"port": 80}], "selector": {"app": "mallory"}, "clusterIP": address},
    })
}

/// Forges every mark by which netsurgeon recognises its own objects.
async fn forge(mallory: &Api) {
    let ours = |part: &str| json!({"app.kubernetes.io/managed-by": "netsurgeon", "netsurgeon.io/part": part});
    for (namespace, name, part, address) in [
        // A sentinel of a barrier, one of a shadow, and one with the address that a Service is about to get.
        ("tenant", "netsurgeon-sentinel", "barrier", ""),
        ("default", "web-netsurgeon-hold", "shadow", "10.96.9.9"),
        ("default", "netsurgeon-barrier", "barrier", ""),
        ("tenant", "squatter", "shadow", "10.96.200.5"),
    ] {
        mallory.create(&service(namespace, name, &ours(part), address)).await;
    }
    let slice = |name: &str, of: &str| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": of}},
            "endpoints": [{"addresses": ["192.0.2.66"], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
        })
    };
    mallory.create(&slice("kubernetes-forged", "kubernetes")).await;
    for (name, key) in [
        ("evidence-node-1", "evidence.json"),
        ("netsurgeon-lock", "lock"),
        ("netsurgeon-journal", "intention"),
    ] {
        let data =
            json!({key: "{\"version\":1,\"node\":\"node-1\",\"old\":[],\"used\":[],\"complete\":true}"});
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": name, "namespace": "tenant", "labels": ours("evidence")},
        });
        mallory.create(&config).await;
    }
    for path in ["/api/v1/namespaces/default/secrets", "/api/v1/namespaces/kube-system/services"] {
        let list = mallory.request(http::Method::GET, path, "application/json", None).await;
        assert!(list.is_err(), "the tenant is not allowed to read {path}");
    }
}

/// Stores old addresses repeatedly, and characters that control a terminal.
async fn flood(mallory: &Api, maps: usize) {
    let old = "10.96.0.1 ".repeat(LARGEST_MAP / 10);
    for number in 0..maps {
        let (name, text) =
            (format!("flood-{number:05}"), if number < LARGE { old.as_str() } else { "10.96.0.1" });
        mallory
            .create(&json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": text},
                "metadata": {"name": name, "namespace": "tenant", "annotations": {"note": HOSTILE}},
            }))
            .await;
    }
    let args = [HOSTILE, "10.96.0.1", &"10.96.0.1 ".repeat(LARGEST / 10)];
    let template = json!({
        "metadata": {"labels": {"app": "hostile"}},
        "spec": {"containers": [{"name": "a", "image": "a", "args": args, "env": [{"name": "A", "value": HOSTILE}]}]},
    });
    mallory
        .create(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "hostile", "namespace": "tenant"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "hostile"}}, "template": template},
        }))
        .await;
}

/// Runs the program, and also returns its memory in KiB.
fn measured(serving: &Serving, words: &str) -> (Run, u64) {
    let mut run = run(words, under_time(&serving.command(words)));
    let memory = take_peak(&mut run.err);
    (run, memory)
}

fn assert_harmless(text: &str) {
    let is_harmful =
        |c: char| (c.is_control() && c != '\n' && c != '\t') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.contains(is_harmful), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("error: all is lost")), "{text}");
}

#[tokio::test]
async fn tenant_hijacks_nothing_and_stops_nothing() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let mallory = tenant(&serving).await;
    let probe = serving.probe(&Serving::targets()).await;
    let mut applying = serving.start_slow_apply();
    serving.wait_for_records(&mut applying, "flip", 1).await;
    forge(&mallory).await;
    assert_eq!(applying.end().await, 6, "{:?}", lines_of(&applying.err));
    assert_harmless(&lines_of(&applying.err).join("\n"));

    let maps = if std::env::var_os("NETSURGEON_SOAK").is_some() { 10_000 } else { 5 };
    flood(&mallory, maps).await;
    serving.restart_with(NEW_RANGE).await;
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    assert_eq!(serving.cluster_ip("web").await, "10.200.0.5");
    serving.assert_unbroken(&probe.stop(), &Serving::targets());
    // The tenant's own objects are as the tenant created them: moved like all others, or kept.
    let squatter = serving.cluster.api.get("/api/v1/namespaces/tenant/services/squatter").await;
    assert_eq!(squatter["spec"]["clusterIP"], "10.200.200.5", "it moved as every Service does");

    for words in [
        "audit --old 10.96.0.0/16",
        "audit --old 10.96.0.0/16 -o json",
        "ranges check",
        "renumber status",
        "inspect get /registry/configmaps/tenant/flood-00000",
        "inspect list /registry/configmaps/tenant/",
        "preflight renumber --to 10.210.0.0/16",
    ] {
        let (run, memory) = measured(&serving, words);
        assert!(memory < MEMORY, "`{words}` took {memory} KiB");
        assert_harmless(&run.out);
        assert_harmless(&run.err);
        assert!([0, 1, 3].contains(&run.code), "`{words}` ended with {}", run.code);
        if words.starts_with("audit") {
            assert_eq!(run.code, 3, "{}", run.err);
        }
        if words.ends_with("-o json") {
            let left_out = run.json()["not_listed"]["count"].as_u64();
            assert!(left_out > Some(0), "{}", run.err);
        }
    }
    serving.retire();
    serving.wait_for_one_range().await;
}

/// A Service with so many ports that etcd just accepts it.
fn heavy(name: &str) -> Value {
    let ports: Vec<Value> =
        (1..=PORTS).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "tenant"},
        "spec": {"ports": ports},
    })
}

/// The stored value of one Service, its managed fields included, is then 1.4 MiB.
const PORTS: usize = 10_800;

#[tokio::test]
#[ignore = "minutes, in `make soak`: needs `make rig` and root"]
async fn service_as_large_as_etcd_accepts_stops_nothing() {
    large_services_move("external-ip").await;
}

#[tokio::test]
async fn shadow_of_a_service_as_large_as_etcd_accepts_stops_nothing() {
    large_services_move("shadow").await;
}

async fn large_services_move(hold: &str) {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let mallory = tenant(&serving).await;
    mallory.create(&heavy("early")).await;
    let stored = serving
        .cluster
        .etcd
        .get("/registry/services/specs/tenant/early")
        .await
        .expect("the Service is stored");
    println!("{} bytes are stored", stored.len());
    let mut applying =
        serving.start_netsurgeon(&format!("{} --rate 20 --hold {hold}", serving.apply_words()));
    serving.wait_for_records(&mut applying, "flip", 1).await;
    mallory.create(&heavy("late")).await;
    mallory.create(&heavy("later")).await;
    assert_eq!(applying.end().await, 6, "{:?}", lines_of(&applying.err));
    serving.restart_with(NEW_RANGE).await;
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    serving.restart_with("10.96.0.0/16").await;
    serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    // A Service that was created in the new range, as any client can once that is open, keeps the range open.
    for name in ["early", "late", "later"] {
        mallory.delete(&format!("/api/v1/namespaces/tenant/services/{name}")).await;
    }
    serving.wait_for_one_range().await;
}
