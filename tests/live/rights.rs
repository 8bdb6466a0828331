//! netsurgeon's permissions in etcd: the users and roles of docs/etcd-rights.md and docs/guard.md, created by the very commands
//! of these documents, suffice for their purpose, and etcd denies them everything else.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::client_changes::path;
use super::outputs::{Page, ask};
use super::rig::cluster::{ClusterOptions, Era};
use super::rig::etcd::EtcdOptions;
use super::rig::process::wait_until;
use super::rig::programs::{ETCD_VERSION, built};
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, NEW_RANGE, Run, Serving, Watched, lines_of, run};

const KUBEADM: &str = "/etc/kubernetes/pki";

/// The commands of a document: its blocks of `sh`, in order.
fn blocks(document: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(document);
    let text = std::fs::read_to_string(path).expect("a document");
    let parts = text.split("```sh\n").skip(1);
    parts.map(|part| part.split("```").next().expect("the end of a block").to_owned()).collect()
}

/// The certificates of etcd's users, in a folder like kubeadm's.
struct Users {
    folder: PathBuf,
    endpoint: String,
}

impl Users {
    /// Follows the documents on the etcd of a cluster.
    fn of_the_documents(serving: &Serving) -> Self {
        let folder = serving.cluster.directory().join("pki");
        std::fs::create_dir_all(folder.join("etcd")).expect("a folder");
        let tls = serving.cluster.etcd.tls().expect("an etcd with certificates");
        for file in ["ca.crt", "ca.key"] {
            std::fs::copy(tls.authority.with_file_name(file), folder.join("etcd").join(file))
                .expect("a copy");
        }
        let users = Self { folder, endpoint: serving.cluster.etcd.endpoint() };
        let [enable, read, audit, certificate] =
            blocks("etcd-rights.md").try_into().expect("the blocks that this test knows");
        let [guard] = blocks("guard.md").try_into().expect("one block");
        let issue = |user: &str| {
            assert!(certificate.starts_with("user=netsurgeon-read\n"), "{certificate}");
            certificate.replace("user=netsurgeon-read", &format!("user={user}"))
        };
        // The certificate that kubeadm creates, with its common name there.
        let client = issue("kube-apiserver-etcd-client").replace("$user.", "apiserver-etcd-client.");
        users.sh(&format!("cd {KUBEADM}\n{client}"));
        users.sh(&format!("{enable}\n{read}\n{audit}\n{guard}"));
        for user in ["netsurgeon-read", "netsurgeon-audit", "netsurgeon-guard"] {
            users.sh(&format!("cd {KUBEADM}\n{}", issue(user)));
            let key = std::fs::metadata(users.folder.join(format!("{user}.key"))).expect("a key");
            assert_eq!(key.permissions().mode() & 0o077, 0, "no other user reads it");
        }
        users
    }

