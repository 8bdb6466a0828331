//! Measures `mirror plan` and `mirror apply` on two real clusters, and compares them with `kubectl apply --server-side` of the same
//! objects: new objects, and objects that have not changed; on loopback, and with the mirror behind a link with a round trip of 20 ms.
//!
//! Times are those of whole processes, and both programs take turns. The objects are those of `tests/rig/sample.rs`; kubectl gets
//! them as the source returns them, without the fields of the API server. Their definitions are in both clusters. For objects that
//! have not changed, netsurgeon runs `plan` and `apply`; a check at the mirror's etcd asserts that it writes nothing. Each new run
//! of either program has a namespace of its own in the mirror. Before the second run, more than a second passes: within the second
//! of the last write, an API server does not store an apply that only changes times.
//!
//! The memory is the peak of the resident set, for a namespace that the mirror does not have (`plan`, `apply`), and for copies that
//! have not changed (`again`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::{Value, json};

use crate::rig::api::Api;
use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::memory::{take_peak, under_time};
use crate::rig::process::wait_until;
use crate::rig::programs::{KUBECTL_VERSION, kubectl};
use crate::rig::sample::{application, custom_paths, definitions};
use crate::rig::workspace::Workspace;
use crate::slow_link;

/// Applications of the comparison with kubectl; each has 17 objects.
const APPLICATIONS: usize = 118;
/// Applications of the second size: 20,000 objects.
const MANY_APPLICATIONS: usize = 1_177;
const ROUNDS: usize = 2;
const ROUND_TRIP: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_mins(5);
/// Requests at the same time, to create the objects of the source.
const AT_ONCE: usize = 16;

/// The figures.
#[derive(Debug, Serialize)]
pub struct MirrorFigures {
    pub kubectl_version: String,
    pub objects: usize,
    pub loopback: Link,
    /// With a round trip of 20 ms.
    pub far: Link,
    pub sizes: Vec<Size>,
}

/// The mean of all rounds.
#[derive(Debug, Default, Serialize)]
pub struct Link {
    /// New objects per second.
    pub kubectl_per_second: f64,
    pub apply_per_second: f64,
    pub apply_to_kubectl: f64,
    /// Seconds of the plan before the apply.
    pub plan_seconds: f64,
    /// Seconds if nothing has changed; of netsurgeon, for `plan` and `apply`.
    pub kubectl_again_seconds: f64,
    pub again_seconds: f64,
    pub again_to_kubectl: f64,
}

/// Seconds, and peaks of the resident set.
#[derive(Debug, Serialize)]
pub struct Size {
    pub objects: usize,
    pub plan_seconds: f64,
    pub plan_peak_kib: u64,
    pub apply_seconds: f64,
    pub apply_peak_kib: u64,
    pub again_seconds: f64,
    pub again_peak_kib: u64,
}

/// A run of netsurgeon.
struct Measured {
    seconds: f64,
    peak_kib: u64,
}

struct Bench<'a> {
    netsurgeon: &'a Path,
    source: Cluster,
    mirror: Cluster,
    /// A kubeconfig of the mirror through the slow link.
    far: PathBuf,
    workspace: Workspace,
}

/// Measures everything.
pub async fn measure(netsurgeon: &Path) -> MirrorFigures {
    let bench = Bench::start(netsurgeon).await;
    let objects = bench.create("few", APPLICATIONS).await;
    eprintln!("comparing with kubectl {KUBECTL_VERSION}: {} objects", objects.len());
    let near = bench.mirror.kubeconfig().to_owned();
    let loopback = bench.compare(&objects, &near).await;
    let far = bench.compare(&objects, &bench.far).await;
    let mut sizes = vec![bench.size("few", objects.len())];
    let many = bench.create("many", MANY_APPLICATIONS).await.len();
    sizes.push(bench.size("many", many));
    MirrorFigures {
        kubectl_version: KUBECTL_VERSION.to_string(),
        objects: objects.len(),
        loopback,
        far,
        sizes,
    }
}

