//! Records that another client has planted, copied or damaged: nothing that only a record names is run, read or opened, such an
//! operation does not run, and it neither hides nor blocks the others.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use netsurgeon::dns::Cutover;
use netsurgeon::kube_api::Cluster as Api;
use netsurgeon::operation::{
    ClusterLedger, ClusterLock, Journal, LeaseHolder, Plan, Silence, Silent, Status, Terms,
};
use netsurgeon::session::{ClusterSession, Settings, Ui};
use netsurgeon::store::Revision;
use serde_json::{Value, json};

use super::ledger::connect;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::run::{Run, run, says};

/// Damages the data of a record.
type Damage = fn(&mut Value);

const TIMEOUT: Duration = Duration::from_secs(5);
/// Of netsurgeon's records.
const NAMESPACE: &str = "netsurgeon";
/// Of the records of earlier versions.
const FORMER: &str = "kube-system";

struct Stage {
    cluster: Cluster,
    api: Api,
    id: String,
}

impl Stage {
    async fn start() -> Self {
        let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
        let cluster = Cluster::start(options).await;
        let text = std::fs::read_to_string(cluster.kubeconfig()).expect("a kubeconfig");
        let api = connect(&cluster, &text, "free.conf", TIMEOUT).await;
        let id = api.identity().await.expect("an identity");
        Self { cluster, api, id }
    }

    /// The cutover of one name. Its name server does not answer.
    fn plan(&self, cluster: &str, metrics: &str) -> Plan<Cutover> {
        let set =
            |address: &str| json!([{"name": "www.example.test", "type": "A", "ttl": 60, "data": [address]}]);
        let key = self.cluster.directory().join("mover.key");
        let work = json!({
            "zone": "example.test", "resolver": "127.0.0.1:1", "ttl": 60, "soak": 60, "shares": [100],
            "service": {"provider": "rfc2136", "server": "127.0.0.1:1", "key": {"name": "mover", "file": key}},
            "seen": {"prometheus": metrics, "query": "share{name=\"{name}\"}"},
            "names": [{
                "name": "www.example.test", "by": ["Ingress default/www"], "before": set("192.0.2.1"),
                "stages": [set("198.51.100.1")], "after": set("198.51.100.1"),
                "probe": {"scheme": "http", "port": 80, "path": "/", "at": ["198.51.100.1"]},
            }],
        });
        Plan::new(cluster, Revision(0), serde_json::from_value(work).expect("a cutover"))
    }

    /// Records an operation. `cluster`: the one that its head names.
    async fn plant(&self, operation: &str, cluster: &str, plan: &Plan<Cutover>, gates: Value) {
        let claim = claim(operation);
        let ledger = ClusterLedger::begin(&self.api, cluster, &claim, 9).await.expect("it starts");
        let (text, summary) = Journal::of_plan(plan, &claim, gates).expect("a plan");
        let journal = Journal::begin_in(&ledger, &text, summary).await.expect("it is stored");
        journal.set_status(&ledger, Status::Paused, 7).await.expect("it is written");
    }

    /// Creates a ConfigMap that looks like the head of an operation.
    async fn plant_head(&self, operation: &str, change: impl Fn(&mut Value)) {
        let summary = json!({
            "kind": "dns-cutover", "digest": "d", "plan_parts": 1, "started": 7, "status": "paused",
        });
        let records = json!({"summary": {"r": 1, "v": summary}}).to_string();
        let holder = json!(claim(operation)).to_string();
        let mut head = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "namespace": NAMESPACE, "name": format!("netsurgeon-{operation}"),
                "labels": {"netsurgeon.io/part": "head", "netsurgeon.io/operation": operation},
            },
            "data": {
                "cluster": self.id, "operation": operation, "holder": holder, "shards": "1", "epoch": "1",
                "records": records, "placement": "order",
            },
        });
        change(&mut head["data"]);
        self.cluster.api.create(&head).await;
    }

    fn netsurgeon(&self, words: &str) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command.env_clear().current_dir("/").args(words.split_whitespace());
        command.env("KUBECONFIG", self.cluster.kubeconfig()).env("USER", "ops");
        run(words, command)
    }

    async fn session(&self) -> ClusterSession {
        let settings = Settings { agreed: true, ..Settings::default() };
        ClusterSession::open(Ui::new(Silent), self.api.clone(), settings).await.expect("a session")
    }
}

fn claim(operation: &str) -> LeaseHolder {
    LeaseHolder {
        holder: "ops@host".into(),
        pid: 1,
        operation: operation.into(),
        purpose: "x".into(),
        since: 7,
    }
}

/// Counts the connections to a server.
fn counting() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for _ in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (url, count)
}

