//! Two real clusters of different versions for the tests of `netsurgeon mirror`: a source and its mirror.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::{Value, json};

use super::rig::api::Api;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::run::{Run, run};
use super::rig::workspace::Workspace;

pub const PATIENCE: Duration = Duration::from_mins(3);
pub const NAMESPACE: &str = "shop";

/// A source of an older version, and its mirror.
pub struct Pair {
    pub source: Cluster,
    pub mirror: Cluster,
    pub workspace: Workspace,
    pub plan: String,
}

impl Pair {
    pub async fn start(controllers: bool) -> Self {
        Self::with(&|era| ClusterOptions { controllers, ..ClusterOptions::new(era) }).await
    }

    /// Starts the clusters with the controllers of workloads.
    pub async fn with_workload_controllers() -> Self {
        Self::with(&|era| ClusterOptions { workload_controllers: true, ..ClusterOptions::new(era) }).await
    }

    async fn with(options: &dyn Fn(Era) -> ClusterOptions) -> Self {
        let source = Cluster::start(options(Era::Bitmap)).await;
        let mirror = Cluster::start(options(Era::Objects)).await;
        // Otherwise the first operation creates it.
        mirror.api.create_namespace("netsurgeon").await;
        let workspace = Workspace::create("mirror");
        let plan = workspace.join("plan.json").display().to_string();
        Self { source, mirror, workspace, plan }
    }

    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command.args(words.split_whitespace()).env("KUBECONFIG", self.source.kubeconfig());
        command.env_remove("ETCDCTL_ENDPOINTS");
        command
    }

    /// Runs a command of `mirror`.
    pub fn run(&self, words: &str) -> Run {
        let words = format!("mirror {words} --mirror-kubeconfig {}", self.mirror.kubeconfig().display());
        run(&words, self.command(&words))
    }

    /// Runs a command of `operation` on the mirror.
    pub fn operation(&self, words: &str) -> Run {
        let words = format!("operation {words} --kubeconfig {}", self.mirror.kubeconfig().display());
        run(&words, self.command(&words))
    }

    /// Creates and saves a plan. Returns it.
    pub fn plan(&self, words: &str) -> Value {
        self.run(&format!("plan -n {NAMESPACE} --save {} -o json {words}", self.plan)).expect(0).json()
    }

    pub fn apply(&self) -> Run {
        self.run(&format!("apply --plan {} --yes -o json", self.plan))
    }

    /// Waits until the mirror has exactly these stored objects.
    pub async fn mirror_is(&self, before: &BTreeMap<String, Vec<u8>>) {
        wait_until("the mirror has the objects that it had before", PATIENCE, async || {
            let now = stored(&self.mirror).await;
            let differ = |key: &&String| now.get(*key) != before.get(*key);
            let keys: Vec<String> = now.keys().chain(before.keys()).filter(differ).cloned().collect();
            if keys.is_empty() { Ok(()) } else { Err(keys.join(", ")) }
        })
        .await;
    }

    /// Removes the records of all operations, which must have ended.
    pub fn forget_all(&self) {
        let listed = self.operation("list -o json").expect(0).json();
        for one in listed["operations"].as_array().expect("operations") {
            self.operation(&format!("forget {} --yes", one["operation"].as_str().expect("an id"))).expect(0);
        }
    }

    pub async fn create(&self, objects: &[Value]) {
        for object in objects {
            self.source.api.create(object).await;
        }
    }
}

pub fn object(api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    object_in(NAMESPACE, api_version, kind, name, rest)
}

pub fn config_map(name: &str, value: &str) -> Value {
    object("v1", "ConfigMap", name, &json!({"data": {"a": value}}))
}

/// An object of a namespace. `rest`: its other fields, which replace those of the same name.
pub fn object_in(namespace: &str, api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}});
    for (key, value) in rest.as_object().expect("fields") {
        object[key] = value.clone();
    }
    object
}

/// The stored objects of a cluster, without events, Leases, and what API servers write by themselves.
pub async fn stored(cluster: &Cluster) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let skipped = ["events/", "leases/", "masterleases/", "peerserverleases/", "ranges/", "flowschemas/"];
    for key in cluster.etcd.keys("/registry/").await {
        let rest = key.trim_start_matches("/registry/");
        if skipped.iter().any(|skipped| rest.starts_with(skipped)) {
            continue;
        }
        // API servers and their controllers change the values of other kinds by themselves.
        let is_compared = ["configmaps/", "serviceaccounts/", "secrets/", "services/"]
            .iter()
            .any(|kind| rest.starts_with(kind));
        let value = if is_compared { cluster.etcd.get(&key).await.unwrap_or_default() } else { Vec::new() };
        found.insert(key, value);
    }
    found
}

/// Waits for the ServiceAccount that a controller creates in a namespace. Returns its path.
pub async fn account_exists(api: &Api, namespace: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    wait_until("the ServiceAccount `default` exists", PATIENCE, async || {
        api.find(&path).await.map(drop).ok_or_else(|| "it does not exist".to_owned())
    })
    .await;
    path
}

/// The seed of random instants.
pub fn seed() -> u64 {
    let seed = std::env::var("NETSURGEON_KILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("seed {seed}");
    seed
}

/// Kills a process, and waits for its end.
pub fn end_at_once(child: &mut Child) {
    child.kill().expect("the process runs");
    child.wait().expect("the process has ended");
}

/// Returns the action of an object in a plan.
pub fn action<'p>(plan: &'p Value, object: &Value) -> &'p Value {
    let objects = plan["objects"].as_array().expect("objects");
    let is_it =
        |entry: &&Value| entry["kind"] == object["kind"] && entry["name"] == object["metadata"]["name"];
    objects.iter().find(is_it).unwrap_or_else(|| panic!("{object} is not in the plan: {plan}"))
}

pub fn actions(plan: &Value) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for entry in plan["objects"].as_array().expect("objects") {
        *counts.entry(entry["action"].as_str().expect("an action").to_owned()).or_default() += 1;
    }
    counts
}
