//! The process is killed (`kill -9`) after every kind of journal record, and at any instant, and the operation is resumed from
//! another folder. Forward, back and to the end, it reaches the state of an undisturbed run.
//!
//! `make soak` kills after every record and at a thousand instants.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::{KeyRange, ReadStore, Record};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::proxy::{KubeProxy, ProxyMode};
use super::rig::run::says;
use super::serving_cluster::{ENDING, LOOK, NEW_RANGE, command, run};

/// Ranges that share no address.
const APART: Change = Change { from: "10.96.0.0/16", to: NEW_RANGE };
/// A range that shrinks: all Services but `kubernetes` move, to addresses that the old range also has.
const SHRUNK: Change = Change { from: "10.96.0.0/16", to: "10.96.0.0/24" };
/// A range that grows to the left: only `kubernetes` moves, from an address that the new range also has.
const REBASED: Change = Change { from: "10.96.0.0/16", to: "10.64.0.0/10" };
/// The same with a range that a bitmap can have.
const REBASED_BITMAP: Change = Change { from: "10.97.0.0/16", to: "10.96.0.0/15" };
/// How long the first process that is killed at a random instant lives, at most; each one that continues the same work may live
/// longer by as much.
const LIFE: Duration = Duration::from_millis(500);
/// How many rounds a cluster may run to reach the number of kills.
const MOST_ROUNDS: usize = 400;
const DEADLINE: Duration = Duration::from_mins(5);

pub fn is_soak() -> bool {
    std::env::var_os("NETSURGEON_SOAK").is_some_and(|value| value == "1")
}

/// The range before and after an operation.
#[derive(Clone, Copy)]
struct Change {
    from: &'static str,
    to: &'static str,
}

/// All Services and addresses of the cluster, without the parts that differ each time.
pub type Standing = BTreeSet<String>;

/// A cluster, and its observed state.
pub struct Lab {
    pub era: Era,
    change: Change,
    // Before the cluster, whose folder has their logs.
    _proxies: Vec<KubeProxy>,
    pub cluster: Cluster,
    pub store: EtcdStore,
}

impl Lab {
    pub async fn start(era: Era) -> Self {
        Self::start_with(era, APART).await
    }

    async fn start_with(era: Era, change: Change) -> Self {
        let mut options = ClusterOptions { nodes: 1, ..ClusterOptions::new(era) };
        change.from.clone_into(&mut options.service_cidrs);
        options.certified_cidrs = format!("{},{}", options.certified_cidrs, change.to);
        let cluster = Cluster::start(options).await;
        // The nftables mode of 1.32 does not hold external IPs.
        let mode = if era == Era::Bitmap { ProxyMode::Iptables } else { ProxyMode::Nftables };
        let proxies = cluster.start_proxies(mode).await;
        let kinds = ["ClusterIP", "NodePort"];
        for number in 0..6_u16 {
            let kind = kinds[usize::from(number % 2)];
            let mut port = json!({"port": 80});
            if kind == "NodePort" {
                port["nodePort"] = json!(30100 + number);
            }
            let base: Vec<&str> = change.from.split('.').take(2).collect();
            let address = format!("{}.1.{}", base.join("."), number + 1);
            let spec =
                json!({"type": kind, "clusterIP": address, "selector": {"app": "web"}, "ports": [port]});
            cluster.api.create_service("default", &format!("web-{number}"), spec).await;
        }
        let store =
            EtcdStore::connect(EtcdOptions::new(cluster.etcd.endpoints())).await.expect("etcd answers");
        Self { era, change, cluster, store, _proxies: proxies }
    }

    /// The state of the cluster: names, owners and labels of all addresses, and every Service.
    pub async fn standing(&self) -> Standing {
        let mut standing = Standing::new();
        for kind in ["services", "ipaddresses", "servicecidrs"] {
            let group = if kind == "services" { "/api/v1" } else { "/apis/networking.k8s.io/v1" };
            if self.era == Era::Bitmap && kind != "services" {
                continue;
            }
            for mut object in self.cluster.api.list(&format!("{group}/{kind}")).await {
                let metadata = object["metadata"].as_object_mut().expect("metadata");
                for field in ["resourceVersion", "managedFields", "creationTimestamp", "uid", "generation"] {
                    metadata.remove(field);
                }
                if let Some(object) = object.as_object_mut() {
                    object.remove("status");
                }
                standing.insert(without_uids(&object.to_string()));
            }
        }
        standing
    }

