//! `netsurgeon mirror sans` on a real API server, with the real controller of cert-manager.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use netsurgeon::certs::certificates;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::mirror_pair::{action, end_at_once};
use super::rig::api::Api;
use super::rig::api_gate::{ApiGate, Trouble, Troubles};
use super::rig::cert_manager::{CertManager, certificate, install_definitions, issuer};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;
use super::rig::run::{Run, run, says};
use super::rig::tls_server::TlsServer;
use super::rig::workspace::Workspace;

const PATIENCE: Duration = Duration::from_mins(3);
const NAMESPACE: &str = "shop";
const CERTIFICATES: &str = "/apis/cert-manager.io/v1/namespaces/shop/certificates";
const CONFIG: &str = "namespaces: [shop]\nhosts: [{suffix: example.com, add: green.example.com}]\n";

/// A source with cert-manager.
struct Source {
    cluster: Cluster,
    /// `None` after [`Source::stop_cert_manager`].
    cert_manager: Option<CertManager>,
    workspace: Workspace,
    config: String,
}

impl Source {
    /// Starts a cluster with a CA issuer `ca`, whose CA comes from a self-signed issuer, and with these Certificates.
    async fn start(objects: &[Value]) -> Self {
        let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
        let cluster = Cluster::start(options).await;
        let api = &cluster.api;
        // Otherwise the first operation creates it.
        api.create_namespace("netsurgeon").await;
        api.create_namespace(NAMESPACE).await;
        install_definitions(api).await;
        let cert_manager = Some(CertManager::start(cluster.kubeconfig()));
        let workspace = Workspace::create("sans");
        let config = workspace.write("mirror.yaml", CONFIG).display().to_string();
        let source = Self { cluster, cert_manager, workspace, config };
        source.create_authority().await;
        for object in objects {
            source.cluster.api.create(object).await;
        }
        for object in objects.iter().filter(|one| one["kind"] == "Certificate") {
            source.is_ready(object["metadata"]["name"].as_str().expect("a name")).await;
        }
        source
    }

    async fn create_authority(&self) {
        let api = &self.cluster.api;
        api.create(&issuer(NAMESPACE, "self", &json!({"selfSigned": {}}))).await;
        let mut root = certificate(NAMESPACE, "root", "self", &[]);
        root["spec"]["isCA"] = true.into();
        root["spec"]["commonName"] = "root".into();
        api.create(&root).await;
        api.create(&issuer(NAMESPACE, "ca", &json!({"ca": {"secretName": "root-tls"}}))).await;
        self.is_ready("root").await;
    }

    /// Waits until a Certificate is ready as it is now.
    async fn is_ready(&self, name: &str) {
        wait_until("the Certificate is ready", PATIENCE, async || {
            let found = self.cluster.api.get(&format!("{CERTIFICATES}/{name}")).await;
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_ready = |one: &Value| {
                one["type"] == "Ready"
                    && one["status"] == "True"
                    && one["observedGeneration"] == found["metadata"]["generation"]
            };
            if conditions.iter().any(is_ready) {
                return Ok(());
            }
            let log = self.cert_manager.as_ref().map(CertManager::log_tail).unwrap_or_default();
            Err(format!("{name}: {found}\n{log}"))
        })
        .await;
    }

    async fn certificate(&self, name: &str) -> Value {
        self.cluster.api.get(&format!("{CERTIFICATES}/{name}")).await
    }

    async fn names(&self, name: &str) -> Vec<String> {
        texts(&self.certificate(name).await["spec"]["dnsNames"])
    }

    /// Returns the names of the certificate in the Secret of a Certificate.
    async fn issued(&self, name: &str) -> Vec<String> {
        issued(&self.cluster.api, name).await
    }

    fn run(&self, words: &str) -> Run {
        run(words, command(words, &self.cluster.kubeconfig().display().to_string()))
    }

    fn sans(&self, words: &str) -> Run {
        self.run(&format!("mirror sans {words} --config {}", self.config))
    }