#[tokio::test]
async fn planted_operation_uses_nothing_that_only_its_record_names() {
    let stage = Stage::start().await;
    let (metrics, asked) = counting();
    let (gate, _) = counting();
    let trace = stage.cluster.directory().join("trace");
    let gates = json!({"gate_command": "/usr/bin/touch", "gate_arg": [trace], "gate_http": gate, "pause": 1});
    stage.plant("dns-cutover-1", &stage.id, &stage.plan(&stage.id, &metrics), gates).await;
    // A key that the record names, and that this user can read.
    let text = "key \"mover\" { algorithm hmac-sha256; secret \"Zm9yZ2Vk\"; };\n";
    let key = stage.cluster.write("mover.key", text).display().to_string();
    let option = format!("`--tsig-key-file {key}`");
    for words in [
        "operation resume dns-cutover-1",
        "operation rollback dns-cutover-1 --yes",
        "dns cutover --all --yes",
        "dns rollback --yes",
    ] {
        says(&stage.netsurgeon(words).expect(2).err, &["error: ", "journal", &key]);
        says(&stage.netsurgeon(words).expect(2).err, &[&option]);
    }
    // With the key, the gates are missing.
    let options = format!(
        "`--pause 1 --gate-command /usr/bin/touch --gate-http {gate} --gate-arg={}`",
        trace.display()
    );
    for words in ["operation resume dns-cutover-1", "dns cutover --all --yes"] {
        let refused = stage.netsurgeon(&format!("{words} --tsig-key-file {key}")).expect(2);
        says(&refused.err, &[&options]);
        says(&refused.err, &["`--no-gates`"]);
    }
    // The rollback checks no gates, and tries the name server.
    let back = stage.netsurgeon(&format!("dns rollback --yes --tsig-key-file {key}"));
    assert!(back.code != 0 && !back.err.contains("--no-gates"), "{}", back.err);
    let status = stage.netsurgeon("dns status").expect(3);
    says(&status.err, &[&format!("`--share-prometheus {metrics}`")]);
    let shown = stage.netsurgeon("operation show -o json").expect(0).json();
    let next = format!("netsurgeon dns cutover dns-cutover-1 --stage 1 --tsig-key-file {key}");
    assert_eq!(shown["next"], next);
    let page = stage.cluster.directory().join("report.html");
    stage.netsurgeon(&format!("operation report --html {}", page.display())).expect(0);
    assert!(!trace.exists(), "the program ran");
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the URL was opened");
    stage.netsurgeon(&format!("dns status --share-prometheus {metrics}")).expect(3);
    assert!(asked.load(Ordering::SeqCst) > 0, "the user gave the URL");
}

#[tokio::test]
async fn damaged_or_copied_records_neither_run_nor_hide_nor_block_the_others() {
    let stage = Stage::start().await;
    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    let plan = stage.plan(&stage.id, "http://127.0.0.1:1");
    // Creates the namespace, too.
    stage.plant("dns-cutover-good", &stage.id, &plan, Value::Null).await;
    let created = stage.cluster.api.get(&namespace).await;
    assert_eq!(created["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let elsewhere = stage.plan("another-cluster", "http://127.0.0.1:1");
    stage.plant("dns-cutover-copied", "another-cluster", &elsewhere, Value::Null).await;
    stage.plant("dns-cutover-hidden", &stage.id, &elsewhere, Value::Null).await;
    let damaged: [(&str, Damage); 6] = [
        ("garbage", |data| data["records"] = "{".into()),
        ("many", |data| data["shards"] = "30000000".into()),
        ("most", |data| data["shards"] = u64::MAX.to_string().into()),
        ("older", |data| drop(data.as_object_mut().unwrap().remove("epoch"))),
        ("other", |data| data["operation"] = "dns-cutover-good".into()),
        ("holder", |data| data["holder"] = "x".into()),
    ];
    for (operation, change) in damaged {
        stage.plant_head(operation, change).await;
    }
    // Without its plan.
    stage.plant_head("partial", |_| {}).await;
    let listed = stage.netsurgeon("operation list -o json").expect(0);
    for (operation, _) in damaged {
        let name = format!("netsurgeon-{operation}");
        says(
            &listed.err,
            &["warning: ", &format!("`{NAMESPACE}/{name}`"), &format!("delete configmap {name}`")],
        );
    }
    says(&listed.err, &["warning: ", "`dns-cutover-copied`", "another cluster"]);
    let mut ids: Vec<&str> = listed.out.split('"').filter(|word| word.starts_with("dns-cutover-")).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["dns-cutover-copied", "dns-cutover-good", "dns-cutover-hidden"]);
    stage.netsurgeon("operation show dns-cutover-good").expect(0);
    for words in ["dns cutover ID --all --yes", "dns rollback ID --yes", "operation rollback ID --yes"] {
        for id in ["dns-cutover-copied", "dns-cutover-hidden"] {
            let refused = stage.netsurgeon(&words.replace("ID", id)).expect(1);
            says(&refused.err, &["error: ", "`another-cluster`", &stage.id]);
        }
    }
    // A copied record can be removed although it has not ended.
    stage.netsurgeon("operation forget dns-cutover-copied").expect(0);
    stage.netsurgeon("operation forget dns-cutover-good").expect(1);
    stage.cluster.api.delete(&format!("{namespace}/configmaps/netsurgeon-dns-cutover-hidden")).await;

    // An operation that can be continued blocks a new one, and the others do not.
    let refused =
        stage.session().await.begin(plan.clone(), Value::Null, "x").await.err().expect("it is refused");
    assert!(refused.error.to_string().contains("`dns-cutover-good`"), "{}", refused.error);
    ClusterLedger::remove(&stage.api, "dns-cutover-good").await.expect("it is removed");
    let (_, holding) = stage.session().await.begin(plan, Value::Null, "x").await.expect("it starts");
    holding.release(Ok(())).await.expect("it is released");
}

/// A Lease with the longest possible duration, of a holder that does not exist.
#[tokio::test]
async fn planted_lease_does_not_block_operations_for_years() {
    let stage = Stage::start().await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "kube-system", "name": "netsurgeon"},
        "spec": {
            "holderIdentity": "somebody", "leaseDurationSeconds": i32::MAX, "renewTime": "2126-01-01T00:00:00.000000Z",
        },
    });
    stage.cluster.api.create(&lease).await;
    let terms = Terms { ttl: Duration::from_secs(2), silence: Silence::Loses, take_over: false };
    let (mut waits, claim) = (0, claim("op"));
    let mut waiting = |_: &netsurgeon::operation::Held| waits += 1;
    let taken = ClusterLock::acquire(&stage.api, &claim, terms, &mut waiting);
    let taken = tokio::time::timeout(Duration::from_mins(1), taken).await.expect("it is not blocked");
    taken.expect("it is acquired").release().await.expect("it is released");
    assert!(waits > 0);
}

