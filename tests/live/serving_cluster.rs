//! A cluster that serves traffic, and netsurgeon run beside it as an operator does: shared by the tests of whole operations.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::pods::Pod;
use super::rig::probe::Probe;
use super::rig::process::{freeze, thaw, wait_until};
use super::rig::proxy::{KubeProxy, ProxyMode};
use super::rig::report::{Report, Target};
pub use super::rig::run::{Run, run};

/// More than twice the longest wait of a step.
pub const DEADLINE: Duration = Duration::from_mins(6);
/// Pause between two looks at a process that is killed or cut off at a certain moment.
pub const LOOK: Duration = Duration::from_millis(5);
/// Services besides `web` and `kubernetes`.
pub const SERVICES: usize = 24;
/// The new range.
pub const NEW_RANGE: &str = "10.200.0.0/16";

/// Confirmations of all manual steps from the soak on. The journal is removed, so that nothing of netsurgeon is left.
pub const ENDING: &str = "--forget --confirm cluster-dns --confirm soak --confirm certificates-after";

/// A running program, and the lines that it has printed so far.
pub struct Watched {
    child: Child,
    pub out: Lines,
    pub err: Lines,
    listeners: Vec<JoinHandle<()>>,
}

pub type Lines = Arc<Mutex<Vec<String>>>;

impl Watched {
    /// Starts a program.
    pub fn start(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("netsurgeon starts");
        let (out, of_out) = collect(child.stdout.take().expect("a pipe"));
        let (err, of_err) = collect(child.stderr.take().expect("a pipe"));
        Self { child, out, err, listeners: vec![of_out, of_err] }
    }

    /// The exit status, once the program has ended; all of its output is collected by then.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().expect("a child")?;
        for listener in self.listeners.drain(..) {
            listener.join().expect("a listener");
        }
        Some(status.code().unwrap_or(-1))
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(id, signal).expect("the process exists");
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process (SIGSTOP): its connections stay open, and it sends nothing.
    pub fn freeze(&self) {
        freeze(&self.child);
    }

    /// Lets the process continue.
    pub fn thaw(&self) {
        thaw(&self.child);
    }

    /// Waits for the end of the program.
    pub async fn end(&mut self) -> i32 {
        wait_until("netsurgeon ends", DEADLINE, async || {
            self.ended().ok_or_else(|| format!("{:?}", lines_of(&self.err).last()))
        })
        .await
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn lines_of(lines: &Lines) -> Vec<String> {
    lines.lock().expect("no thread panics").clone()
}

fn collect(pipe: impl Read + Send + 'static) -> (Lines, JoinHandle<()>) {
    let lines = Lines::default();
    let collected = lines.clone();
    let listener = std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            println!("| {line}");
            collected.lock().expect("no thread panics").push(line);
        }
    });
    (lines, listener)
}

/// The program with these arguments, beside the API servers and with nothing else in its environment.
pub fn command(cluster: &Cluster, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command.env_clear().current_dir("/").args(words.split_whitespace());
    command.env("ETCDCTL_ENDPOINTS", cluster.etcd.endpoints().join(","));
    command.env("KUBECONFIG", cluster.kubeconfig());
    let mut flags = cluster.api_servers[0].options.flags.iter();
    if let Some(file) = flags.find_map(|flag| flag.strip_prefix("--encryption-provider-config=")) {
        command.env("NETSURGEON_ENCRYPTION_CONFIG", file);
    }
    if let Some(tls) = cluster.etcd.tls() {
        command.env("ETCDCTL_CACERT", &tls.authority);
        command.env("ETCDCTL_CERT", &tls.client.certificate).env("ETCDCTL_KEY", &tls.client.key);
    }
    command
}

/// A cluster that serves: Services with endpoints on both nodes, a client in a Pod.
pub struct Serving {
    pub cluster: Cluster,
    pub client: Pod,
    _pods: Vec<Pod>,
    /// The kube-proxies, in the order of the nodes.
    pub proxies: Vec<KubeProxy>,
}

impl Serving {
    pub async fn start(era: Era, mode: ProxyMode) -> Self {
        Self::start_on(ClusterOptions::new(era), mode).await
    }

    /// Starts on a cluster of two nodes with these options otherwise.
    pub async fn start_on(options: ClusterOptions, mode: ProxyMode) -> Self {
        let cluster = Cluster::start(ClusterOptions { nodes: 2, ..options }).await;
        let proxies = cluster.start_proxies(mode).await;
        Self::furnish(cluster, proxies).await
    }

