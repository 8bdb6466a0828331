//! The guard as `deploy/guard.yaml` runs it: the manifests in the API, and the program as their service account, with the
//! environment, the mounts and the user of their container, on a read-only file system without other files; also several guards
//! at once.

use std::process::Command;

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::outputs::{Page, ask};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::etcd::EtcdOptions;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::selectorless_services;
use super::serving_cluster::{DEADLINE, SERVICES, Serving, Watched, lines_of};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/netsurgeon-guard";
/// Where a Pod has its service account: `ServiceAccountAdmission` mounts it (`plugin/pkg/admission/serviceaccount/admission.go`,
/// v1.36.3).
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Creates a root directory with the program, its linked libraries and the Pod's mounts, and runs the program there as the Pod's
/// user. `$0` is the directory, `$1` the program, `$2` the user, `$3` the service account's files, `$4` their place, `$5` the
/// Secret's files, `$6` theirs; the program's arguments follow.
const POD: &str = r#"set -e
root=$0 program=$1 user=$2 account=$3 account_at=$root$4 secret=$5 secret_at=$root$6
shift 6
mount --make-rprivate /
mkdir -p "$root"
mount -t tmpfs tmpfs "$root"
mkdir -p "$account_at" "$secret_at" "$root/usr"
for folder in lib lib64 usr/lib; do
    test -d "/$folder" || continue
    mkdir -p "$root/$folder"
    mount --bind "/$folder" "$root/$folder"
