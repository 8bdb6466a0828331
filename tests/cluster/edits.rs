//! Real API servers on an etcd that netsurgeon has edited: they serve what was planned, accept an update of every object, and
//! find nothing to repair.
//!
//! The API server is stopped while the executor runs the steps of a live run on the real etcd; what API server, operators and
//! controllers would do meanwhile is simulated.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use netsurgeon::encryption::Keyring;
use netsurgeon::operation::{Executor, Journal, Plan, Silent, Summary, SystemAmbient};
use netsurgeon::renumber::simulate::Simulation;
use netsurgeon::renumber::{Move, PlanOptions, Renumbering, plan};
use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::seal::{Seal, Sealed};
use netsurgeon::survey::audit::audit_beside;
use netsurgeon::survey::{Layout, Ours, Severity, Survey};
use serde_json::{Value, json};

use super::rig::api::object_path;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::etcd::Etcd;
use super::rig::process::wait_until;

#[path = "../fixtures/services.rs"]
mod services;

const TO: &str = "10.200.0.0/16";

/// How long controllers may take for a ServiceCIDR, which needs about a second.
const CONTROLLERS: Duration = Duration::from_mins(1);

/// How far the plan runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// All Services have moved, and all old addresses are held.
    Held,
    /// The old addresses are retired.
    Retired,
}

