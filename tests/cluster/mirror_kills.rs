//! `netsurgeon mirror apply` and `teardown` are killed: at each write to the mirror, and at random instants. Another process in another
//! folder continues. The end is the same as without a kill: after `apply` the same objects, and after `teardown` the stored values of
//! before.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::GetOptions;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};

use super::mirror::declared;
use super::mirror_objects::{
    account, binding, definition, of_cluster, serves_widgets, widget, with_duplicates,
};
use super::mirror_pair::{NAMESPACE, PATIENCE, Pair, account_exists, config_map, end_at_once, object, seed};
use super::rig::api::{Api, object_path};
use super::rig::api_gate::{ApiGate, Trouble, Troubles};
use super::rig::cluster::Cluster;
use super::rig::process::wait_until;
use super::rig::run::{Run, run};
use super::rig::workspace::Workspace;

/// The second namespace, which the mirror does not have.
const NEW: &str = "pay";

/// Two clusters, a plan, and the states that every round must reach.
struct Kills {
    pair: Pair,
    troubles: Arc<Troubles>,
    /// A kubeconfig of the mirror, through a gate.
    gated: String,
    /// The folder of the process that continues.
    elsewhere: Workspace,
    /// Number of operations that every round finds, and keeps.
    kept: usize,
    /// The namespace of the plan.
    namespace: &'static str,
    /// The state before `apply`.
    before: State,
    /// The objects of the mirror after an undisturbed `apply`.
    copied: BTreeMap<String, Value>,
    /// How long an undisturbed `apply` and `teardown` took.
    lasted: [Duration; 2],
}

#[derive(PartialEq)]
enum State {
    /// The stored values.
    Stored(BTreeMap<String, Vec<u8>>),
    /// The objects, without uids, versions and times.
    Objects(BTreeMap<String, Value>),
}

impl Default for State {
    fn default() -> Self {
        Self::Stored(BTreeMap::new())
    }
}

impl State {
    fn differing(&self, other: &Self) -> Vec<String> {
        match (self, other) {
            (Self::Stored(one), Self::Stored(other)) => differing(one, other),
            (Self::Objects(one), Self::Objects(other)) => differing(one, other),
            _ => panic!("states of different kinds"),
        }
    }
}

/// When a process is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    At(Trouble),
    After(Duration),
}

/// Objects of every stage; among them those that server-side apply refuses.
fn objects() -> Vec<Value> {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let keys: Map<String, Value> =
        (0..40_000).map(|key| (format!("key-{key:05}"), json!("0123456789ab"))).collect();
    let mut elsewhere = config_map("settings", "of the other namespace");
    elsewhere["metadata"]["namespace"] = json!(NEW);
    let mut found = vec![
        definition(),
        of_cluster("scheduling.k8s.io/v1", "PriorityClass", "urgent", &json!({"value": 100})),
        of_cluster("rbac.authorization.k8s.io/v1", "ClusterRole", "reader", &json!({"rules": rules})),
        binding("ClusterRoleBinding", "own", &json!([account(NAMESPACE)])),
        binding("RoleBinding", "own", &json!([account(NAMESPACE)])),
        with_duplicates("2"),
        object(
            "v1",
            "Service",
            "twice",
            &json!({"spec": {"selector": {"app": "twice"}, "ports": [{"port": 80}]}}),
        ),
        object("v1", "ConfigMap", "large", &json!({"data": keys})),
        object("v1", "ResourceQuota", "all", &json!({"spec": {"hard": {"configmaps": "50"}}})),
        elsewhere,
    ];
    found.extend(declared());
    let mut weekly = declared().into_iter().find(|one| one["kind"] == "CronJob").expect("a CronJob");
    weekly["metadata"]["name"] = json!("weekly");
    // Nothing but names: an apply leaves no trace in `managedFields`.
    found.extend([weekly, object("v1", "ServiceAccount", "plain", &json!({}))]);
    found
}

