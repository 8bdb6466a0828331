//! Measures `renumber plan`, `audit`, `rehearse` and `renumber apply`, and how they grow with the cluster, and `dns cutover`: `make
//! bench`.
//!
//! The measure of the first three is `etcdutl snapshot status` on the same file. It also reads a snapshot and its checksum, and
//! is the usual way to check a snapshot. Prints a table, or with `--json` the same figures for programs. [`measure`] says how
//! programs are run, [`snapshots`] on which files, [`moving`] how Services are moved and with what that is compared, and
//! [`cutovers`] the same about DNS names. `--mirror` measures only `mirror plan` and `mirror apply` ([`mirror`]), with the build of
//! the release profile or with another program: `--program PATH`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    reason = "the benchmark is no part of the program"
)]

mod against;
mod batches;
mod cutovers;
mod measure;
mod mirror;
mod renumbering;
#[path = "../rig/mod.rs"]
mod rig;
mod slow_link;
mod snapshots;

use std::path::{Path, PathBuf};

use batches::Batches;
use cutovers::Cutovers;
use measure::{Program, medians};
use renumbering::Moving;
use rig::programs::{ETCD_VERSION, built};
use serde::Serialize;

/// Sizes of clusters, in Services.
const SIZES: [usize; 3] = [1_000, 10_000, 50_000];
/// The range that the Services move to.
const TARGET: &str = "10.192.0.0/12";
/// Rounds of programs that take less than a second, and of those that take longer.
const ROUNDS: usize = 15;
const LONG_ROUNDS: usize = 3;

/// The figures of one snapshot.
#[derive(Debug, Serialize)]
struct Figures {
    services: usize,
    file_bytes: u64,
    plan_seconds: f64,
    plan_microseconds_per_service: f64,
    plan_peak_kib: u64,
    plan_anonymous_kib: u64,
    plan_anonymous_bytes_per_service: f64,
    etcdutl_seconds: f64,
    etcdutl_peak_kib: u64,
    plan_to_etcdutl: f64,
    /// The audit of a range without Services: it reads everything and finds nothing.
    audit_seconds: f64,
    audit_to_etcdutl: f64,
    rehearse_seconds: f64,
    rehearse_peak_kib: u64,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Outcome {
    processor: String,
    processors: usize,
    figures: Vec<Figures>,
    /// Seconds and anonymous memory per Service of the largest cluster, divided by those of the middle one.
    plan_growth: f64,
    plan_memory_growth: f64,
    rehearse_growth: f64,
    moving: Vec<Moving>,
    moving_growth: f64,
    /// Seconds to delete and create one Service through the API, and how many times netsurgeon's time that is.
    recreate_seconds: f64,
    recreate_to_moving: f64,
    /// On a cluster with a kube-proxy.
    batches: Batches,
    /// On a zone that BIND serves.
    cutovers: Cutovers,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let is_json = std::env::args().any(|argument| argument == "--json");
    let mut figures = Vec::new();
    let netsurgeon = option("--program").map_or_else(netsurgeon, PathBuf::from);
    if std::env::args().any(|argument| argument == "--batches") {
        let measured = batches::measure(&netsurgeon).await;
        println!("{}", serde_json::to_string_pretty(&measured).expect("figures"));
        return;
    }
    if std::env::args().any(|argument| argument == "--growth") {
        for services in SIZES {
            let (keys, bytes) = renumbering::grown(services).await;
            println!("{services:8} Services: growing their range writes {keys} keys, {bytes} bytes");
        }
        return;
    }
    if std::env::args().any(|argument| argument == "--cutovers") {
        let measured = cutovers::measure(&netsurgeon).await;
        println!("{}", serde_json::to_string_pretty(&measured).expect("figures"));
        return;
    }
    if std::env::args().any(|argument| argument == "--mirror") {
        let measured = mirror::measure(&netsurgeon).await;
        if is_json {
            println!("{}", serde_json::to_string_pretty(&measured).expect("figures"));
        } else {
            mirror::print(&measured);
        }
        return;
    }
    if let Some(other) = option("--against") {
        let compared = against::measure(&netsurgeon, Path::new(&other)).await;
        if is_json {
            println!("{}", serde_json::to_string_pretty(&compared).expect("figures"));
        } else {
            against::print(&compared);
        }
        return;
    }
    for services in SIZES {
        let file = snapshots::with_services(services).await;
        figures.push(measure(&netsurgeon, services, &file));
    }
    let mut moving = Vec::new();
    for services in SIZES {
        moving.push(renumbering::measure(services, TARGET).await);
    }
    let recreate_seconds = renumbering::recreate_each().await;
    let live = (batches::measure(&netsurgeon).await, cutovers::measure(&netsurgeon).await);
    let outcome = summarise(figures, moving, recreate_seconds, live);
    if is_json {
        println!("{}", serde_json::to_string_pretty(&outcome).expect("figures"));
    } else {
        print(&outcome);
    }
}

/// Returns the value of an option.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// Returns the program as `cargo build --release` leaves it, beside this one.
fn netsurgeon() -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    let target = own.ancestors().nth(3).expect("target/PROFILE/examples/bench");
    let program = target.join("release/netsurgeon");
    assert!(program.is_file(), "`{}` is missing: run `make bench`, which builds it", program.display());
    program
}

