//! Everything at once: killed processes, frozen API servers, clients that change their Services in every way, namespaces that are
//! created and deleted, a second operator, and a tenant that requests every address that may be free. Each operation runs forward
//! and back or to its end, with the commands of the runbook only.
//!
//! No connection to a Service that no client changes may fail, and no address may have two owners at any revision of etcd.
//! `NETSURGEON_STORM_SECONDS` says how long `make soak` runs this in each era.

mod bits;
mod clients;
pub mod witness;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use netsurgeon::ip::ServiceCidr;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use self::clients::Clients;
use self::witness::Witness;
use super::rig::cluster::{ClusterOptions, Era};
use super::rig::probe::Probe;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::serving_cluster::{ENDING, Serving, Watched, lines_of};

/// The two ranges between which the Services change.
type Ranges = [&'static str; 2];
const APART: Ranges = ["10.96.0.0/16", "10.200.0.0/16"];
/// The second one is a half of the first one: Services of one half stay.
const OVERLAPPING: Ranges = ["10.96.0.0/15", "10.97.0.0/16"];
const OTHER_FAMILY: &str = "fd00:10:96::/112";
/// Services that no client changes, and that are probed.
const STEADY: [&str; 3] = ["web", "web-6", "web-20"];
/// How long one goal may take, storms included.
const PATIENCE: Duration = Duration::from_mins(30);
/// After so many runs without reaching the goal the storm stops and then clients rest; after the last number the operation is
/// stuck.
const MOST_FAILURES: [u32; 3] = [12, 18, 24];
/// Longer than API servers take to repair their own leftovers.
const REPAIRED: Duration = Duration::from_mins(12);
/// How often the state of a program is polled.
const LOOK: Duration = Duration::from_millis(20);
/// For every command: each Service that cannot move is skipped, and the lease of a killed process expires soon.
const ALWAYS: &str = "--max-failures 200 --lock-ttl 3";

struct Storm {
    serving: Serving,
    witness: Arc<Witness>,
    random: StdRng,
    ranges: Ranges,
    /// The present range of the Services, of [`Self::ranges`].
    from: usize,
    /// The frozen API server, and until when.
    frozen: Option<(usize, Instant)>,
    next_freeze: Instant,
    second: Option<Watched>,
    guard: Option<Watched>,
    is_calm: bool,
    count: Count,
}

#[derive(Debug, Default)]
struct Count {
    runs: u32,
    kills: u32,
    freezes: u32,
    seconds: u32,
    retired: u32,
    rolled_back: u32,
    attempts: u64,
}

/// The end of a run of the program.
type Ended = Option<(i32, String)>;

fn is_steady(owner: &str) -> bool {
    let name = owner.strip_prefix("default/");
    name.is_some_and(|name| name == "kubernetes" || name == "web" || name.starts_with("web-"))
}

impl Storm {
    async fn start(era: Era, ranges: Ranges, seed: u64) -> Self {
        let mut options = ClusterOptions { api_servers: 2, ..ClusterOptions::new(era) };
        options.service_cidrs = format!("{},{OTHER_FAMILY}", ranges[0]);
        options.certified_cidrs = ranges.join(",");
        // The nftables mode of 1.32 does not hold external IPs.
        let mode = if era == Era::Bitmap { ProxyMode::Iptables } else { ProxyMode::Nftables };
        let serving = Serving::start_on(options, mode).await;
        let client = serving.cluster.etcd.client().await;
        let witness = Arc::new(Witness::start(client, era != Era::Bitmap, is_steady).await);
        let next_freeze = Instant::now() + Duration::from_secs(5);
        let random = StdRng::seed_from_u64(seed);
        Self {
            serving,
            witness,
            random,
            ranges,
            from: 0,
            frozen: None,
            next_freeze,
            second: None,
            guard: None,
            is_calm: false,
            count: Count::default(),
        }
    }

    fn seconds(&mut self, range: std::ops::Range<f64>) -> Duration {
        Duration::from_secs_f64(self.random.random_range(range))
    }

    fn to(&self) -> &'static str {
        self.ranges[1 - self.from]
    }

    /// Whether the present range has an address.
    fn has(&self, address: &str) -> bool {
        let range: ServiceCidr = self.ranges[self.from].parse().expect("a range");
        address.parse().is_ok_and(|address| range.contains(address))
    }

    async fn operation(&self) -> Option<String> {
        let keys = self.serving.cluster.etcd.keys("/netsurgeon/").await;
        let operation = keys.iter().find_map(|key| key.strip_suffix("/operation"))?;
        operation.rsplit('/').next().map(str::to_owned)
    }

    /// Freezes an API server, or lets it continue, when it is time.
    fn freeze_and_thaw(&mut self) {
        let now = Instant::now();
        if let Some((number, until)) = self.frozen {
            if now >= until || self.is_calm {
                self.thaw(number);
            }
        } else if now >= self.next_freeze && !self.is_calm {
            let number = usize::from(self.random.random_bool(0.7));
            println!("storm: API server {number} is frozen");
            self.serving.cluster.pause_api_server(number);
            self.frozen = Some((number, now + self.seconds(1.0..45.0)));
            self.count.freezes += 1;
        }
    }

    fn thaw(&mut self, number: usize) {
        println!("storm: API server {number} continues");
        self.serving.cluster.resume_api_server(number);
        self.frozen = None;
        self.next_freeze = Instant::now() + self.seconds(5.0..60.0);
    }

    /// The guard runs nearly always, and a second operator may be active.
    fn others(&mut self, operation: Option<&str>) {
        let is_over =
            |program: &mut Option<Watched>| program.as_mut().is_none_or(|one| one.ended().is_some());
        if is_over(&mut self.guard) || self.random.random_bool(0.001) {
            self.guard = Some(self.serving.start_netsurgeon("renumber guard --stay --interval 1"));
        }
        if is_over(&mut self.second) {
            self.second = None;
            if !self.is_calm && self.random.random_bool(0.002) {
                let words = match operation {
                    Some(id) if self.random.random_bool(0.7) => {
                        format!("operation resume {id} {ALWAYS} --confirm snapshot --confirm certificates")
                    }
                    // The first operator continues the new operation, or rolls it back.
                    _ => format!("renumber apply --to {} --no-snapshot --yes", self.to()),
                };
                self.second = Some(self.serving.start_netsurgeon(&words));
                self.count.seconds += 1;
            }
        } else if self.is_calm || self.random.random_bool(0.005) {
            self.second = None;
        }
    }

    /// Runs the program in the storm; `None` if it was killed.
    async fn run(&mut self, words: &str) -> Ended {
        let operation = self.operation().await;
        let mut running = self.serving.start_netsurgeon(words);
        self.count.runs += 1;
        let dies = !self.is_calm && self.random.random_bool(0.5);
        let life = self.seconds(0.0..15.0);
        let started = Instant::now();
        loop {
            if let Some(code) = running.ended() {
                println!("storm: [{code}]");
                return Some((code, lines_of(&running.err).join("\n")));
            }
            if dies && started.elapsed() >= life {
                println!("storm: killed");
                self.count.kills += 1;
                return None;
            }
            self.freeze_and_thaw();
            self.others(operation.as_deref());
            sleep(LOOK).await;
        }
    }

    /// Runs the program repeatedly until `is_there` reports that the goal is reached.
    async fn bring(
        &mut self,
        clients: &Clients,
        goal: &str,
        words: impl Fn(Option<&str>) -> Vec<String>,
        is_there: impl Fn(Option<&str>, &Ended) -> bool,
    ) -> Ended {
        let started = Instant::now();
        let mut failures = 0;
        let mut _rest = None;
        loop {
            let operation = self.operation().await;
            let mut ended = None;
            for words in words(operation.as_deref()) {
                ended = self.run(&words).await;
            }
            let operation = self.operation().await;
            if is_there(operation.as_deref(), &ended) {
                self.is_calm = false;
                return ended;
            }
            failures += u32::from(ended.is_some() && !is_to_wait(&ended));
            if failures == MOST_FAILURES[0] {
                println!("storm: calms down");
                self.is_calm = true;
            }
            if failures == MOST_FAILURES[1] {
                println!("storm: clients rest");
                _rest = Some(clients.quiet().await);
            }
            let is_stuck = failures >= MOST_FAILURES[2] || started.elapsed() > PATIENCE;
            assert!(!is_stuck, "stuck on the way to {goal}: {ended:?}");
            if ended.is_some() {
                sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Until every Service has moved, or the operation waits for the flags.
    async fn forward(&mut self, clients: &Clients) {
        self.bring(clients, "the flags", onward(self.to()), |_, ended| asks_for_flags(ended)).await;
        self.flags(1 - self.from).await;
        let words = |operation: Option<&str>| {
            let id = operation.expect("an operation");
            vec![format!("operation resume {id} --take-over --confirm flags {ALWAYS}")]
        };
        let is_there = |_: Option<&str>, ended: &Ended| matches!(ended, Some((0 | 3, _)));
        self.bring(clients, "the soak", words, is_there).await;
    }

    /// Starts, is killed at some moment, and is rolled back.
    async fn forward_in_part(&mut self, clients: &Clients) {
        self.bring(clients, "a beginning", onward(self.to()), |operation, _| operation.is_some()).await;
    }

    /// Sets the flag on every API server, one after the other.
    async fn flags(&mut self, range: usize) {
        if let Some((number, _)) = self.frozen {
            self.thaw(number);
        }
        let range = self.ranges[range];
        println!("storm: the flags become {range}");
        self.serving.cluster.set_service_cidrs(&format!("{range},{OTHER_FAMILY}"));
        for number in 0..2 {
            self.serving.cluster.restart_api_server_as_a_kubelet(number).await;
        }
    }

    async fn back(&mut self, clients: &Clients) {
        let words = |confirmed: &'static str| {
            move |operation: Option<&str>| {
                let id = operation.expect("an operation");
                vec![format!("operation rollback {id} --take-over --yes --linger 1 {confirmed} {ALWAYS}")]
            }
        };
        let is_back = |ended: &Ended| matches!(ended, Some((0 | 3, _)));
        let to_flags = |_: Option<&str>, ended: &Ended| is_back(ended) || asks_for_flags(ended);
        let ended = self.bring(clients, "the flags, during the rollback", words(""), to_flags).await;
        if !is_back(&ended) {
            self.flags(self.from).await;
            let is_there = |_: Option<&str>, ended: &Ended| is_back(ended);
            self.bring(clients, "the start", words("--confirm flags"), is_there).await;
        }
        // The second operator may have started another operation in between.
        let words = |operation: Option<&str>| {
            let id = operation.expect("one");
            let back =
                format!("operation rollback {id} --take-over --yes --linger 1 --confirm flags {ALWAYS}");
            vec![back, format!("operation forget {id}")]
        };
        self.bring(clients, "an end", words, |operation, _| operation.is_none()).await;
        self.count.rolled_back += 1;
    }

    /// Retires what is held; the manual steps that a refusal names come first.
    async fn retire(&mut self, clients: &Clients) {
        let words = |operation: Option<&str>| {
            let id = operation.expect("an operation");
            vec![
                "renumber guard --once".to_owned(),
                format!("operation resume {id} --take-over --confirm flags {ALWAYS}"),
                format!("renumber retire --take-over --without-evidence --yes {ENDING} {ALWAYS}"),
            ]
        };
        self.bring(clients, "the end", words, |operation, _| operation.is_none()).await;
        self.count.retired += 1;
        self.from = 1 - self.from;
    }

    async fn addresses(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for name in STEADY {
            targets.push(Target::tcp(&self.serving.cluster_ip(name).await, 80));
        }
        targets
    }

    /// One operation, from its start to one of its ends.
    async fn cycle(&mut self, clients: &Clients, probe: &Probe) {
        let old = self.addresses().await;
        match self.random.random_range(0..3) {
            0 => {
                println!("storm: to {}, and back half way", self.to());
                self.forward_in_part(clients).await;
                self.back(clients).await;
            }
            chosen => {
                println!("storm: to {}", self.to());
                self.forward(clients).await;
                // From now on both addresses answer.
                let new = self.addresses().await;
                for target in &new {
                    probe.add(*target);
                    probe.wait_for_attempts(*target, 200, PATIENCE).await;
                }
                let (gone, kept) = if chosen == 1 { (&new, &old) } else { (&old, &new) };
                for target in gone.iter().filter(|target| !kept.contains(target)) {
                    probe.remove(*target);
                }
                if chosen == 1 { self.back(clients).await } else { self.retire(clients).await }
            }
        }
        self.settled(clients).await;
    }

    /// Without disturbance the cluster is in order, and nothing of netsurgeon is left.
    async fn settled(&mut self, clients: &Clients) {
        if let Some((number, _)) = self.frozen {
            self.thaw(number);
        }
        self.second = None;
        let _rest = clients.quiet().await;
        self.leave_the_other_range().await;
        let left = self.serving.cluster.etcd.keys("/registry/services/specs/").await;
        assert!(
            !left.iter().any(|key| key.contains("/netsurgeon-hold-") || key.contains("/netsurgeon-warm-")),
            "{left:?}"
        );
        // Leftovers of a request during which an API server was frozen; its repair loop frees them within nine minutes.
        let era = self.serving.cluster.era();
        // Under dual write no component frees an address that an API server leaves: the witness distinguishes it from
        // netsurgeon's.
        let is_leak = |finding: &&Value| match finding["code"].as_str() {
            Some("bit-without-node-port") => true,
            Some("bit-without-service") if era == Era::DualWrite => address_of(finding)
                .is_some_and(|address| self.witness.with(|seen| !seen.bits.is_ours(address))),
            Some("bit-without-service") => era == Era::Bitmap,
            _ => false,
        };
        wait_until("everything is in order", REPAIRED, async || {
            let checked = self.serving.netsurgeon("ranges check -o json");
            let found: Value = serde_json::from_str(&checked.out).unwrap_or_default();
            let errors: Vec<&Value> = found["findings"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|finding| finding["severity"] == "error")
                .filter(|finding| !is_leak(finding))
                // Only API servers use the other family.
                .filter(|finding| !finding["subject"].to_string().contains("secondaryserviceips"))
                .collect();
            if errors.is_empty() && found["findings"].is_array() {
                return Ok(());
            }
            sleep(Duration::from_secs(5)).await;
            let addresses: Vec<IpAddr> = errors.iter().filter_map(|finding| address_of(finding)).collect();
            let histories: Vec<String> = self.witness.with(|seen| {
                addresses
                    .iter()
                    .map(|address| format!("{address}: {}", seen.bits.history(*address)))
                    .collect()
            });
            Err(format!("{errors:?} {} {histories:#?}", checked.err))
        })
        .await;
        for number in 0..super::serving_cluster::SERVICES {
            let address = self.serving.cluster_ip(&format!("web-{number}")).await;
            assert!(self.has(&address), "web-{number} has {address}");
        }
    }

    /// Services that clients created outside of the range that is in use at the end: their clients have to create them again, as the
    /// output of a rollback says.
    async fn leave_the_other_range(&self) {
        let other: ServiceCidr = self.to().parse().expect("a range");
        for service in self.serving.cluster.api.list("/api/v1/services").await {
            let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
            let is_in_other = address.parse().is_ok_and(|address| other.contains(address));
            if is_in_other && !self.has(address) {
                let metadata = &service["metadata"];
                let [namespace, name] =
                    ["namespace", "name"].map(|part| metadata[part].as_str().expect("a name"));
                self.serving
                    .cluster
                    .api
                    .delete(&format!("/api/v1/namespaces/{namespace}/services/{name}"))
                    .await;
            }
        }
    }

    fn judge(&mut self, probe: &Probe) {
        let report = probe.report();
        self.count.attempts = report.attempts();
        self.witness.with(|seen| {
            println!(
                "storm: {:?}; {} revisions, {} failures; {} IPAddresses of clients' Services missing for a moment; given twice \
                 after a repair loop: {:?}, of shadows of deleted Services: {:?}",
                self.count,
                seen.revisions,
                report.failures().len(),
                seen.missing.len(),
                seen.repaired,
                seen.released
            );
            assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
        });
        assert!(report.failures().is_empty(), "{report}");
    }
}

/// The address that a finding of `ranges check` is about, the last word of its subject.
fn address_of(finding: &Value) -> Option<IpAddr> {
    finding["subject"].as_str()?.split(' ').next_back()?.parse().ok()
}

/// The commands that start a renumbering, and continue it.
fn onward(to: &'static str) -> impl Fn(Option<&str>) -> Vec<String> {
    move |operation| {
        vec![match operation {
            None => format!(
                "renumber apply --to {to} --no-snapshot --yes --batch-size 5 --confirm certificates {ALWAYS}"
            ),
            Some(id) => {
                format!(
                    "operation resume {id} --take-over --confirm snapshot --confirm certificates {ALWAYS}"
                )
            }
        }]
    }
}

fn asks_for_flags(ended: &Ended) -> bool {
    matches!(ended, Some((6, said)) if said.contains("manual step `flags`"))
}

/// Whether it was refused because the lease of another process has not expired: a second operator was killed before its first
/// record, and there is nothing to take over.
fn is_to_wait(ended: &Ended) -> bool {
    ended.as_ref().is_some_and(|(code, said)| *code == 1 && said.contains("; it expires in "))
}

async fn storm(era: Era, ranges: Ranges, time: Duration) {
    let seed = std::env::var("NETSURGEON_STORM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("storm: {era:?}, seed {seed}");
    let mut storm = Storm::start(era, ranges, seed).await;
    let servers = [storm.serving.cluster.api_of(0).await, storm.serving.cluster.api_of(1).await];
    let clients = Clients::start(&servers, &storm.witness, ranges, seed);
    let started = Instant::now();
    let targets = storm.addresses().await;
    let probe = storm.serving.probe(&targets).await;
    loop {
        storm.cycle(&clients, &probe).await;
        storm.judge(&probe);
        if started.elapsed() >= time {
            break;
        }
    }
    println!("{}", probe.stop());
}

fn soaking() -> Duration {
    let seconds = std::env::var("NETSURGEON_STORM_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3600))
}

#[tokio::test]
async fn storm_breaks_nothing_during_one_operation() {
    Box::pin(storm(Era::Objects, APART, Duration::from_secs(1))).await;
}

#[tokio::test]
#[ignore = "an hour, in `make soak`: needs `make rig` and root"]
async fn storm_breaks_nothing_in_the_objects_era() {
    Box::pin(storm(Era::Objects, APART, soaking())).await;
}

#[tokio::test]
#[ignore = "an hour, in `make soak`: needs `make rig` and root"]
async fn storm_breaks_nothing_under_dual_write() {
    Box::pin(storm(Era::DualWrite, APART, soaking())).await;
}

#[tokio::test]
#[ignore = "an hour, in `make soak`: needs `make rig` and root"]
async fn storm_breaks_nothing_in_the_bitmap_era() {
    Box::pin(storm(Era::Bitmap, APART, soaking())).await;
}

#[tokio::test]
#[ignore = "an hour, in `make soak`: needs `make rig` and root"]
async fn storm_on_overlapping_ranges_breaks_nothing_in_the_objects_era() {
    Box::pin(storm(Era::Objects, OVERLAPPING, soaking())).await;
}

#[tokio::test]
#[ignore = "an hour, in `make soak`: needs `make rig` and root"]
async fn storm_on_overlapping_ranges_breaks_nothing_under_dual_write() {
    Box::pin(storm(Era::DualWrite, OVERLAPPING, soaking())).await;
}

#[tokio::test]
#[ignore = "an hour, in `make soak`: needs `make rig` and root"]
async fn storm_on_overlapping_ranges_breaks_nothing_in_the_bitmap_era() {
    Box::pin(storm(Era::Bitmap, OVERLAPPING, soaking())).await;
}