    fn sh(&self, script: &str) {
        let script = script.replace(KUBEADM, &self.folder.display().to_string());
        let script = script.replace("https://127.0.0.1:2379", &self.endpoint);
        let etcdctl = built(&format!("etcd-{ETCD_VERSION}/etcdctl"));
        let path = format!("{}:/usr/bin:/bin", etcdctl.parent().expect("a folder").display());
        let mut shell = Command::new("sh");
        let output = shell.env_clear().env("PATH", path).args(["-euxc", &script]).output().expect("a shell");
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}");
    }

    /// Runs a command as one of the users.
    fn command(&self, serving: &Serving, user: &str, words: &str) -> Command {
        let mut command = serving.command(words);
        let file = |ending: &str| self.folder.join(format!("{user}.{ending}"));
        command.env("ETCDCTL_CERT", file("crt")).env("ETCDCTL_KEY", file("key"));
        command
    }

    fn netsurgeon(&self, serving: &Serving, user: &str, words: &str) -> Run {
        run(&format!("{words}   # {user}"), self.command(serving, user, words))
    }

    /// Runs etcdctl as one of the users.
    fn etcdctl(&self, serving: &Serving, user: &str, arguments: &[&str]) -> Output {
        let like = self.command(serving, user, "");
        let mut command = Command::new(built(&format!("etcd-{ETCD_VERSION}/etcdctl")));
        command.env_clear().args(arguments).current_dir(&self.folder);
        for (name, value) in like.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.output().expect("etcdctl runs")
    }

    fn permits(&self, serving: &Serving, user: &str, arguments: &[&str]) -> bool {
        let output = self.etcdctl(serving, user, arguments);
        let error = text(&output.stderr);
        let denied = error.contains("permission denied");
        assert!(output.status.success() != denied, "{user}: {arguments:?}: {error}");
        !denied
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A cluster of an era whose etcd requires certificates.
async fn start(era: Era, mode: ProxyMode) -> Serving {
    let etcd = EtcdOptions { mutual_tls: true, ..EtcdOptions::default() };
    let serving = Serving::start_on(ClusterOptions { etcd, ..ClusterOptions::new(era) }, mode).await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.2.9"});
    serving.cluster.create_echo_service("np", &json!({"app": "web"}), &spec).await;
    serving
}

#[tokio::test]
async fn documented_etcd_users_have_exactly_the_needed_permissions() {
    let mut serving = start(Era::Objects, ProxyMode::Nftables).await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"}});
    serving.cluster.api.create(&secret).await;
    let users = Users::of_the_documents(&serving);
    reading_before(&serving, &users);
    let operation = serving.apply("").await;
    reading_meanwhile(&serving, &users, &operation);
    refused_by_etcd(&serving, &users);
    refusals_name_the_permission(&serving, &users, &operation);
    everything_for_the_audit(&serving, &users);
    the_guard(&serving, &users, &EACH).await;
    serving.retire();
    serving.assert_clean();
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn guard_user_suffices_in_the_bitmap_era() {
    let mut serving = start(Era::Bitmap, ProxyMode::Iptables).await;
    let users = Users::of_the_documents(&serving);
    serving.apply("").await;
    the_guard(&serving, &users, &["hold-put-back", "shadow-follows"]).await;
    serving.retire();
    serving.assert_clean();
}

/// During a rollback the RangeAllocation has the old range again, and the guard has to free the bit of a Service that is deleted
/// then.
#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn guard_user_suffices_under_dual_write() {
    let mut serving = start(Era::DualWrite, ProxyMode::Nftables).await;
    let users = Users::of_the_documents(&serving);
    let operation = serving.apply("").await;
    the_guard(&serving, &users, &EACH).await;
    serving.cluster.set_service_cidrs("10.96.0.0/16");
    serving.cluster.restart_api_server(0).await;
    let rollback = format!("operation rollback {operation} --yes --linger 1 --lock-ttl 2 --confirm flags");
    let mut running = serving.start_netsurgeon(&rollback);
    serving.wait_for_undone(&mut running, 1).await;
    drop(running);

    let services = serving.cluster.api.list("/api/v1/namespaces/default/services").await;
    let has_moved = |service: &&Value| {
        let [name, address] = ["/metadata/name", "/spec/clusterIP"].map(|path| service.pointer(path));
        let is_web = name.and_then(Value::as_str).is_some_and(|name| name.starts_with("web-"));
        is_web && address.and_then(Value::as_str).is_some_and(|address| address.starts_with("10.200."))
    };
    let last = services.iter().rfind(has_moved).expect("some Services have not moved back");
    let name = last["metadata"]["name"].as_str().expect("a name");
    let mut guard = start_guard(&serving, &users);
    serving.cluster.api.delete(&path(name)).await;
    until_repaired(&mut guard, "hold-given-up").await;
    end(guard).await;
    serving.netsurgeon(&format!("{rollback} --take-over")).expect(0);
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

fn reading_before(serving: &Serving, users: &Users) {
    let reads = |words: &str, code| users.netsurgeon(serving, "netsurgeon-read", words).expect(code);
    for words in [
        "ranges show",
        "ranges check",
        "renumber plan --to 10.200.0.0/16",
        "inspect get service default/web",
        "inspect list /registry/services/specs/",
        "operation list",
    ] {
        reads(words, 0);
    }
    let nothing = reads("ranges rewrite --dry-run", 1);
    says(&nothing.err, &["IPAddress"]);
    let words = format!("preflight renumber --to {NEW_RANGE} --skip certificates -o json");
    let verdicts = |run: Run| -> BTreeMap<String, Value> {
        let of =
            |check: &Value| (check["name"].as_str().expect("a name").to_owned(), check["verdict"].clone());
        run.json()["checks"].as_array().expect("checks").iter().map(of).collect()
    };
    let all = verdicts(serving.netsurgeon(&words));
    assert_eq!(verdicts(users.netsurgeon(serving, "netsurgeon-audit", &words)), all);
    let mut own = verdicts(users.netsurgeon(serving, "netsurgeon-read", &words));
    for needs_secrets in ["secrets-at-rest", "images"] {
        assert_eq!(own.insert(needs_secrets.to_owned(), all[needs_secrets].clone()), Some(json!("unknown")));
    }
    assert_eq!(own, all);
}

fn reading_meanwhile(serving: &Serving, users: &Users, operation: &str) {
    let report = serving.cluster.directory().join("report.html").display().to_string();
    for words in [
        "renumber status".to_owned(),
        "renumber verify".to_owned(),
        "operation list".to_owned(),
        format!("operation show {operation}"),
        format!("operation report {operation} --html {report}"),
    ] {
        users.netsurgeon(serving, "netsurgeon-read", &words).expect(0);
    }
}

/// etcd itself denies the request of any program.
fn refused_by_etcd(serving: &Serving, users: &Users) {
    let web = "/registry/services/specs/default/web";
    let all: &[(&str, &[&str], bool)] = &[
        ("netsurgeon-read", &["get", web], true),
        ("netsurgeon-read", &["put", web, ""], false),
        ("netsurgeon-read", &["del", web], false),
        ("netsurgeon-read", &["put", "/netsurgeon/x", ""], false),
        ("netsurgeon-read", &["get", "--prefix", "/registry/secrets/"], false),
        ("netsurgeon-read", &["get", "--prefix", "/registry/configmaps/"], false),
        ("netsurgeon-read", &["get", "--prefix", ""], false),
        ("netsurgeon-read", &["snapshot", "save", "refused.db"], false),
        ("netsurgeon-read", &["compact", "4"], false),
        ("netsurgeon-read", &["lease", "list"], false),
        // Every user of etcd can create leases, and revoke leases without keys.
        ("netsurgeon-read", &["lease", "grant", "60"], true),
        ("netsurgeon-read", &["defrag"], false),
        ("netsurgeon-guard", &["get", "--prefix", "/registry/secrets/"], false),
        ("netsurgeon-guard", &["put", "/registry/secrets/default/x", ""], false),
        ("netsurgeon-guard", &["put", "/registry/servicecidrs/x", ""], false),
        ("netsurgeon-guard", &["put", "/elsewhere", ""], false),
        ("netsurgeon-audit", &["get", "--prefix", "--keys-only", "/registry/secrets/"], true),
        ("netsurgeon-audit", &["put", "/registry/secrets/default/x", ""], false),
        ("netsurgeon-audit", &["get", "/elsewhere"], false),
    ];
    for (user, arguments, permitted) in all {
        assert_eq!(users.permits(serving, user, arguments), *permitted, "{user}: {arguments:?}");
    }
}

fn refusals_name_the_permission(serving: &Serving, users: &Users, operation: &str) {
    let reads = |words: &str| users.netsurgeon(serving, "netsurgeon-read", words).expect(1).err;
    for (words, grant) in [
        ("audit --old 10.96.0.0/16", "role grant-permission ROLE --prefix=true read /registry/"),
        ("inspect get secret default/s", "role grant-permission ROLE read /registry/secrets/default/s"),
    ] {
        let said = reads(words);
        assert!(said.contains(grant) && said.contains("docs/etcd-rights.md"), "{words}: {said}");
    }
    let said = reads(&format!("operation rollback {operation} --yes"));
    says(&said, &["error: ", "etcd user"]);
}

fn everything_for_the_audit(serving: &Serving, users: &Users) {
    let audits = |words: &str| users.netsurgeon(serving, "netsurgeon-audit", words);
    let own = audits("audit --old 10.96.0.0/16 -o json");
    let whole = serving.netsurgeon("audit --old 10.96.0.0/16 -o json");
    assert_eq!((own.code, &own.json()["findings"]), (whole.code, &whole.json()["findings"]));
    audits("inspect get secret default/s").expect(0);
    audits("inspect list").expect(0);
}

const EACH: [&str; 3] = ["hold-put-back", "hold-given-up", "shadow-follows"];

fn start_guard(serving: &Serving, users: &Users) -> Watched {
    let words = "renumber guard --interval 1 -o json --metrics-listen 127.0.0.1:0";
    let mut command = users.command(serving, "netsurgeon-guard", words);
    command.stdin(Stdio::null());
    Watched::start(command)
}

async fn until_repaired(guard: &mut Watched, code: &str) {
    wait_until(code, DEADLINE, async || {
        assert_eq!(guard.ended(), None, "{:?}", lines_of(&guard.err));
        let lines = lines_of(&guard.out);
        let found = lines.iter().any(|line| line.contains("\"repaired\"") && line.contains(code));
        if found { Ok(()) } else { Err(format!("{lines:?}")) }
    })
    .await;
}

async fn end(mut guard: Watched) {
    guard.signal(rustix::process::Signal::TERM);
    assert_eq!(guard.end().await, 0);
}

/// The guard repairs in etcd and through the API, and its metrics are served.
async fn the_guard(serving: &Serving, users: &Users, codes: &[&str]) {
    let mut guard = start_guard(serving, users);
    serving.cluster.api.merge(&path("web-2"), &json!({"spec": {"externalIPs": null}})).await;
    if codes.contains(&"hold-given-up") {
        serving.cluster.api.delete(&path("web-4")).await;
    }
    let change = json!({"spec": {"selector": {"app": "web", "tier": "a"}}});
    serving.cluster.api.merge(&path("np"), &change).await;
    for code in codes {
        until_repaired(&mut guard, code).await;
    }
    let lines = lines_of(&guard.err);
    let address = lines.iter().find_map(|line| line.split_once("http://")?.1.strip_suffix("/metrics"));
    let (_, body) = ask(address.expect("an address"), "/metrics").expect("an answer");
    // A shadow follows through the API, all other repairs are in etcd.
    let in_etcd = codes.iter().filter(|code| **code != "shadow-follows").count() as u64;
    assert!(Page::parse(&body).get::<u64>("netsurgeon_writes_total") >= in_etcd);
    end(guard).await;
}