fn measure(netsurgeon: &Path, services: usize, file: &Path) -> Figures {
    eprintln!("measuring {services} Services");
    let path = file.to_string_lossy();
    let plan = ["renumber", "plan", "--snapshot", &path, "--to", TARGET, "-o", "json"];
    let plan = Program::new(netsurgeon, &plan);
    let rehearse = Program::new(netsurgeon, &["rehearse", &path, "--to", TARGET, "-o", "json"]);
    let etcdutl = built(&format!("etcd-{ETCD_VERSION}/etcdutl"));
    let etcdutl = Program::new(etcdutl, &["snapshot", "status", &path, "-w", "json"]);
    let audit = Program::new(netsurgeon, &["audit", "--old", TARGET, "--snapshot", &path, "-o", "json"]);
    let programs = [plan.clone(), etcdutl.clone(), audit];
    let [plan_seconds, etcdutl_seconds, audit_seconds] = medians(&programs, ROUNDS)[..] else {
        panic!("three programs")
    };
    let rehearse_seconds = medians(std::slice::from_ref(&rehearse), LONG_ROUNDS)[0];
    let plan_anonymous_kib = plan.anonymous_kib();
    let each = |total: f64| total / services as f64;
    Figures {
        services,
        file_bytes: std::fs::metadata(file).expect("the snapshot").len(),
        plan_seconds,
        plan_microseconds_per_service: each(plan_seconds * 1e6),
        plan_peak_kib: plan.peak_kib(),
        plan_anonymous_kib,
        plan_anonymous_bytes_per_service: each(plan_anonymous_kib as f64 * 1024.0),
        etcdutl_seconds,
        etcdutl_peak_kib: etcdutl.peak_kib(),
        plan_to_etcdutl: plan_seconds / etcdutl_seconds,
        audit_seconds,
        audit_to_etcdutl: audit_seconds / etcdutl_seconds,
        rehearse_seconds,
        rehearse_peak_kib: rehearse.peak_kib(),
    }
}

fn summarise(
    figures: Vec<Figures>,
    moving: Vec<Moving>,
    recreate_seconds: f64,
    (batches, cutovers): (Batches, Cutovers),
) -> Outcome {
    let growth = |of: &dyn Fn(&Figures) -> f64| {
        let each = |index: usize| of(&figures[index]) / figures[index].services as f64;
        each(2) / each(1)
    };
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    Outcome {
        processor: processor.trim_start_matches([' ', '\t', ':']).to_string(),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        plan_growth: growth(&|figures| figures.plan_seconds),
        plan_memory_growth: growth(&|figures| figures.plan_anonymous_kib as f64),
        rehearse_growth: growth(&|figures| figures.rehearse_seconds),
        figures,
        moving_growth: moving[2].microseconds_per_service / moving[1].microseconds_per_service,
        recreate_seconds,
        recreate_to_moving: recreate_seconds * 1e6 / moving[1].microseconds_per_service,
        moving,
        batches,
        cutovers,
    }
}

