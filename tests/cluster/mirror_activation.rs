//! `netsurgeon mirror activate` and `deactivate` on two real clusters of different versions, with real `CronJob` controllers. Two watches
//! follow both clusters: nothing is active in both at any instant, and no scheduled time runs twice.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use kube::api::WatchEvent;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::mirror_pair::{end_at_once, seed};
use super::rig::api::Api;
use super::rig::api_gate::{ApiGate, Trouble, Troubles};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::run::{Run, run, says};
use super::rig::workspace::Workspace;

const PATIENCE: Duration = Duration::from_mins(3);
/// How long controllers stand still: longer than the replay of a watch.
const STANDSTILL: Duration = Duration::from_secs(6);
const NAMESPACE: &str = "shop";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/shop/cronjobs";
const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// A source of an older version, and its mirror.
struct Pair {
    source: Cluster,
    mirror: Cluster,
    workspace: Workspace,
}

impl Pair {
    async fn start() -> Self {
        let options = |era| ClusterOptions { workload_controllers: true, ..ClusterOptions::new(era) };
        let source = Cluster::start(options(Era::Bitmap)).await;
        let mirror = Cluster::start(options(Era::Objects)).await;
        source.api.create_namespace(NAMESPACE).await;
        Self { source, mirror, workspace: Workspace::create("activation") }
    }

    /// Creates these objects in the source, and copies the namespace to the mirror.
    async fn copied(&self, objects: &[Value]) {
        for object in objects {
            self.source.api.create(object).await;
        }
        let plan = self.workspace.join("plan.json").display().to_string();
        self.mirror_command(&format!("plan -n {NAMESPACE} --save {plan}")).expect(0);
        self.mirror_command(&format!("apply --plan {plan} --yes")).expect(0);
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command.args(words.split_whitespace()).env("KUBECONFIG", self.source.kubeconfig());
        command.env_remove("ETCDCTL_ENDPOINTS");
        command
    }

    fn mirror_command(&self, words: &str) -> Run {
        let words = format!("mirror {words} --mirror-kubeconfig {}", self.mirror.kubeconfig().display());
        run(&words, self.command(&words))
    }

    fn operation(&self, words: &str) -> Run {
        let words = format!("operation {words} --kubeconfig {}", self.mirror.kubeconfig().display());
        run(&words, self.command(&words))
    }

    /// Runs a command of `operation` that needs both clusters.
    fn operation_on_both(&self, words: &str) -> Run {
        self.operation(&format!("{words} --source-kubeconfig {}", self.source.kubeconfig().display()))
    }

    async fn cron_job(&self, is_source: bool, name: &str) -> Value {
        let api = if is_source { &self.source.api } else { &self.mirror.api };
        api.get(&format!("{CRON_JOBS}/{name}")).await
    }

    /// Returns whether a `CronJob` is suspended in the source and in the mirror.
    async fn suspended(&self, name: &str) -> (bool, bool) {
        let (source, mirror) = (self.cron_job(true, name).await, self.cron_job(false, name).await);
        (source["spec"]["suspend"] == true, mirror["spec"]["suspend"] == true)
    }
}

/// A `CronJob` that runs every minute. Its Jobs complete at once, without a Pod.
fn cron_job(name: &str, more: &Value) -> Value {
    let container = json!({"name": "a", "image": "b"});
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let mut spec = json!({
        "schedule": "* * * * *", "jobTemplate": {"spec": {"completions": 0, "template": pod}},
    });
    for (key, value) in more.as_object().expect("fields") {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec})
}

/// What the watches have seen.
#[derive(Default)]
struct Seen {
    /// Whether each `CronJob` is active in the source and in the mirror.
    active: BTreeMap<String, [bool; 2]>,
    /// Names of CronJobs that were active in both clusters at the same time.
    twice_active: BTreeSet<String>,
    /// The Jobs of each scheduled time, as cluster and uid.
    runs: BTreeMap<(String, String), BTreeSet<(usize, String)>>,
    /// How often a `CronJob` was unsuspended.
    wakes: usize,
}

