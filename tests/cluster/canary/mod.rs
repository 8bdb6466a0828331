//! No secret that the program reads is ever printed, logged, journalled or written. Random secrets are planted in objects, files,
//! variables, URLs and answers; every command runs among them, with success and with every kind of failure, at the highest
//! verbosity; and all output is searched.
//!
//! Exempt is a copy that the user requests: the file of `--snapshot-to`, which holds all of etcd.

mod aws;
mod forms;
mod mirror;
mod stage;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::CommandFactory as _;
use etcd_client::{Client, GetOptions};
use netsurgeon::cli::Cli;
use serde_json::{Value, json};

use self::stage::{Stage, Variables, files_in, text};
use super::rig::process::{free_port, wait_until};

const TO: &str = "10.200.0.0/16";
/// Longer than the program may take for anything here.
const DEADLINE: Duration = Duration::from_mins(3);
/// The highest verbosity, for people and for programs.
const LOUD: [&str; 2] = ["-vvv", "-vvv -o json --log-format json"];
/// Lower verbosity; only in `make soak`, because `-vvv` prints all of it as well.
const QUIET: [&str; 4] = ["", "-o json", "-v -o yaml", "-vv"];

fn is_soak() -> bool {
    std::env::var("NETSURGEON_SOAK").is_ok_and(|value| value == "1")
}

#[tokio::test]
async fn no_secret_leaks() {
    let mut stage = Stage::start().await;
    let mut ran = BTreeSet::new();
    for words in reads(&stage) {
        everyway(&mut stage, &mut ran, &words);
    }
    for words in specifications(&mut stage) {
        everyway(&mut stage, &mut ran, &words);
    }
    for words in other_plugin(&mut stage) {
        everyway(&mut stage, &mut ran, &words);
    }
    mirror::names_of_certificates(&mut stage, &mut ran).await;
    aws::parity(&mut stage, &mut ran).await;
    there_and_back(&mut stage, &mut ran);
    to_the_end(&mut stage, &mut ran).await;
    mirror::there_and_back(&mut stage, &mut ran).await;
    failures(&mut stage);
    every_command_ran(&ran);
    what_is_left_behind(&mut stage).await;
    println!("{} runs, {} bytes searched", stage.searched.0, stage.searched.1);
    assert!(stage.leaks.is_empty(), "{:#?}", stage.leaks);
}

/// Runs a command at the highest verbosity, in one of both formats in turn; in `make soak` in every way.
fn everyway(stage: &mut Stage, ran: &mut BTreeSet<String>, words: &str) {
    let all = [&LOUD[..], &QUIET[..]].concat();
    let variants = if is_soak() { &all[..] } else { &LOUD[ran.len() % 2..][..1] };
    for variant in variants {
        let (code, _, said) = stage.run(format!("{words} {variant}").trim_end(), &Variables::new());
        assert_ne!(code, 2, "{words}: {said}");
    }
    ran.insert(words.to_owned());
}

/// Commands that need no file and no address of this run.
const READS: [&str; 27] = [
    "version",
    "completions bash",
    "man --directory man",
    "ip first 10.96.0.0/16",
    "ip nth 10.96.0.0/16 7",
    "ip map --from 10.96.0.0/16 --to 10.200.0.0/16 10.96.0.5",
    "ranges show --svg ranges.svg",
    "ranges check",
    "ranges rewrite --dry-run",
    "ranges rewrite --yes",
    "inspect get secret default/sealed",
    "inspect get secret default/clear",
    "inspect get secret default/clear --raw",
    "inspect get /registry/secrets/default/sealed --raw",
    "inspect list",
    "inspect list --summary",
    "audit --old 10.96.0.0/16",
    "audit --old 10.96.0.0/16 --host",
    "audit --old 10.96.0.0/16 --gather",
    "renumber plan --to 10.200.0.0/16 --save plan.json",
    "operation list",
    "lock --reason window",
    "lock status",
    "unlock",
    "controlplane show --no-host",
    "controlplane wait --timeout 1",
    "preflight cni --to cilium --within 5",
];

