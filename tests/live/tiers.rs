//! Tiers on a real cluster: the order in which Services really move, by the revisions of their moves, and the backends of the
//! API, found among the objects that a real API server stores.

use std::collections::BTreeMap;

use netsurgeon::renumber::tier::API_BACKENDS;
use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::serving_cluster::{NEW_RANGE, SERVICES, Serving};

const TIERS: [&str; 3] = ["dev", "web", "core"];
/// The object that names each of these Services, which have the tier `dev` by their label.
const BEHIND: [(&str, &str); 4] = [
    ("web-20", "ValidatingWebhookConfiguration"),
    ("web-21", "MutatingWebhookConfiguration"),
    ("web-22", "APIService"),
    ("web-23", "CustomResourceDefinition"),
];

/// None of them is ever called: no client creates the objects that they are for.
fn extension(kind: &str, service: &str) -> Value {
    let reference = json!({"namespace": "default", "name": service, "port": 443});
    let rules = json!([{"apiGroups": ["nothing.example"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["nothings"]}]);
    let webhooks = json!([{"name": "nothing.example.org", "clientConfig": {"service": reference}, "rules": rules,
        "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"]}]);
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let (group, name, more) = match kind {
        "APIService" => (
            "apiregistration",
            "v1.metrics.example",
            json!({"spec": {"group": "metrics.example", "version": "v1", "groupPriorityMinimum": 1000,
                "versionPriority": 10, "insecureSkipTLSVerify": true, "service": reference}}),
        ),
        "CustomResourceDefinition" => (
            "apiextensions",
            "things.example.org",
            json!({"spec": {"group": "example.org", "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
                "versions": [version("v1", true), version("v2", false)],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "clientConfig": {"service": reference}, "conversionReviewVersions": ["v1"]}}}}),
        ),
        _ => ("admissionregistration", "nothing.example.org", json!({"webhooks": webhooks})),
    };
    let version = format!("{group}.k8s.io/v1");
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    for (field, value) in more.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

/// The tier of a Service by its label: against the alphabet, and one without.
fn label_of(number: usize) -> Option<&'static str> {
    match number {
        0..6 => Some("core"),
        6..11 => Some("web"),
        11 => None,
        _ => Some("dev"),
    }
}

async fn furnish(serving: &Serving) {
    let api = &serving.cluster.api;
    for number in 0..SERVICES {
        let path = format!("/api/v1/namespaces/default/services/web-{number}");
        api.merge(&path, &json!({"metadata": {"labels": {"example.org/tier": label_of(number)}}})).await;
    }
    for (service, kind) in BEHIND {
        api.create(&extension(kind, service)).await;
    }
    let dns = json!({"clusterIP": "10.96.0.10", "ports": [{"port": 53, "protocol": "UDP"}]});
    api.create_service("kube-system", "kube-dns", dns).await;
}

/// The expected order of a Service, and its tier.
fn place(service: &str) -> (usize, &'static str) {
    let name = service.split_once('/').expect("a namespace").1;
    if BEHIND.iter().any(|(behind, _)| *behind == name) {
        return (3, API_BACKENDS);
    }
    match name {
        "kube-dns" => (4, ""),
        "kubernetes" => (5, ""),
        "web" => (1, "web"),
        _ => {
            let number = name.trim_start_matches("web-").parse().expect("a number");
            let tier = label_of(number).unwrap_or("web");
            (TIERS.iter().position(|own| *own == tier).expect("a tier"), tier)
        }
    }
}

/// Services in the order in which they got their new address: each with its record, in one transaction.
async fn order_of_moves(serving: &Serving) -> Vec<String> {
    let options = etcd_client::GetOptions::new().with_prefix();
    let found =
        serving.cluster.etcd.client().await.get("/netsurgeon/", Some(options)).await.expect("etcd answers");
    let mut moved = BTreeMap::new();
    for pair in found.kvs() {
        let key = pair.key_str().expect("text");
        if let Some((_, service)) = key.split_once("/steps/flip/") {
            assert!(moved.insert(pair.create_revision(), service.to_string()).is_none(), "one at a time");
        }
    }
    moved.into_values().collect()
}

fn assert_batches(plan: &Value, batch_size: usize) {
    assert_eq!(plan["batch_size"], batch_size);
    for one in plan["moves"].as_array().expect("moves") {
        let subject = format!("{}/{}", one["namespace"].as_str().unwrap(), one["name"].as_str().unwrap());
        assert_eq!(one["tier"].as_str().unwrap_or_default(), place(&subject).1, "{subject}");
    }
}

const FLAGS: &str = "--tiers dev,web,core --tier-label example.org/tier --default-tier web";

