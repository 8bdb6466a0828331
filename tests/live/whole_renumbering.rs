//! A renumbering on a running cluster: through its API servers, its etcd and its kube-proxies, forward until the old addresses
//! are held, and back.

use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use netsurgeon::kube_api::Cluster as Api;
use netsurgeon::operation::{
    Answer, Applied, Doing, Environment as _, Executor, Fence, Journal, LeaseHolder, Manual, Observed,
    OperationError, Plan, Silent, StepFault, StepId, Stop, SystemAmbient, Wait, Work,
};
use netsurgeon::renumber::environment::{Approver, LiveEnvironment, LiveOptions};
use netsurgeon::renumber::{Awaited, Effect, PlanOptions, Renumbering, plan};
use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::{Guard, ReadStore as _, Revision};
use netsurgeon::survey::audit::audit_beside;
use netsurgeon::survey::{Layout, Severity, Survey};
use serde_json::{Value, json};

use super::api_servers::admin;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::pods::Pod;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::run::says;

/// Gives the same answer to every question, and records the questions.
struct Says(Answer, Mutex<Vec<String>>);

impl Says {
    fn new(answer: Answer) -> Self {
        Self(answer, Mutex::default())
    }

    fn asked(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

#[async_trait]
impl Approver for Says {
    async fn confirm(&self, manual: &Manual, _back: bool) -> Result<Answer, StepFault> {
        self.1.lock().unwrap().push(manual.what.clone());
        Ok(self.0.clone())
    }
}

async fn planned(cluster: &Cluster) -> (EtcdStore, Plan<Renumbering>) {
    let store = EtcdStore::connect(EtcdOptions::new([cluster.etcd.endpoint()])).await.expect("a connection");
    let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
    let to = "10.200.0.0/16".parse().expect("a range");
    let options = PlanOptions { batch_size: 3, ..PlanOptions::new(to) };
    let plan = plan(&survey, &options).expect("a plan");
    (store, plan)
}

fn world<'a>(
    api: &'a Api,
    store: &'a EtcdStore,
    plan: &'a Plan<Renumbering>,
    approver: &'a Says,
) -> LiveEnvironment<'a> {
    let options = LiveOptions { linger: Duration::ZERO, ..LiveOptions::new("test") };
    LiveEnvironment { cluster: api, store, work: &plan.work, approver, options }
}

/// Services with a Pod behind them; if requested, with one whose address a shadow holds.
async fn furnish(cluster: &Cluster, with_shadow: bool) -> Vec<Pod> {
    let mut pods = Vec::new();
    for (name, node) in [("web", 0), ("edge", 1)] {
        let labels = json!({"app": name});
        cluster.create_echo_service(name, &labels, &json!({})).await;
        pods.push(cluster.create_pod(node, name, &labels).await);
    }
    if with_shadow {
        let node_port = json!({"type": "NodePort"});
        cluster.create_echo_service("np", &json!({"app": "edge"}), &node_port).await;
    }
    for number in 0..6 {
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
        cluster.api.create_service("default", &format!("more-{number}"), spec).await;
    }
    pods
}

async fn events(cluster: &Cluster) -> Vec<String> {
    let events = cluster.api.list("/api/v1/events").await;
    let text = |event: &Value| {
        let (about, time) = (&event["involvedObject"]["name"], &event["metadata"]["creationTimestamp"]);
        format!("{} {} ({about}, {time})", event["reason"], event["message"]).replace('"', "")
    };
    events.iter().map(text).filter(|text| text.contains("ClusterIP")).collect()
}

#[tokio::test]
async fn renumber_and_rollback_succeed_in_the_objects_era() {
    there_and_back(Era::Objects, ProxyMode::Nftables, "flags", false).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn renumber_and_rollback_succeed_in_the_dual_write_era() {
    there_and_back(Era::DualWrite, ProxyMode::Iptables, "flags", false).await;
}

/// With the creation of a shadow, its endpoints, and its deletion. The repair loops may report that two Services have an address,
/// but never that one has lost its own.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn renumber_and_rollback_succeed_with_a_shadow() {
    there_and_back(Era::Objects, ProxyMode::Iptables, "flags", true).await;
}

fn claim() -> LeaseHolder {
    LeaseHolder::of_this_process("test", "renumber", 0)
}