/// Follows both clusters until it is dropped.
struct Watcher {
    seen: Arc<Mutex<Seen>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Watcher {
    async fn start(pair: &Pair) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut tasks = Vec::new();
        for (cluster, api) in [&pair.source.api, &pair.mirror.api].into_iter().enumerate() {
            for path in [CRON_JOBS, JOBS] {
                let list = api.get(path).await;
                for item in list["items"].as_array().expect("items") {
                    note(&seen, cluster, path, item);
                }
                let version = list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
                let (api, seen) = (api.clone(), seen.clone());
                tasks.push(tokio::spawn(async move {
                    follow(&api, path, version, |item| note(&seen, cluster, path, item)).await;
                }));
            }
        }
        Self { seen, tasks }
    }

    /// Returns the names of CronJobs that ran in a cluster at least so often.
    fn ran(&self, cluster: usize, least: usize) -> BTreeSet<String> {
        let seen = self.seen.lock().expect("the lock");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for ((name, _), jobs) in &seen.runs {
            *counts.entry(name).or_default() += jobs.iter().filter(|(of, _)| *of == cluster).count();
        }
        counts.into_iter().filter(|(_, count)| *count >= least).map(|(name, _)| name.to_owned()).collect()
    }

    /// Fails if something was active in both clusters, or ran twice. Returns the number of runs and of wake-ups.
    fn check(&self) -> (usize, usize) {
        assert!(!self.tasks.iter().any(JoinHandle::is_finished), "a watch has ended");
        let seen = self.seen.lock().expect("the lock");
        assert_eq!(seen.twice_active, BTreeSet::new(), "active in both clusters");
        let twice: Vec<_> = seen.runs.iter().filter(|(_, jobs)| jobs.len() > 1).collect();
        assert!(twice.is_empty(), "these ran twice: {twice:?}");
        (seen.runs.len(), seen.wakes)
    }

    /// Returns the scheduled times between the first and the last run of each `CronJob` that did not run.
    fn lost(&self) -> Vec<(String, i64)> {
        let seen = self.seen.lock().expect("the lock");
        let mut times: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for (name, time) in seen.runs.keys() {
            times.entry(name).or_default().insert(minute(time));
        }
        let mut lost = Vec::new();
        for (name, times) in times {
            let (start, end) = (times.first().expect("a time"), times.last().expect("a time"));
            lost.extend(
                (*start..*end).filter(|time| !times.contains(time)).map(|time| (name.to_owned(), time)),
            );
        }
        lost
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn minute(time: &str) -> i64 {
    use time::OffsetDateTime;
    use time::format_description::well_known::Rfc3339;
    OffsetDateTime::parse(time, &Rfc3339).expect("a time").unix_timestamp() / 60
}

fn note(seen: &Mutex<Seen>, cluster: usize, path: &str, item: &Value) {
    let mut seen = seen.lock().expect("the lock");
    if path == CRON_JOBS {
        let name = item["metadata"]["name"].as_str().expect("a name").to_owned();
        let is_active = item["spec"]["suspend"] != true;
        let active = seen.active.entry(name.clone()).or_default();
        let woke = is_active && !active[cluster];
        active[cluster] = is_active;
        let is_twice = active.iter().all(|active| *active);
        seen.wakes += usize::from(woke);
        if is_twice {
            seen.twice_active.insert(name);
        }
        return;
    }
    let Some(time) = item["metadata"]["annotations"][SCHEDULED].as_str() else { return };
    let owner = item["metadata"]["ownerReferences"][0]["name"].as_str().expect("an owner").to_owned();
    let uid = item["metadata"]["uid"].as_str().expect("a uid").to_owned();
    seen.runs.entry((owner, time.to_owned())).or_default().insert((cluster, uid));
}

/// Watches a collection, and watches again from the last version when the watch ends.
async fn follow(api: &Api, path: &str, mut version: String, mut note: impl FnMut(&Value)) {
    loop {
        let request = http::Request::get(format!(
            "{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}"
        ))
        .body(Vec::new())
        .expect("the request is well formed");
        let events = api.client().request_events::<Value>(request).await.expect("a watch");
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let item = match event.expect("an event") {
                WatchEvent::Added(item) | WatchEvent::Modified(item) | WatchEvent::Deleted(item) => item,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(error) => panic!("{path}: {error:?}"),
            };
            item["metadata"]["resourceVersion"].as_str().expect("a version").clone_into(&mut version);
            note(&item);
        }
    }
}

fn ids(run: &Run) -> Vec<String> {
    let shown = run.json();
    let operations = shown["operations"].as_array().expect("operations");
    operations.iter().map(|one| one["operation"].as_str().expect("an id").to_owned()).collect()
}

const GROUP: &str = "rbac.authorization.k8s.io";

/// Binds a role to the user `ada`, in a namespace or in the cluster.
async fn bind(api: &Api, kind: &str, role: &str, namespace: Option<&str>) {
    let mut metadata = json!({"name": format!("ada-{role}")});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let binding = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    api.create(&json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": binding, "metadata": metadata,
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "ada"}],
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
    }))
    .await;
}