    /// Fills a cluster of two nodes with running kube-proxies.
    pub async fn furnish(cluster: Cluster, proxies: Vec<KubeProxy>) -> Self {
        Self::furnish_at(cluster, proxies, "10.96").await
    }

    /// The same with addresses that start with other octets.
    pub async fn furnish_at(cluster: Cluster, proxies: Vec<KubeProxy>, base: &str) -> Self {
        let web = json!({"app": "web"});
        let pods =
            vec![cluster.create_pod(0, "web-0", &web).await, cluster.create_pod(1, "web-1", &web).await];
        let client = cluster.create_pod(0, "client", &json!({"app": "client"})).await;
        cluster.create_echo_service("web", &web, &json!({"clusterIP": format!("{base}.0.5")})).await;
        for number in 0..SERVICES {
            let fixed = json!({"clusterIP": format!("{base}.1.{}", number + 1)});
            cluster.create_echo_service(&format!("web-{number}"), &web, &fixed).await;
        }
        // On a busy machine the controller writes them late, and must not do so during a comparison of a test.
        wait_until("every Service has its endpoints", DEADLINE, async || {
            let slices =
                cluster.api.list("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices").await;
            let is_whole = |slice: &&Value| {
                let of = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str();
                of.is_some_and(|name| name.starts_with("web"))
                    && slice["endpoints"].as_array().is_some_and(|all| all.len() == 2)
            };
            let count = slices.iter().filter(is_whole).count();
            if count > SERVICES { Ok(()) } else { Err(format!("{count} have")) }
        })
        .await;
        Self { cluster, client, _pods: pods, proxies }
    }

    pub fn targets() -> [Target; 3] {
        [Target::tcp("10.96.0.5", 80), Target::udp("10.96.0.5", 80), Target::tcp("10.96.1.7", 80)]
    }

    pub fn command(&self, words: &str) -> Command {
        command(&self.cluster, words)
    }

    /// Runs the program, and shows its output.
    pub fn netsurgeon(&self, words: &str) -> Run {
        run(words, self.command(words))
    }

    /// Starts the program; its output is collected while it runs.
    pub fn start_netsurgeon(&self, words: &str) -> Watched {
        println!("$ netsurgeon {words} &");
        Watched::start(self.command(words))
    }

    /// Starts an apply that is slow enough for a test that counts its records.
    pub fn start_slow_apply(&self) -> Watched {
        self.start_netsurgeon(&format!("{} --rate 20", self.apply_words()))
    }

    /// Runs the program on its own terminal (`script`), 120 columns wide, and returns the terminal's output.
    pub fn on_a_terminal(&self, words: &str) -> Run {
        let command = self.command(words);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut terminal = Command::new("script");
        terminal
            .env_clear()
            .current_dir("/")
            .env("TERM", "xterm")
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        for (name, value) in command.get_envs() {
            terminal.env(name, value.unwrap_or_default());
        }
        terminal.args(["-qec", &format!("stty cols 120 rows 40; {program} {words}"), "/dev/null"]);
        let output = terminal.stdin(Stdio::null()).output().expect("script runs");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("$ netsurgeon {words}\n{out}");
        Run { code: output.status.code().unwrap_or(-1), out, err: String::new() }
    }

