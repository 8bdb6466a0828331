//! `netsurgeon dns` on a zone that BIND serves, with a secondary and a resolver: two clusters, each with an HTTPS load balancer,
//! and a client that visits a name through the resolver all the time.

mod annotations;
mod at_every_write;
mod bytes;
mod exclusion;
mod in_cluster;
mod kill_points;
mod library;
mod measured_share;
mod ownership;
mod ownership_in_route53;
mod refusals;
mod route53;
mod scale;
mod selection;
mod skips;
mod stages;
mod views;
mod way_back;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use netsurgeon::nameserver::{Key, Record, RecordKind, Server, Soa};
use serde_json::{Value, json};

use crate::rig::api::object_path;
use crate::rig::balancer::Balancer;
use crate::rig::bind::{NameServer, key_file, zone_file};
use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::pki::Authority;
use crate::rig::visitor::Visitor;
use crate::rig::workspace::Workspace;
use crate::serving_cluster::{Run, command, run};

const ZONE: &str = "example.test";
const PRIMARY: &str = "127.0.0.53";
const SECONDARY: &str = "127.0.0.54";
const RESOLVER: &str = "127.0.0.55";
/// The load balancer of the old cluster.
const OLD: &str = "192.0.2.70";
/// The load balancer of the mirror.
const NEW: &str = "192.0.2.80";
/// An address of the mirror at which no server listens.
const DOWN: &str = "192.0.2.81";
/// The TTL before a cutover, in seconds.
const TTL: u32 = 4;
/// The key that is allowed to change the zone. The secret must never be in any output or record.
const KEY: (&str, &str) = ("mover", "c2VjcmV0LW9mLW1vdmVyLWNhbmFyeQ==");
const PATIENCE: Duration = Duration::from_mins(2);

/// Two clusters that serve the same names, and the zone of these names.
struct World {
    mirror: Cluster,
    new: Balancer,
    _old: Balancer,
    resolver: NameServer,
    secondary: NameServer,
    primary: NameServer,
    authority: Authority,
    workspace: Workspace,
    cluster: Cluster,
}

/// Two clusters, each with its load balancer.
struct Sides {
    mirror: Cluster,
    new: Balancer,
    old: Balancer,
    authority: Authority,
    workspace: Workspace,
    cluster: Cluster,
}

impl Sides {
    /// Starts them. `servers`: the addresses of name servers.
    async fn start(servers: &[&str]) -> Self {
        Self::start_with(servers, false).await
    }

    /// Starts them. `controllers`: whether the old cluster has controllers.
    async fn start_with(servers: &[&str], controllers: bool) -> Self {
        let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
        let cluster = Cluster::start(ClusterOptions { nodes: 1, controllers, ..options.clone() }).await;
        // BIND answers only at addresses that an interface has. A loopback address cannot be a target of a name.
        let addresses =
            servers.iter().chain(&[OLD, NEW, DOWN]).map(|at| format!("address add {at}/32 dev lo"));
        let addresses: Vec<String> = addresses.collect();
        cluster.network().hub().ip(&addresses);
        let mirror = Cluster::start(options).await;
        let workspace = Workspace::create("dns");
        let authority = Authority::create(&workspace, "issuer", "issuer");
        let hosts = [format!("*.{ZONE}")];
        let right = authority.issue(&workspace, "right", "right", None, &hosts);
        let other = authority.issue(&workspace, "other", "other", None, &["default.local".to_owned()]);
        let balancer = |at: &str, body: &str| {
            let at: SocketAddr = format!("{at}:443").parse().expect("an address");
            Balancer::start(at, body, &right, &other)
        };
        let (new, old) = (balancer(NEW, "new"), balancer(OLD, "old"));
        Self { mirror, new, old, authority, workspace, cluster }
    }
}

impl World {
    /// Starts a world whose names all point to the old cluster. `down`: names whose address on the mirror does not answer.
    async fn start(names: &[&str], down: &[&str]) -> Self {
        Self::start_beside(names, down, 0).await
    }