#[tokio::test]
async fn api_server_serves_edited_objects_era() {
    held_and_retired(&ClusterOptions::new(Era::Objects)).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn api_server_serves_edited_dual_write_era() {
    held_and_retired(&ClusterOptions::new(Era::DualWrite)).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn api_server_serves_edited_bitmap_era() {
    held_and_retired(&ClusterOptions::new(Era::Bitmap)).await;
}

#[tokio::test]
async fn api_server_serves_edited_json_storage() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.api_server_flags = vec!["--storage-media-type=application/json".to_owned()];
    held_and_retired(&options).await;
}

async fn held_and_retired(options: &ClusterOptions) {
    for until in [Until::Held, Until::Retired] {
        edited(options.clone(), until, || {}).await;
    }
}

/// Runs a move while no API server runs; `meanwhile` is called first. Returns the cluster after it, and the plan.
pub(crate) async fn edited(
    options: ClusterOptions,
    until: Until,
    meanwhile: impl FnOnce(),
) -> (Cluster, Plan<Renumbering>) {
    let era = options.era;
    let mut cluster = Cluster::start(options).await;
    furnish(&cluster).await;
    let before = event_names(&cluster).await;
    cluster.stop_controllers();
    cluster.stop_api_servers();
    meanwhile();
    let plan = carry_out(&cluster, until).await;
    let log_before = log(&cluster).len();
    cluster.set_service_cidrs(TO);
    cluster.start_api_servers().await;
    cluster.start_controllers();
    let context = format!("{era:?}, {until:?}");
    assert_served(&cluster, &plan, &context).await;
    let fresh = cluster.api.create_service("shop", "fresh", json!({"ports": [{"port": 80}]})).await;
    let address = fresh["spec"]["clusterIP"].as_str().unwrap_or_default();
    assert!(address.starts_with("10."), "{context}: `{address}`");
    // Or it could be the last Service of the old range, which a sweep would have to move.
    cluster.api.delete("/api/v1/namespaces/shop/services/fresh").await;
    if until == Until::Retired && era != Era::Bitmap {
        close_old_range(&cluster, &plan).await;
    }
    let ours = if until == Until::Held { plan.work.ours() } else { Ours::default() };
    assert_no_findings(&cluster, &ours, &context).await;
    assert_events_explained(&cluster, &before, &plan, era, until).await;
    let log = log(&cluster).split_off(log_before);
    for line in log.lines() {
        let bad = ["panic", "unable to decode", "decode error", "failed to decode", "invalid wire"];
        assert!(!bad.iter().any(|word| line.contains(word)), "{context}: {line}");
    }
    (cluster, plan)
}

async fn furnish(cluster: &Cluster) {
    for namespace in ["shop", "payments", "monitoring"] {
        cluster.api.create_namespace(namespace).await;
    }
    // Services with a given address first: the API server could choose that address for another one.
    let mut services = services::all();
    services.sort_by_key(|service| service["spec"]["clusterIP"].is_null());
    for service in services {
        // An applied object has managed fields, which an edit must keep.
        if service["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gitops" {
            cluster.api.apply(&service).await;
        } else {
            cluster.api.create(&service).await;
        }
    }
}

/// Returns a store for the product, as a user of this etcd would configure it.
pub(crate) async fn store_of(etcd: &Etcd) -> EtcdStore {
    let mut options = EtcdOptions::new([etcd.endpoint()]);
    if let Some(tls) = etcd.tls() {
        options.ca_cert = Some(tls.authority.clone());
        options.cert = Some(tls.client.certificate.clone());
        options.key = Some(tls.client.key.clone());
    }
    EtcdStore::connect(options).await.expect("a connection")
}

/// The same for a cluster that may encrypt: with the file of its API servers.
pub(crate) async fn opened(cluster: &Cluster) -> Sealed<EtcdStore> {
    let flags = &cluster.api_servers[0].options.flags;
    let file = flags.iter().find_map(|flag| flag.strip_prefix("--encryption-provider-config="));
    let seal = file.map(|file| {
        let text = std::fs::read_to_string(file).expect("a file");
        let keyring = Keyring::parse(&text, "/registry", rand::fill).expect("a configuration");
        Arc::new(keyring) as Arc<dyn Seal>
    });
    Sealed::new(store_of(&cluster.etcd).await, seal)
}

pub(crate) fn options() -> PlanOptions {
    let to = TO.parse().expect("a range");
    PlanOptions { batch_size: 7, ..PlanOptions::new(to) }
}

/// Runs the renumbering in etcd.
async fn carry_out(cluster: &Cluster, until: Until) -> Plan<Renumbering> {
    let store = opened(cluster).await;
    let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
    let plan = plan(&survey, &options()).expect("a plan");
    let text = serde_json::to_vec(&plan).expect("a plan serialises");
    let summary = Summary {
        kind: plan.header.kind.clone(),
        digest: plan.digest.clone(),
        started: 0,
        ..Summary::default()
    };
    let cluster = &plan.header.cluster;
    let mut journal =
        Journal::begin(&store, cluster, "edited", &text, summary, &[]).await.expect("a journal");
    let world = Simulation::new(&store, &plan.work, &SystemAmbient);
    let mut silent = Silent;
    let ledger = journal.in_store(&store, &[]);
    let mut executor = Executor::new(&ledger, &world, &SystemAmbient, &mut silent, &mut journal);
    let end = if until == Until::Held { plan.work.no_return_stage() } else { None };
    let report = executor.run(&plan.work, end).await.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.done > plan.work.moves.len() && plan.work.moves.len() > 15, "{report:?}");
    plan
}

/// Every Service has its planned address and accepts updates; so does every shadow.
async fn assert_served(cluster: &Cluster, plan: &Plan<Renumbering>, context: &str) {
    let api = &cluster.api;
    for candidate in &plan.work.moves {
        let path = format!("/api/v1/namespaces/{}/services/{}", candidate.namespace, candidate.name);
        let service = api.get(&path).await;
        assert_eq!(service["spec"]["clusterIPs"], json!(candidate.new), "{context}: {path}");
        assert_eq!(service["spec"]["clusterIP"], json!(candidate.new[0]), "{context}: {path}");
    }
    let mut shadows = 0;
    for mut service in api.list("/api/v1/services").await {
        service["apiVersion"] = json!("v1");
        service["kind"] = json!("Service");
        let path = object_path(&service);
        shadows += usize::from(path.contains("/netsurgeon-"));
        let patched = api.merge(&path, &json!({"metadata": {"labels": {"touched": "yes"}}})).await;
        assert_eq!(patched["metadata"]["labels"]["touched"], "yes", "{context}: {path}");
        let read = api.get(&path).await;
        let replaced = api.replace(&read).await;
        assert_eq!(replaced["spec"], read["spec"], "{context}: {path}");
        assert_eq!(replaced["metadata"]["uid"], service["metadata"]["uid"], "{context}: {path}");
    }
    println!("{context}: {} Services, {shadows} shadows", plan.work.moves.len());
}

/// The manual steps of the plan: the old range is deleted, the API server creates it again from its flag, and the temporary range
/// is deleted.
async fn close_old_range(cluster: &Cluster, plan: &Plan<Renumbering>) {
    let api = &cluster.api;
    let all = "/apis/networking.k8s.io/v1/servicecidrs";
    let all =
        if plan.work.api_version.ends_with("v1beta1") { all.replace("v1/", "v1beta1/") } else { all.into() };
    api.delete(&format!("{all}/kubernetes")).await;
    wait_until("ServiceCIDR kubernetes has the new range", CONTROLLERS, async || {
        match api.find(&format!("{all}/kubernetes")).await {
            Some(cidr) if cidr["spec"]["cidrs"] == json!([TO]) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for cidr in api.list(&all).await {
        let name = cidr["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if name != "kubernetes" {
            api.delete(&format!("{all}/{name}")).await;
            wait_until("the temporary ServiceCIDR is deleted", CONTROLLERS, async || {
                api.find(&format!("{all}/{name}")).await.map_or(Ok(()), |cidr| Err(cidr.to_string()))
            })
            .await;
        }
    }
    let late = api.create_service("shop", "late", json!({"ports": [{"port": 80}]})).await;
    let address = late["spec"]["clusterIP"].as_str().unwrap_or_default();
    assert!(address.starts_with("10.200."), "`{address}` is of the new range");
}

async fn assert_no_findings(cluster: &Cluster, ours: &Ours, context: &str) {
    let store = opened(cluster).await;
    let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
    let findings = audit_beside(ours, &survey);
    let errors: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{context}: {errors:#?}");
    for finding in findings {
        println!("{context}: {} {}: {}", finding.severity, finding.subject, finding.message);
    }
}

async fn event_names(cluster: &Cluster) -> BTreeSet<String> {
    let events = cluster.api.list("/api/v1/events").await;
    events.iter().map(|event| event["metadata"]["name"].to_string()).collect()
}

/// New events about addresses: none, except for two kinds. In the bitmap era the API server must report that held addresses
/// are out of its range, by design. For a Service that the API server itself has just created it may report that the address is
/// not allocated: on any cluster, its repair loop can read the Service before the IPAddress.
async fn assert_events_explained(
    cluster: &Cluster,
    before: &BTreeSet<String>,
    plan: &Plan<Renumbering>,
    era: Era,
    until: Until,
) {
    let about_addresses = |event: &Value| {
        let reason = event["reason"].as_str().unwrap_or_default();
        ["ClusterIP", "IPAddress", "Unknown"].iter().any(|start| reason.starts_with(start))
    };
    let held: Vec<&str> =
        plan.work.moves.iter().filter_map(|m| m.shadow.as_ref()).map(|s| s.hold_name.as_str()).collect();
    let mut explained = 0;
    for event in cluster.api.list("/api/v1/events").await {
        if before.contains(&event["metadata"]["name"].to_string()) || !about_addresses(&event) {
            continue;
        }
        let name = event["involvedObject"]["name"].as_str().unwrap_or_default();
        let by_design = era == Era::Bitmap
            && until == Until::Held
            && event["reason"] == "ClusterIPOutOfRange"
            && held.contains(&name);
        let message = event["message"].as_str().unwrap_or_default();
        let before_the_move = |m: &Move| m.name == name && message.contains(&m.old_address.to_string());
        let own_race = event["reason"] == "ClusterIPNotAllocated"
            && (["fresh", "late"].contains(&name) || plan.work.moves.iter().any(before_the_move));
        assert!(
            by_design || own_race,
            "{era:?}, {until:?}: {} {name}: {}",
            event["reason"],
            event["message"]
        );
        explained += 1;
    }
    println!("{era:?}, {until:?}: {explained} events, all explained");
}

fn log(cluster: &Cluster) -> String {
    let file = cluster.directory().join("apiserver-0.log");
    String::from_utf8_lossy(&std::fs::read(file).expect("the log can be read")).into_owned()
}
