//! A renumbering carried out on a cluster that runs: through its API servers, its etcd and its kube-proxies,
//! forward until the old addresses are only held, and back.

use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use netsurgeon::kube_api::Cluster as Api;
use netsurgeon::operation::{
    Answer, Applied, Doing, Environment as _, Executor, Fault, Journal, LeaseHolder, Manual, Observed,
    OperationError, Plan, Silent, StepId, SystemAmbient, Wait, Work,
};
use netsurgeon::renumber::live::{Approver, LiveEnvironment, LiveOptions};
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

/// Says the same to everything, and remembers what was asked.
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
    async fn confirm(&self, manual: &Manual, _back: bool) -> Result<Answer, Fault> {
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

/// Services with a pod behind them; with one whose address a shadow holds, if asked for.
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
async fn objects_era() {
    there_and_back(Era::Objects, ProxyMode::Nftables, "flags", false).await;
}

#[tokio::test]
async fn dual_write_era() {
    there_and_back(Era::DualWrite, ProxyMode::Iptables, "flags", false).await;
}

/// With a shadow's making, its endpoints, and its end. The repair loops may say that two Services have an address,
/// but never that one has lost its own.
#[tokio::test]
async fn with_a_shadow() {
    there_and_back(Era::Objects, ProxyMode::Iptables, "flags", true).await;
}

fn claim() -> LeaseHolder {
    LeaseHolder::of_this_process("test", "renumber", 0)
}

/// Every API server would be told its new flag after the moves; here they are not, so that is where it turns.
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
    let begun = Instant::now();
    let report = executor.run(&plan.work, end).await.unwrap_or_else(|failure| panic!("{failure}"));
    let (moves, batches) = (plan.work.moves.len(), plan.work.batches().len());
    println!("{era:?}: {moves} moves, {batches} batches, {} steps in {:?}", report.done, begun.elapsed());
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

    let begun = Instant::now();
    let report = executor.unwind(&plan.work).await.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{era:?}: {} steps back in {:?}", report.done, begun.elapsed());
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
    println!("{era:?}: begun at {started}, new events {new:#?}");
    // Of what the one API server has just made, sentinels and shadows, the other one may say so: it may hear of a Service
    // before it hears of its address.
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

/// Without an answer the operation pauses at the first thing that others do, and goes on from there.
#[tokio::test]
async fn an_operation_pauses_where_others_must_act() {
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
    let (before, made) = (Value::Null, Value::Null);
    Doing { step: &STEP, effect, back, before, made, records: &|_| None }
}

/// What is there is told from what was asked for, and only what is ours is deleted.
#[tokio::test]
async fn changes_are_observed() {
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
    // What is there as asked for is made, but not known to be made by this process.
    let found = json!({"uid": made["uid"], "revision": null});
    assert_eq!(world.apply(&doing(&of("a", 80), false)).await.unwrap(), Applied::Made(found.clone()));
    assert_eq!(world.observe(&doing(&of("a", 80), false)).await.unwrap(), Observed::Done(found));
    let error = world.apply(&doing(&of("a", 81), false)).await.unwrap_err().to_string();
    assert!(error.contains("`spec.ports[0].port` is `80`, expected `81`"), "{error}");
    let observed = world.observe(&doing(&of("a", 81), false)).await.unwrap();
    assert!(matches!(observed, Observed::Changed(_)));

    assert_eq!(world.observe(&doing(&of("a", 80), true)).await.unwrap(), Observed::NotDone);
    world.apply(&doing(&of("a", 80), true)).await.unwrap();
    world.apply(&doing(&of("a", 80), true)).await.unwrap();
    assert!(matches!(world.observe(&doing(&of("a", 80), true)).await.unwrap(), Observed::Done(_)));
    cluster.api.create(&manifest("theirs", 80, false)).await;
    let error = world.apply(&doing(&of("theirs", 80), true)).await.unwrap_err().to_string();
    assert!(error.contains("netsurgeon did not create it"), "{error}");
    let observed = world.observe(&doing(&of("theirs", 80), true)).await.unwrap();
    assert!(matches!(observed, Observed::Changed(_)));
}

/// What a process has made that stood still meanwhile, and what whoever went on had come to.
#[tokio::test]
async fn what_was_made_too_late_is_taken_back() {
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
        let Applied::Made(made) = world.apply(&doing).await.unwrap() else { panic!("it is made") };
        doing.made = made;
        doing
    };
    let before = store.revision().await.unwrap();
    let made = create_it().await;
    let after = store.revision().await.unwrap();
    // They came to the end of the step with it.
    assert!(!world.take_back(&made, Some(Revision(after.0 + 1))).await.unwrap());
    assert!(cluster.api.find(path).await.is_some());
    // They had come to its end before.
    assert!(world.take_back(&made, Some(before)).await.unwrap());
    assert!(cluster.api.find(path).await.is_none());
    // Somebody else's of that name is not touched.
    let made = create_it().await;
    cluster.api.delete(path).await;
    cluster.api.create_service("default", "late", json!({"ports": [{"port": 80}]})).await;
    let _ = world.take_back(&made, None).await;
    assert!(cluster.api.find(path).await.is_some());
}

/// Another process asked for a shadow under the same temporary address, finds that it has lost the lock, and takes its
/// shadow back: until then the address is taken.
#[tokio::test]
async fn an_address_that_is_being_given_back_is_waited_for() {
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
        wait_until("the API server has refused it", Duration::from_secs(20), async || {
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

/// A range that does not come is told of with what was seen.
#[tokio::test]
async fn a_wait_says_what_it_has_seen() {
    let cluster = Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::Objects) }).await;
    let (store, plan) = planned(&cluster).await;
    let api = admin(&cluster).await;
    let approver = Says::new(Answer::Open);
    let mut world = world(&api, &store, &plan, &approver);
    world.options.deadline = Duration::from_secs(2);
    let wait = |kind| Wait { kind, batch: Some(0), subject: None, until: "something is so".into() };
    let error = world.wait(&wait(Awaited::RangeReady)).await.unwrap_err().to_string();
    for words in ["not within 2 s: something is so", "192.0.2.10:6443", "netsurgeon-10-200-0-0-16"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let error = world.wait(&wait(Awaited::Barrier)).await.unwrap_err().to_string();
    assert!(error.contains("`node-1`"), "there is no kube-proxy: {error}");
    // Whoever has lost the lock waits for nothing any more.
    world.options = LiveOptions::new("test");
    world.options.guards = vec![Guard::SameCreation("/netsurgeon/test/lock".into(), Revision(1))];
    let error = world.wait(&wait(Awaited::RangeReady)).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "stopped waiting: this process no longer holds the operation lease `/netsurgeon/test/lock`"
    );
}
