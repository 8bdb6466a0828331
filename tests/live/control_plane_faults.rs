//! A renumbering during which parts of the control plane freeze, restart, or fail for good.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use netsurgeon::store::etcd::{EtcdOptions, EtcdStore};
use netsurgeon::store::{Key, ReadStore, Revision};
use netsurgeon::wire::StoredAddress;

use super::rig::cluster::{ClusterOptions, Era};
use super::rig::etcd::EtcdOptions as Servers;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::run::says;
use super::serving_cluster::{DEADLINE, SERVICES, Serving, lines_of};

/// Longer than the 5 s for which the repair loop spares an address that its Service does not list (`repairip.go`, v1.36.3),
/// shorter than the 15 s after which an API server is treated as missing.
const STANDSTILL: Duration = Duration::from_secs(8);

async fn store(serving: &Serving) -> EtcdStore {
    EtcdStore::connect(EtcdOptions::new(serving.cluster.etcd.endpoints())).await.expect("etcd answers")
}

/// The revision at which each key under a prefix was created.
async fn created(serving: &Serving, prefix: &str) -> BTreeMap<String, Revision> {
    let store = store(serving).await;
    let mut created = BTreeMap::new();
    for key in serving.cluster.etcd.keys(prefix).await {
        let entry = store.get(&Key::from(key.as_str())).await.expect("etcd answers").expect("the key exists");
        created.insert(key, entry.create_revision);
    }
    created
}

/// No IPAddress was missing for a moment: the old ones are those from before, the new ones are those that were reserved. An API
/// server that ends during a request for a sentinel leaves its address allocated until the address is repaired.
async fn none_was_made_anew(serving: &Serving, before: &BTreeMap<String, Revision>) {
    let mut now = created(serving, "/registry/ipaddresses/").await;
    for key in serving.cluster.etcd.keys("/registry/ipaddresses/").await {
        let value = serving.cluster.etcd.get(&key).await.unwrap_or_default();
        let is_ours = StoredAddress::decode(&value).is_ok_and(|it| it.parent_name.starts_with("netsurgeon-"));
        if is_ours {
            now.remove(&key);
        }
    }
    for (key, revision) in before {
        assert_eq!(now.get(key), Some(revision), "{key}");
    }
    let records = created(serving, "/netsurgeon/").await;
    let reserved: Vec<_> = records.iter().filter(|(key, _)| key.contains("/steps/reserve/")).collect();
    assert_eq!(reserved.len(), SERVICES + 2);
    let new: Vec<_> = now.iter().filter(|(key, _)| !before.contains_key(*key)).collect();
    assert_eq!(new.len(), SERVICES + 2, "{new:?}");
    for (key, revision) in new {
        assert!(reserved.iter().any(|(_, record)| *record == revision), "{key} was recreated: {now:?}");
    }
}