/// Commands that change nothing of the cluster, or undo their change at once.
fn reads(stage: &Stage) -> Vec<String> {
    let given = |name: &str| stage.given(name);
    let (root, manifests) = (given("root"), given("root/etc/kubernetes/manifests"));
    let clear = stage.give("clear.json", &json!({"apiVersion": "v1", "kind": "Secret"}).to_string());
    let pki = stage.cluster.directory().display().to_string();
    let server = stage.cluster.api_servers[0].url().trim_start_matches("https://").to_owned();
    let zone = "preflight dns --zone example.test --name www.example.test --server 127.0.0.53 --resolver 127.0.0.53 --within 5";
    let planning =
        "dns plan --zone example.test --name www.example.test --server 127.0.0.53 --resolver 127.0.0.53";
    let to_mirror = format!("--mirror-kubeconfig {}", given("token.conf"));
    let reissue = format!(
        "certs reissue --cert {pki}/apiserver-0.crt --key {pki}/apiserver-0.key --ca-cert {pki}/ca.crt --for-cidr {TO}"
    );
    let mut words: Vec<String> = READS.map(str::to_owned).to_vec();
    words.extend([
        format!("inspect decode {clear}"),
        format!("audit --old 10.96.0.0/16 --host --root {root}"),
        format!("controlplane show --manifests {manifests}"),
        format!("controlplane set-range --to {TO} --manifests {manifests} --dry-run"),
        format!("controlplane set-range --to {TO} --manifests {manifests} --yes"),
        format!("controlplane set-dns --to 10.200.0.10 --config {root}/var/lib/kubelet/config.yaml --yes"),
        format!("preflight renumber --to {TO} --within 5 --junit junit.xml"),
        format!("preflight mirror -n default {to_mirror} --within 5"),
        format!("{zone} --tsig-key-file {} {to_mirror}", given("tsig.key")),
        format!("{zone} --tsig-key-file {}", given("wrong-tsig.key")),
        format!("{zone} --tsig-key-file {}", given("torn-tsig.key")),
        // The live tests of `dns` search the plan, the record and the output of a whole cutover.
        format!("{planning} --tsig-key-file {} {to_mirror}", given("tsig.key")),
        format!("{planning} --tsig-key-file {} {to_mirror}", given("torn-tsig.key")),
        format!("dns cutover --plan plan.json --all --yes --tsig-key-file {}", given("tsig.key")),
        format!("dns rollback --yes --tsig-key-file {}", given("wrong-tsig.key")),
        "dns status".to_owned(),
        "network test --image example.com/a:1 --patience 1s".to_owned(),
        "network test --print-rbac".to_owned(),
        "network clean".to_owned(),
        "cni show --image example.com/a:1 --patience 1s".to_owned(),
        "cni show --without-nodes".to_owned(),
        "agent probe --name a --port 1 --token 00112233445566778899aabbccddeeff".to_owned(),
        "agent node-state".to_owned(),
        "agent run-in-root --root /nonexistent /bin/true".to_owned(),
        format!("certs show {pki} --server {server}"),
        format!("certs verify --server {server} --cidr 10.96.0.0/16"),
        format!(
            "{reissue} --ca-key {} --ca-key-password-file {} --yes",
            given("sealed.key"),
            given("password")
        ),
        format!(
            "{reissue} --ca-key {} --ca-key-password-file {} --dry-run",
            given("sealed.key"),
            given("wrong")
        ),
        format!("{reissue} --ca-key {} --dry-run", given("sealed.key")),
        format!("{reissue} --ca-key {} --dry-run", given("torn.key")),
    ]);
    words
}