/// Start of the keys of operations. The first request of an operation can arrive late: it does not start the operation, and the next
/// operation removes its remains.
const HEAD: &str = "/registry/configmaps/netsurgeon/netsurgeon-mirror-";

/// Returns every stored value that no process of the control plane changes by itself.
async fn dump(cluster: &Cluster) -> BTreeMap<String, Vec<u8>> {
    let skipped = ["events/", "leases/", "masterleases/", "peerserverleases/"];
    let options = GetOptions::new().with_prefix();
    let found = cluster.etcd.client().await.get("/registry/", Some(options)).await.expect("etcd answers");
    let of = |one: &etcd_client::KeyValue| (one.key_str().expect("a key").to_owned(), one.value().to_vec());
    let is_compared = |key: &str| {
        let rest = key.trim_start_matches("/registry/");
        !skipped.iter().any(|skipped| rest.starts_with(skipped))
    };
    found.kvs().iter().map(of).filter(|(key, _)| is_compared(key) && !key.starts_with(HEAD)).collect()
}

/// Returns every object of a cluster, without what differs between two copies of one object: uids, versions, times and addresses. The
/// records of operations are not contained.
async fn objects_of(api: &Api) -> BTreeMap<String, Value> {
    let mut versions = vec!["/api/v1".to_owned()];
    for group in api.get("/apis").await["groups"].as_array().expect("groups") {
        let version = group["preferredVersion"]["groupVersion"].as_str().expect("a version");
        versions.push(format!("/apis/{version}"));
    }
    let mut found = BTreeMap::new();
    for version in versions {
        for kind in api.get(&version).await["resources"].as_array().expect("resources") {
            let plural = kind["name"].as_str().expect("a name");
            let is_listed = kind["verbs"].as_array().expect("verbs").contains(&json!("list"));
            let is_skipped =
                ["events", "leases", "endpoints", "endpointslices", "ipaddresses", "componentstatuses"]
                    .contains(&plural);
            if !is_listed || is_skipped {
                continue;
            }
            for mut one in api.list(&format!("{version}/{plural}")).await {
                let of = |field: &str| one["metadata"][field].as_str().unwrap_or_default().to_owned();
                if of("namespace") == "netsurgeon" {
                    continue;
                }
                let name = format!("{version}/{plural} {}/{}", of("namespace"), of("name"));
                without_chance(&mut one);
                found.insert(name, one);
            }
        }
    }
    found
}

fn without_chance(value: &mut Value) {
    const CHANCE: [&str; 13] = [
        "mirror.netsurgeon.io/created-by",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "time",
        "lastTransitionTime",
        "lastUpdateTime",
        "clusterIP",
        "clusterIPs",
        "nodePort",
        "caBundle",
        "generation",
        "observedGeneration",
    ];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !CHANCE.contains(&name.as_str()));
            fields.values_mut().for_each(without_chance);
        }
        Value::Array(items) => items.iter_mut().for_each(without_chance),
        _ => {}
    }
}

