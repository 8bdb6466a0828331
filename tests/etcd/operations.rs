//! `netsurgeon ranges rewrite` and `netsurgeon operation` on a real etcd that holds what a real API server has stored; no API
//! server runs.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netsurgeon::operation::{LeaseHolder, Lock};
use netsurgeon::store::snapshot::SnapshotStore;
use netsurgeon::store::{KeyRange, ReadStore as _};
use netsurgeon::survey::{Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit};
use serde_json::Value;

use crate::rig::etcd::{Etcd, EtcdVersion};
use crate::rig::process::wait_until;
use crate::rig::relay::Relay;
use crate::rig::run::says;
use crate::rig::run::{Run, run};
use crate::store::{connect, options, plain};

const BITMAP: &str = "/registry/ranges/serviceips";
const DEADLINE: Duration = Duration::from_mins(1);

/// Text of the request that starts the operation: its summary.
const IS_RUNNING: &str = "\"status\":\"running\"";
/// Text of the request that changes the bitmap: the record of the step, in the same transaction.
const STEP_IS_DONE: &str = "\"state\":\"done\"";

/// An etcd with what a cluster of the dual-write era has stored, and a bitmap that differs from its Services.
struct Drifted {
    etcd: Etcd,
    drifted: Vec<u8>,
}

impl Drifted {
    async fn start() -> Self {
        let etcd = plain(EtcdVersion::Current).await;
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/dualwrite.snapshot.db");
        let fixture = SnapshotStore::open(&file, &[KeyRange::everything()]).expect("a fixture");
        let (_, entries) =
            fixture.entries(&[KeyRange::everything()], None).await.expect("a fixture can be read");
        for entry in entries {
            etcd.put(&entry.key.to_string(), entry.value).await;
        }
        let healthy = etcd.get(BITMAP).await.expect("a bitmap");
        let change = FieldChange::Bits { capacity: (1 << 16) - 2, set: vec![4000], clear: vec![9] };
        let drifted = edit::apply(&healthy, &[FieldEdit { field: Field::data(), change }]).expect("an edit");
        etcd.put(BITMAP, drifted.clone()).await;
        Self { etcd, drifted }
    }

    fn command(endpoint: &str, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command.env_clear().env("ETCDCTL_ENDPOINTS", endpoint).args(words.split_whitespace());
        command.stdin(Stdio::null());
        command
    }

    fn netsurgeon(&self, words: &str) -> Run {
        run(words, Self::command(&self.etcd.endpoint(), words))
    }

    async fn bitmap(&self) -> Vec<u8> {
        self.etcd.get(BITMAP).await.expect("a bitmap")
    }

    fn has_findings(&self) -> bool {
        self.netsurgeon("ranges check").code == 3
    }

    /// The id and the status of the only operation.
    fn listed(&self) -> (String, String) {
        let listed = self.netsurgeon("operation list -o json").expect(0).json();
        let [one] = listed["operations"].as_array().expect("a list").as_slice() else {
            panic!("one operation: {listed}")
        };
        let text = |name: &str| one[name].as_str().expect("a text").to_owned();
        assert_eq!(text("kind"), "rewrite-range");
        (text("operation"), text("status"))
    }

    async fn keys(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        for key in self.etcd.keys("/netsurgeon/").await {
            let value = self.etcd.get(&key).await;
            found.push((key, value));
        }
        found
    }