    /// The state of every step, as the journal has it.
    pub async fn records(&self) -> BTreeMap<String, String> {
        let mut records = BTreeMap::new();
        let mut visitor = |record: Record<'_>| {
            let key = String::from_utf8_lossy(record.key).into_owned();
            if let Some((_, step)) = key.split_once("/steps/") {
                let value: Value = serde_json::from_slice(record.value).expect("a record is JSON");
                records.insert(step.to_owned(), value["state"].as_str().unwrap_or_default().to_owned());
            }
            ControlFlow::Continue(())
        };
        let range = KeyRange::prefix("/netsurgeon/");
        self.store.scan(&[range], None, &mut visitor).await.expect("etcd answers");
        records
    }

    /// The records by the names of their steps, or by their kinds, with their states.
    async fn names(&self, of_each: bool) -> BTreeSet<String> {
        let name = |(step, state): (String, String)| {
            let kind = step.split('/').next().unwrap_or_default().to_owned();
            format!("{} {state}", if of_each { &step } else { &kind })
        };
        self.records().await.into_iter().map(name).collect()
    }

    pub async fn flag(&mut self, range: &str) {
        self.cluster.set_service_cidrs(range);
        self.cluster.restart_api_server(0).await;
    }

    pub async fn operation(&self) -> Option<String> {
        let keys = self.cluster.etcd.keys("/netsurgeon/").await;
        let operation = keys.iter().find_map(|key| key.strip_suffix("/operation"))?;
        operation.rsplit('/').next().map(str::to_owned)
    }
}

/// When a process is killed.
enum When {
    /// As soon as the journal has the first record of a kind, or of a step.
    Record {
        of_each: bool,
        seen: BTreeSet<String>,
    },
    /// At a random instant.
    Instant(Box<StdRng>),
    Never,
}

impl When {
    fn kinds() -> Self {
        Self::Record { of_each: is_soak(), seen: BTreeSet::new() }
    }

    /// Waits for the moment; returns the exit status if the process ends by itself before. `attempt` counts the processes that do
    /// this work.
    async fn comes(&mut self, lab: &Lab, child: &mut Child, attempt: u32) -> Result<(), i32> {
        let ended = |child: &mut Child| match child.try_wait().expect("a child") {
            Some(status) => Err(status.code().unwrap_or(-1)),
            None => Ok(()),
        };
        match self {
            Self::Record { of_each, seen } => loop {
                ended(child)?;
                let found = lab.names(*of_each).await;
                if !found.is_subset(seen) {
                    seen.extend(found);
                    return Ok(());
                }
                sleep(LOOK).await;
            },
            Self::Never => loop {
                ended(child)?;
                sleep(LOOK).await;
            },
            Self::Instant(random) => {
                let end = Instant::now() + (LIFE * attempt).mul_f64(random.random());
                while Instant::now() < end {
                    ended(child)?;
                    sleep(Duration::from_millis(1)).await;
                }
                Ok(())
            }
        }
    }
}

/// Kills processes.
struct Killer {
    when: When,
    kills: usize,
}

