//! A cluster, a host and a user full of secrets, and the program run among them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::forms::Canaries;
use crate::rig::bind::NameServer;
use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::etcd::EtcdOptions;
use crate::rig::process::free_port;
use crate::rig::proxy::{KubeProxy, ProxyMode};
use crate::rig::workspace::Workspace;

/// The address of the name server.
const NAMES: &str = "127.0.0.53";
/// Variables of the program's environment.
pub type Variables = Vec<(&'static str, String)>;

/// The environment of a test of secrets.
pub struct Stage {
    pub cluster: Cluster,
    pub canaries: Canaries,
    /// Leaked secrets, with the place in which they were found.
    pub leaks: BTreeSet<String>,
    /// The number of runs, and the number of searched bytes.
    pub searched: (usize, usize),
    /// The environment of the program for successful runs.
    pub variables: Variables,
    _proxies: Vec<KubeProxy>,
    _names: NameServer,
    holder: Child,
    /// The files that the program reads.
    given: Workspace,
    /// The folder into which the program writes.
    pub written: Workspace,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Stage {
    pub async fn start() -> Self {
        let (mut canaries, given) = (Canaries::default(), Workspace::create("given"));
        let password = canaries.plant("etcd's password");
        let file = given.write("encryption.json", encryption(&mut canaries));
        let mut options = ClusterOptions { nodes: 1, ..ClusterOptions::new(Era::DualWrite) };
        options.etcd =
            EtcdOptions { mutual_tls: true, root_password: Some(password.clone()), ..EtcdOptions::default() };
        options.api_server_flags = vec![format!("--encryption-provider-config={}", file.display())];
        let cluster = Cluster::start(options).await;
        let proxies = cluster.start_proxies(ProxyMode::Nftables).await;
        cluster.network().hub().ip(&[format!("address add {NAMES}/32 dev lo")]);
        let names = name_server(&mut canaries, &given).await;
        let tls = cluster.etcd.tls().expect("an etcd with certificates");
        let path = |path: &Path| path.display().to_string();
        let variables = vec![
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("KUBECONFIG", path(&given.join("exec.conf"))),
            ("ETCDCTL_ENDPOINTS", cluster.etcd.endpoint()),
            ("ETCDCTL_CACERT", path(&tls.authority)),
            ("ETCDCTL_CERT", path(&tls.client.certificate)),
            ("ETCDCTL_KEY", path(&tls.client.key)),
            ("ETCDCTL_USER", "root".to_owned()),
            ("ETCDCTL_PASSWORD", password),
            ("NETSURGEON_ENCRYPTION_CONFIG", path(&file)),
        ];
        let read = |path: &Path| std::fs::read_to_string(path).expect("a file of the rig");
        canaries.add_key("etcd's client key", &read(&tls.client.key));
        canaries.add_key("the administrator's key", &read(&cluster.credentials.admin.key));
        let authority = cluster.credentials.authority.certificate.with_extension("key");
        canaries.add_key("the authority's key", &read(&authority));
        canaries.add_key("the API server's key", &read(&cluster.directory().join("apiserver-0.key")));
        let holder = process_with_secrets(&mut canaries);
        let mut stage = Self {
            cluster,
            canaries,
            leaks: BTreeSet::new(),
            searched: (0, 0),
            variables,
            _proxies: proxies,
            _names: names,
            holder,
            given,
            written: Workspace::create("written"),
        };
        stage.plant_objects().await;
        stage.plant_kubeconfigs().await;
        stage.plant_host();
        stage.plant_authority();
        stage
    }

    /// The path of a file that the program reads.
    pub fn given(&self, name: &str) -> String {
        self.given.join(name).display().to_string()
    }

    /// Writes a file that the program reads.
    pub fn give(&self, name: &str, content: &str) -> String {
        self.given.write(name, content).display().to_string()
    }

    /// Secrets that the API server encrypts, and one in plain text, as in a cluster without encryption: with copies in
    /// annotations, as client-side apply makes them, and beside addresses that an audit searches for.
    async fn plant_objects(&mut self) {
        let spec = |address: &str| json!({"clusterIP": address, "selector": {"app": "web"}, "ports": [{"port": 80}]});
        for (name, address) in [("web", "10.96.0.5"), ("far", "10.96.200.7")] {
            self.cluster.api.create_service("default", name, spec(address)).await;
        }
        let sealed = self.secret("sealed");
        self.cluster.api.create(&sealed).await;
        let mut clear = self.secret("clear");
        clear["metadata"]["uid"] = "5f3e4a8e-0000-4000-8000-000000000001".into();
        self.cluster.etcd.put("/registry/secrets/default/clear", clear.to_string()).await;
    }

    fn secret(&mut self, name: &str) -> Value {
        let canaries = &mut self.canaries;
        let mut plant = |what: &str| canaries.plant(&format!("{what} of Secret {name}"));
        let data = json!({
            "password": STANDARD.encode(plant("data")),
            "url": STANDARD.encode(format!("http://user:{}@10.96.0.5/", plant("a URL"))),
        });
        let copy = |secret: &str| json!({"kind": "Secret", "stringData": {"password": secret}}).to_string();
        let annotations = json!({
            "kubectl.kubernetes.io/last-applied-configuration": copy(&plant("last-applied-configuration")),
            "kapp.k14s.io/original": copy(&plant("kapp's original")),
            "example.com/note": format!("http://10.96.0.5/?token={}", plant("an annotation")),
        });
        let metadata = json!({"name": name, "namespace": "default", "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data})
    }

    /// Kubeconfigs: some that work, some that API servers reject, and some that cannot be read.
    async fn plant_kubeconfigs(&mut self) {
        let admin = self.account("admin").await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "admin-account"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": "default"}],
        });
        self.cluster.api.create(&binding).await;
        let nobody = self.account("nobody").await;
        let users = self.plant_users(&admin, &nobody);
        let mut plant = |what: &str| self.canaries.plant(what);
        let url = self.cluster.api_servers[0].url();
        let authority = self.cluster.credentials.authority.certificate.display().to_string();
        let there = json!({"server": url, "certificate-authority": authority});
        let mut files: Vec<(&str, String)> =
            users.into_iter().map(|(name, user)| (name, kubeconfig(&there, &user))).collect();
        let plain = json!({"token": admin});
        let mut with = |name: &'static str, server: String, proxy: Option<String>| {
            let mut cluster = json!({"server": server, "certificate-authority": authority});
            if let Some(proxy) = proxy {
                cluster["proxy-url"] = proxy.into();
            }
            files.push((name, kubeconfig(&cluster, &plain)));
        };
        let host = url.trim_start_matches("https://");
        with("named", format!("https://user:{}@{host}", plant("a password in the server's URL")), None);
        let proxy = format!("http://user:{}@127.0.0.1:{}", plant("a password in proxy-url"), free_port());
        with("proxied", url.clone(), Some(proxy));
        with(
            "socks",
            url.clone(),
            Some(format!("socks4://user:{}@127.0.0.1:1", plant("a password in a wrong proxy-url"))),
        );
        with("deserted", format!("https://127.0.0.1:{}", free_port()), None);
        let token = plant("a token in a file that is no YAML");
        files.push(("torn", format!("users:\n- name: rig\n  user: {{token: {token}\n  x: ]: {token}\n")));
        files.push(("text", plant("a file that is a token alone")));
        for (name, text) in files {
            self.give(&format!("{name}.conf"), &text);
        }
    }

    /// Users of a kubeconfig, by their names.
    fn plant_users(&mut self, admin: &str, nobody: &str) -> Vec<(&'static str, Value)> {
        let (canaries, given) = (&mut self.canaries, &self.given);
        let give = |name: &str, text: &str| given.write(name, text).display().to_string();
        let mut plant = |what: &str| canaries.plant(what);
        let credential = |token: &str| json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}});
        let secret = plant("the environment of an exec plugin");
        let plugin = |script: &str| {
            json!({"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "sh",
                "args": ["-c", script], "env": [{"name": "PLUGIN_SECRET", "value": secret}],
            }})
        };
        let answer = give("credential.json", &credential(admin).to_string());
        let broken =
            give("broken.json", &format!("{{\"status\": {{\"token\": {}}}", json!(plant("a broken answer"))));
        // An expired token is requested again for each request: the second time this plugin fails.
        let mut expired = credential(admin);
        expired["status"]["expirationTimestamp"] = "2020-01-01T00:00:00Z".into();
        let (expired, marker) =
            (give("expired.json", &expired.to_string()), given.join("asked").display().to_string());
        let later = format!("cat {expired}; test -e {marker} || exec touch {marker}; rm {marker}; exit 1");
        let key = std::fs::read(&self.cluster.credentials.admin.key).expect("a key");
        let certificate = std::fs::read(&self.cluster.credentials.admin.certificate).expect("a certificate");
        vec![
            ("exec", plugin(&format!("cat {answer}"))),
            ("exec-fails", plugin(&format!("cat {answer}; cat {answer} >&2; exit 1"))),
            ("exec-later", plugin(&later)),
            ("exec-broken", plugin(&format!("cat {broken}"))),
            ("token", json!({"token": admin})),
            (
                "key",
                json!({"client-certificate-data": STANDARD.encode(certificate), "client-key-data": STANDARD.encode(key)}),
            ),
            (
                "broken-key",
                json!({
                    "client-certificate-data": STANDARD.encode(plant("no certificate")), "client-key-data": STANDARD.encode(plant("no key")),
                }),
            ),
            ("unknown", json!({"token": plant("an unknown token")})),
            (
                "basic",
                json!({"username": plant("a user name"), "password": plant("a password of basic authentication")}),
            ),
            ("forbidden", json!({"token": nobody})),
            ("no-user", json!(plant("a token in a wrong place"))),
            ("list", json!({"token": [plant("a token in a list")]})),
        ]
    }

    /// Creates a service account, and returns a token of it.
    async fn account(&mut self, name: &str) -> String {
        let metadata = json!({"name": name, "namespace": "default"});
        self.cluster
            .api
            .create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
            .await;
        let token = self.cluster.service_account_token("default", name).await;
        let signature = token.rsplit('.').next().expect("a signature");
        self.canaries.add(&format!("the token of {name}"), signature.as_bytes());
        token
    }

    /// A host's files, with old addresses beside secrets.
    fn plant_host(&mut self) {
        let root = self.given.join("root");
        let file = |path: &str, text: String| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        let canaries = &mut self.canaries;
        let mut plant = |what: &str| canaries.plant(what);
        let proxy = plant("a password in /etc/environment");
        file("etc/environment", format!("http_proxy=http://user:{proxy}@10.96.0.5:3128/\n"));
        let token = plant("a token of the kubelet");
        file(
            "etc/kubernetes/kubelet.conf",
            kubeconfig(&json!({"server": "https://10.96.0.1"}), &json!({"token": token})),
        );
        let (argument, variable) =
            (plant("an argument of a static Pod"), plant("a variable of a static Pod"));
        let container = json!({
            "name": "kube-apiserver", "image": "a",
            "command": ["kube-apiserver", "--service-cluster-ip-range=10.96.0.0/16", format!("--token=10.96.0.7,{argument}")],
            "env": [{"name": "URL", "value": format!("http://user:{variable}@10.96.0.5/")}],
        });
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube-apiserver"}, "spec": {"containers": [container]}});
        file("etc/kubernetes/manifests/kube-apiserver.yaml", serde_saphyr::to_string(&pod).expect("YAML"));
        let unit = plant("a variable of a unit");
        file(
            "etc/systemd/system/app.service",
            format!("[Service]\nEnvironment=URL=http://user:{unit}@10.96.0.5/\n"),
        );
        let kubelet = json!({"kind": "KubeletConfiguration", "clusterDNS": ["10.96.0.10"], "staticPodURLHeader": {"Authorization": [plant("a header of the kubelet")]}});
        file("var/lib/kubelet/config.yaml", serde_saphyr::to_string(&kubelet).expect("YAML"));
        std::fs::create_dir_all(root.join("proc")).expect("a folder");
    }

    /// The authority again, with an encrypted key, and two passwords for it: the right one and a wrong one.
    fn plant_authority(&mut self) {
        let password = self.canaries.plant("the password of the authority's key");
        let wrong = self.canaries.plant("a wrong password of the authority's key");
        let (right, _) = (self.give("password", &format!("{password}\n")), self.give("wrong", &wrong));
        let key = self.cluster.directory().join("ca.key").display().to_string();
        let sealed = self.given("sealed.key");
        let words =
            format!("pkcs8 -topk8 -v2 aes256 -iter 2048 -in {key} -out {sealed} -passout file:{right}");
        let output = Command::new("openssl").args(words.split(' ')).output().expect("openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = self.canaries.plant("a key that is none");
        self.give("torn.key", &format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n"));
    }

    /// Searches bytes for every secret.
    pub fn search(&mut self, place: &str, bytes: &[u8]) {
        self.searched.1 += bytes.len();
        for what in self.canaries.found_in(bytes) {
            if self.leaks.insert(format!("{what}, in {place}")) {
                println!("LEAK: {what}, in {place}");
            }
        }
    }

    /// The program with these arguments.
    pub fn command(&self, words: &str, more: &Variables) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command
            .env_clear()
            .args(words.split(' ').filter(|word| !word.is_empty()))
            .current_dir(self.written.path())
            .stdin(Stdio::null());
        command.envs(self.variables.iter().chain(more).map(|(name, value)| (*name, value)));
        command
    }

    /// Runs the program to its end and searches its output; returns the exit status and both outputs.
    pub fn run(&mut self, words: &str, more: &Variables) -> (i32, String, String) {
        let output = self.command(words, more).output().expect("netsurgeon runs");
        let code = output.status.code().unwrap_or(-1);
        self.searched.0 += 1;
        let names: Vec<&str> =
            more.iter().map(|(name, value)| value.rsplit('/').next().unwrap_or(name)).collect();
        let shown = format!("`netsurgeon {words}` {names:?} [{code}]");
        println!("{shown}: {} and {} bytes", output.stdout.len(), output.stderr.len());
        self.search(&format!("stdout of {shown}"), &output.stdout);
        self.search(&format!("stderr of {shown}"), &output.stderr);
        assert!(![-1, 70].contains(&code), "{shown}: {}", text(&output.stderr));
        (code, text(&output.stdout), text(&output.stderr))
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn kubeconfig(cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "rig",
        "clusters": [{"name": "rig", "cluster": cluster}], "users": [{"name": "rig", "user": user}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig"}}],
    })
    .to_string()
}

/// An API server's configuration, with a key of each kind; the first encrypts.
fn encryption(canaries: &mut Canaries) -> String {
    let mut keys = |provider: &str| {
        let secret = canaries.plant_of_length(&format!("a key of {provider}"), 32);
        json!({provider: {"keys": [{"name": "one", "secret": STANDARD.encode(secret)}]}})
    };
    let providers = [keys("aescbc"), keys("aesgcm"), keys("secretbox"), json!({"identity": {}})];
    let entry = json!({"resources": ["secrets"], "providers": providers});
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [entry]}).to_string()
}