    /// Returns the only operation that has not been rolled back, with its status.
    fn operation(&self) -> Option<(String, String)> {
        let listed = self.run("operation list -o json").expect(0).json();
        let of = |one: &Value, field: &str| one[field].as_str().expect("a text").to_owned();
        let operations = listed["operations"].as_array().expect("operations");
        let mut found = operations.iter().filter(|one| one["status"] != "rolled-back");
        let first = found.next().map(|one| (of(one, "operation"), of(one, "status")));
        assert!(found.next().is_none(), "{listed}");
        first
    }

    /// Starts `mirror sans apply` behind a gate, and kills it at a write. Returns `false` if it ended before.
    async fn kill(&self, troubles: &Troubles, kubeconfig: &str, words: &str) -> bool {
        let mut started = command(&format!("{words} --yes --lock-ttl 2 --take-over"), kubeconfig);
        let mut child = started.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let end = Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                () = troubles.killed() => {
                    end_at_once(&mut child);
                    println!("killed: {words}: {:?}", troubles.seen().last());
                    return true;
                }
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
            if child.try_wait().expect("it can be waited for").is_some() {
                return false;
            }
            assert!(Instant::now() < end, "{words} neither ends nor is killed");
        }
    }
}

fn command(words: &str, kubeconfig: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.args(words.split_whitespace()).env("KUBECONFIG", kubeconfig).env_remove("ETCDCTL_ENDPOINTS");
    command
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one.as_str().expect("a text").to_owned()).collect()
}

async fn issued(api: &Api, name: &str) -> Vec<String> {
    let secret = api.get(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}-tls")).await;
    let pem = BASE64.decode(secret["data"]["tls.crt"].as_str().expect("a value").as_bytes()).expect("base64");
    let found = certificates(&String::from_utf8(pem).expect("PEM")).expect("certificates");
    found[0].dns_names.clone()
}

/// What must be the same after a rollback: everything but the version, the managers and the status.
fn stable(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["resourceVersion", "generation", "managedFields"] {
        object["metadata"].as_object_mut().expect("metadata").remove(field);
    }
    object.as_object_mut().expect("an object").remove("status");
    object
}

fn planned<'p>(plan: &'p Value, name: &str) -> &'p Value {
    let all = plan["certificates"].as_array().expect("certificates");
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name} is not in the plan: {plan}"))
}

fn ca(name: &str, names: &[&str]) -> Value {
    certificate(NAMESPACE, name, "ca", names)
}