/// The flag of every API server would change after the moves; here it does not, so the operation turns there.
async fn there_and_back(era: Era, mode: ProxyMode, until: &str, with_shadow: bool) {
    let options = ClusterOptions { api_servers: 2, nodes: 2, ..ClusterOptions::new(era) };
    let cluster = Cluster::start(options).await;
    let _proxies = cluster.start_proxies(mode).await;
    let _pods = furnish(&cluster, with_shadow).await;
    let before = cluster.api.list("/api/v1/services").await;
    let before_events = events(&cluster).await;
    let started = time::OffsetDateTime::now_utc();
    let (store, plan) = planned(&cluster).await;
    let api = admin(&cluster).await;
    let approver = Says::new(Answer::Confirmed);
    let world = world(&api, &store, &plan, &approver);
    let mut journal =
        Journal::begin_plan(&store, &plan, &claim(), Value::Null, &[]).await.expect("a journal");
    let mut silent = Silent;
    let ledger = journal.in_store(&store, &[]);
    let mut executor = Executor::new(&ledger, &world, &SystemAmbient, &mut silent, &mut journal);
    let end = plan.work.stages().iter().find(|stage| stage.name == until).map(|stage| stage.index);
    let clock = Instant::now();
    let report = executor.run(&plan.work, end).await.unwrap_or_else(|failure| panic!("{failure}"));
    let (moves, batches) = (plan.work.moves.len(), plan.work.batches().len());
    println!("{era:?}: {moves} moves, {batches} batches, {} steps in {:?}", report.done, clock.elapsed());
    for candidate in &plan.work.moves {
        let path = format!("/api/v1/namespaces/{}/services/{}", candidate.namespace, candidate.name);
        assert_eq!(cluster.api.get(&path).await["spec"]["clusterIPs"], json!(candidate.new), "{path}");
    }
    assert!(approver.asked().iter().any(|what| what.contains("snapshot")), "{:?}", approver.asked());
    let survey = Survey::read(&store, &Layout::default(), None).await.expect("a survey");
    let mut findings = audit_beside(&plan.work.ours(), &survey);
    findings.retain(|finding| finding.severity != Severity::Info);
    println!("{era:?}: findings {findings:?}");
    // Under dual write the bits of the old range are left until the bitmap gets the new one.
    assert!(era == Era::DualWrite || findings.is_empty(), "{findings:?}");

    let clock = Instant::now();
    let report = executor.unwind(&plan.work).await.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{era:?}: {} steps back in {:?}", report.done, clock.elapsed());
    assert_eq!(report.stuck, [], "{era:?}");
    wait_until("every Service is as it was", Duration::from_mins(1), async || {
        let now = cluster.api.list("/api/v1/services").await;
        let specs = |services: &[Value]| -> Vec<(String, Value)> {
            services.iter().map(|s| (s["metadata"]["name"].to_string(), s["spec"].clone())).collect()
        };
        if specs(&now) == specs(&before) { Ok(()) } else { Err(format!("{:?}", specs(&now))) }
    })
    .await;
    let new: Vec<String> =
        events(&cluster).await.into_iter().filter(|event| !before_events.contains(event)).collect();
    println!("{era:?}: started at {started}, new events {new:#?}");
    // About objects that one API server has just created, sentinels and shadows, the other one may report this: it may get a
    // Service before it gets the Service's address.
    let moves = plan.work.moves.iter();
    let addresses: Vec<String> = moves
        .flat_map(|one| [one.old_address, one.new_address])
        .map(|address| format!(" {address} "))
        .collect();
    let has_lost = |event: &&String| {
        event.contains("NotAllocated") && addresses.iter().any(|address| event.contains(address.as_str()))
    };
    assert!(!new.iter().any(|event| has_lost(&event)), "{new:#?}");
}

/// Without an answer the operation pauses at the first manual step, and continues from there.
#[tokio::test]
async fn operation_pauses_at_a_manual_step() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let (store, plan) = planned(&cluster).await;
    let api = admin(&cluster).await;
    let mut journal =
        Journal::begin_plan(&store, &plan, &claim(), Value::Null, &[]).await.expect("a journal");
    for (answer, paused) in [(Answer::Open, true), (Answer::Confirmed, false)] {
        let approver = Says::new(answer);
        let world = world(&api, &store, &plan, &approver);
        let mut silent = Silent;
        let ledger = journal.in_store(&store, &[]);
        let mut executor = Executor::new(&ledger, &world, &SystemAmbient, &mut silent, &mut journal);
        let outcome = executor.run(&plan.work, Some(1)).await;
        let is_paused =
            matches!(&outcome, Err(failure) if matches!(failure.source, OperationError::Paused { .. }));
        assert_eq!(is_paused, paused, "{outcome:?}");
    }
}