/// Returns the keys of values that differ.
fn differing<V: PartialEq>(one: &BTreeMap<String, V>, other: &BTreeMap<String, V>) -> Vec<String> {
    let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    keys.into_iter().filter(|key| one.get(*key) != other.get(*key)).cloned().collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

impl Kills {
    /// Starts the clusters. The mirror has one of two namespaces, with an object of others.
    async fn start() -> Self {
        let pair = Pair::start(true).await;
        for api in [&pair.source.api, &pair.mirror.api] {
            api.create_namespace(NAMESPACE).await;
            account_exists(api, NAMESPACE).await;
        }
        pair.source.api.create_namespace(NEW).await;
        pair.create(&objects()).await;
        serves_widgets(&pair.source.api).await;
        pair.create(&[widget("one", &[])]).await;
        pair.mirror.api.create(&config_map("theirs", "theirs")).await;
        let troubles = Troubles::none();
        let gate = ApiGate::open(pair.mirror.api.client(), &troubles).await;
        let gated = pair.workspace.write("gate.conf", gate.kubeconfig()).display().to_string();
        Self {
            pair,
            troubles,
            gated,
            elsewhere: Workspace::create("elsewhere"),
            kept: 0,
            namespace: NAMESPACE,
            before: State::default(),
            copied: BTreeMap::new(),
            lasted: [Duration::ZERO; 2],
        }
    }

    fn plan(&self) {
        self.pair.run(&format!("plan -n {} --save {}", self.namespace, self.pair.plan)).expect(0);
    }

    /// Notes the states of an undisturbed run.
    async fn rehearse(&mut self, namespace: &'static str) {
        self.namespace = namespace;
        self.before = self.state().await;
        self.plan();
        let started = Instant::now();
        let applied = self.pair.apply().expect(0).json();
        self.lasted[0] = started.elapsed();
        self.copied = objects_of(&self.pair.mirror.api).await;
        let id = text(&applied["operation"]);
        let started = Instant::now();
        self.pair.run(&format!("teardown {id} --yes")).expect(0);
        self.lasted[1] = started.elapsed();
        if self.kept == 0 {
            self.forget(&id);
        } else {
            self.kept += 1;
        }
        self.is_as_before("undisturbed").await;
        println!("undisturbed: {:?}", self.lasted);
    }

    /// Copies the namespace, then changes the source: a plan contains updates, deletions and a creation.
    async fn change_the_source(&mut self) {
        self.namespace = NAMESPACE;
        self.plan();
        self.pair.apply().expect(0);
        self.kept = 1;
        let api = &self.pair.source.api;
        api.merge(&object_path(&config_map("settings", "")), &json!({"data": {"a": null, "b": "new"}})).await;
        let twice = with_duplicates("3")["spec"]["template"]["spec"]["containers"][0].clone();
        let change = json!({"spec": {"template": {"spec": {"containers": [twice]}}}});
        api.merge(&object_path(&with_duplicates("3")), &change).await;
        for path in [
            "networking.k8s.io/v1/namespaces/shop/ingresses/web",
            "example.com/v1/namespaces/shop/widgets/one",
        ] {
            api.delete(&format!("/apis/{path}")).await;
        }
        self.pair.create(&[config_map("new", "1")]).await;
    }

    /// Returns the state that a teardown restores. A teardown of changes cannot restore uids and versions.
    async fn state(&self) -> State {
        if self.kept > 0 {
            return State::Objects(objects_of(&self.pair.mirror.api).await);
        }
        State::Stored(dump(&self.pair.mirror).await)
    }

    fn forget(&self, id: &str) {
        self.pair.operation(&format!("forget {id} --yes")).expect(0);
    }

    /// Runs a command in the other folder.
    fn elsewhere(&self, words: &str) -> Run {
        let mut command = self.pair.command(words);
        command.current_dir(self.elsewhere.path());
        run(words, command)
    }

    /// Returns the newest operations of this round, with their states.
    fn operations(&self) -> Vec<(String, String)> {
        let listed = self.pair.operation("list -o json").expect(0).json();
        let operations = listed["operations"].as_array().expect("operations");
        let mut found: Vec<(String, String)> =
            operations.iter().map(|one| (text(&one["operation"]), text(&one["status"]))).collect();
        found.sort();
        found.split_off(self.kept)
    }

    /// Runs a command until it is killed. Returns `false` if it ended before.
    async fn kill(&self, words: &str, kill: Kill) -> bool {
        let words = format!("{words} --yes --lock-ttl 2 --take-over --mirror-kubeconfig {}", self.gated);
        let mut command: Command = self.pair.command(&words);
        let trouble = match kill {
            Kill::At(trouble) => trouble,
            Kill::After(_) => Trouble::None,
        };
        self.troubles.arm(trouble);
        let log = self.pair.workspace.join("killed.log");
        let file = std::fs::File::create(&log).expect("a file");
        command.stdout(Stdio::null()).stderr(file);
        let mut child = command.spawn().expect("it starts");
        let end = Instant::now() + PATIENCE;
        let pause = match kill {
            Kill::At(_) => Duration::from_millis(50),
            Kill::After(delay) => delay,
        };
        loop {
            let is_timed = tokio::select! {
                () = self.troubles.killed() => true,
                () = tokio::time::sleep(pause) => matches!(kill, Kill::After(_)),
            };
            if let Some(status) = child.try_wait().expect("it can be waited for") {
                let told = std::fs::read_to_string(&log).expect("a file");
                assert!(status.success(), "{words}: {told}");
                return false;
            }
            if is_timed {
                end_at_once(&mut child);
                println!("killed at {kill:?}: {words}: {:?}", self.troubles.seen().last());
                return true;
            }
            assert!(Instant::now() < end, "{words} neither ends nor is killed");
        }
    }

    /// Completes the killed `apply`. Returns the id of its operation.
    fn resume(&self) -> String {
        let mirror = self.pair.mirror.kubeconfig().display().to_string();
        let source = self.pair.source.kubeconfig().display().to_string();
        let Some((id, status)) = self.operations().pop() else {
            let plan = &self.pair.plan;
            let words = format!(
                "mirror apply --plan {plan} --yes --lock-ttl 2 --take-over --mirror-kubeconfig {mirror} -o json"
            );
            return text(&self.elsewhere(&words).expect(0).json()["operation"]);
        };
        if status != "done" {
            let words = format!(
                "operation resume {id} --lock-ttl 2 --take-over --kubeconfig {mirror} --source-kubeconfig {source}"
            );
            self.elsewhere(&words).expect(0);
        }
        id
    }

    /// Completes the killed `teardown`, in one of two ways.
    fn tear_down(&self, id: &str, resumes: bool) {
        let mirror = self.pair.mirror.kubeconfig().display().to_string();
        let of = |wanted: &str| {
            self.operations().into_iter().find(|(id, _)| id == wanted).map(|(_, status)| status)
        };
        let status = of(id).expect("the operation");
        if resumes && status != "done" && status != "rolled-back" {
            let words = format!("operation resume {id} --lock-ttl 2 --take-over --kubeconfig {mirror}");
            self.elsewhere(&words).expect(0);
        } else {
            let words =
                format!("mirror teardown {id} --yes --lock-ttl 2 --take-over --mirror-kubeconfig {mirror}");
            self.elsewhere(&words).expect(0);
        }
        assert_eq!(of(id).as_deref(), Some("rolled-back"));
    }

    async fn is_as_before(&self, context: &str) {
        wait_until(&format!("{context}: etcd has what it had before"), PATIENCE, async || {
            let keys = self.state().await.differing(&self.before);
            if keys.is_empty() { Ok(()) } else { Err(keys.join(", ")) }
        })
        .await;
    }

    async fn is_copied(&self, context: &str) {
        wait_until(&format!("{context}: the mirror has the copies"), PATIENCE, async || {
            let now = objects_of(&self.pair.mirror.api).await;
            match differing(&now, &self.copied).first() {
                None => Ok(()),
                Some(key) => Err(format!("{key}: {:?} instead of {:?}", now.get(key), self.copied.get(key))),
            }
        })
        .await;
    }

    /// Kills `apply`, completes it, kills `teardown`, and completes it. Returns how many processes were killed.
    async fn round(&mut self, [forward, back]: [Kill; 2], options: &str, resumes: bool) -> usize {
        let context = format!("{forward:?}, {back:?}, {options}");
        self.plan();
        let apply = format!("mirror apply --plan {} {options}", self.pair.plan);
        let mut kills = usize::from(self.kill(&apply, forward).await);
        let id = self.resume();
        self.troubles.deliver().await;
        self.is_copied(&context).await;
        self.pair.run(&format!("verify --skip-readiness {id}")).expect(0);
        kills += usize::from(self.kill(&format!("mirror teardown {id} {options}"), back).await);
        self.tear_down(&id, resumes);
        self.troubles.deliver().await;
        // The record of a deletion that was rolled back says to whom the new object belongs.
        if self.kept == 0 {
            self.operations().iter().for_each(|(id, _)| self.forget(id));
        } else {
            self.kept += self.operations().len();
        }
        self.is_as_before(&context).await;
        if self.kept == 0 {
            let remains = self.pair.mirror.etcd.keys(HEAD).await;
            assert!(remains.len() <= 1, "{context}: {remains:?}");
            assert_eq!(self.operations(), []);
        }
        kills
    }
}

impl Kills {
    /// Kills at writes: the first, and then every `stride`th, until both commands end before, or after some rounds. The kinds of kills alternate.
    async fn at_writes(&mut self, (first, stride): (usize, usize), rounds: usize) -> usize {
        let kinds = [Trouble::KilledBefore, Trouble::KilledAfter, Trouble::KilledAndLate];
        let mut kills = 0;
        for (round, write) in (first..).step_by(stride).take(rounds).enumerate() {
            let of = |shift: usize| Kill::At(kinds[(round + shift) % 3](write));
            let killed = self.round([of(first), of(first + 1)], "--parallel 1", round % 2 == 0).await;
            kills += killed;
            if killed == 0 {
                break;
            }
        }
        kills
    }

    /// Kills at random instants.
    async fn at_instants(&mut self, rounds: usize, seed: u64) -> usize {
        let mut random = StdRng::seed_from_u64(seed);
        let mut kills = 0;
        for round in 0..rounds {
            let after = self.lasted.map(|most| Kill::After(random.random_range(Duration::ZERO..most)));
            kills += self.round(after, "", round % 2 == 0).await;
        }
        kills
    }
}

/// A sample of the loops below.
#[tokio::test(flavor = "multi_thread")]
async fn killed_mirror_reaches_the_same_end() {
    let mut kills = Kills::start().await;
    kills.rehearse(NAMESPACE).await;
    let at_writes = kills.at_writes((11, 31), 3).await;
    let at_instants = kills.at_instants(1, seed()).await;
    println!("{at_writes} processes killed at a write, {at_instants} at a random instant");
    assert!(at_writes > 3, "{at_writes}");
}

/// Objects of every stage, in a namespace that exists.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a quarter of an hour, in `make soak`: needs `make rig` and root"]
async fn mirror_is_killed_at_every_write() {
    let mut kills = Kills::start().await;
    kills.rehearse(NAMESPACE).await;
    let mut killed = 0;
    for first in 1..=3 {
        killed += kills.at_writes((first, 1), usize::MAX).await;
    }
    println!("{killed} processes killed");
}

/// A namespace that the mirror does not have.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes, in `make soak`: needs `make rig` and root"]
async fn mirror_of_a_new_namespace_is_killed_at_every_write() {
    let mut kills = Kills::start().await;
    kills.rehearse(NEW).await;
    let killed = kills.at_writes((1, 1), usize::MAX).await;
    println!("{killed} processes killed");
}

/// Copies are updated and deleted, and a rollback restores them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes, in `make soak`: needs `make rig` and root"]
async fn update_of_a_mirror_is_killed_at_every_write() {
    let mut kills = Kills::start().await;
    kills.change_the_source().await;
    kills.rehearse(NAMESPACE).await;
    let killed = kills.at_writes((1, 1), usize::MAX).await;
    println!("{killed} processes killed");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a quarter of an hour, in `make soak`: needs `make rig` and root"]
async fn mirror_is_killed_at_random_instants() {
    let mut kills = Kills::start().await;
    kills.rehearse(NAMESPACE).await;
    let killed = kills.at_instants(50, seed()).await;
    println!("{killed} processes killed in 50 rounds");
}