impl Pair {
    /// Gives the user `ada` the roles of `deploy/rbac.yaml` for an activation, and waits until they are in force.
    async fn with_roles(&self) {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac.yaml");
        let text = std::fs::read_to_string(file).expect("the roles");
        for part in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(part).expect("an object");
            for api in [&self.source.api, &self.mirror.api] {
                api.apply(&object).await;
            }
        }
        let activate = "netsurgeon-mirror-activate";
        bind(&self.source.api, "ClusterRole", "netsurgeon-mirror-source", None).await;
        bind(&self.source.api, "ClusterRole", activate, Some(NAMESPACE)).await;
        bind(&self.mirror.api, "ClusterRole", activate, Some(NAMESPACE)).await;
        bind(&self.mirror.api, "Role", "netsurgeon-mirror", Some("netsurgeon")).await;
        bind(&self.mirror.api, "Role", "netsurgeon-mirror", Some("kube-system")).await;
        let asked = [(&self.source, CRON_JOBS), (&self.mirror, "/api/v1/namespaces/netsurgeon/configmaps")];
        for (cluster, path) in asked {
            let api = cluster.api_as(0, "ada", None).await;
            wait_until("the roles are in force", PATIENCE, async || {
                let answer = api.request(http::Method::GET, path, "application/json", None).await;
                answer.map(drop).map_err(|error| error.to_string())
            })
            .await;
        }
    }

    /// Runs a command of `mirror` as this user.
    fn by_ada(&self, words: &str) -> Run {
        let of = |cluster: &Cluster| cluster.kubeconfig_as(0, "ada", None).display().to_string();
        let words = format!(
            "mirror {words} --kubeconfig {} --mirror-kubeconfig {}",
            of(&self.source),
            of(&self.mirror)
        );
        run(&words, self.command(&words))
    }
}

