//! How fast `renumber plan` and `rehearse` are, and how they grow with the cluster: `make bench`.
//!
//! The measure is `etcdutl snapshot status` on the same file, which reads a snapshot and its checksum as well
//! and is what people run today to see whether one is good. Prints a table, or with `--json` the same
//! figures for programs. What it runs and how is in [`measure`]; what it runs on, in [`snapshots`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    reason = "it is no part of the program"
)]

#[path = "../rig"]
#[allow(dead_code, reason = "the benchmark uses a part of the rig")]
mod rig {
    pub mod etcd;
    pub mod pki;
    pub mod process;
    pub mod programs;
    pub mod workspace;
}
mod measure;
mod snapshots;

use std::path::{Path, PathBuf};
use std::process::Command;

use measure::{Program, medians};
use rig::programs::{ETCD_VERSION, built};
use serde::Serialize;

/// Sizes of clusters, in Services.
const SIZES: [usize; 3] = [1_000, 10_000, 50_000];
/// Where the Services go.
const TARGET: &str = "10.192.0.0/12";
/// Rounds of what takes less than a second, and of what takes longer.
const ROUNDS: usize = 15;
const LONG_ROUNDS: usize = 3;

/// What was measured on one snapshot.
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
    steps_seconds: f64,
    rehearse_seconds: f64,
    rehearse_peak_kib: u64,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Outcome {
    processor: String,
    processors: usize,
    /// Which program ran `plan` and `rehearse`.
    programs: [String; 2],
    figures: Vec<Figures>,
    /// Seconds and anonymous memory per Service of the largest cluster, against the middle one.
    plan_growth: f64,
    plan_memory_growth: f64,
    rehearse_growth: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let is_json = std::env::args().any(|argument| argument == "--json");
    let mut figures = Vec::new();
    let programs = Programs::find();
    for services in SIZES {
        let file = snapshots::with_services(services).await;
        figures.push(measure(&programs, services, &file));
    }
    let outcome = summarise(&programs, figures);
    if is_json {
        println!("{}", serde_json::to_string_pretty(&outcome).expect("figures"));
    } else {
        print(&outcome);
    }
}

/// The programs that are run. What `netsurgeon` cannot do yet, `bench-subject` does.
struct Programs {
    netsurgeon: PathBuf,
    subject: PathBuf,
    has_plan: bool,
    has_rehearse: bool,
}

impl Programs {
    fn find() -> Self {
        let own = std::env::current_exe().expect("this program has a path");
        let target = own.ancestors().nth(3).expect("target/PROFILE/examples/bench");
        let netsurgeon = target.join("release/netsurgeon");
        let has = |command: &[&str]| {
            let output = Command::new(&netsurgeon).args(command).arg("--help").output();
            output.is_ok_and(|out| out.status.success() && String::from_utf8_lossy(&out.stdout).contains("--to"))
        };
        let (has_plan, has_rehearse) = (has(&["renumber", "plan"]), has(&["rehearse"]));
        Self { subject: target.join("release/examples/bench-subject"), netsurgeon, has_plan, has_rehearse }
    }

    fn plan(&self, file: &str) -> Program {
        if self.has_plan {
            let arguments = ["renumber", "plan", "--snapshot", file, "--to", TARGET, "-o", "json"];
            return Program::new(&self.netsurgeon, &arguments);
        }
        Program::new(&self.subject, &["plan", file, TARGET])
    }

    fn rehearse(&self, file: &str) -> Program {
        if self.has_rehearse {
            return Program::new(&self.netsurgeon, &["rehearse", file, "--to", TARGET, "-o", "json"]);
        }
        Program::new(&self.subject, &["rehearse", file, TARGET])
    }
}

fn measure(programs: &Programs, services: usize, file: &Path) -> Figures {
    eprintln!("measuring {services} Services");
    let path = file.to_string_lossy();
    let plan = programs.plan(&path);
    let etcdutl = built(&format!("etcd-{ETCD_VERSION}/etcdutl"));
    let etcdutl = Program::new(etcdutl, &["snapshot", "status", &path, "-w", "json"]);
    let steps = Program::new(&programs.subject, &["steps", &path, TARGET]);
    let rehearse = programs.rehearse(&path);
    let [plan_seconds, etcdutl_seconds] = medians(&[plan.clone(), etcdutl.clone()], ROUNDS)[..] else {
        panic!("two programs")
    };
    let [steps_seconds, rehearse_seconds] = medians(&[steps, rehearse.clone()], LONG_ROUNDS)[..] else {
        panic!("two programs")
    };
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
        steps_seconds,
        rehearse_seconds,
        rehearse_peak_kib: rehearse.peak_kib(),
    }
}

fn summarise(programs: &Programs, figures: Vec<Figures>) -> Outcome {
    let growth = |of: &dyn Fn(&Figures) -> f64| {
        let each = |index: usize| of(&figures[index]) / figures[index].services as f64;
        each(2) / each(1)
    };
    let name = |has: bool| if has { "netsurgeon" } else { "bench-subject" }.to_string();
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    Outcome {
        processor: processor.trim_start_matches([' ', '\t', ':']).to_string(),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        programs: [name(programs.has_plan), name(programs.has_rehearse)],
        plan_growth: growth(&|figures| figures.plan_seconds),
        plan_memory_growth: growth(&|figures| figures.plan_anonymous_kib as f64),
        rehearse_growth: growth(&|figures| figures.rehearse_seconds),
        figures,
    }
}

fn print(outcome: &Outcome) {
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!("{} x {}; medians", outcome.processors, outcome.processor);
    println!("plan by {}, rehearse by {}", outcome.programs[0], outcome.programs[1]);
    println!("Services  file MB    plan ms  etcdutl ms  ratio   us/Service   peak MiB  own MiB  own B/Service");
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
    println!("Services    steps s  rehearse s  rehearse peak MiB");
    for f in &outcome.figures {
        let peak = mib(f.rehearse_peak_kib);
        println!("{:8} {:10.2} {:11.2} {peak:18.1}", f.services, f.steps_seconds, f.rehearse_seconds);
    }
    println!(
        "per Service, 50,000 : 10,000   plan time {:.2}   plan memory {:.2}   rehearse time {:.2}",
        outcome.plan_growth, outcome.plan_memory_growth, outcome.rehearse_growth
    );
}