impl Killer {
    /// Runs the program, kills it and runs it again, each time from another folder, until it ends by itself as expected. `words`
    /// gets the present operation and returns the command.
    async fn through(&mut self, lab: &Lab, expected: i32, words: impl Fn(Option<&str>) -> String) {
        let started = Instant::now();
        for attempt in 1.. {
            let operation = lab.operation().await;
            if attempt > 1 && expected == 0 && operation.is_none() {
                // The process was killed after its last action: the journal is removed.
                return;
            }
            let words = format!("{} --lock-ttl 2", words(operation.as_deref()));
            let folder = lab.cluster.directory().join(format!("folder-{}", self.kills));
            std::fs::create_dir_all(&folder).expect("a folder");
            let (mut child, said) = start(lab, &words, &folder);
            match self.when.comes(lab, &mut child, attempt).await {
                Ok(()) => {
                    child.kill().and_then(|()| child.wait()).expect("the process is killed");
                    self.kills += 1;
                }
                Err(code) if code == expected => return,
                Err(code) => {
                    let said = std::fs::read_to_string(&said).unwrap_or_default();
                    // The last write was on its way to etcd at the kill, and arrived after the check for the journal.
                    let is_gone = said.contains("no renumbering of this cluster is under way");
                    if attempt > 1 && expected == 0 && is_gone && lab.operation().await.is_none() {
                        return;
                    }
                    // A lock outlives a process that is killed before its operation exists, and the controllers delete the
                    // ServiceCIDR of a rolled-back operation after a while. On a busy machine a lease of two seconds may expire,
                    // which has the same effect as a kill.
                    let passes =
                        ["holds the operation lease", "is being deleted", "the operation lease was lost"];
                    let passes = passes.iter().any(|words| said.contains(words));
                    assert!(passes && started.elapsed() < DEADLINE, "{words}: exit status {code}: {said}");
                }
            }
        }
    }
}

fn start(lab: &Lab, words: &str, folder: &std::path::Path) -> (Child, PathBuf) {
    let said = folder.join("said");
    let file = std::fs::File::create(&said).expect("a file");
    let mut command = command(&lab.cluster, words);
    let child = command.current_dir(folder).stdout(Stdio::null()).stderr(file).spawn();
    (child.expect("netsurgeon starts"), said)
}

fn apply_or_resume(operation: Option<&str>) -> String {
    apply_or_resume_to(NEW_RANGE, operation)
}

fn apply_or_resume_to(range: &str, operation: Option<&str>) -> String {
    match operation {
        None => {
            format!("renumber apply --to {range} --no-snapshot --yes --batch-size 3 --confirm certificates")
        }
        Some(id) => format!("operation resume {id} --take-over --confirm snapshot --confirm certificates"),
    }
}

fn back(operation: Option<&str>) -> String {
    format!("operation rollback {} --take-over --yes --linger 0", operation.expect("an operation"))
}

fn go_on(operation: Option<&str>) -> String {
    format!("operation resume {} --take-over --confirm flags", operation.expect("an operation"))
}

fn retire(_: Option<&str>) -> String {
    format!("renumber retire --take-over --without-evidence --yes {ENDING}")
}