#[tokio::test]
async fn addresses_survive_frozen_api_servers_around_flips() {
    let options = ClusterOptions { api_servers: 2, ..ClusterOptions::new(Era::Objects) };
    let mut serving = Serving::start_on(options, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let before = created(&serving, "/registry/ipaddresses/").await;
    let probe = serving.probe(&old).await;
    let mut apply = serving.start_slow_apply();
    serving.wait_for_records(&mut apply, "date", 1).await;
    serving.cluster.pause_api_server(1);
    tokio::time::sleep(STANDSTILL).await;
    serving.cluster.resume_api_server(1);
    serving.wait_for_records(&mut apply, "flip", 11).await;
    serving.cluster.pause_api_server(0);
    serving.cluster.pause_api_server(1);
    tokio::time::sleep(STANDSTILL).await;
    serving.cluster.resume_api_server(0);
    serving.cluster.resume_api_server(1);
    assert_eq!(apply.end().await, 6, "everything has moved, and it asks for the flags");
    serving.assert_unbroken(&probe.stop(), &old);
    none_was_made_anew(&serving, &before).await;
    serving.netsurgeon("renumber verify").expect(0);
}

/// How many times a frozen API server may stop the operation: each wait has its deadline.
const MOST_RESUMES: usize = 8;

/// One of two API servers is frozen, as a VM during its migration, for longer than its endpoint lives. The freeze starts once
/// this many steps of a kind are done; then the server continues with the first updates of its watches.
async fn one_api_server_is_frozen(era: Era, hold: &str, (kind, count): (&str, usize), time: Duration) {
    let options = ClusterOptions { api_servers: 2, ..ClusterOptions::new(era) };
    // The nftables mode of 1.32 does not hold external IPs.
    let mode = if era == Era::Bitmap { ProxyMode::Iptables } else { ProxyMode::Nftables };
    let mut serving = Serving::start_on(options, mode).await;
    let old = Serving::targets();
    let before = created(&serving, "/registry/ipaddresses/").await;
    let probe = serving.probe(&old).await;
    let mut words = format!("{} {hold}", serving.apply_words());
    // In the bitmap era the flags come first.
    if era == Era::Bitmap {
        serving.netsurgeon(&words).expect(6);
        serving.cluster.set_service_cidrs("10.200.0.0/16");
        for number in 0..2 {
            serving.cluster.restart_api_server(number).await;
        }
        words = format!("operation resume {} --confirm flags", serving.journals().remove(0));
    }
    let mut apply = serving.start_netsurgeon(&words);
    serving.wait_for_records(&mut apply, kind, count).await;
    serving.cluster.pause_api_server(1);
    tokio::time::sleep(time).await;
    serving.cluster.resume_api_server(1);
    let mut code = apply.end().await;
    let operation = serving.journals().remove(0);
    let moved = if era == Era::Bitmap { 0 } else { 6 };
    for _ in 0..MOST_RESUMES {
        if code == moved {
            break;
        }
        code = serving.netsurgeon(&format!("operation resume {operation} --confirm certificates")).code;
    }
    assert_eq!(code, moved, "everything has moved once all API servers answer");
    serving.netsurgeon("renumber verify").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
    if era == Era::Objects && hold.is_empty() {
        none_was_made_anew(&serving, &before).await;
    }
    everything_is_in_order(&serving).await;
}

/// An API server that is frozen during a request for a sentinel leaves an IPAddress, which is repaired. Nothing else needs a
/// repair.
async fn everything_is_in_order(serving: &Serving) {
    wait_until("the leftover of a sentinel is removed", DEADLINE, async || {
        let checked = serving.netsurgeon("ranges check -o json");
        if checked.code == 0 {
            return Ok(());
        }
        let findings = checked.json()["findings"].as_array().expect("a list").clone();
        for finding in findings.iter().filter(|finding| finding["severity"] != "info") {
            let is_sentinel = finding["message"].to_string().contains("`kube-system/netsurgeon-barrier-");
            assert!(is_sentinel && finding["code"] == "ip-address-orphan", "{finding}");
        }
        Err(format!("{findings:?}"))
    })
    .await;
}

#[tokio::test]
async fn api_server_frozen_for_a_minute_deletes_no_address() {
    one_api_server_is_frozen(Era::Objects, "", ("flip", 3), Duration::from_mins(1)).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn api_server_frozen_for_a_minute_deletes_no_address_of_a_shadow() {
    one_api_server_is_frozen(Era::Objects, "--hold shadow", ("give-address", 3), Duration::from_mins(1))
        .await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn api_server_frozen_for_a_minute_frees_no_bit() {
    one_api_server_is_frozen(Era::Bitmap, "", ("flip", 3), Duration::from_mins(1)).await;
}

/// Era, hold, the step after whose first record an API server is frozen, and for how long.
type Cell = (Era, &'static str, &'static str, Duration);

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    // The longest cells run first.
    for time in [Duration::from_mins(1), Duration::from_mins(10)] {
        for era in Era::ALL {
            for hold in ["", "--hold shadow"] {
                let kinds = ["reserve", "date", "barrier", "flip", "verify"];
                let kinds = kinds.into_iter().filter(|kind| era != Era::Bitmap || *kind != "date");
                cells.extend(kinds.map(|kind| (era, hold, kind, time)));
            }
        }
    }
    cells
}

/// Runs cells, each in its own cluster, until none is left; returns how many.
fn run_cells(cells: &Mutex<Vec<Cell>>) -> usize {
    let mut count = 0;
    loop {
        let next = cells.lock().unwrap().pop();
        let Some((era, hold, kind, time)) = next else { return count };
        println!("frozen: {era:?} {hold} at the first {kind} for {} s", time.as_secs());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Box::pin(one_api_server_is_frozen(era, hold, (kind, 1), time)));
        println!("frozen: {era:?} {hold} at the first {kind} for {} s: passed", time.as_secs());
        count += 1;
    }
}

/// A cell waits for most of its time: several run at once.
const CELLS_AT_ONCE: usize = 6;

#[test]
#[ignore = "hours, in `make soak`: needs `make rig` and root"]
fn api_server_frozen_at_any_stage_deletes_no_address() {
    let left = Mutex::new(cells());
    let all = cells().len();
    let ends: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..CELLS_AT_ONCE).map(|_| scope.spawn(|| run_cells(&left))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).collect()
    });
    assert_eq!(ends.iter().sum::<usize>(), all, "passed cells");
}