/// A name server whose zone a key may change.
async fn name_server(canaries: &mut Canaries, given: &Workspace) -> NameServer {
    let secret = STANDARD.encode(canaries.plant_of_length("a TSIG key", 32));
    let key =
        |secret: &str| format!("key \"mover\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{secret}\";\n}};\n");
    given.write("tsig.key", key(&secret));
    given.write("wrong-tsig.key", key(&STANDARD.encode(canaries.plant_of_length("a wrong TSIG key", 32))));
    let torn = canaries.plant("a TSIG key that cannot be read");
    given.write("torn-tsig.key", format!("key \"mover\" {{ algorithm hmac-md5; secret {torn}!"));
    let zone = format!(
        "{}zone \"example.test\" {{ type primary; file \"zone\"; update-policy {{ grant mover zonesub ANY; }}; allow-transfer {{ key mover; }}; }};",
        key(&secret)
    );
    let records = format!(
        "$TTL 60\n@ IN SOA ns1 admin 7 3600 600 86400 60\n@ IN NS ns1\nns1 IN A {NAMES}\nwww IN A 192.0.2.10\n"
    );
    NameServer::start(NAMES.parse().expect("an address"), "recursion no;", &zone, &[("zone", &records)]).await
}

/// A process whose environment has an old address beside a secret.
fn process_with_secrets(canaries: &mut Canaries) -> Child {
    let secret = canaries.plant("the environment of a process");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sleep", "infinity"]).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("URL", format!("http://user:{secret}@10.96.0.5/")).env("NO_PROXY", "10.96.0.0/16");
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a process")
}

/// The paths of all files in a folder.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files.extend(files_in(&path)) } else { files.push(path) }
    }
    files
}