fn doing(effect: &Effect, back: bool) -> Doing<'_, Effect> {
    static STEP: LazyLock<StepId> = LazyLock::new(|| StepId("make-shadow/default/a".into()));
    static NEVER: LazyLock<Stop> = LazyLock::new(Stop::never);
    let (before, made) = (Value::Null, Value::Null);
    Doing { step: &STEP, effect, back, before, made, records: &|_| None, fence: &Held, stop: &NEVER }
}

/// The fence of a process that holds its operation.
struct Held;

#[async_trait]
impl Fence for Held {
    async fn still_ours(&self) -> Result<(), StepFault> {
        Ok(())
    }
}

/// A matching object is distinguished from a different one, and only netsurgeon's own object is deleted.
#[tokio::test]
async fn matching_and_foreign_objects_are_distinguished() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let (store, plan) = planned(&cluster).await;
    let api = admin(&cluster).await;
    let approver = Says::new(Answer::Open);
    let world = world(&api, &store, &plan, &approver);
    let manifest = |name: &str, port: u16, ours: bool| {
        let labels = json!({"app.kubernetes.io/managed-by": if ours { "netsurgeon" } else { "gitops" }});
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default", "uid": "", "labels": labels},
            "spec": {"ports": [{"port": port}], "selector": {"app": "a"}},
        })
    };
    let of = |name: &str, port: u16| Effect::Create { manifest: manifest(name, port, true) };
    assert_eq!(world.observe(&doing(&of("a", 80), false)).await.unwrap(), Observed::NotDone);
    let Applied::Made(made) = world.apply(&doing(&of("a", 80), false)).await.unwrap() else { panic!("made") };
    // A matching object counts as created, but not as created by this process.
    let found = json!({"uid": made["uid"], "revision": null});
    assert_eq!(world.apply(&doing(&of("a", 80), false)).await.unwrap(), Applied::Made(found.clone()));
    assert_eq!(world.observe(&doing(&of("a", 80), false)).await.unwrap(), Observed::Done(found));
    let error = world.apply(&doing(&of("a", 81), false)).await.unwrap_err().to_string();
    says(&error, &["`spec.ports[0].port`", "`80`", "`81`"]);
    let observed = world.observe(&doing(&of("a", 81), false)).await.unwrap();
    assert!(matches!(observed, Observed::Changed(_)));

    // A process that has lost the operation lease, for example while it was suspended, creates and deletes nothing.
    let lost = vec![Guard::SameCreation("/netsurgeon/c/lock".into(), Revision(1))];
    let fenced = LiveEnvironment { options: LiveOptions { guards: lost, ..LiveOptions::new("op") }, ..world };
    for (name, back) in [("b", false), ("a", true)] {
        let error = fenced.apply(&doing(&of(name, 80), back)).await.unwrap_err().to_string();
        says(&error, &["no longer holds the operation lease"]);
    }

    assert_eq!(world.observe(&doing(&of("a", 80), true)).await.unwrap(), Observed::NotDone);
    world.apply(&doing(&of("a", 80), true)).await.unwrap();
    world.apply(&doing(&of("a", 80), true)).await.unwrap();
    assert!(matches!(world.observe(&doing(&of("a", 80), true)).await.unwrap(), Observed::Done(_)));

    cluster.api.create(&manifest("theirs", 80, false)).await;
    let error = world.apply(&doing(&of("theirs", 80), true)).await.unwrap_err().to_string();
    says(&error, &["theirs", "`app.kubernetes.io/managed-by: netsurgeon`"]);
    let observed = world.observe(&doing(&of("theirs", 80), true)).await.unwrap();
    assert!(matches!(observed, Observed::Changed(_)));
}