    /// Starts a rewrite whose etcd stops answering at the first request with this text, and kills it there. The request is still
    /// executed: the operation exists, and the bitmap is rewritten if the record of its step was in the request.
    async fn killed_at(&self, words: &str) {
        let relay = Relay::start(&self.etcd.endpoint().replace("http://", ""));
        relay.be_silent_from(words);
        let mut child: Child = Self::command(relay.address(), "ranges rewrite --yes --lock-ttl 2")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("netsurgeon starts");
        wait_until("etcd is silent", DEADLINE, async || {
            assert_eq!(child.try_wait().expect("a child"), None, "it still runs");
            if relay.is_silent() { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        child.kill().and_then(|()| child.wait()).expect("it is killed");
        relay.cut();
        wait_until("etcd has executed the request", DEADLINE, async || {
            let keys = self.etcd.keys("/netsurgeon/").await;
            if !keys.iter().any(|key| key.ends_with("/operation")) {
                return Err(format!("{keys:?}"));
            }
            let rewritten = self.bitmap().await != self.drifted;
            if rewritten == (words == STEP_IS_DONE) { Ok(()) } else { Err(format!("rewritten: {rewritten}")) }
        })
        .await;
    }
}

#[tokio::test]
async fn killed_rewrite_is_listed_shown_and_resumed() {
    for words in [IS_RUNNING, STEP_IS_DONE] {
        let cluster = Drifted::start().await;
        cluster.killed_at(words).await;
        let (operation, status) = cluster.listed();
        assert_eq!(status, "running", "{words}");
        let forget = cluster.netsurgeon(&format!("operation forget {operation}")).expect(1);
        assert!(forget.err.contains(&format!("netsurgeon operation show {operation}")), "{}", forget.err);
        if words == IS_RUNNING {
            let second = cluster.netsurgeon("ranges rewrite --yes").expect(1);
            says(&second.err, &["error: ", &format!("`{operation}`")]);
        }
        let resumed =
            cluster.netsurgeon(&format!("operation resume {operation} --take-over -o json")).expect(0);
        assert_eq!(resumed.json()["status"], "rewritten");
        assert!(!cluster.has_findings(), "{words}");
        let shown = cluster.netsurgeon(&format!("operation show {operation} -o json")).expect(0).json();
        assert_eq!((&shown["status"], &shown["steps"][0]["state"]), (&"done".into(), &"done".into()));
        let back = format!("netsurgeon operation rollback {operation}");
        assert_eq!((&shown["next"], &shown["rollback"]), (&Value::Null, &back.into()));
        assert_eq!(shown["steps"][0]["step"], "rewrite/serviceips");
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("page.html");
        cluster.netsurgeon(&format!("operation report {operation} --html {}", page.display())).expect(0);
        let page = std::fs::read_to_string(page).expect("a page");
        for text in [operation.as_str(), "serviceips", "10.96.0.10", "rewrite/serviceips"] {
            assert!(page.contains(text), "{text}");
        }
        cluster.netsurgeon(&format!("operation forget {operation}")).expect(0);
        assert_eq!(cluster.keys().await, []);
    }
}

#[tokio::test]
async fn killed_rewrite_is_rolled_back() {
    for words in [IS_RUNNING, STEP_IS_DONE] {
        let cluster = Drifted::start().await;
        cluster.killed_at(words).await;
        let (operation, _) = cluster.listed();
        let rollback = format!("operation rollback {operation} --take-over");
        let asks = cluster.netsurgeon(&rollback).expect(1);
        assert!(asks.err.contains("--yes"), "{}", asks.err);
        cluster.netsurgeon(&format!("{rollback} --yes")).expect(0);
        assert_eq!(cluster.bitmap().await, cluster.drifted, "every byte is as before: {words}");
        assert_eq!(cluster.listed().1, "rolled-back");
    }
}

/// Without an id, commands mean the only operation that has not ended; completion offers its id.
#[tokio::test]
async fn default_operation_is_the_one_under_way() {
    let cluster = Drifted::start().await;
    let none = cluster.netsurgeon("operation resume").expect(1);
    says(&none.err, &["`netsurgeon operation list`"]);
    cluster.killed_at(IS_RUNNING).await;
    let (operation, _) = cluster.listed();
    let table = cluster.netsurgeon("operation list").expect(0).out;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].ends_with("AGE") && lines[1].trim_end().ends_with(" s"), "{table}");

    let folder = tempfile::tempdir().expect("a folder");
    let plugin = folder.path().join("kubectl_complete-netsurgeon");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_netsurgeon"), &plugin).expect("a link");
    let completed = Command::new(plugin)
        .env_clear()
        .env("ETCDCTL_ENDPOINTS", cluster.etcd.endpoint())
        .args(["operation", "resume", ""])
        .output()
        .expect("it runs");
    let completed = String::from_utf8_lossy(&completed.stdout).into_owned();
    assert!(completed.starts_with(&format!("{operation}\trunning\n")), "{completed}");

    assert_eq!(
        cluster.netsurgeon("operation show -o json").expect(0).json()["operation"],
        operation.as_str()
    );
    cluster.netsurgeon("operation resume --take-over").expect(0);
    assert_eq!(cluster.listed().1, "done");
    let none = cluster.netsurgeon("operation rollback --yes").expect(1);
    says(&none.err, &["`netsurgeon operation list`"]);
}

/// An ended operation is not resumed, and the attempt leaves no trace; a second rollback writes nothing.
#[tokio::test]
async fn ended_operation_is_not_resumed() {
    let cluster = Drifted::start().await;
    cluster.netsurgeon("ranges rewrite --yes").expect(0);
    let (operation, status) = cluster.listed();
    assert_eq!(status, "done");
    let before = cluster.keys().await;
    let refused = cluster.netsurgeon(&format!("operation resume {operation}")).expect(1);
    says(&refused.err, &[&format!("`{operation}`"), "done"]);
    assert_eq!(cluster.keys().await, before);
    cluster.netsurgeon(&format!("operation rollback {operation} --yes")).expect(0);
    let before = cluster.keys().await;
    let refused = cluster.netsurgeon(&format!("operation resume {operation}")).expect(1);
    says(&refused.err, &[&format!("`{operation}`"), "rolled back"]);
    cluster.netsurgeon(&format!("operation rollback {operation} --yes")).expect(0);
    assert_eq!(cluster.keys().await, before);
    assert_eq!(cluster.bitmap().await, cluster.drifted);
    // It does not block the next operation.
    cluster.netsurgeon("ranges rewrite --yes").expect(0);
    assert!(!cluster.has_findings());
}

#[tokio::test]
async fn options_of_a_renumbering_are_refused() {
    let cluster = Drifted::start().await;
    cluster.killed_at(IS_RUNNING).await;
    let (operation, _) = cluster.listed();
    let words = [
        ("resume", "--confirm flags", "`--confirm flags`"),
        ("resume", "--gate-command /bin/true", "gate"),
        ("rollback", "--without-api 1", "`--without-api`"),
    ];
    for (verb, words, fact) in words {
        let refused = cluster.netsurgeon(&format!("operation {verb} {operation} {words}")).expect(2);
        says(&refused.err, &["error: ", fact]);
    }
}

#[tokio::test]
async fn rewrite_is_refused_while_another_operation_holds_lease() {
    let cluster = Drifted::start().await;
    let store = std::sync::Arc::new(connect(options(&cluster.etcd)).await);
    let id =
        Survey::identity(store.as_ref(), &Layout::default()).await.expect("a read").expect("an identity");
    let claim = LeaseHolder::of_this_process("renumber-1", "renumber to 10.200.0.0/16", 1_800_000_000);
    let lock = Lock::acquire(store.clone(), &id, &claim, DEADLINE).await.expect("the lease");
    let refused = cluster.netsurgeon("ranges rewrite --yes").expect(1);
    assert!(refused.err.contains("renumber to 10.200.0.0/16"), "{}", refused.err);
    assert_eq!(cluster.bitmap().await, cluster.drifted);
    lock.release().await.expect("it is released");
    cluster.netsurgeon("ranges rewrite --yes").expect(0);
}

/// A rollback that would overwrite later allocations is refused. The rewrite stays in effect, and blocks nothing.
#[tokio::test]
async fn stuck_rollback_of_rewrite_blocks_nothing() {
    let cluster = Drifted::start().await;
    cluster.netsurgeon("ranges rewrite --yes").expect(0);
    let (operation, _) = cluster.listed();
    let change = FieldChange::Bits { capacity: (1 << 16) - 2, set: vec![4001], clear: Vec::new() };
    let allocated =
        edit::apply(&cluster.bitmap().await, &[FieldEdit { field: Field::data(), change }]).expect("an edit");
    cluster.etcd.put(BITMAP, allocated.clone()).await;
    let stuck = cluster.netsurgeon(&format!("operation rollback {operation} --yes")).expect(5);
    says(&stuck.err, &["`netsurgeon ranges rewrite serviceips`"]);
    says(&stuck.err, &[&format!("`netsurgeon operation forget {operation}`")]);
    assert_eq!(cluster.bitmap().await, allocated);
    cluster.netsurgeon(&format!("operation forget {operation} --yes")).expect(0);
    cluster.netsurgeon("ranges rewrite --yes").expect(0);
    assert!(!cluster.has_findings());
}