/// Commands on manifests of a network plug-in with secrets: in a Secret, a ConfigMap and a variable, and in a file that is not valid.
fn other_plugin(stage: &mut Stage) -> Vec<String> {
    let [password, token, variable, torn] =
        ["a Secret in a manifest", "a token in a ConfigMap", "a variable of an agent", "a torn manifest"]
            .map(|what| stage.canaries.plant(what));
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: weave-passwd\nstringData:\n  key: {password}\n---\napiVersion: v1\nkind: \
         ConfigMap\nmetadata:\n  name: calico-config\n  namespace: kube-system\ndata:\n  cni_network_config: |\n    {{\"plugins\": \
         [{{\"type\": \"calico\", \"token\": \"{token}\"}}]}}\n---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata:\n  name: \
         calico-node\n  namespace: kube-system\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: \
         b}}}}\n    spec:\n      containers:\n      - name: calico-node\n        image: example.com/node:1\n        env:\n        - {{name: \
         PASSWORD, value: {variable}}}\n"
    );
    let whole = stage.give("calico.yaml", &text);
    let torn = stage.give("torn.yaml", &format!("kind: Secret\nstringData:\n  key: {torn}: {torn}\n"));
    vec![format!("cni plan --to {whole}"), format!("cni plan --to {torn} ")]
}

/// Commands on the kOps specification of a cluster with secrets. Without `--diff`, the output is a copy that the user requests.
fn specifications(stage: &mut Stage) -> Vec<String> {
    let [gossip, token, replaced] =
        ["the secret of gossip DNS", "a token in a hook", "a token in a file asset"]
            .map(|what| stage.canaries.plant(what));
    let text = format!(
        "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nmetadata:\n  name: blue.example.com\nspec:\n  configBase: \
         s3://state/blue.example.com\n  gossipConfig:\n    secret: {gossip}\n  hooks:\n  - name: join\n    manifest: ExecStart=/opt/join \
         blue.example.com {token}\n  fileAssets:\n  - name: key\n    path: /etc/key\n    content: {replaced}\n"
    );
    let file = stage.give("blue.yaml", &text);
    let kops = format!("mirror kops {file} --name green.example.com --diff");
    vec![
        kops.clone(),
        format!("{kops} --set dns=none --allow-old blue.example.com"),
        format!(
            "{kops} --set dns=none --replace blue.example.com=green.example.com --set fileAssets.key.content=none"
        ),
        format!("{kops} --set dns=none --set gossipConfig.secret=none --set fileAssets.key.path.x=y"),
    ]
}

/// A renumbering whose gate is closed after a batch, while the gate reads its metrics; then a complete rollback.
fn there_and_back(stage: &mut Stage, ran: &mut BTreeSet<String>) {
    let metrics = format!("127.0.0.1:{}", free_port());
    let (gate, gatekeeper) = gate(metrics.clone());
    let words = format!(
        "renumber apply --to 10.201.0.0/16 --snapshot-to before.db --yes --batch-size 1 --confirm certificates \
         --gate-http http://{gate}/ --metrics-listen {metrics} {}",
        LOUD[1]
    );
    let (code, _, said) = stage.run(&words, &Variables::new());
    let page = gatekeeper.join().expect("the gatekeeper");
    assert_eq!(code, 6, "{said}");
    assert!(text(&page).contains("netsurgeon_"), "the metrics were read: {}", text(&page));
    stage.search("the metrics of an apply", &page);
    ran.insert(words);
    let operation = operation(stage);
    for words in [
        format!("operation rollback {operation} --yes --linger 0"),
        format!("rehearse before.db --to {TO}"),
        "inspect diff before.db".to_owned(),
        "inspect diff --from-revision 300 --under /registry/secrets/".to_owned(),
        format!("operation forget {operation}"),
    ] {
        everyway(stage, ran, &words);
    }
}

/// A second renumbering: the soak, with a guard, and on to the end, until only its journal is left.
async fn to_the_end(stage: &mut Stage, ran: &mut BTreeSet<String>) {
    let words = format!(
        "renumber apply --to {TO} --no-snapshot --yes --confirm snapshot --confirm certificates {}",
        LOUD[0]
    );
    let (code, _, said) = stage.run(&words, &Variables::new());
    assert_eq!(code, 6, "{said}");
    let operation = operation(stage);
    stage.cluster.set_service_cidrs(TO);
    stage.cluster.restart_api_server(0).await;
    let resume = format!("operation resume {operation} --confirm flags {}", LOUD[0]);
    let (code, _, said) = stage.run(&resume, &Variables::new());
    assert_eq!(code, 0, "{said}");
    ran.insert(resume);
    for words in [
        "renumber status".to_owned(),
        "renumber status --flows".to_owned(),
        "renumber verify --probe default/web".to_owned(),
        "ranges check".to_owned(),
        format!("operation show {operation}"),
        "audit --old 10.96.0.0/16 ".to_owned(),
    ] {
        everyway(stage, ran, &words);
    }
    guarded(stage).await;
    let retire = if is_soak() {
        "renumber retire --without-evidence --yes --confirm cluster-dns --confirm soak --confirm certificates-after"
    } else {
        // Half a minute less: it pauses at the manual step that confirms the end of the soak.
        "renumber retire --without-evidence --yes --confirm cluster-dns"
    };
    for words in [
        "renumber guard --once".to_owned(),
        format!("operation report {operation} --html report.html"),
        "renumber rollback --yes --without-api 1".to_owned(),
        retire.to_owned(),
        format!("operation show {operation} "),
    ] {
        everyway(stage, ran, &words);
    }
}

/// The guard in the foreground, with its metrics; also checks that it would leave no core file if it crashed.
async fn guarded(stage: &mut Stage) {
    let path = "/api/v1/namespaces/default/services/web";
    stage.cluster.api.merge(path, &json!({"spec": {"externalIPs": null}})).await;
    let metrics = format!("127.0.0.1:{}", free_port());
    let words = format!("renumber guard --interval 1 --lease --metrics-listen {metrics} {}", LOUD[1]);
    let mut command = stage.command(&words, &Variables::new());
    let files = ["guard.out", "guard.err"].map(|name| stage.written.join(name));
    let [out, err] = files.each_ref().map(|file| std::fs::File::create(file).expect("a file"));
    let mut child = command.stdout(out).stderr(err).spawn().expect("the guard starts");
    wait_until("the guard repairs", DEADLINE, async || {
        let said = std::fs::read_to_string(&files[0]).unwrap_or_default();
        if said.contains("hold-put-back") { Ok(()) } else { Err(said) }
    })
    .await;
    let page = get(&metrics).expect("metrics");
    stage.search("the metrics of a guard", &page);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("limits");
    assert!(leaves_no_core(&limits), "{limits}");
    child.kill().and_then(|()| child.wait()).expect("the guard ends");
}

fn leaves_no_core(limits: &str) -> bool {
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
    core.is_some_and(|core| core.split_whitespace().take(2).eq(["0", "0"]))
}

/// In /proc a non-dumpable process belongs to root, whichever user runs it: neither that user nor their debugger can read it.
#[tokio::test]
async fn process_of_any_user_is_not_dumpable() {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
    command.arg(env!("CARGO_BIN_EXE_netsurgeon")).args(["inspect", "decode"]).env_clear();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let folder = format!("/proc/{}", child.id());
    wait_until("it forbids core dumps", DEADLINE, async || {
        let limits = std::fs::read_to_string(format!("{folder}/limits")).unwrap_or_default();
        let owner =
            std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("{folder}/environ")).unwrap());
        if leaves_no_core(&limits) && owner == 0 { Ok(()) } else { Err(format!("user {owner}: {limits}")) }
    })
    .await;
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