    /// Starts one whose zone has so many other names.
    async fn start_beside(names: &[&str], down: &[&str], others: usize) -> Self {
        let beside: String =
            (0..others).map(|number| ["other-", &number.to_string(), " IN A 192.0.2.1\n"].concat()).collect();
        Self::start_on(names, down, &(hosts(names, TTL) + &beside)).await
    }

    /// Starts one whose zone has these records.
    async fn start_on(names: &[&str], down: &[&str], records: &str) -> Self {
        let sides = Sides::start(&[PRIMARY, SECONDARY, RESOLVER]).await;
        let servers = name_servers(records).await;
        Self::of(sides, names, down, servers).await
    }

    /// Starts one whose zone has these records, and whose primary has these further options.
    async fn start_under(names: &[&str], records: &str, options: &str) -> Self {
        let sides = Sides::start(&[PRIMARY, SECONDARY, RESOLVER]).await;
        let servers = name_servers_of(records, "", options).await;
        Self::of(sides, names, &[], servers).await
    }

    /// One of two clusters, and the primary, the secondary and the resolver of their zone.
    async fn of(
        sides: Sides,
        names: &[&str],
        down: &[&str],
        (primary, secondary, resolver): (NameServer, NameServer, NameServer),
    ) -> Self {
        let Sides { mirror, new, old, authority, workspace, cluster } = sides;
        for name in names {
            let at = if down.contains(name) { DOWN } else { NEW };
            serve(&cluster, name, json!({"ip": OLD})).await;
            serve(&mirror, name, json!({"ip": at})).await;
        }
        Self { mirror, new, _old: old, resolver, secondary, primary, authority, workspace, cluster }
    }

    fn key_file(&self) -> String {
        self.workspace.write("mover.key", key_file(KEY)).display().to_string()
    }

    /// The program with these arguments. Its environment names the key file.
    fn command(&self, words: &str) -> Command {
        let mut command = command(&self.cluster, words);
        command.env("NETSURGEON_TSIG_KEY_FILE", self.key_file());
        command
    }

    /// Runs the program.
    fn netsurgeon(&self, words: &str) -> Run {
        let ran = run(words, self.command(words));
        assert!(!format!("{}{}", ran.out, ran.err).contains(KEY.1), "a key is never shown");
        ran
    }

    /// The arguments that every plan needs.
    fn planning(&self) -> String {
        format!(
            "dns plan --zone {ZONE} --server {PRIMARY} --resolver {RESOLVER} --tsig-key-file {} --mirror-kubeconfig {} \
             --probe-ca {} --force zone-share",
            self.key_file(),
            self.mirror.kubeconfig().display(),
            self.authority.certificate.display(),
        )
    }

    /// Plans stages of three seconds, and returns the file of the plan.
    fn plan(&self, more: &str) -> String {
        self.plan_with(&format!("--soak 3 {more}"))
    }

    fn plan_with(&self, more: &str) -> String {
        let file = self.workspace.join("plan.json").display().to_string();
        let words = format!("{} --ttl 2 --save {file} {more}", self.planning());
        let planned = self.netsurgeon(&words).expect(0);
        let text = std::fs::read_to_string(&file).expect("a plan");
        assert!(!text.contains(KEY.1) && !planned.out.contains(KEY.1), "the plan has no secret");
        file
    }

    fn visitor(&self, host: &str) -> Visitor {
        let resolver = format!("{RESOLVER}:53").parse().expect("an address");
        Visitor::start(&format!("{host}.{ZONE}"), resolver, &self.authority.certificate)
    }

    /// All records of the zone but its SOA, sorted.
    async fn records(&self) -> Vec<Record> {
        records_of(&server()).await
    }

    /// The addresses of a host at the primary, and their TTL.
    async fn addresses(&self, host: &str) -> (Vec<String>, u32) {
        let name = format!("{host}.{ZONE}");
        let answer = server().ask(&name, RecordKind::A).await.expect("an answer");
        let data = answer.of(RecordKind::A).into_iter().map(str::to_owned).collect();
        (data, answer.records.first().map_or(0, |record| record.ttl))
    }