/// Removes the journal of a rolled-back operation, so that the next operation is the only one.
pub async fn forget(lab: &Lab) {
    let operation = lab.operation().await.expect("an operation");
    let output =
        command(&lab.cluster, &format!("operation forget {operation}")).output().expect("netsurgeon runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lab.cluster.etcd.keys("/netsurgeon/").await, Vec::<String>::new());
}

/// The states of a cluster before, when everything is held, and after the old range is retired.
struct Reference {
    start: Standing,
    held: Standing,
    retired: Standing,
}

/// Runs to the end undisturbed.
async fn reference(era: Era, change: Change) -> Reference {
    let mut lab = Lab::start_with(era, change).await;
    let mut undisturbed = Killer { when: When::Never, kills: 0 };
    let start = lab.standing().await;
    undisturbed.forward(&mut lab).await;
    let held = lab.standing().await;
    undisturbed.finish(&mut lab).await;
    Reference { start, held, retired: lab.standing().await }
}

impl Killer {
    /// Until every old address is held. In the bitmap era the API server's flag changes before, in the others after.
    async fn forward(&mut self, lab: &mut Lab) {
        let to = lab.change.to;
        self.through(lab, 6, |operation| apply_or_resume_to(to, operation)).await;
        if lab.era == Era::Bitmap {
            lab.flag(to).await;
            self.through(lab, 0, go_on).await;
        }
    }

    async fn back(&mut self, lab: &mut Lab) {
        if lab.era == Era::Bitmap {
            self.through(lab, 6, back).await;
            lab.flag(lab.change.from).await;
        }
        self.through(lab, 0, |operation| format!("{} --confirm flags", back(operation))).await;
    }

    async fn finish(&mut self, lab: &mut Lab) {
        if lab.era != Era::Bitmap {
            lab.flag(lab.change.to).await;
            self.through(lab, 0, go_on).await;
        }
        self.through(lab, 0, retire).await;
    }
}

/// Forward and back until there were enough kills, then to the end.
async fn killed(era: Era, change: Change, when: When, enough: usize) {
    let reference = reference(era, change).await;
    let mut lab = Lab::start_with(era, change).await;
    let mut killer = Killer { when, kills: 0 };
    let mut rounds = 0;
    let start = lab.standing().await;
    assert_eq!(start, reference.start);
    while rounds == 0 || (killer.kills < enough && rounds < MOST_ROUNDS) {
        killer.forward(&mut lab).await;
        settled(&lab, &reference.held).await;
        killer.back(&mut lab).await;
        settled(&lab, &start).await;
        forget(&lab).await;
        rounds += 1;
        println!("{era:?}: killed {} of {enough} times", killer.kills);
    }
    println!("{era:?}: killed {} times in {rounds} rounds forward and back", killer.kills);
    assert!(killer.kills >= enough, "killed {} times", killer.kills);
    killer.forward(&mut lab).await;
    killer.finish(&mut lab).await;
    println!("{era:?}: killed {} times in all", killer.kills);
    settled(&lab, &reference.retired).await;
    wait_until("nothing of netsurgeon is left, nor locks of killed processes", DEADLINE, async || {
        let keys = lab.cluster.etcd.keys("/netsurgeon/").await;
        if keys.is_empty() { Ok(()) } else { Err(format!("{keys:?}")) }
    })
    .await;
}

/// A process that is interrupted while it removes a journal leaves a part of it: the next `retire` removes the rest.
#[tokio::test]
async fn retire_removes_the_rest_of_a_journal() {
    let mut lab = Lab::start(Era::Objects).await;
    let mut undisturbed = Killer { when: When::Never, kills: 0 };
    undisturbed.forward(&mut lab).await;
    lab.flag(NEW_RANGE).await;
    undisturbed.through(&lab, 0, go_on).await;
    undisturbed.through(&lab, 0, |operation| retire(operation).replace("--forget", "")).await;
    let retired = lab.standing().await;
    let operation = lab.operation().await.expect("its journal was kept");
    let again = run("", command(&lab.cluster, &retire(None))).expect(1);
    says(&again.err, &["`netsurgeon operation list`"]);

    let etcd = &lab.cluster.etcd;
    let keys = etcd.keys("/netsurgeon/").await;
    let summary = keys.iter().find(|key| key.ends_with("/operation")).expect("a summary");
    let status = async || -> Value {
        serde_json::from_slice(&etcd.get(summary).await.expect("a value")).expect("JSON")
    };
    // There is no rollback, and a request for one changes nothing.
    let refused = run("", command(&lab.cluster, &back(Some(&operation))));
    assert!(refused.code != 0 && status().await["status"] == "done", "{}", refused.err);
    let mut says = status().await;
    says["status"] = json!("removing");
    etcd.put(summary, says.to_string().as_bytes()).await;
    for key in keys.iter().filter(|key| *key != summary).take(20) {
        etcd.delete(key).await;
    }
    let gone = run("", command(&lab.cluster, &format!("{} -o json", retire(None)))).expect(0);
    assert_eq!((&gone.json()["operation"], &gone.json()["status"]), (&json!(operation), &json!("done")));
    assert_eq!(lab.cluster.etcd.keys("/netsurgeon/").await, Vec::<String>::new());
    assert_eq!(lab.standing().await, retired);
}

/// Shadow Services are named after the uid of the Service that they stand in for: 16 characters.
fn without_uids(text: &str) -> String {
    let mut parts = text.split("netsurgeon-hold-");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| format!("{text}netsurgeon-hold-UID{}", &part[16..]))
}