impl<'a> Bench<'a> {
    async fn start(netsurgeon: &'a Path) -> Self {
        let source =
            Cluster::start(ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Bitmap) }).await;
        let mirror = Cluster::start(ClusterOptions::new(Era::Objects)).await;
        mirror.api.create_namespace("netsurgeon").await;
        for api in [&source.api, &mirror.api] {
            create_all(api, definitions()).await;
            for path in custom_paths("default") {
                wait_until("the kind is served", DEADLINE, async || {
                    api.find(&path).await.map(drop).ok_or_else(|| path.clone())
                })
                .await;
            }
        }
        let workspace = Workspace::create("bench-mirror");
        let url = mirror.api_servers[0].url();
        let server = url.trim_start_matches("https://");
        let address = slow_link::start(server, ROUND_TRIP / 2);
        let far = workspace.write("far.conf", mirror.kubeconfig_for(&format!("https://{address}")));
        Self { netsurgeon, source, mirror, far, workspace }
    }

    /// Creates a namespace of the source with its applications.
    async fn create(&self, namespace: &str, applications: usize) -> Vec<Value> {
        eprintln!("creating {applications} applications");
        self.source.api.create_namespace(namespace).await;
        let objects = (0..applications).flat_map(|number| application(namespace, number)).collect();
        create_all(&self.source.api, objects).await
    }

    /// Compares new objects, and objects that have not changed.
    async fn compare(&self, objects: &[Value], kubeconfig: &Path) -> Link {
        let mut sum = Link::default();
        for round in 0..ROUNDS {
            let is_far = if kubeconfig == self.far { "far" } else { "near" };
            let namespace = format!("{is_far}-{round}");
            let (theirs, own) = (format!("kubectl-{namespace}"), format!("green-{namespace}"));
            let list = self.manifests(objects, &theirs);
            self.mirror.api.create_namespace(&theirs).await;
            sum.kubectl_per_second += self.kubectl(&list, kubeconfig);
            sum.plan_seconds += self.plan("few", &own, kubeconfig).seconds;
            sum.apply_per_second += self.apply(kubeconfig).seconds;
            std::thread::sleep(Duration::from_secs(2));
            sum.kubectl_again_seconds += self.kubectl(&list, kubeconfig);
            sum.again_seconds += self.again("few", &own, kubeconfig).await;
            self.forget();
            eprintln!("{namespace}: seconds so far: {sum:?}");
        }
        let (count, rounds) = (objects.len() as f64, ROUNDS as f64);
        Link {
            kubectl_per_second: count * rounds / sum.kubectl_per_second,
            apply_per_second: count * rounds / sum.apply_per_second,
            apply_to_kubectl: sum.kubectl_per_second / sum.apply_per_second,
            plan_seconds: sum.plan_seconds / rounds,
            kubectl_again_seconds: sum.kubectl_again_seconds / rounds,
            again_seconds: sum.again_seconds / rounds,
            again_to_kubectl: sum.kubectl_again_seconds / sum.again_seconds,
        }
    }

    fn size(&self, namespace: &str, objects: usize) -> Size {
        eprintln!("measuring the memory with {objects} objects");
        let kubeconfig = self.mirror.kubeconfig();
        let plan = self.plan(namespace, namespace, kubeconfig);
        let apply = self.apply(kubeconfig);
        let again = self.plan(namespace, namespace, kubeconfig);
        self.forget();
        Size {
            objects,
            plan_seconds: plan.seconds,
            plan_peak_kib: plan.peak_kib,
            apply_seconds: apply.seconds,
            apply_peak_kib: apply.peak_kib,
            again_seconds: again.seconds,
            again_peak_kib: again.peak_kib,
        }
    }

    /// Writes the objects as a list for kubectl, in this namespace.
    fn manifests(&self, objects: &[Value], namespace: &str) -> PathBuf {
        let of_server = ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"];
        let mut items = objects.to_vec();
        for item in &mut items {
            let metadata = item["metadata"].as_object_mut().expect("metadata");
            metadata.retain(|name, _| !of_server.contains(&name.as_str()));
            metadata.insert("namespace".to_string(), namespace.into());
            item.as_object_mut().expect("an object").remove("status");
            if item["kind"] == "Service" && item["spec"]["clusterIP"] != "None" {
                let spec = item["spec"].as_object_mut().expect("a spec");
                spec.retain(|name, _| name != "clusterIP" && name != "clusterIPs");
            }
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.workspace.write(&format!("{namespace}.json"), list.to_string())
    }

    /// Runs `kubectl apply`; returns seconds.
    fn kubectl(&self, list: &Path, kubeconfig: &Path) -> f64 {
        let mut command = Command::new(kubectl());
        command
            .env_clear()
            .env("HOME", self.workspace.path())
            .args(["apply", "--server-side", "-f"])
            .arg(list);
        command.arg("--kubeconfig").arg(kubeconfig);
        let begin = Instant::now();
        let output = command.stdout(Stdio::null()).output().expect("kubectl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        begin.elapsed().as_secs_f64()
    }

    /// Runs netsurgeon.
    fn run(&self, words: &[&str], kubeconfig: &Path) -> Measured {
        let mut command = Command::new(self.netsurgeon);
        command.args(words).args(["-o", "json", "--kubeconfig"]).arg(self.source.kubeconfig());
        command.arg("--mirror-kubeconfig").arg(kubeconfig);
        let mut command = under_time(&command);
        let begin = Instant::now();
        let output = command.stdout(Stdio::null()).output().expect("netsurgeon runs");
        let seconds = begin.elapsed().as_secs_f64();
        let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        Measured { seconds, peak_kib: take_peak(&mut said) }
    }

    fn saved(&self) -> String {
        self.workspace.join("plan.json").display().to_string()
    }

    /// Plans a namespace of the source, with this name in the mirror.
    fn plan(&self, namespace: &str, renamed: &str, kubeconfig: &Path) -> Measured {
        let mut config = json!({"namespaces": [namespace]});
        if renamed != namespace {
            config["rename"] = json!({namespace: renamed});
        }
        let config = self.workspace.write("mirror.yaml", config.to_string()).display().to_string();
        self.run(&["mirror", "plan", "--config", &config, "--save", &self.saved()], kubeconfig)
    }

    fn apply(&self, kubeconfig: &Path) -> Measured {
        self.run(&["mirror", "apply", "--plan", &self.saved(), "--yes"], kubeconfig)
    }

    /// Plans and applies again; returns the seconds of both. Fails if that writes anything.
    async fn again(&self, namespace: &str, renamed: &str, kubeconfig: &Path) -> f64 {
        let prefix = |kind: &str| format!("/registry/{kind}/{renamed}/");
        let revisions = async || {
            let mut all = self.mirror.etcd.revisions("/registry/").await;
            all.retain(|key, _| key.contains(&format!("/{renamed}/")) && !key.starts_with(&prefix("events")));
            all
        };
        let before = revisions().await;
        let seconds = self.plan(namespace, renamed, kubeconfig).seconds + self.apply(kubeconfig).seconds;
        assert!(!before.is_empty() && revisions().await == before, "nothing is written");
        seconds
    }

    /// Removes the records of the operations, so that each plan reads those of one.
    fn forget(&self) {
        let own = |words: &[&str]| {
            let mut command = Command::new(self.netsurgeon);
            command.args(words).args(["-o", "json", "--kubeconfig"]).arg(self.mirror.kubeconfig());
            let output = command.output().expect("netsurgeon runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let listed: Value = serde_json::from_slice(&own(&["operation", "list"])).expect("JSON");
        for operation in listed["operations"].as_array().expect("operations") {
            own(&["operation", "forget", operation["operation"].as_str().expect("an id"), "--yes"]);
        }
    }
}

async fn create_all(api: &Api, objects: Vec<Value>) -> Vec<Value> {
    stream::iter(objects).map(async |object| api.create(&object).await).buffered(AT_ONCE).collect().await
}

/// Prints the figures.
pub fn print(figures: &MirrorFigures) {
    println!("kubectl {}, {} objects", figures.kubectl_version, figures.objects);
    println!("link       kubectl/s   apply/s  ratio   plan s  kubectl again s  again s  ratio");
    for (name, link) in [("loopback", &figures.loopback), ("20 ms", &figures.far)] {
        println!(
            "{name:9} {:10.0} {:9.0} {:6.2} {:8.2} {:16.2} {:8.2} {:6.1}",
            link.kubectl_per_second,
            link.apply_per_second,
            link.apply_to_kubectl,
            link.plan_seconds,
            link.kubectl_again_seconds,
            link.again_seconds,
            link.again_to_kubectl
        );
    }
    println!("objects    plan s  peak MiB  apply s  peak MiB  plan again s  peak MiB");
    let mib = |kib: u64| kib as f64 / 1024.0;
    for size in &figures.sizes {
        println!(
            "{:7} {:9.2} {:9.1} {:8.2} {:9.1} {:13.2} {:9.1}",
            size.objects,
            size.plan_seconds,
            mib(size.plan_peak_kib),
            size.apply_seconds,
            mib(size.apply_peak_kib),
            size.again_seconds,
            mib(size.again_peak_kib)
        );
    }
}