/// An Ingress for which cert-manager creates the Certificate `shim-tls`.
fn ingress() -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"namespace": NAMESPACE, "name": "shim", "annotations": {"cert-manager.io/issuer": "ca"}},
        "spec": {"tls": [{"hosts": ["shim.example.com"], "secretName": "shim-tls"}],
                 "rules": [{"host": "shim.example.com", "http": {"paths": paths}}]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_get_the_names_of_the_mirror_and_lose_them_again() {
    let source = Source::start(&[
        ca("web", &["www.example.com", "api.example.com"]),
        ca("pay", &["pay.example.com"]),
        ca("wild", &["www.example.com", "*.green.example.com"]),
        ca("other", &["www.example.org"]),
        ingress(),
    ])
    .await;
    source.is_ready("shim-tls").await;
    let before = [source.certificate("web").await, source.certificate("pay").await];

    let plan = source.sans("plan -o json").expect(0).json();
    for (name, expected, reason) in [
        ("web", "add", Value::Null),
        ("pay", "add", Value::Null),
        ("wild", "left-out", json!("wildcard")),
        ("other", "left-out", json!("no-rule")),
        ("root", "left-out", json!("no-rule")),
        ("shim-tls", "left-out", json!("ingress")),
    ] {
        let entry = planned(&plan, name);
        assert_eq!((&entry["action"], &entry["reason"]), (&json!(expected), &reason), "{entry}");
    }
    assert_eq!(source.operation(), None, "a plan writes nothing");

    let applied = source.sans("apply --yes -o json").expect(0);
    let id = applied.json()["operation"].as_str().expect("an id").to_owned();
    assert_eq!((&applied.json()["status"], &applied.json()["done"]), (&json!("done"), &json!(2)));
    let wanted = ["www.example.com", "api.example.com", "www.green.example.com", "api.green.example.com"];
    assert_eq!(source.names("web").await, wanted);
    assert_eq!(source.issued("web").await, wanted, "the certificate serves both names");
    assert_eq!(source.issued("pay").await, ["pay.example.com", "pay.green.example.com"]);
    assert_eq!(source.names("shim-tls").await, ["shim.example.com"]);

    let again = source.sans("plan -o json").expect(0).json();
    assert_eq!(planned(&again, "web")["action"], "same");
    assert_eq!(source.sans("apply --yes -o json").expect(0).json()["operation"], Value::Null);

    says(&source.run(&format!("operation show {id}")).expect(0).err, &["rollback", &id]);
    let page = source.workspace.join("report.html");
    source.run(&format!("operation report {id} --html {}", page.display())).expect(0);
    says(&std::fs::read_to_string(&page).expect("a page"), &["www.green.example.com"]);

    // Another client appends a name after the operation. It stays at its place.
    let more = [&wanted[..], &["new.example.com"]].concat();
    source.cluster.api.merge(&format!("{CERTIFICATES}/web"), &json!({"spec": {"dnsNames": more}})).await;
    source.run(&format!("operation rollback {id} --yes")).expect(0);
    assert_eq!(source.names("web").await, ["www.example.com", "api.example.com", "new.example.com"]);
    let first = json!({"spec": {"dnsNames": ["www.example.com", "api.example.com"]}});
    source.cluster.api.merge(&format!("{CERTIFICATES}/web"), &first).await;
    for before in before {
        let name = before["metadata"]["name"].as_str().expect("a name");
        assert_eq!(stable(&source.certificate(name).await), stable(&before));
        source.is_ready(name).await;
    }
    source.run(&format!("operation forget {id} --yes")).expect(0);
}

/// The CA of an issuer disappears between the plan and the change. The Certificate is not issued, and gets its former names.
#[tokio::test(flavor = "multi_thread")]
async fn certificate_that_is_not_issued_gets_its_names_back() {
    let source = Source::start(&[ca("web", &["www.example.com"])]).await;
    let api = &source.cluster.api;
    let secrets = "/api/v1/namespaces/shop/secrets";
    let mut copy = api.get(&format!("{secrets}/root-tls")).await;
    copy["metadata"] = json!({"namespace": NAMESPACE, "name": "fragile-ca"});
    api.create(&copy).await;
    api.create(&issuer(NAMESPACE, "fragile", &json!({"ca": {"secretName": "fragile-ca"}}))).await;
    api.create(&certificate(NAMESPACE, "broken", "fragile", &["broken.example.com"])).await;
    source.is_ready("broken").await;
    let before = source.certificate("broken").await;

    let troubles = Troubles::of("/certificates/");
    let gate = ApiGate::open(api.client(), &troubles).await;
    let kubeconfig = source.workspace.write("gate.conf", gate.kubeconfig()).display().to_string();
    troubles.arm(Trouble::KilledBefore(1));
    let words = format!("mirror sans apply --config {} --wait-issued 8", source.config);
    assert!(source.kill(&troubles, &kubeconfig, &words).await);
    let (id, _) = source.operation().expect("an operation");
    api.delete(&format!("{secrets}/fragile-ca")).await;
    let path = "/apis/cert-manager.io/v1/namespaces/shop/issuers/fragile";
    wait_until("the issuer is not ready", PATIENCE, async || {
        let conditions = api.get(path).await["status"]["conditions"].take();
        if conditions[0]["status"] == "False" { Ok(()) } else { Err(conditions.to_string()) }
    })
    .await;

    let resumed = source.run(&format!("operation resume {id} --lock-ttl 2 --take-over -o json")).expect(3);
    let shown = resumed.json();
    assert_eq!(shown["status"], "done");
    assert_eq!(shown["skipped"].as_array().expect("a list").len(), 1, "{shown}");
    assert_eq!(shown["skipped"][0]["step"], "sans/certificates.cert-manager.io/shop/broken");
    says(&resumed.err, &["shop/broken", "removed again", "CertificateRequest broken-2: Pending"]);
    assert_eq!(stable(&source.certificate("broken").await), stable(&before));
    assert_eq!(source.issued("web").await, ["www.example.com", "www.green.example.com"]);
    assert_eq!(source.issued("broken").await, ["broken.example.com"]);
    let plan = source.sans("plan -o json").expect(0).json();
    assert_eq!(planned(&plan, "broken")["reason"], "issuer-not-ready");

    source.run(&format!("operation rollback {id} --yes")).expect(0);
    assert_eq!(source.names("web").await, ["www.example.com"]);
    assert_eq!(stable(&source.certificate("broken").await), stable(&before));
}

impl Source {
    fn stop_cert_manager(&mut self) {
        self.cert_manager = None;
    }

    /// Starts `apply` without a controller, and waits until the Certificate `web` has the name. Returns the process.
    async fn start_apply(&self) -> Child {
        let words =
            format!("mirror sans apply --yes --wait-issued 600 --lock-ttl 2 --config {}", self.config);
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        let mut started = command(&words, &kubeconfig);
        let child = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        wait_until("the name is added", PATIENCE, async || {
            let names = self.names("web").await;
            if names.len() == 2 { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
        child
    }
}

/// Returns the exit status of a process, and what it printed on stderr.
fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// cert-manager does not run: the step ends at its limit, when another client removes the names, or on request.
#[tokio::test(flavor = "multi_thread")]
async fn step_ends_although_nothing_issues_the_certificate() {
    let mut source = Source::start(&[ca("web", &["www.example.com"])]).await;
    source.stop_cert_manager();
    let before = source.certificate("web").await;
    let late = source.sans("apply --yes --wait-issued 1 -o json").expect(3);
    says(&late.err, &["shop/web", "removed again", "not issued within 1 s"]);
    assert_eq!(late.json()["done"], 0);
    assert_eq!(stable(&source.certificate("web").await), stable(&before));

    let child = source.start_apply().await;
    let reverted = json!({"spec": {"dnsNames": ["www.example.com"]}});
    source.cluster.api.merge(&format!("{CERTIFICATES}/web"), &reverted).await;
    let (code, said) = ended(child);
    assert_eq!(code, Some(3), "{said}");
    says(&said, &["shop/web", "another client has removed the added names"]);

    let child = source.start_apply().await;
    let id = Pid::from_raw(i32::try_from(child.id()).expect("an id")).expect("an id");
    kill_process(id, Signal::TERM).expect("it runs");
    let (code, said) = ended(child);
    assert_eq!(code, Some(6), "{said}");
    let listed = source.run("operation list -o json").expect(0).json();
    let operations = listed["operations"].as_array().expect("operations");
    let open =
        operations.iter().find(|one| one["status"] != "done").expect("an operation that has not ended");
    let id = open["operation"].as_str().expect("an id");
    assert_eq!(source.names("web").await.len(), 2, "a resume continues here");
    source.run(&format!("operation rollback {id} --yes")).expect(0);
    assert_eq!(stable(&source.certificate("web").await), stable(&before));
}

/// A user with the roles of `deploy/rbac.yaml` can do everything; without one of them, nothing is changed.
#[tokio::test(flavor = "multi_thread")]
async fn missing_permission_is_found_before_the_first_change() {
    let source = Source::start(&[ca("web", &["www.example.com"])]).await;
    let api = &source.cluster.api;
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac.yaml")).expect("the roles");
    for part in text.split("\n---\n") {
        api.apply(&serde_saphyr::from_str(part).expect("an object")).await;
    }
    let bind = async |kind: &str, role: &str, namespace: &str| {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": format!("ada-{role}")},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "ada"}],
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        });
        api.create(&binding).await;
    };
    for (kind, role, namespace) in [
        ("ClusterRole", "netsurgeon-mirror-sans", NAMESPACE),
        ("Role", "netsurgeon-mirror", "netsurgeon"),
        ("Role", "netsurgeon-mirror", "kube-system"),
    ] {
        bind(kind, role, namespace).await;
    }
    let ada = source.cluster.api_as(0, "ada", None).await;
    let in_force = async |path: &str| {
        wait_until("the role is in force", PATIENCE, async || {
            let answer = ada.request(http::Method::GET, path, "application/json", None).await;
            answer.map(drop).map_err(|error| error.to_string())
        })
        .await;
    };
    in_force(CERTIFICATES).await;
    in_force("/api/v1/namespaces/netsurgeon/configmaps").await;
    let kubeconfig = source.cluster.kubeconfig_as(0, "ada", None).display().to_string();
    let words = format!("mirror sans apply --yes --config {}", source.config);
    let refused = run(&words, command(&words, &kubeconfig)).expect(1);
    says(&refused.err, &["get secrets in `shop`"]);
    says(&refused.err, &["netsurgeon-mirror-secrets"]);
    assert_eq!(source.names("web").await, ["www.example.com"]);

    bind("ClusterRole", "netsurgeon-mirror-secrets", NAMESPACE).await;
    in_force("/api/v1/namespaces/shop/secrets").await;
    run(&words, command(&words, &kubeconfig)).expect(0);
    assert_eq!(source.issued("web").await, ["www.example.com", "www.green.example.com"]);
    let (id, _) = source.operation().expect("an operation");
    let words = format!("operation rollback {id} --yes");
    run(&words, command(&words, &kubeconfig)).expect(0);
    assert_eq!(source.names("web").await, ["www.example.com"]);
}

impl Source {
    /// Kills `apply` at a write, then completes the operation or rolls it back. A late request of the killed process changes nothing.
    /// Returns whether a process was killed.
    async fn round(&self, gate: (&Troubles, &str), trouble: Trouble, completes: bool) -> bool {
        let (troubles, kubeconfig) = gate;
        let former = self.certificate("web").await;
        troubles.arm(trouble);
        let apply = format!("mirror sans apply --config {}", self.config);
        let killed = self.kill(troubles, kubeconfig, &apply).await;
        let take = "--lock-ttl 2 --take-over";
        match self.operation() {
            Some((id, status)) if completes && status != "done" => {
                drop(self.run(&format!("operation resume {id} {take}")).expect(0));
            }
            None if completes => drop(self.sans(&format!("apply --yes {take}")).expect(0)),
            _ => {}
        }
        if completes {
            let wanted = ["www.example.com", "www.green.example.com"];
            assert_eq!(
                (self.names("web").await, self.issued("web").await),
                (wanted.map(String::from).into(), wanted.map(String::from).into()),
                "{trouble:?}"
            );
            troubles.deliver().await;
            assert_eq!(self.names("web").await, wanted, "{trouble:?}: a late request changed something");
        }
        if let Some((id, _)) = self.operation() {
            self.run(&format!("operation rollback {id} --yes {take}")).expect(0);
            self.run(&format!("operation forget {id} --yes")).expect(0);
        }
        troubles.deliver().await;
        assert_eq!(stable(&self.certificate("web").await), stable(&former), "{trouble:?}");
        self.is_ready("web").await;
        killed
    }
}

/// Processes are killed at the writes to a Certificate, and their requests arrive late.
#[tokio::test(flavor = "multi_thread")]
async fn killed_apply_is_completed_or_undone() {
    let source = Source::start(&[ca("web", &["www.example.com"])]).await;
    let troubles = Troubles::of("/certificates/");
    let gate = ApiGate::open(source.cluster.api.client(), &troubles).await;
    let kubeconfig = source.workspace.write("gate.conf", gate.kubeconfig()).display().to_string();
    let mut kills = 0;
    for trouble in [Trouble::KilledBefore(1), Trouble::KilledAfter(1), Trouble::KilledAndLate(1)] {
        for completes in [true, false] {
            kills += usize::from(source.round((&troubles, &kubeconfig), trouble, completes).await);
        }
    }
    assert_eq!(kills, 6);
}

/// A process is killed at each write of `apply`, in the Certificate and in the record.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes, in `make soak`: needs `make rig` and root"]
async fn apply_is_killed_at_every_write() {
    let source = Source::start(&[ca("web", &["www.example.com"])]).await;
    let troubles = Troubles::none();
    let gate = ApiGate::open(source.cluster.api.client(), &troubles).await;
    let kubeconfig = source.workspace.write("gate.conf", gate.kubeconfig()).display().to_string();
    let mut kills = 0;
    for write in 1.. {
        let kinds =
            [Trouble::KilledBefore(write), Trouble::KilledAfter(write), Trouble::KilledAndLate(write)];
        let mut killed = 0;
        for (trouble, completes) in kinds.into_iter().zip([write % 2 == 0, write % 2 == 1, write % 2 == 0]) {
            killed += usize::from(source.round((&troubles, &kubeconfig), trouble, completes).await);
        }
        kills += killed;
        if killed == 0 {
            break;
        }
    }
    println!("{kills} processes killed");
    assert!(kills > 15, "{kills}");
}

/// The names of the copies in the mirror are those of the copied Secrets, so cert-manager of the mirror issues nothing.
#[tokio::test(flavor = "multi_thread")]
async fn mirror_issues_no_certificate_again() {
    let mut ingress = ingress();
    ingress["metadata"] = json!({"namespace": NAMESPACE, "name": "web"});
    ingress["spec"]["tls"] = json!([{"hosts": ["www.example.com"], "secretName": "web-tls"}]);
    ingress["spec"]["rules"][0]["host"] = "www.example.com".into();
    let source = Source::start(&[ca("web", &["www.example.com"]), ingress]).await;
    source.sans("apply --yes").expect(0);
    let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
    let mirror = Cluster::start(options).await;
    install_definitions(&mirror.api).await;
    let _cert_manager = CertManager::start(mirror.kubeconfig());
    let plan = source.workspace.join("plan.json").display().to_string();
    let to = format!("--mirror-kubeconfig {}", mirror.kubeconfig().display());
    let planned = source.run(&format!("mirror plan --config {} {to} --save {plan} -o json", source.config));
    let planned = planned.expect(0).json();
    for object in [ca("web", &[]), ca("root", &[]), issuer(NAMESPACE, "ca", &json!({}))] {
        assert_eq!(action(&planned, &object)["action"], "create", "{object}");
    }
    source.run(&format!("mirror apply --plan {plan} {to} --yes")).expect(0);
    wait_until("the copy is ready", PATIENCE, async || {
        let copy = mirror.api.get(&format!("{CERTIFICATES}/web")).await;
        let ready = copy["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
        if ready.iter().any(is_ready) { Ok(()) } else { Err(copy.to_string()) }
    })
    .await;
    let requests = mirror.api.list("/apis/cert-manager.io/v1/namespaces/shop/certificaterequests").await;
    assert_eq!(requests, Vec::<Value>::new(), "nothing is issued in the mirror");
    let secret = "/api/v1/namespaces/shop/secrets/web-tls";
    let (one, other) = (source.cluster.api.get(secret).await, mirror.api.get(secret).await);
    assert_eq!(one["data"], other["data"], "both clusters serve one certificate");
    let ingress = mirror.api.get("/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web").await;
    let hosts = texts(&ingress["spec"]["tls"][0]["hosts"]);
    assert_eq!(hosts, ["www.example.com", "www.green.example.com"]);
    let [certificate, key] =
        ["tls.crt", "tls.key"].map(|name| source.workspace.write(name, data(&other, name)));
    let server = TlsServer::start(&certificate, &key).await;
    let authority = source.cluster.api.get("/api/v1/namespaces/shop/secrets/root-tls").await;
    let authority = source.workspace.write("root.crt", data(&authority, "tls.crt"));
    for host in hosts {
        assert_eq!(server.verified(&host, &authority), Ok(()), "{host}");
    }
    assert!(server.verified("www.blue.example.com", &authority).is_err(), "another name is not valid");
}

/// Returns a value of a Secret.
fn data(secret: &Value, key: &str) -> Vec<u8> {
    let value = secret["data"][key].as_str().unwrap_or_else(|| panic!("{key}: {secret}"));
    BASE64.decode(value.as_bytes()).expect("base64")
}