/// An object that a frozen process created too late, and the progress of the process that resumed.
#[tokio::test]
async fn object_created_too_late_is_deleted() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let (store, plan) = planned(&cluster).await;
    let (api, approver) = (admin(&cluster).await, Says::new(Answer::Open));
    let path = "/api/v1/namespaces/default/services/late";
    let manifest = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "late", "namespace": "default", "labels": {"app.kubernetes.io/managed-by": "netsurgeon"}},
        "spec": {"ports": [{"port": 80}]},
    });
    let create = Effect::Create { manifest };
    let world = world(&api, &store, &plan, &approver);
    let create_it = async || {
        let mut doing = doing(&create, false);
        let Applied::Made(made) = world.apply(&doing).await.unwrap() else { panic!("the object is created") };
        doing.made = made;
        doing
    };
    let before = store.revision().await.unwrap();
    let made = create_it().await;
    let after = store.revision().await.unwrap();
    // The other process completed the step with this object.
    assert!(!world.take_back(&made, Some(Revision(after.0 + 1))).await.unwrap());
    assert!(cluster.api.find(path).await.is_some());
    // The other process completed the step before.
    assert!(world.take_back(&made, Some(before)).await.unwrap());
    assert!(cluster.api.find(path).await.is_none());
    // An object of another client with that name is not touched.
    let made = create_it().await;
    cluster.api.delete(path).await;
    cluster.api.create_service("default", "late", json!({"ports": [{"port": 80}]})).await;
    let _ = world.take_back(&made, None).await;
    assert!(cluster.api.find(path).await.is_some());
}

/// Another process requested a shadow with the same temporary address, lost the lock, and deletes its shadow: until then the
/// address is allocated.
#[tokio::test]
async fn create_waits_for_an_address_that_is_being_released() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let (store, plan) = planned(&cluster).await;
    let (api, approver) = (admin(&cluster).await, Says::new(Answer::Open));
    let world = world(&api, &store, &plan, &approver);
    let spec = json!({"clusterIP": "10.96.9.9", "ports": [{"port": 80}]});
    cluster.api.create_service("default", "late", spec.clone()).await;
    let labels = json!({"app.kubernetes.io/managed-by": "netsurgeon"});
    let metadata = json!({"name": "shadow", "namespace": "default", "labels": labels});
    let create = Effect::Create {
        manifest: json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}),
    };
    let creating = doing(&create, false);
    let given_back = async {
        wait_until("the API server has rejected the request", Duration::from_secs(20), async || {
            let metrics = cluster.ask("/metrics").await?.1;
            let refused = |line: &&str| {
                line.starts_with("apiserver_request_total{")
                    && [r#"code="422""#, r#"resource="services""#, r#"verb="POST""#]
                        .iter()
                        .all(|word| line.contains(word))
            };
            metrics.lines().find(refused).map(drop).ok_or_else(|| "no refusal".to_string())
        })
        .await;
        cluster.api.delete("/api/v1/namespaces/default/services/late").await;
    };
    let (made, ()) = tokio::join!(world.apply(&creating), given_back);
    made.unwrap();
    assert_eq!(
        cluster.api.get("/api/v1/namespaces/default/services/shadow").await["spec"]["clusterIP"],
        "10.96.9.9"
    );
}

/// A range that does not appear is reported with the observed state.
#[tokio::test]
async fn failed_wait_reports_what_it_observed() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let (store, plan) = planned(&cluster).await;
    let api = admin(&cluster).await;
    let approver = Says::new(Answer::Open);
    let mut world = world(&api, &store, &plan, &approver);
    world.options.deadline = Duration::from_secs(2);
    let wait = |kind| Wait { kind, batch: Some(0), subject: None, until: "something is so".into() };
    let error = world.wait(&wait(Awaited::RangeReady), &|_| None).await.unwrap_err().to_string();
    says(&error, &["2 s", "something is so", "192.0.2.10:6443", "netsurgeon-10-200-0-0-16"]);
    let error = world.wait(&wait(Awaited::Barrier), &|_| None).await.unwrap_err().to_string();
    assert!(error.contains("`node-1`"), "without a kube-proxy: {error}");
    // A process that has lost the lock stops waiting.
    world.options = LiveOptions::new("test");
    world.options.guards = vec![Guard::SameCreation("/netsurgeon/test/lock".into(), Revision(1))];
    let error = world.wait(&wait(Awaited::RangeReady), &|_| None).await.unwrap_err().to_string();
    says(&error, &["`/netsurgeon/test/lock`"]);
}