    /// Waits until the journal has so many records of a kind of step, while the program runs.
    pub async fn wait_for_records(&self, running: &mut Watched, step: &str, count: usize) {
        let what = format!("{count} records of {step}");
        wait_until(&what, DEADLINE, async || {
            let keys = self.cluster.etcd.keys("/netsurgeon/").await;
            let found =
                keys.iter().filter(|key| format!("{key}/").contains(&format!("/steps/{step}/"))).count();
            if let Some(code) = running.ended() {
                panic!("it ended with {code}: {:?}", lines_of(&running.err));
            }
            if found >= count { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }

    /// Waits until so many Services have moved back, while the program runs.
    pub async fn wait_for_undone(&self, running: &mut Watched, count: usize) {
        wait_until("flips are undone", DEADLINE, async || {
            assert_eq!(running.ended(), None, "it is still running");
            let keys = self.cluster.etcd.keys("/netsurgeon/").await;
            let mut found = 0;
            for key in keys.iter().filter(|key| key.contains("/steps/flip/")) {
                let record = self.cluster.etcd.get(key).await.unwrap_or_default();
                let record: Value = serde_json::from_slice(&record).unwrap_or_default();
                found += usize::from(record["state"] == "undo-done");
            }
            if found >= count { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }

    /// Waits until one ServiceCIDR is left: the controller deletes the other after a while.
    pub async fn wait_for_one_range(&self) {
        wait_until("one ServiceCIDR is left", DEADLINE, async || {
            let ranges = self.cluster.api.list("/apis/networking.k8s.io/v1/servicecidrs").await;
            if ranges.len() == 1 { Ok(()) } else { Err(format!("{ranges:?}")) }
        })
        .await;
    }

    /// Starts the program and kills it once it has written so many more records of steps; `false` if it ended by itself before.
    pub async fn kill_after(&self, words: &str, records: usize) -> bool {
        let before = self.cluster.etcd.keys("/netsurgeon/").await.len();
        let mut command = self.command(words);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("netsurgeon starts");
        loop {
            if child.try_wait().expect("a child").is_some() {
                return false;
            }
            if self.cluster.etcd.keys("/netsurgeon/").await.len() >= before + records {
                child.kill().and_then(|()| child.wait()).expect("the process is killed");
                return true;
            }
            sleep(LOOK).await;
        }
    }

    /// Starts a probe at a moment at which every target answers.
    pub async fn probe(&self, targets: &[Target]) -> Probe {
        let trial = self.client.probe(targets);
        for target in targets {
            trial.wait_for_success(*target, DEADLINE).await;
        }
        drop(trial);
        let probe = self.client.probe(targets);
        for target in targets {
            probe.wait_for_attempts(*target, 100, DEADLINE).await;
        }
        probe
    }

    /// Retires the old range.
    pub fn retire(&self) {
        self.netsurgeon(&format!("renumber retire --without-evidence --yes {ENDING}")).expect(0);
    }

    /// The arguments of an apply that needs no person until the API servers' flag must change.
    pub fn apply_words(&self) -> String {
        self.apply_words_to(NEW_RANGE)
    }

    fn apply_words_to(&self, range: &str) -> String {
        let snapshot = self.cluster.directory().join("before.db").display().to_string();
        format!(
            "renumber apply --to {range} --snapshot-to {snapshot} --yes --batch-size 10 --confirm certificates"
        )
    }

    /// Applies until the API servers' flag must change, changes it, and continues. Returns the operation's id.
    pub async fn apply(&mut self, more: &str) -> String {
        let words = format!("{} {more}", self.apply_words());
        self.apply_with(&words, NEW_RANGE).await
    }

    /// The same to another range, with the whole flag afterwards.
    pub async fn apply_to(&mut self, range: &str, flag: &str) -> String {
        let words = self.apply_words_to(range).replace("before.db", &format!("before-{}.db", range.len()));
        self.apply_with(&words, flag).await
    }

    /// The same with other arguments.
    pub async fn apply_with(&mut self, words: &str, flag: &str) -> String {
        let paused = self.netsurgeon(words).expect(6);
        assert!(paused.err.contains("--confirm flags"), "it names the command: {}", paused.err);
        let status = self.netsurgeon("renumber status -o json").expect(0).json();
        let operation = status["operation"].as_str().expect("an id").to_string();
        // `ranges check` accepts what the operation keeps.
        self.netsurgeon("ranges check").expect(0);
        self.restart_with(flag).await;
        self.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
        self.netsurgeon("ranges check").expect(0);
        operation
    }

    /// Restarts the API server with another flag.
    pub async fn restart_with(&mut self, range: &str) {
        self.cluster.set_service_cidrs(range);
        self.cluster.restart_api_server(0).await;
    }

    /// Operations in the journal, by id.
    pub fn journals(&self) -> Vec<String> {
        let listed = self.netsurgeon("operation list -o json").expect(0).json();
        let id = |listed: &Value| listed["operation"].as_str().unwrap_or_default().to_string();
        listed["operations"].as_array().expect("a list").iter().map(id).collect()
    }

    pub async fn cluster_ip(&self, name: &str) -> String {
        let service = self.cluster.api.get(&format!("/api/v1/namespaces/default/services/{name}")).await;
        service["spec"]["clusterIP"].as_str().unwrap_or_default().to_string()
    }

    pub fn assert_clean(&self) {
        let checked = self.netsurgeon("ranges check -o json").expect(0).json();
        assert_eq!(checked["findings"], json!([]));
    }

    /// No attempt failed, no long-lived connection broke, and the server observed the client's own address.
    pub fn assert_unbroken(&self, report: &Report, targets: &[Target]) {
        println!("{report}");
        assert!(report.failures().is_empty(), "{report}");
        let own = self.client.addresses();
        assert!(report.sources().iter().all(|source| own.contains(source)), "the source is kept: {report}");
        for target in targets {
            assert!(report.of(*target).long_lived <= 1, "unbroken: {report}");
        }
    }
}