fn print(outcome: &Outcome) {
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!("{} x {}; medians", outcome.processors, outcome.processor);
    println!(
        "Services  file MB    plan ms  etcdutl ms  ratio   us/Service   peak MiB  own MiB  own B/Service"
    );
    for f in &outcome.figures {
        println!(
            "{:8} {:8.1} {:10.1} {:11.1} {:6.2} {:12.2} {:10.1} {:8.1} {:14.0}",
            f.services,
            f.file_bytes as f64 / 1e6,
            f.plan_seconds * 1e3,
            f.etcdutl_seconds * 1e3,
            f.plan_to_etcdutl,
            f.plan_microseconds_per_service,
            mib(f.plan_peak_kib),
            mib(f.plan_anonymous_kib),
            f.plan_anonymous_bytes_per_service,
        );
    }
    println!("Services   audit ms  to etcdutl");
    for f in &outcome.figures {
        println!("{:8} {:10.1} {:11.2}", f.services, f.audit_seconds * 1e3, f.audit_to_etcdutl);
    }
    println!("Services  rehearse s  us/Service  peak MiB");
    for f in &outcome.figures {
        let peak = mib(f.rehearse_peak_kib);
        let each = f.rehearse_seconds * 1e6 / f.services as f64;
        println!("{:8} {:11.2} {each:11.1} {peak:9.1}", f.services, f.rehearse_seconds);
    }
    println!("Services  moved in s  transactions  floor s  ratio  same s  ratio  us/Service");
    for m in &outcome.moving {
        println!(
            "{:8} {:11.2} {:13} {:8.2} {:6.2} {:7.2} {:6.2} {:11.1}",
            m.services,
            m.seconds,
            m.transactions,
            m.floor_seconds,
            m.to_floor,
            m.same_seconds,
            m.to_same,
            m.microseconds_per_service
        );
    }
    for m in &outcome.moving {
        println!(
            "{:8} Services: growing their range writes {} keys, {} bytes",
            m.services, m.growth_keys, m.growth_bytes
        );
    }
    print_live(outcome);
    println!(
        "per Service, 50,000 : 10,000   plan time {:.2}   plan memory {:.2}   rehearse time {:.2}   moving {:.2}",
        outcome.plan_growth, outcome.plan_memory_growth, outcome.rehearse_growth, outcome.moving_growth
    );
}

/// The figures of operations on live clusters.
fn print_live(outcome: &Outcome) {
    println!(
        "deleting and creating through the API: {:.2} ms for each Service, {:.0} times as long as moving it",
        outcome.recreate_seconds * 1e3,
        outcome.recreate_to_moving
    );
    let Batches { services, batch, seconds, plain_seconds, to_plain, syncs, both_seconds, to_both } =
        &outcome.batches;
    println!(
        "batches of {batch} of {services} Services: {seconds:.2} s each; kube-proxy applies {batch} plain changes in {plain_seconds:.2} s, \
         ratio {to_plain:.2}; it syncs {syncs:.0} times for each; the {} of a batch in {both_seconds:.2} s, ratio {to_both:.2}",
        2 * batch
    );
    let Cutovers { names, records, seconds, nsupdate_seconds, to_nsupdate } = &outcome.cutovers;
    println!(
        "cutover of {names} names of a zone with {records} records: {seconds:.2} s without its soak; `nsupdate` sends the same updates in \
         {nsupdate_seconds:.2} s, ratio {to_nsupdate:.1}"
    );
}