/// The names of the planted kubeconfigs, except for the one that is used everywhere.
const KUBECONFIGS: [&str; 17] = [
    "exec-fails",
    "exec-later",
    "exec-broken",
    "key",
    "token",
    "broken-key",
    "unknown",
    "basic",
    "forbidden",
    "no-user",
    "list",
    "named",
    "proxied",
    "socks",
    "deserted",
    "torn",
    "text",
];

/// Ways to fail: the credentials of each are among the searched secrets.
fn environments(stage: &mut Stage) -> Vec<Variables> {
    let path = |stage: &Stage, name: &str| stage.given(name);
    let mut all: Vec<Variables> =
        KUBECONFIGS.map(|name| vec![("KUBECONFIG", path(stage, &format!("{name}.conf")))]).to_vec();
    let endpoint = stage.cluster.etcd.endpoint();
    let mut plant = |what: &str| stage.canaries.plant(what);
    let deserted = format!("127.0.0.1:{}", free_port());
    let named =
        |secret: String, host: &str| format!("https://root:{secret}@{}", host.trim_start_matches("https://"));
    all.extend([
        vec![("ETCDCTL_ENDPOINTS", format!("https://{deserted}"))],
        vec![("ETCDCTL_ENDPOINTS", named(plant("a password in etcd's URL"), &endpoint))],
        vec![("ETCDCTL_ENDPOINTS", named(plant("a password in the URL of no etcd"), &deserted))],
        vec![(
            "ETCDCTL_ENDPOINTS",
            format!("ftp://{}", named(plant("a password in a URL that is none"), &endpoint)),
        )],
        vec![("ETCDCTL_PASSWORD", plant("a wrong password of etcd's"))],
        vec![("ETCDCTL_USER", format!("root:{}", plant("a wrong password in ETCDCTL_USER")))],
        vec![(
            "ETCDCTL_USER",
            format!("{}:{}", plant("a user of etcd's with a colon"), plant("the password of none")),
        )],
        vec![("HTTPS_PROXY", format!("http://user:{}@{deserted}", plant("a password in HTTPS_PROXY")))],
        vec![(
            "HTTPS_PROXY",
            format!("user:{}@{deserted}", plant("a password in an HTTPS_PROXY without a scheme")),
        )],
    ]);
    all.extend(encryption_configurations(stage));
    let tls = stage.cluster.etcd.tls().expect("certificates");
    all.push(vec![("ETCDCTL_CACERT", stage.cluster.credentials.authority.certificate.display().to_string())]);
    all.push(vec![("ETCDCTL_CERT", tls.client.key.display().to_string())]);
    all.push(vec![("ETCDCTL_KEY", path(stage, "torn.key"))]);
    all
}