/// An operation that an earlier version recorded in kube-system is found, continued in its place, and removed.
#[tokio::test]
async fn operation_in_the_former_namespace_is_found_finished_and_forgotten() {
    let stage = Stage::start().await;
    let operation = "dns-cutover-old";
    stage.plant(operation, &stage.id, &stage.plan(&stage.id, "http://127.0.0.1:1"), Value::Null).await;
    move_to_kube_system(&stage, operation).await;
    let listed = stage.netsurgeon("operation list -o json").expect(0).json();
    assert_eq!(listed["operations"][0]["operation"], operation);
    stage.netsurgeon("operation show").expect(0);
    stage.netsurgeon(&format!("operation forget {operation}")).expect(1);
    let plan = stage.plan(&stage.id, "http://127.0.0.1:1");
    let refused = stage.session().await.begin(plan, Value::Null, "x").await.err().expect("it has not ended");
    assert!(refused.error.to_string().contains(operation), "{}", refused.error);

    let ledger = ClusterLedger::take(&stage.api, &claim(operation)).await.expect("it is taken over");
    let (mut journal, ..) = Journal::open_in(&ledger).await.expect("it is read");
    let step = netsurgeon::operation::StepId("own/www".into());
    journal.fail(&ledger, &step, "x", 8).await.expect("it is written");
    journal.set_status(&ledger, Status::RolledBack, 9).await.expect("it is written");
    let shown = stage.netsurgeon(&format!("operation show {operation} -o json")).expect(0).json();
    assert_eq!((&shown["status"], &shown["steps"][0]["state"]), (&"rolled-back".into(), &"failed".into()));
    let forgotten = stage.netsurgeon(&format!("operation forget {operation}")).expect(0);
    says(&forgotten.err, &["3 ConfigMaps"]);
    for namespace in [NAMESPACE, FORMER] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?labelSelector=netsurgeon.io/part");
        assert_eq!(stage.cluster.api.list(&path).await, Vec::<Value>::new(), "{namespace}");
    }
}

/// Moves the ConfigMaps of an operation to kube-system, in the form of an earlier version.
async fn move_to_kube_system(stage: &Stage, operation: &str) {
    let path = format!(
        "/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=netsurgeon.io/operation={operation}"
    );
    for object in stage.cluster.api.list(&path).await {
        let mut moved = object.clone();
        (moved["apiVersion"], moved["kind"]) = ("v1".into(), "ConfigMap".into());
        let metadata = moved["metadata"].as_object_mut().expect("metadata");
        metadata.retain(|name, _| ["name", "labels"].contains(&name.as_str()));
        metadata.insert("namespace".into(), FORMER.into());
        if let Some(data) = moved["data"].as_object_mut() {
            data.remove("placement");
        }
        stage.cluster.api.create(&moved).await;
        let name = object["metadata"]["name"].as_str().expect("a name");
        stage.cluster.api.delete(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")).await;
    }
}
