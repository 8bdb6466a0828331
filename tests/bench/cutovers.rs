//! Measures a cutover of DNS names on BIND, and compares it with `nsupdate`, which sends the same updates one after the other, with
//! the same prerequisites and the same key.
//!
//! The cutover has one stage. Its time is that of the whole process, without the soak of one second. Beside the updates it reads each
//! name before its update, probes the mirror (`tcp`), records each step in the cluster before and after it, eight names in flight,
//! and reads each name again at the server and at the resolver, which is the same server here. The plan is not part of it. One
//! process of `nsupdate` sends all updates.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use netsurgeon::nameserver::{Key, RecordKind, Server};
use serde::Serialize;
use serde_json::{Value, json};

use crate::rig::api::object_path;
use crate::rig::bind::{NameServer, key_file, zone_file};
use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::programs::nsupdate;
use crate::rig::workspace::Workspace;

const NAMES: usize = 500;
/// Records of the zone, without its SOA: those of the names, of others, and of the name servers.
const RECORDS: usize = 10_000;
const ROUNDS: usize = 3;
const ZONE: &str = "example.test";
const SERVER: &str = "127.0.0.53";
const OLD: &str = "192.0.2.70";
const NEW: &str = "192.0.2.80";
const KEY: (&str, &str) = ("mover", "c2VjcmV0LW9mLW1vdmVy");
/// Seconds of the soak, and the TTL of the names, which the cutover need not lower.
const SOAK: u32 = 1;

/// The figures.
#[derive(Debug, Serialize)]
pub struct Cutovers {
    pub names: usize,
    pub records: usize,
    /// Of the cutover, without its soak.
    pub seconds: f64,
    pub nsupdate_seconds: f64,
    pub to_nsupdate: f64,
}

/// Two clusters that serve the names, and the zone of the names.
struct Bench<'a> {
    netsurgeon: &'a Path,
    cluster: Cluster,
    mirror: Cluster,
    _server: NameServer,
    key: String,
    workspace: Workspace,
}

/// Measures both in turns.
pub async fn measure(netsurgeon: &Path) -> Cutovers {
    eprintln!("measuring a cutover of {NAMES} names of a zone with {RECORDS} records");
    let bench = Bench::start(netsurgeon).await;
    let balancer = TcpListener::bind((NEW, 443)).expect("the port is free");
    // Ends with this process.
    std::thread::spawn(move || balancer.incoming().for_each(drop));
    let plan = bench.plan();
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(bench.nsupdate(OLD, NEW));
        bench.assert_all_at(NEW).await;
        bench.nsupdate(NEW, OLD);
        let started = Instant::now();
        bench.run(&format!("dns cutover --plan {plan} --all --yes"));
        own.push(started.elapsed().as_secs_f64() - f64::from(SOAK));
        bench.assert_all_at(NEW).await;
        bench.roll_back();
        bench.assert_all_at(OLD).await;
    }
    let (seconds, nsupdate_seconds) = (median(own), median(theirs));
    let to_nsupdate = seconds / nsupdate_seconds;
    Cutovers { names: NAMES, records: RECORDS, seconds, nsupdate_seconds, to_nsupdate }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn host(number: usize) -> String {
    format!("n{number}.{ZONE}")
}

/// An Ingress with all names.
fn ingress() -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let rules: Vec<Value> =
        (0..NAMES).map(|number| json!({"host": host(number), "http": {"paths": [path]}})).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"rules": rules},
    })
}