/// One of two API servers is killed and does not return. Its Lease is not expired, so the operation stops and names it, and
/// continues once the operator excludes it by name.
#[tokio::test]
async fn dead_api_server_is_excluded_by_name() {
    let options = ClusterOptions { api_servers: 2, ..ClusterOptions::new(Era::Objects) };
    let mut serving = Serving::start_on(options, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    let mut apply = serving.start_slow_apply();
    serving.wait_for_records(&mut apply, "flip", 3).await;
    let host = serving.cluster.api_servers[1].host();
    serving.cluster.api_servers[1].kill();
    assert_eq!(apply.end().await, 5, "{:?}", lines_of(&apply.err));
    let said = lines_of(&apply.err).join("\n");
    says(
        &said,
        &["1 of 2", &format!("`{host}` (Lease `kube-system/"), &format!("`--without-api-server {host}`")],
    );
    let operation = serving.journals().remove(0);
    let resume = format!("operation resume {operation} --confirm certificates --without-api-server {host}");
    serving.netsurgeon(&resume).expect(6);
    serving.netsurgeon("renumber verify").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
}

#[tokio::test]
async fn apply_survives_the_restart_of_an_api_server() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Iptables).await;
    let old = Serving::targets();
    let before = created(&serving, "/registry/ipaddresses/").await;
    let probe = serving.probe(&old).await;
    let mut apply = serving.start_slow_apply();
    serving.wait_for_records(&mut apply, "flip", 5).await;
    serving.cluster.restart_api_server(0).await;
    assert_eq!(apply.end().await, 6, "everything has moved, and it asks for the flags");
    serving.assert_unbroken(&probe.stop(), &old);
    none_was_made_anew(&serving, &before).await;
    serving.netsurgeon("renumber verify").expect(0);
}

#[tokio::test]
async fn apply_survives_the_loss_of_the_etcd_leader() {
    let etcd = Servers { members: 3, ..Servers::default() };
    let options = ClusterOptions { etcd, ..ClusterOptions::new(Era::Objects) };
    let mut serving = Serving::start_on(options, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let before = created(&serving, "/registry/ipaddresses/").await;
    let probe = serving.probe(&old).await;
    let mut apply = serving.start_slow_apply();
    serving.wait_for_records(&mut apply, "flip", 5).await;
    let leader = serving.cluster.etcd.leader().await;
    serving.cluster.etcd.kill_member(leader);
    assert_eq!(apply.end().await, 6, "everything has moved, and it asks for the flags");
    serving.assert_unbroken(&probe.stop(), &old);
    none_was_made_anew(&serving, &before).await;
    serving.netsurgeon("renumber verify").expect(0);
}

/// The second operator gets the name of the running operation, and changes nothing.
#[tokio::test]
async fn second_operator_is_refused() {
    let serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    // The rate keeps it running while `resume` waits for its lease.
    let mut apply = serving.start_netsurgeon(&format!("{} --lock-ttl 3 --rate 5", serving.apply_words()));
    serving.wait_for_records(&mut apply, "reserve", 1).await;
    let second = serving.netsurgeon("renumber apply --to 10.201.0.0/16 --no-snapshot --yes").expect(1);
    let operation = serving.journals().remove(0);
    says(&second.err, &[&format!("`{operation}`"), "(running)", "(pid "]);
    let third = serving.netsurgeon(&format!("operation resume {operation}")).expect(1);
    says(&third.err, &[&format!("`{operation}`"), "(pid "]);
    says(&third.err, &["`--take-over`"]);
    assert_eq!(apply.end().await, 6, "everything has moved, and it asks for the flags");
    serving.netsurgeon("renumber verify").expect(0);
}