#[tokio::test]
async fn least_critical_services_move_first() {
    moved_by_tiers(Era::Objects, ProxyMode::Nftables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn least_critical_services_move_first_under_dual_write() {
    moved_by_tiers(Era::DualWrite, ProxyMode::Iptables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn least_critical_services_move_first_in_the_bitmap_era() {
    moved_by_tiers(Era::Bitmap, ProxyMode::Iptables).await;
}

async fn moved_by_tiers(era: Era, mode: ProxyMode) {
    let mut serving = Serving::start(era, mode).await;
    furnish(&serving).await;
    let folder = serving.cluster.directory().to_path_buf();
    let file = folder.join("plan.json").display().to_string();
    let target = format!("--to {NEW_RANGE} --batch-size 4");
    let refused =
        serving.netsurgeon(&format!("renumber plan {target} {}", FLAGS.replace("dev,", ""))).expect(1);
    says(&refused.err, &["`dev`", "web, core"]);
    let planned = serving.netsurgeon(&format!("renumber plan {target} {FLAGS} --save {file}")).expect(0);
    says(&planned.err, &["dev (8), web (7), core (6), api-backends (4)"]);
    let plan: Value = serde_json::from_slice(&std::fs::read(&file).expect("a plan")).expect("JSON");
    assert_batches(&plan, 4);

    // The saved plan has its tiers: no flag of them here.
    let digest = plan["digest"].as_str().expect("a digest");
    let snapshot = folder.join("before.db").display().to_string();
    let words = format!(
        "renumber apply --plan {file} --approve {digest} --snapshot-to {snapshot} --yes --confirm certificates"
    );
    let operation = serving.apply_with(&words, NEW_RANGE).await;
    let order = order_of_moves(&serving).await;
    println!("in this order: {order:?}");
    assert_eq!(order.len(), SERVICES + 3);
    let places: Vec<usize> = order.iter().map(|service| place(service).0).collect();
    assert!(places.is_sorted(), "{order:?}");
    let shown = serving.netsurgeon(&format!("operation show {operation} -o json")).expect(0).json();
    assert_times(&shown, &order);
    serving.netsurgeon("renumber verify").expect(0);
    seen_afterwards(&serving, &operation);
    serving.retire();
    serving.assert_clean();
}

/// Each tier starts after the previous one, by the times of the moves in whole seconds. The moves of a batch are concurrent, and the
/// time of each is taken before its commit.
fn assert_times(shown: &Value, order: &[String]) {
    let steps = shown["steps"].as_array().expect("steps");
    let done = |service: &String| {
        let step = steps.iter().find(|step| step["step"] == format!("flip/{service}")).expect("a step");
        step["history"][0][1].as_i64().expect("a time")
    };
    let mut ended = 0;
    for tier in order.chunk_by(|one, next| place(one).0 == place(next).0) {
        let times: Vec<i64> = tier.iter().map(done).collect();
        let (first, last) = (times.iter().min().expect("a move"), times.iter().max().expect("a move"));
        assert!(ended <= *first, "{tier:?}: {shown}");
        ended = *last;
    }
}

fn seen_afterwards(serving: &Serving, operation: &str) {
    let status = serving.netsurgeon("renumber status -o json").expect(0).json();
    let tier = |name: &str, held: usize| json!({"name": name, "waiting": 0, "held": held, "retired": 0});
    assert_eq!(
        status["tiers"],
        json!([tier("dev", 8), tier("web", 7), tier("core", 6), tier(API_BACKENDS, 4)])
    );
    let status = serving.netsurgeon("renumber status").expect(0).out;
    says(&status, &["dev 8 of 8, web 7 of 7, core 6 of 6, api-backends 4 of 4"]);
    let file = serving.cluster.directory().join("report.html");
    serving.netsurgeon(&format!("operation report {operation} --html {}", file.display())).expect(0);
    let page = std::fs::read_to_string(&file).expect("a page");
    for name in ["dev", "web", "core", API_BACKENDS] {
        assert!(page.contains(&format!(">tier {name}</text>")), "{name} on the time line");
    }
    std::fs::copy(&file, std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-tiers.html"))
        .expect("a copy");
}

/// Kubernetes 1.32 stores these objects, too; its backends of the API are found without a flag.
#[tokio::test]
async fn api_backends_are_found_in_the_bitmap_era() {
    let serving = Serving::start(Era::Bitmap, ProxyMode::Iptables).await;
    furnish(&serving).await;
    let plan = serving.netsurgeon(&format!("renumber plan --to {NEW_RANGE} -o json")).expect(0).json();
    assert_eq!(plan["tiers"], json!([API_BACKENDS]));
    let moves = plan["moves"].as_array().expect("moves");
    let behind: Vec<&str> = moves
        .iter()
        .filter(|one| one["tier"] == API_BACKENDS)
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(behind, BEHIND.map(|(service, _)| service));
    let last: Vec<&str> = moves.iter().rev().take(6).filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(last, ["kubernetes", "kube-dns", "web-23", "web-22", "web-21", "web-20"]);
}