/// The server of the zone.
async fn server() -> NameServer {
    let zones = format!(
        "{}zone \"{ZONE}\" {{ type primary; file \"zone\"; update-policy {{ grant {} zonesub ANY; }}; \
         allow-transfer {{ key {}; }}; }};",
        key_file(KEY),
        KEY.0,
        KEY.0
    );
    let names = (0..NAMES).map(|number| format!("n{number} {SOAK} IN A {OLD}\n"));
    // Besides these there are two NS records and the two addresses of the name servers.
    let others = (0..RECORDS - NAMES - 4).map(|number| format!("other-{number} IN A 192.0.2.1\n"));
    let file = zone_file(ZONE, "ns1", [SERVER, SERVER], &names.chain(others).collect::<String>());
    let at = SERVER.parse().expect("an address");
    NameServer::start(at, "recursion no;", &zones, &[("zone", &file)]).await
}

impl<'a> Bench<'a> {
    async fn start(netsurgeon: &'a Path) -> Self {
        let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
        let cluster = Cluster::start(ClusterOptions { nodes: 1, ..options.clone() }).await;
        cluster.network().hub().ip(&[SERVER, NEW].map(|at| format!("address add {at}/32 dev lo")));
        let mirror = Cluster::start(options).await;
        for (cluster, at) in [(&cluster, OLD), (&mirror, NEW)] {
            cluster.api.create(&ingress()).await;
            let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": at}]}}});
            cluster.api.merge(&format!("{}/status", object_path(&ingress())), &status).await;
        }
        let workspace = Workspace::create("bench");
        let key = workspace.write("mover.key", key_file(KEY)).display().to_string();
        Self { netsurgeon, cluster, mirror, _server: server().await, key, workspace }
    }

    /// Runs netsurgeon; returns its standard output.
    fn run(&self, words: &str) -> String {
        let mut command = Command::new(self.netsurgeon);
        command.env_clear().env("KUBECONFIG", self.cluster.kubeconfig()).args(words.split(' '));
        let output = command.output().expect("netsurgeon runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {}: {said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Plans one stage; returns the file of the plan.
    fn plan(&self) -> String {
        let file = self.workspace.join("plan.json").display().to_string();
        self.run(&format!(
            "dns plan --zone {ZONE} --server {SERVER} --resolver {SERVER} --tsig-key-file {} --mirror-kubeconfig {} \
             --probe tcp:443 --shares 100 --ttl {SOAK} --soak {SOAK} --save {file}",
            self.key,
            self.mirror.kubeconfig().display(),
        ));
        file
    }

    /// Rolls the cutover back, and removes its record.
    fn roll_back(&self) {
        let listed: Value =
            serde_json::from_str(&self.run("operation list -o json")).expect("a list of operations");
        let operation = listed["operations"][0]["operation"].as_str().expect("an id").to_owned();
        self.run(&format!("dns rollback {operation} --yes --tsig-key-file {}", self.key));
        self.run(&format!("operation forget {operation}"));
    }

    /// Changes every name by `nsupdate`; returns the seconds.
    fn nsupdate(&self, from: &str, to: &str) -> f64 {
        let update = |number| {
            let name = host(number);
            format!(
                "prereq yxrrset {name} A {from}\nupdate delete {name} A\nupdate add {name} {SOAK} A {to}\nsend\n"
            )
        };
        let updates: String = (0..NAMES).map(update).collect();
        let input = self.workspace.write("updates", format!("server {SERVER}\nzone {ZONE}\n{updates}"));
        let (program, libraries) = nsupdate();
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", libraries).args(["-k", &self.key]).arg(input).stdin(Stdio::null());
        let started = Instant::now();
        let output = command.output().expect("nsupdate runs");
        let seconds = started.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
        seconds
    }

    /// Checks that every name has this address, and that the zone has no record more or less.
    async fn assert_all_at(&self, address: &str) {
        let key = Key::parse(&key_file(KEY)).expect("a key");
        let server = Server::new(format!("{SERVER}:53").parse().expect("an address"), Some(key));
        let mut records = server.transfer(ZONE).await.expect("a transfer");
        records.retain(|record| record.kind != RecordKind::Soa);
        let found = records.iter().filter(|record| record.data == address).count();
        assert_eq!((found, records.len()), (NAMES, RECORDS), "names at {address}");
    }
}