done
touch "$root/netsurgeon"
mount --bind "$program" "$root/netsurgeon"
install -g "$user" -m 0640 "$account"/* "$account_at"
install -g "$user" -m 0440 "$secret"/* "$secret_at"
mount -o remount,ro "$root"
exec chroot --userspec="$user:$user" --groups= "$root" /netsurgeon "$@"
"#;

/// The objects of the manifests, and the Secret that they need.
fn manifests(serving: &Serving) -> Vec<Value> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/guard.yaml");
    let text = std::fs::read_to_string(file).expect("the manifests");
    let mut objects: Vec<Value> =
        text.split("\n---\n").map(|part| serde_saphyr::from_str(part).expect("an object")).collect();
    let tls = serving.cluster.etcd.tls().expect("an etcd with certificates");
    let read = |path| std::fs::read_to_string(path).expect("a file of the rig");
    objects.push(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "netsurgeon-etcd", "namespace": "kube-system"},
        "stringData": {
            "endpoints": serving.cluster.etcd.endpoint(), "ca.crt": read(&tls.authority),
            "tls.crt": read(&tls.client.certificate), "tls.key": read(&tls.client.key),
        },
    }));
    objects
}

/// Creates the objects of the manifests, and returns the Pod's spec as the API server has it.
async fn install(serving: &Serving) -> Value {
    for object in manifests(serving) {
        serving.cluster.api.apply(&object).await;
    }
    let path = "/apis/apps/v1/namespaces/kube-system/deployments/netsurgeon-guard";
    serving.cluster.api.get(path).await["spec"]["template"]["spec"].clone()
}

/// A guard that runs as a Pod of the Deployment does.
struct Pod {
    watched: Watched,
}

/// Returns the command that runs the program as a container of a Pod does: as its user, with its service account and the files of
/// its mount, on a read-only file system without other files. The arguments and the environment follow.
pub async fn as_pod(
    cluster: &Cluster,
    (name, spec): (&str, &Value),
    (namespace, account): (&str, &str),
    files: &[(&str, String)],
) -> Command {
    let folder = |purpose: &str, files: &[(&str, String)]| {
        let folder = cluster.directory().join(format!("{name}-{purpose}"));
        std::fs::create_dir(&folder).expect("a folder");
        for (file, text) in files {
            std::fs::write(folder.join(file), text).expect("a file");
        }
        folder
    };
    let token = cluster.service_account_token(namespace, account).await;
    let authority = std::fs::read_to_string(&cluster.credentials.authority.certificate);
    let account = [
        ("token", token),
        ("ca.crt", authority.expect("a certificate")),
        ("namespace", namespace.to_string()),
    ];
    let mut command = Command::new("unshare");
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(["--mount", "sh", "-c", POD]);
    command.arg(cluster.directory().join(name)).arg(env!("CARGO_BIN_EXE_netsurgeon"));
    command.arg(spec["securityContext"]["runAsUser"].to_string());
    command.arg(folder("account", &account)).arg(ACCOUNT);
    let mount = &spec["containers"][0]["volumeMounts"][0]["mountPath"];
    command.arg(folder("files", files)).arg(mount.as_str().expect("a path"));
    command
}

impl Pod {
    async fn start(serving: &Serving, spec: &Value, name: &str) -> Self {
        let container = &spec["containers"][0];
        let secret = &manifests(serving).pop().expect("a Secret")["stringData"];
        let secret: Vec<(&str, String)> = secret
            .as_object()
            .expect("files")
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str().expect("a text").to_string()))
            .collect();
        let account = ("kube-system", "netsurgeon-guard");
        let mut command = as_pod(&serving.cluster, (name, spec), account, &secret).await;
        for argument in container["args"].as_array().expect("arguments") {
            let argument = argument.as_str().expect("a text");
            // All guards run side by side on the one host of the test.
            command.arg(argument.replace("127.0.0.1:9464", "127.0.0.1:0"));
        }
        command.args(["--interval=1", "--lease-duration=10"]);
        let (url, etcd) = (serving.cluster.api_servers[0].url(), serving.cluster.etcd.endpoint());
        let (host, port) = url.trim_start_matches("https://").rsplit_once(':').expect("a port");
        for variable in container["env"].as_array().expect("an environment") {
            let value = match (&variable["value"], &variable["valueFrom"]) {
                (Value::String(_), _) if variable["name"] == "KUBERNETES_SERVICE_PORT" => port,
                (Value::String(text), _) => text,
                (_, from) if from["fieldRef"]["fieldPath"] == "status.hostIP" => host,
                (_, from) if from["secretKeyRef"]["key"] == "endpoints" => &etcd,
                _ => panic!("{variable}"),
            };
            command.env(variable["name"].as_str().expect("a name"), value);
        }
        Self { watched: Watched::start(command) }
    }

    /// The printed events, as `event code subject`.
    fn told(&self) -> Vec<String> {
        let word = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_string();
        let lines = lines_of(&self.watched.out);
        let events = lines.iter().map(|line| serde_json::from_str(line).expect("a JSON document a line"));
        let told = events
            .map(|e: Value| format!("{} {} {}", word(&e, "event"), word(&e, "code"), word(&e, "subject")));
        told.map(|words| words.trim_end().to_string()).collect()
    }

    /// Waits until the guard has printed an event so many times.
    async fn says(&mut self, words: &str, times: usize) {
        wait_until(&format!("{words}, {times} times"), DEADLINE, async || {
            assert_eq!(self.watched.ended(), None, "the guard runs: {:?}", lines_of(&self.watched.err));
            let told = self.told();
            if told.iter().filter(|said| *said == words).count() >= times {
                Ok(())
            } else {
                Err(format!("{told:?}"))
            }
        })
        .await;
    }

    fn repairs(&self) -> usize {
        self.told().iter().filter(|words| words.starts_with("repaired ")).count()
    }

    /// The address of its metrics.
    async fn address(&self) -> String {
        wait_until("the metrics have an address", DEADLINE, async || {
            let lines = lines_of(&self.watched.err);
            let found = lines.iter().find_map(|line| line.split_once("http://")?.1.strip_suffix("/metrics"));
            found.map(str::to_string).ok_or_else(|| format!("{lines:?}"))
        })
        .await
    }

    async fn page(&self) -> Page {
        let (head, body) = ask(&self.address().await, "/metrics").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        Page::parse(&body)
    }

    /// Waits until a sample has a value.
    async fn shows(&self, series: &str, value: impl Fn(u64) -> bool) {
        wait_until(series, DEADLINE, async || {
            let found = self.page().await.get::<u64>(series);
            if value(found) { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }

    /// Ends it as a kubelet does.
    async fn terminate(&mut self) {
        self.watched.signal(Signal::TERM);
        assert_eq!(self.watched.end().await, 0);
    }
}

async fn drop_hold(serving: &Serving, name: &str) {
    let path = format!("/api/v1/namespaces/default/services/{name}");
    serving.cluster.api.merge(&path, &json!({"spec": {"externalIPs": null}})).await;
}

async fn wait_for_hold(serving: &Serving, name: &str, old: &str) {
    let path = format!("/api/v1/namespaces/default/services/{name}");
    wait_until("the hold is restored", DEADLINE, async || {
        let spec = serving.cluster.api.get(&path).await["spec"].clone();
        if spec["externalIPs"] == json!([old]) { Ok(()) } else { Err(spec.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn guard_works_with_the_permissions_and_files_of_its_manifests() {
    let etcd = EtcdOptions { mutual_tls: true, ..EtcdOptions::default() };
    let options = ClusterOptions { etcd, ..ClusterOptions::new(Era::Objects) };
    let mut serving = Serving::start_on(options, ProxyMode::Nftables).await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.2.9"});
    serving.cluster.create_echo_service("np", &json!({"app": "web"}), &spec).await;
    let web = selectorless_services::endpoints(&serving, "web").await;
    selectorless_services::create(
        &serving,
        "by-hand",
        json!({"type": "NodePort", "clusterIP": "10.96.2.10"}),
        &web,
    )
    .await;
    let spec = install(&serving).await;
    refused_what_it_does_not_need(&serving).await;
    let mut one = Pod::start(&serving, &spec, "one").await;
    one.says("holding", 1).await;
    one.says("waiting", 1).await;
    assert!(ask(&one.address().await, "/healthz").expect("an answer").0.starts_with("HTTP/1.1 200 "));
    serving.apply("").await;
    one.says("watching", 1).await;
    let mut two = Pod::start(&serving, &spec, "two").await;
    two.says("standby", 1).await;
    two.says("watching", 1).await;
    one_of_two_repairs(&serving, &mut one, &mut two).await;
    let mut three = another_guard_takes_over(&serving, one, &mut two, &spec).await;

    serving.retire();
    for pod in [&mut two, &mut three] {
        pod.says("ended", 1).await;
        pod.says("waiting", 1).await;
        pod.terminate().await;
    }
    let lease = serving.cluster.api.get(LEASE).await;
    assert_eq!(lease["spec"]["holderIdentity"], "", "the Lease was released");
    serving.assert_clean();
}

/// Its token alone permits no client to read or delete anything.
async fn refused_what_it_does_not_need(serving: &Serving) {
    let api = serving.cluster.api_as_service_account("kube-system", "netsurgeon-guard").await;
    for (method, path) in [
        (Method::GET, "/api/v1/services"),
        (Method::GET, "/api/v1/namespaces/kube-system/secrets/netsurgeon-etcd"),
        (Method::GET, "/api/v1/namespaces/default"),
        (Method::GET, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
        (Method::DELETE, "/api/v1/namespaces/default/services/np"),
    ] {
        let answer = api.request(method, path, "application/json", None).await;
        assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403), "{path}: {answer:?}");
    }
}

/// The guard that has the Lease restores a dropped hold in etcd, and updates a shadow through the API.
async fn one_of_two_repairs(serving: &Serving, one: &mut Pod, two: &mut Pod) {
    for pod in [&one, &two] {
        pod.shows("netsurgeon_guard_looks_total{outcome=\"fine\"}", |looks| looks > 0).await;
    }
    drop_hold(serving, "web-2").await;
    one.says("repaired hold-put-back default/web-2", 1).await;
    wait_for_hold(serving, "web-2", "10.96.1.3").await;
    let change = json!({"spec": {"selector": {"app": "web", "tier": "a"}}});
    serving.cluster.api.merge("/api/v1/namespaces/default/services/np", &change).await;
    one.says("repaired shadow-follows default/np", 1).await;
    let web = selectorless_services::endpoints(serving, "web").await;
    selectorless_services::change(serving, "by-hand", web.get(..1).expect("an endpoint")).await;
    one.says("repaired shadow-follows default/by-hand", 1).await;
    assert_eq!((one.repairs(), two.repairs()), (3, 0));

    let pages = [one.page().await, two.page().await];
    for (page, leads) in pages.iter().zip([1_u64, 0]) {
        let count = |series: &str| page.get::<u64>(&format!("netsurgeon_guard_{series}"));
        assert_eq!(count("lease_held"), leads);
        for (code, times) in [("hold-put-back", 1), ("shadow-follows", 2)] {
            assert_eq!(count(&format!("repairs_total{{code=\"{code}\"}}")), leads * times, "{code}");
        }
        assert_eq!(count("held_services"), SERVICES as u64 + 4, "and `web`, `np`, `by-hand`, `kubernetes`");
        assert!(page.get::<f64>("netsurgeon_guard_last_look_seconds") < DEADLINE.as_secs_f64());
    }
    assert_eq!(pages[0].get::<u64>("netsurgeon_writes_total"), 3, "the hold, and the records of the shadows");
    assert_eq!(pages[1].get::<u64>("netsurgeon_writes_total"), 0, "the standby writes nothing");

    // Both the active guard and the standby name a fault that they cannot repair.
    let path = "/api/v1/namespaces/default/services/web-7";
    serving.cluster.api.merge(path, &json!({"spec": {"externalIPs": ["203.0.113.7"]}})).await;
    let found = "netsurgeon_guard_findings{code=\"hold-missing\"}";
    for pod in [&mut *one, &mut *two] {
        pod.says("wrong hold-missing default/web-7", 1).await;
        pod.shows(found, |count| count == 1).await;
    }
    serving.cluster.api.merge(path, &json!({"spec": {"externalIPs": ["10.96.1.8"]}})).await;
    one.shows(found, |count| count == 0).await;
    assert_eq!((one.repairs(), two.repairs()), (3, 0));
}

/// Killed, frozen, or terminated: another guard takes over each time, and one that returns only watches.
async fn another_guard_takes_over(serving: &Serving, mut one: Pod, two: &mut Pod, spec: &Value) -> Pod {
    one.watched.signal(Signal::KILL);
    one.watched.end().await;
    two.says("holding", 1).await;
    drop_hold(serving, "web-3").await;
    two.says("repaired hold-put-back default/web-3", 1).await;
    wait_for_hold(serving, "web-3", "10.96.1.4").await;

    let mut three = Pod::start(serving, spec, "three").await;
    three.says("standby", 1).await;
    two.watched.signal(Signal::STOP);
    three.says("holding", 1).await;
    drop_hold(serving, "web-4").await;
    three.says("repaired hold-put-back default/web-4", 1).await;
    two.watched.signal(Signal::CONT);
    two.says("standby", 2).await;
    assert_eq!((two.repairs(), three.repairs()), (1, 1));

    let transitions = async || serving.cluster.api.get(LEASE).await["spec"]["leaseTransitions"].clone();
    assert_eq!(transitions().await, 3);
    three.terminate().await;
    two.says("holding", 2).await;
    assert_eq!(transitions().await, 4);
    let mut four = Pod::start(serving, spec, "four").await;
    four.says("standby", 1).await;
    four.says("watching", 1).await;
    four
}