    /// The serial number of the zone at the primary. It grows by one with each update.
    async fn serial(&self) -> u32 {
        let answer = server().ask(ZONE, RecordKind::Soa).await.expect("an answer");
        answer.records.iter().find_map(Soa::of).expect("an SOA").serial
    }

    /// Everything that the program has recorded in the cluster, as text.
    async fn recorded(&self) -> String {
        let path = "/api/v1/namespaces/netsurgeon/configmaps?labelSelector=netsurgeon.io/part";
        let items = self.cluster.api.list(path).await;
        items.iter().map(Value::to_string).collect()
    }
}

/// The name server that accepts updates, for a client with the key.
fn server() -> Server {
    server_for(KEY)
}

/// The same, for a client with another key.
fn server_for(key: (&str, &str)) -> Server {
    let key = Key::parse(&key_file(key)).expect("a key");
    Server::new(format!("{PRIMARY}:53").parse().expect("an address"), Some(key))
}

/// All records of the zone that a server transfers, but its SOA, sorted.
async fn records_of(server: &Server) -> Vec<Record> {
    let all = server.transfer(ZONE).await.expect("a transfer");
    let mut records: Vec<Record> = all.into_iter().filter(|record| record.kind != RecordKind::Soa).collect();
    records.sort();
    records
}

/// Creates the Ingress of a host, with the address or the host name of its load balancer.
async fn serve(cluster: &Cluster, host: &str, at: Value) {
    let name = format!("{host}.{ZONE}");
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": host, "namespace": "default"},
        "spec": {"rules": [{"host": name, "http": {"paths": [path]}}], "tls": [{"hosts": [name]}]},
    });
    cluster.api.create(&ingress).await;
    let status = json!({"status": {"loadBalancer": {"ingress": [at]}}});
    cluster.api.merge(&format!("{}/status", object_path(&ingress)), &status).await;
}

/// The records of these names, which all point to the old cluster.
fn hosts(names: &[&str], ttl: u32) -> String {
    names.iter().map(|name| [name, " ", &ttl.to_string(), " IN A ", OLD, "\n"].concat()).collect()
}

/// The primary, the secondary and the resolver of a zone with these records.
async fn name_servers(records: &str) -> (NameServer, NameServer, NameServer) {
    name_servers_of(records, "", "").await
}

/// The same, with more options of the zone and of the primary.
async fn name_servers_of(
    records: &str,
    zone_options: &str,
    options: &str,
) -> (NameServer, NameServer, NameServer) {
    let at = |address: &str| address.parse().expect("an address");
    let primary = format!(
        "{}zone \"{ZONE}\" {{ type primary; file \"zone\"; update-policy {{ grant {} zonesub ANY; }}; \
         allow-transfer {{ key {}; {SECONDARY}; }}; also-notify {{ {SECONDARY}; }}; {zone_options} }};",
        key_file(KEY),
        KEY.0,
        KEY.0
    );
    let secondary =
        format!("zone \"{ZONE}\" {{ type secondary; primaries {{ {PRIMARY}; }}; file \"zone\"; }};");
    let resolver = format!(
        "zone \"{ZONE}\" {{ type forward; forward only; forwarders {{ {PRIMARY}; {SECONDARY}; }}; }};"
    );
    let file = zone_file(ZONE, "ns1", [PRIMARY, SECONDARY], records);
    let source = |address: &str| format!("recursion no; transfer-source {address}; notify-source {address};");
    (
        NameServer::start(at(PRIMARY), &(source(PRIMARY) + options), &primary, &[("zone", &file)]).await,
        NameServer::start(at(SECONDARY), &source(SECONDARY), &secondary, &[]).await,
        NameServer::start(at(RESOLVER), "recursion yes;", &resolver, &[]).await,
    )
}