/// Waits until a cluster has this state. Controllers delete a ServiceCIDR after a while. An API server whose client is killed
/// during the deletion of a Service may keep the Service's address for 60 s, until its repair loop treats it as leaked
/// (`syncIPAddress`, `pkg/registry/core/service/ipallocator/controller/repairip.go`, v1.36.3).
pub async fn settled(lab: &Lab, expected: &Standing) {
    wait_until("the cluster has the state of an undisturbed run", DEADLINE, async || {
        let now = lab.standing().await;
        if now == *expected {
            return Ok(());
        }
        let alone = |one: &Standing, other: &Standing| one.difference(other).cloned().collect::<Vec<_>>();
        Err(format!("now alone: {:?}; then alone: {:?}", alone(&now, expected), alone(expected, &now)))
    })
    .await;
}

/// A command that continues waits, with a countdown, for the lease of a killed process; the journal does not report that the
/// process is running.
#[tokio::test]
async fn resume_waits_for_the_lease_of_a_killed_process() {
    let lab = Lab::start(Era::Objects).await;
    let (mut child, _) =
        start(&lab, &format!("{} --lock-ttl 8", apply_or_resume(None)), lab.cluster.directory());
    let mut when = When::kinds();
    when.comes(&lab, &mut child, 1).await.expect("the process runs");
    child.kill().and_then(|()| child.wait()).expect("the process is killed");
    let operation = lab.operation().await.expect("an operation");
    let words = format!("operation resume {operation} --confirm snapshot --confirm certificates");
    let resumed = run(&words, command(&lab.cluster, &words)).expect(6);
    says(&resumed.err, &["(pid ", "`--take-over`"]);
    says(&resumed.err, &["paused: ", "`flags`"]);

    let words = format!("operation rollback {operation} --yes --linger 0 --lock-ttl 2");
    let (mut child, _) = start(&lab, &words, lab.cluster.directory());
    let mut when = When::Record { of_each: true, seen: lab.names(true).await };
    when.comes(&lab, &mut child, 1).await.expect("the process runs");
    child.kill().and_then(|()| child.wait()).expect("the process is killed");
    wait_until("its lease ends", DEADLINE, async || {
        let status = run("", command(&lab.cluster, "renumber status -o json")).expect(0).json();
        let (status, direction) = (&status["status"], &status["direction"]);
        if status == "interrupted" && direction == "back" {
            Ok(())
        } else {
            Err(format!("{status} {direction}"))
        }
    })
    .await;
}

#[tokio::test]
async fn operation_killed_after_each_kind_of_record_is_resumed() {
    Box::pin(killed(Era::Objects, APART, When::kinds(), 15)).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn operation_killed_after_each_kind_of_record_is_resumed_in_the_bitmap_era() {
    Box::pin(killed(Era::Bitmap, APART, When::kinds(), 10)).await;
}

#[tokio::test]
#[ignore = "minutes, in `make soak`: needs `make rig` and root"]
async fn operation_killed_after_each_kind_of_record_is_resumed_under_dual_write() {
    Box::pin(killed(Era::DualWrite, APART, When::kinds(), 15)).await;
}

#[tokio::test]
async fn operation_killed_at_any_instant_is_resumed() {
    let enough = if is_soak() { 1000 } else { 12 };
    Box::pin(killed(Era::Objects, APART, When::Instant(Box::new(StdRng::seed_from_u64(11))), enough)).await;
}

#[tokio::test]
async fn operation_that_shrinks_a_range_is_killed_and_resumed() {
    Box::pin(killed(Era::DualWrite, SHRUNK, When::Instant(Box::new(StdRng::seed_from_u64(12))), 8)).await;
}

#[tokio::test]
#[ignore = "minutes, in `make soak`: needs `make rig` and root"]
async fn operations_on_overlapping_ranges_are_killed_after_each_kind_of_record() {
    for (era, changes) in [
        (Era::Objects, [SHRUNK, REBASED]),
        (Era::DualWrite, [SHRUNK, REBASED_BITMAP]),
        (Era::Bitmap, [SHRUNK, REBASED_BITMAP]),
    ] {
        for change in changes {
            Box::pin(killed(era, change, When::kinds(), 8)).await;
        }
    }
}