/// Invalid keys, in invalid files.
fn encryption_configurations(stage: &mut Stage) -> Vec<Variables> {
    let config = |secret: &str| {
        let keys = json!([{"aescbc": {"keys": [{"name": "one", "secret": secret}]}}]);
        let entry = json!({"resources": ["services", "secrets"], "providers": keys});
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [entry]}).to_string()
    };
    let contents = [
        ("other-key.json", config(&base64(&stage.canaries.plant_of_length("another key of aescbc", 32)))),
        ("short-key.json", config(&base64(&stage.canaries.plant("a key of aescbc that is too short")))),
        ("no-base64.json", config(&format!("{}!", stage.canaries.plant("a key that is not in base64")))),
        ("torn.json", format!("resources:\n- secret: {}\n  x: ]: [\n", stage.canaries.plant("a key in a file that is no YAML"))),
        ("misplaced.json", json!({"kind": "EncryptionConfiguration", "resources": stage.canaries.plant("a key in a wrong place")}).to_string()),
    ];
    contents
        .map(|(name, content)| vec![("NETSURGEON_ENCRYPTION_CONFIG", stage.give(name, &content))])
        .to_vec()
}

fn base64(text: &str) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}

/// Every failure, at the highest verbosity.
fn failures(stage: &mut Stage) {
    for variables in environments(stage) {
        let (name, value) = &variables[0];
        // The program waits half a minute for an API server that does not answer.
        let is_slow = ["deserted.conf", "proxied.conf"].iter().any(|file| value.ends_with(file));
        let mut words = vec![
            "renumber apply --to 10.201.0.0/16 --no-snapshot --yes --etcd-timeout 1",
            "preflight renumber --to 10.201.0.0/16 --within 2 --etcd-timeout 1",
        ];
        if !is_soak() && is_slow {
            continue;
        }
        if is_soak() && ["KUBECONFIG", "HTTPS_PROXY"].contains(name) {
            words.extend(["lock status --deadline 2", "controlplane show --no-host"]);
        } else if is_soak() {
            words.extend([
                "audit --old 10.96.0.0/16 --etcd-timeout 1",
                "inspect get secret default/sealed --etcd-timeout 1",
            ]);
        }
        for words in words {
            stage.run(&format!("{words} {}", LOUD[stage.searched.0 % 2]), &variables);
        }
    }
    given_on_the_command_line(stage);
    aws::commands_with_credentials(stage);
}