/// Several CronJobs move to the mirror, run there, and move back; one that its owner has suspended stays suspended.
#[tokio::test(flavor = "multi_thread")]
async fn cron_jobs_move_to_the_mirror_and_back() {
    let pair = Pair::start().await;
    let cron_jobs = [
        cron_job("plain", &json!({})),
        cron_job("history", &json!({"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 0})),
        cron_job("forbid", &json!({"concurrencyPolicy": "Forbid", "timeZone": "Europe/Berlin"})),
        cron_job("owner", &json!({"suspend": true})),
    ];
    pair.copied(&cron_jobs).await;
    let watcher = Watcher::start(&pair).await;
    let moving = ["forbid", "history", "plain"];

    pair.with_roles().await;
    let planned = pair.by_ada("activate --dry-run -o json").expect(0).json();
    let action = |name: &str| {
        let objects = planned["objects"].as_array().expect("objects");
        objects.iter().find(|one| one["name"] == name).expect("an entry")["action"].clone()
    };
    assert_eq!((action("plain"), action("owner")), (json!("move"), json!("owner-suspended")));
    let activated = pair.by_ada("activate --yes -o json").expect(0);
    says(&activated.err, &["no time zone"]);
    let id = ids(&activated).remove(0);
    for name in moving {
        assert_eq!(pair.suspended(name).await, (true, false), "{name}");
    }
    assert_eq!(pair.suspended("owner").await, (true, true));
    wait_until("every CronJob runs in the mirror", PATIENCE, async || {
        let ran = watcher.ran(1, 1);
        if ran == moving.map(String::from).into() { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;

    // A bookmark proves that the watch has shown every Job.
    let records = pair.mirror.api.get("/api/v1/namespaces/netsurgeon/configmaps").await.to_string();
    assert_eq!(records.matches(r#"is_proven\":true"#).count(), moving.len(), "{records}");

    // A second activation moves nothing, and the commands for operations know the kind.
    let again = pair.mirror_command("activate --yes -o json").expect(0);
    assert_eq!(again.json()["operations"], json!([]));
    let report = pair.workspace.join("report.html");
    pair.operation(&format!("report {id} --html {}", report.display())).expect(0);
    says(&std::fs::read_to_string(&report).expect("a page"), &["shop/plain"]);
    says(&pair.operation(&format!("show {id}")).expect(0).err, &["rollback", "--source-context"]);
    pair.operation(&format!("rollback {id} --yes")).expect(2);
    says(&pair.operation(&format!("forget {id} --yes")).expect(1).err, &["mirror deactivate"]);

    let back = pair.by_ada("deactivate --yes -o json").expect(0);
    assert_eq!(back.json()["operations"][0]["status"], "rolled-back");
    for name in moving {
        assert_eq!(pair.suspended(name).await, (false, true), "{name}");
        let (source, mirror) = (pair.cron_job(true, name).await, pair.cron_job(false, name).await);
        let last = |object: &Value| object["status"]["lastScheduleTime"].as_str().map(str::to_owned);
        assert!(last(&source) >= last(&mirror), "{name}: {source} {mirror}");
        assert_eq!(mirror["metadata"]["annotations"]["mirror.netsurgeon.io/activation"], Value::Null);
    }
    assert_eq!(pair.suspended("owner").await, (true, true));
    pair.mirror_command("deactivate --yes").expect(1);
    pair.operation(&format!("forget {id} --yes")).expect(0);
    let (runs, wakes) = watcher.check();
    println!("{runs} runs, {wakes} wake-ups, none twice");
}

/// Both clusters behind gates that count and disturb their writes together.
struct Gates {
    troubles: Arc<Troubles>,
    source: String,
    mirror: String,
}

impl Gates {
    async fn open(pair: &Pair, counted: &'static str) -> Self {
        let troubles = if counted.is_empty() { Troubles::none() } else { Troubles::of(counted) };
        let mut files = Vec::new();
        for (name, api) in [("source", &pair.source.api), ("mirror", &pair.mirror.api)] {
            let gate = ApiGate::open(api.client(), &troubles).await;
            files
                .push(pair.workspace.write(&format!("{name}.conf"), gate.kubeconfig()).display().to_string());
        }
        let [source, mirror] = files.try_into().expect("two gates");
        Self { troubles, source, mirror }
    }

    /// Runs a command until it is killed at a write. Returns `false` if it ended before.
    async fn kill(&self, pair: &Pair, words: &str, trouble: Trouble) -> bool {
        self.troubles.arm(trouble);
        let words = format!(
            "mirror {words} --yes --lock-ttl 2 --take-over --kubeconfig {} --mirror-kubeconfig {}",
            self.source, self.mirror
        );
        let mut child =
            pair.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let end = Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                () = self.troubles.killed() => {
                    end_at_once(&mut child);
                    println!("killed at {trouble:?}: {words}: {:?}", self.troubles.seen().last());
                    return true;
                }
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
            if child.try_wait().expect("it can be waited for").is_some() {
                return false;
            }
            assert!(Instant::now() < end, "{words} neither ends nor is killed");
        }
    }
}

impl Pair {
    /// Returns the only operation of kind `mirror-activate` that has not been rolled back.
    fn activation(&self) -> Option<(String, String)> {
        let listed = self.operation("list -o json").expect(0).json();
        let operations = listed["operations"].as_array().expect("operations").clone();
        let of = |one: &Value, field: &str| one[field].as_str().expect("a text").to_owned();
        let mut found = operations
            .iter()
            .filter(|one| one["kind"] == "mirror-activate" && one["status"] != "rolled-back")
            .map(|one| (of(one, "operation"), of(one, "status")));
        let first = found.next();
        assert_eq!(found.next(), None, "{listed}");
        first
    }

    /// Completes what a killed process began, and leaves the `CronJob` in the mirror.
    async fn complete(&self, name: &str) {
        match self.activation() {
            Some((_, status)) if status == "done" => {}
            Some((id, _)) => {
                drop(self.operation_on_both(&format!("resume {id} --lock-ttl 2 --take-over")).expect(0));
            }
            None => drop(self.mirror_command("activate --yes --lock-ttl 2 --take-over").expect(0)),
        }
        assert_eq!(self.suspended(name).await, (true, false), "it is active in the mirror");
    }

    /// Moves everything back, and forgets the operation.
    async fn undo(&self, name: &str) {
        if let Some((id, _)) = self.activation() {
            let words = format!("rollback {id} --yes --lock-ttl 2 --take-over");
            self.operation_on_both(&words).expect(0);
            self.operation(&format!("forget {id} --yes")).expect(0);
        }
        assert_eq!(self.suspended(name).await, (false, true), "it is active in the source");
    }

    /// Kills `activate` at a write, then completes it or moves it back; then the same with `deactivate`. A late request of a killed
    /// process changes nothing. Returns how many processes were killed.
    async fn round(&self, gates: &Gates, name: &str, troubles: [Trouble; 2], completes: bool) -> usize {
        let mut kills = 0;
        let [forward, back] = troubles;
        kills += usize::from(gates.kill(self, "activate", forward).await);
        if completes {
            self.complete(name).await;
        } else {
            self.undo(name).await;
        }
        let before = self.suspended(name).await;
        gates.troubles.deliver().await;
        assert_eq!(self.suspended(name).await, before, "{forward:?}: a late request changed something");
        if completes {
            kills += usize::from(gates.kill(self, "deactivate", back).await);
            self.undo(name).await;
            gates.troubles.deliver().await;
            assert_eq!(
                self.suspended(name).await,
                (false, true),
                "{back:?}: a late request changed something"
            );
        }
        kills
    }
}

impl Pair {
    /// Runs a command of `mirror` to its end, while the controllers of a cluster stand still for some seconds.
    async fn disturbed(&mut self, words: &str, is_disturbed: bool, cluster: fn(&mut Self) -> &mut Cluster) {
        let mirror = self.mirror.kubeconfig().display().to_string();
        let mut command = self.command(&format!("mirror {words} --yes --mirror-kubeconfig {mirror}"));
        if is_disturbed {
            cluster(self).pause_controllers();
        }
        let mut child = command.spawn().expect("it starts");
        if is_disturbed {
            tokio::time::sleep(STANDSTILL).await;
            cluster(self).resume_controllers();
        }
        let status =
            tokio::task::spawn_blocking(move || child.wait()).await.expect("it ends").expect("a status");
        assert!(status.success(), "{words}: {status}");
    }
}

/// Processes are killed at writes to the CronJobs of both clusters, and requests of killed processes arrive late.
#[tokio::test(flavor = "multi_thread")]
async fn killed_activation_is_completed_or_undone() {
    let mut pair = Pair::start().await;
    // No scheduled time passes, so the number of writes is known.
    pair.copied(&[cron_job("quiet", &json!({"schedule": "0 0 1 1 *"}))]).await;
    let watcher = Watcher::start(&pair).await;
    let gates = Gates::open(&pair, "/cronjobs/").await;
    let (before, after, late) = (Trouble::KilledBefore, Trouble::KilledAfter, Trouble::KilledAndLate);
    let mut kills = 0;
    // Write 1 suspends, 2 adds the ghost. In the first round, 3 writes the time. The last write unsuspends; in `deactivate`, the one
    // before removes the annotation.
    for (forward, back, completes) in [
        (after(1), after(1), true),
        (late(3), before(1), false),
        (before(3), late(4), true),
        (late(1), before(1), false),
    ] {
        kills += pair.round(&gates, "quiet", [forward, back], completes).await;
    }
    assert_eq!(kills, 6);
    println!("{kills} processes killed, {} wake-ups", watcher.check().1);
    drop(watcher);
    // A new API server does not have the earlier changes of the Jobs: scheduled times up to the suspension count as run.
    assert!(gates.kill(&pair, "activate", after(1)).await);
    pair.source.restart_api_server(0).await;
    pair.complete("quiet").await;
    let (source, mirror) = (pair.cron_job(true, "quiet").await, pair.cron_job(false, "quiet").await);
    let text = |value: &Value| value.as_str().expect("a time").to_owned();
    let suspended = source["metadata"]["managedFields"]
        .as_array()
        .expect("entries")
        .iter()
        .find(|entry| entry["manager"] == "netsurgeon-activation" && entry["subresource"].is_null());
    let suspended = text(&suspended.expect("an entry")["time"]);
    assert_eq!(text(&mirror["status"]["lastScheduleTime"]), suspended);
    assert!(suspended > text(&source["metadata"]["creationTimestamp"]));
}

/// A process is killed at each write of `activate` and of `deactivate`, in both clusters and in the record.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a quarter of an hour, in `make soak`: needs `make rig` and root"]
async fn activation_is_killed_at_every_write() {
    let pair = Pair::start().await;
    pair.copied(&[cron_job("history", &json!({"successfulJobsHistoryLimit": 0}))]).await;
    let watcher = Watcher::start(&pair).await;
    let gates = Gates::open(&pair, "").await;
    let mut kills = 0;
    // A round that completes `activate` also kills `deactivate`. Each write has one of each.
    for parity in [1, 0] {
        for write in 1.. {
            let kinds = [Trouble::KilledBefore, Trouble::KilledAfter, Trouble::KilledAndLate];
            let trouble = kinds[(write + parity) % 3](write);
            let completes = write % 2 == parity;
            let killed = pair.round(&gates, "history", [trouble, trouble], completes).await;
            kills += killed;
            if killed == 0 {
                break;
            }
            watcher.check();
        }
    }
    let (runs, wakes) = watcher.check();
    println!(
        "{kills} processes killed, {runs} runs, {wakes} wake-ups, none twice; lost: {:?}",
        watcher.lost()
    );
}

/// CronJobs move there and back until there were 100 wake-ups. In every second round, the controllers of the cluster in which they are
/// active stand still for some seconds.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a quarter of an hour, in `make soak`: needs `make rig` and root"]
async fn hundred_wake_ups_run_nothing_twice() {
    let mut pair = Pair::start().await;
    let mut cron_jobs = Vec::new();
    for number in 0..4 {
        let none = json!({"successfulJobsHistoryLimit": 0});
        cron_jobs.push(cron_job(&format!("none-{number}"), &none));
        cron_jobs.push(cron_job(&format!("forbid-{number}"), &json!({"concurrencyPolicy": "Forbid"})));
        cron_jobs.push(cron_job(&format!("replace-{number}"), &json!({"concurrencyPolicy": "Replace"})));
    }
    pair.copied(&cron_jobs).await;
    let watcher = Watcher::start(&pair).await;
    let (mut wakes, mut round) = (0, 0);
    while wakes < 100 {
        pair.disturbed("activate", round % 2 == 1, |pair| &mut pair.source).await;
        let (id, _) = pair.activation().expect("an activation");
        pair.disturbed("deactivate", round % 2 == 1, |pair| &mut pair.mirror).await;
        pair.operation(&format!("forget {id} --yes")).expect(0);
        round += 1;
        wakes = watcher.check().1 - cron_jobs.len();
    }
    let (runs, _) = watcher.check();
    println!("{wakes} wake-ups, {runs} runs, none twice; lost: {:?}", watcher.lost());
    assert_eq!(watcher.lost(), Vec::new());
}

/// A workload whose Pods no kubelet runs: it never becomes available.
fn deployment(name: &str) -> Value {
    let pod =
        json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": pod});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec})
}

fn service(name: &str) -> Value {
    let spec = json!({"selector": {"app": name}, "ports": [{"port": 80}]});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec})
}

/// A Job that a `CronJob` controls and that does not finish.
fn endless_job(owner: &Value) -> Value {
    let (name, uid) = (&owner["metadata"]["name"], &owner["metadata"]["uid"]);
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": name, "uid": uid, "controller": true});
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod},
           "metadata": {"namespace": NAMESPACE, "name": "endless", "ownerReferences": [owner]}})
}

/// What cannot move is active in the source again, and is named. Workloads move with their replicas, and the commands for copies know
/// what an activation has moved.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_move_stays_in_the_source() {
    let mut pair = Pair::start().await;
    let yearly = json!({"schedule": "0 0 1 1 *"});
    pair.copied(&[
        cron_job("quiet", &yearly),
        cron_job("busy", &yearly),
        deployment("worker"),
        service("worker"),
    ])
    .await;
    let worker = "/apis/apps/v1/namespaces/shop/deployments/worker";
    let passive =
        json!({"metadata": {"annotations": {"mirror.netsurgeon.io/replicas": "3"}}, "spec": {"replicas": 0}});
    pair.mirror.api.merge(worker, &passive).await;
    let watcher = Watcher::start(&pair).await;
    let busy = pair.cron_job(true, "busy").await;
    pair.source.api.create(&endless_job(&busy)).await;

    // The controllers of the source stand still: no proof, so nothing moves.
    pair.source.pause_controllers();
    let skipped = pair
        .mirror_command("activate --yes --wait-controllers 1 --wait-jobs 1 --wait-ready 0 -o json")
        .expect(3);
    for name in ["quiet", "busy"] {
        says(&skipped.err, &[name, "controller of the source has not answered", "active in the source"]);
        assert_eq!(pair.suspended(name).await, (false, true), "{name}");
    }
    says(&skipped.err, &["deployments.apps/shop/worker", "have not ended", "runs in the source"]);
    let replicas = async |api: &Api| api.get(worker).await["spec"]["replicas"].clone();
    assert_eq!((replicas(&pair.source.api).await, replicas(&pair.mirror.api).await), (json!(2), json!(0)));
    pair.source.resume_controllers();
    let first = ids(&skipped).remove(0);

    // One CronJob has a Job that does not finish.
    let moved = pair.mirror_command("activate --yes --wait-jobs 5 --wait-ready 0 -o json").expect(3);
    says(&moved.err, &["cronjobs.batch/shop/busy", "have not finished", "endless"]);
    says(&moved.err, &["Deployment shop/worker", "not available"]);
    assert_eq!((pair.suspended("quiet").await, pair.suspended("busy").await), ((true, false), (false, true)));
    assert_eq!((replicas(&pair.source.api).await, replicas(&pair.mirror.api).await), (json!(0), json!(3)));
    copies_are_known(&pair).await;

    let back = pair.mirror_command("deactivate --yes -o json").expect(0);
    assert_eq!(ids(&back), [ids(&moved).remove(0), first]);
    assert_eq!((pair.suspended("quiet").await, pair.suspended("busy").await), ((false, true), (false, true)));
    assert_eq!((replicas(&pair.source.api).await, replicas(&pair.mirror.api).await), (json!(2), json!(0)));
    watcher.check();
    drop(watcher);
    // Without its source nothing moves.
    pair.source.stop_api_servers();
    let lost = pair.mirror_command("activate --yes").expect(1);
    says(&lost.err, &["nothing was changed"]);
}

/// A plan and `verify` count a moved copy as equal, and a teardown is refused.
async fn copies_are_known(pair: &Pair) {
    let plan = pair.workspace.join("again.json").display().to_string();
    let planned = pair.mirror_command(&format!("plan -n {NAMESPACE} --save {plan} -o json")).expect(0).json();
    let objects = planned["objects"].as_array().expect("objects");
    let entry = |name: &str| objects.iter().find(|one| one["name"] == name && one["kind"] == "CronJob");
    assert_eq!(entry("quiet").expect("an entry")["action"], "same", "{planned}");
    says(&pair.mirror_command("teardown --yes").expect(1).err, &["mirror deactivate"]);
    // In this test the copy of the Deployment was made passive by hand, so it differs in its annotation only.
    let verified = pair.mirror_command("verify --skip-readiness -o json").json();
    let objects = verified["objects"].as_array().expect("objects");
    let quiet = objects.iter().find(|one| one["object"] == "CronJob shop/quiet").expect("an entry");
    assert_eq!(quiet["state"], "equal", "{verified}");
    // The source changes: the copy gets the change, and stays active.
    let change = json!({"spec": {"startingDeadlineSeconds": 100}});
    pair.source.api.merge(&format!("{CRON_JOBS}/quiet"), &change).await;
    pair.mirror_command(&format!("plan -n {NAMESPACE} --save {plan}")).expect(0);
    pair.mirror_command(&format!("apply --plan {plan} --yes"));
    assert_eq!(pair.cron_job(false, "quiet").await["spec"]["startingDeadlineSeconds"], 100);
    assert_eq!(pair.suspended("quiet").await, (true, false));
}

/// Copies in a namespace with another name move there and back.
#[tokio::test(flavor = "multi_thread")]
async fn copies_in_a_renamed_namespace_move() {
    let pair = Pair::start().await;
    let mut worker = deployment("worker");
    worker["metadata"]["labels"] = json!({"tier": "worker"});
    for object in [cron_job("quiet", &json!({"schedule": "0 0 1 1 *"})), worker, service("worker")] {
        pair.source.api.create(&object).await;
    }
    let config = "namespaces: [shop]\nrename: {shop: shop-green}\npassive: {workloads: [\"tier=worker\"]}\n";
    let config = pair.workspace.write("mirror.yaml", config).display().to_string();
    let plan = pair.workspace.join("plan.json").display().to_string();
    pair.mirror_command(&format!("plan --config {config} --save {plan}")).expect(0);
    pair.mirror_command(&format!("apply --plan {plan} --yes")).expect(0);
    let state = async || {
        let mut found = Vec::new();
        for (api, namespace) in [(&pair.source.api, "shop"), (&pair.mirror.api, "shop-green")] {
            let cron_job = api.get(&format!("/apis/batch/v1/namespaces/{namespace}/cronjobs/quiet")).await;
            let worker = api.get(&format!("/apis/apps/v1/namespaces/{namespace}/deployments/worker")).await;
            found.push((cron_job["spec"]["suspend"] == true, worker["spec"]["replicas"].as_u64()));
        }
        found
    };
    let at_first = [(false, Some(2)), (true, Some(0))];
    assert_eq!(state().await, at_first);
    pair.mirror_command("activate --yes --wait-ready 0").expect(3);
    assert_eq!(state().await, [(true, Some(0)), (false, Some(2))]);
    // A plan with the same rename knows what has moved.
    let again =
        pair.mirror_command(&format!("plan --config {config} --save {plan} -o json")).expect(0).json();
    let changes = again["objects"].as_array().expect("objects").iter();
    let changes: Vec<_> =
        changes.filter(|one| one["action"] != "same" && one["action"] != "left-out").collect();
    assert!(changes.is_empty(), "{changes:?}");
    says(&pair.mirror_command("teardown --yes").expect(1).err, &["mirror deactivate"]);
    pair.mirror_command("deactivate --yes").expect(0);
    assert_eq!(state().await, at_first);
    assert!(pair.mirror.api.find("/api/v1/namespaces/shop").await.is_none());
}

/// Processes are killed at random instants of `activate` and of `deactivate`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a quarter of an hour, in `make soak`: needs `make rig` and root"]
async fn activation_is_killed_at_random_instants() {
    let pair = Pair::start().await;
    pair.copied(&[cron_job("history", &json!({"successfulJobsHistoryLimit": 0}))]).await;
    let watcher = Watcher::start(&pair).await;
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let mirror = pair.mirror.kubeconfig().display().to_string();
    let mut kills = 0;
    for round in 0..50 {
        for words in ["activate", "deactivate"] {
            let words = format!("{words} --yes --lock-ttl 2 --take-over --mirror-kubeconfig {mirror}");
            let mut command = pair.command(&format!("mirror {words}"));
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
            tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
            kills += usize::from(child.try_wait().expect("it can be waited for").is_none());
            end_at_once(&mut child);
            if words.starts_with("activate") && round % 2 == 0 {
                pair.complete("history").await;
            } else {
                pair.undo("history").await;
            }
        }
        watcher.check();
    }
    println!("seed {seed}: {kills} of 100 processes killed before their end, {:?}", watcher.check());
    assert!(kills > 50, "{kills}");
}