/// Passwords in arguments that accept a URL, and in some that do not.
fn given_on_the_command_line(stage: &mut Stage) {
    let (deserted, plant) = (free_port(), |stage: &mut Stage, what: &str| stage.canaries.plant(what));
    for url in [
        "http://user:{}@127.0.0.1:1/",
        "ftp://user:{}@127.0.0.1/",
        "user:{}@127.0.0.1:1",
        "http://us er:{}@127.0.0.1:1",
    ] {
        for flag in ["--gate-http", "--gate-query up --gate-max 1 --gate-prometheus"] {
            let secret = plant(stage, &format!("a password in `{flag} {url}`"));
            // Its blank is a part of the argument.
            let url = url.replace("{}", &secret).replace(' ', "\u{a0}");
            stage.run(
                &format!("renumber apply --to 10.201.0.0/16 --no-snapshot --yes {flag} {url} -vvv"),
                &Variables::new(),
            );
        }
        let secret = plant(stage, &format!("a password in `--metrics-listen {url}`"));
        stage.run(
            &format!("renumber guard --metrics-listen {} -vvv", url.replace("{}", &secret).replace(' ', "")),
            &Variables::new(),
        );
        let secret = plant(stage, &format!("a password in `--server {url}`"));
        stage.run(
            &format!("certs verify --server {} -vvv", url.replace("{}", &secret).replace(' ', "")),
            &Variables::new(),
        );
    }
    let user = plant(stage, "a password in --etcd-user");
    stage.run(&format!("ranges show --etcd-user root:{user} --etcd-endpoints https://127.0.0.1:{deserted} --etcd-timeout 1 -vvv"), &Variables::new());
    stage.run(&format!("ranges show --etcd-usr root:{user} -vvv"), &Variables::new());
}

/// The id of the running operation.
fn operation(stage: &mut Stage) -> String {
    let (_, out, _) = stage.run("renumber status -o json", &Variables::new());
    let status: Value = serde_json::from_str(&out).expect("JSON");
    status["operation"].as_str().expect("an id").to_owned()
}

/// A gate that is closed; first it reads the metrics of the client. Returns its address, and the metrics.
fn gate(metrics: String) -> (std::net::SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let thread = std::thread::spawn(move || {
        let (mut asked, _) = listener.accept().expect("a connection");
        let page = get(&metrics).unwrap_or_default();
        let _ = asked.read(&mut [0; 4096]);
        let _ = asked.write_all(b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\n");
        page
    });
    (address, thread)
}

/// Returns the page at `/metrics`.
fn get(address: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page).ok()?;
    Some(page)
}

/// A new command needs a case here.
fn every_command_ran(ran: &BTreeSet<String>) {
    fn leaves(command: &clap::Command, path: &str, all: &mut Vec<String>) {
        for one in command.get_subcommands() {
            let path = format!("{path} {}", one.get_name()).trim_start().to_owned();
            // Two commands run in Pods until they are ended.
            if ["agent serve", "agent wait"].contains(&path.as_str()) {
                continue;
            }
            // `lock` is a command itself, and has a subcommand.
            if !one.has_subcommands() || !one.is_subcommand_required_set() {
                all.push(path.clone());
            }
            leaves(one, &path, all);
        }
    }
    let mut all = Vec::new();
    leaves(&Cli::command(), "", &mut all);
    assert!(all.len() > 30, "{all:?}");
    let is_missing =
        |path: &&String| !ran.iter().any(|words| format!("{words} ").starts_with(&format!("{path} ")));
    let missing: Vec<&String> = all.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no case runs {missing:?}");
}

/// Searches files, the journal, events, and everything else in etcd but the Secrets themselves.
async fn what_is_left_behind(stage: &mut Stage) {
    for file in files_in(stage.written.path()) {
        if file.file_name().is_some_and(|name| name != "before.db") {
            let content = std::fs::read(&file).expect("a file");
            stage.search(&file.display().to_string(), &content);
        }
    }
    let keys =
        search_etcd(stage, stage.cluster.etcd.client().await, &["/registry/secrets/default/clear"]).await;
    let under = |prefix: &str| keys.iter().filter(|key| key.starts_with(prefix)).count();
    let (journal, events) = (under("/netsurgeon/"), under("/registry/events/"));
    assert!(journal > 10 && events > 0, "{journal} keys of the journal, {events} events");
}

/// Searches every value of an etcd, except under some keys. Returns the keys.
async fn search_etcd(stage: &mut Stage, mut client: Client, exempt: &[&str]) -> Vec<String> {
    let found = client.get("/", Some(GetOptions::new().with_prefix())).await.expect("etcd answers");
    let mut keys = Vec::new();
    for pair in found.kvs() {
        let key = String::from_utf8_lossy(pair.key()).into_owned();
        if !exempt.contains(&key.as_str()) {
            stage.search(&key, pair.value());
        }
        keys.push(key);
    }
    keys
}
