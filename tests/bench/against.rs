//! Compares the CPU time and the memory of commands with those of another build: `make bench AGAINST=COMMIT`.
//!
//! The two programs take turns on the same snapshot, and each goes first in half of the pairs. CPU time is that of the whole
//! process, user and system. A ratio of CPU times is the median of the ratios of the pairs, so that load on the machine, which
//! affects both runs of a pair, does not matter.

use std::path::Path;

use serde::Serialize;

use crate::measure::{Program, median};
use crate::{LONG_ROUNDS, ROUNDS, TARGET, snapshots};

/// Services in the snapshot.
const SERVICES: usize = 10_000;

/// The figures of one command.
#[derive(Debug, Serialize)]
pub struct Comparison {
    command: &'static str,
    services: usize,
    cpu_seconds: f64,
    other_cpu_seconds: f64,
    /// This build's CPU time divided by the other one's.
    cpu_ratio: f64,
    peak_kib: u64,
    other_peak_kib: u64,
    peak_ratio: f64,
}

/// Measures every command that both builds have.
pub async fn measure(netsurgeon: &Path, other: &Path) -> Vec<Comparison> {
    let file = snapshots::with_services(SERVICES).await;
    let file = file.to_string_lossy();
    let commands: [(&str, &[&str], usize); 3] = [
        ("renumber plan", &["renumber", "plan", "--snapshot", &file, "--to", TARGET, "-o", "json"], ROUNDS),
        ("audit", &["audit", "--old", TARGET, "--snapshot", &file, "-o", "json"], ROUNDS),
        ("rehearse", &["rehearse", &file, "--to", TARGET, "-o", "json"], LONG_ROUNDS + 2),
    ];
    let mut all = Vec::new();
    for (command, arguments, rounds) in commands {
        eprintln!("measuring `{command}` in turns");
        let both = [netsurgeon, other].map(|program| Program::new(program, arguments));
        match compare(command, &both, rounds) {
            Some(comparison) => all.push(comparison),
            None => eprintln!("the other build has no command `{command}` with these options"),
        }
    }
    all
}

/// Returns `None` if the other program fails.
fn compare(command: &'static str, [own, other]: &[Program; 2], rounds: usize) -> Option<Comparison> {
    let cpu_of_own = || own.cpu_seconds().unwrap_or_else(|| panic!("{own:?} fails"));
    other.cpu_seconds()?;
    cpu_of_own();
    let pairs: Vec<[f64; 2]> = (0..rounds)
        .map(|round| {
            if round % 2 == 0 {
                let first = cpu_of_own();
                Some([first, other.cpu_seconds()?])
            } else {
                let first = other.cpu_seconds()?;
                Some([cpu_of_own(), first])
            }
        })
        .collect::<Option<_>>()?;
    let of = |figure: &dyn Fn(&[f64; 2]) -> f64| median(pairs.iter().map(figure).collect());
    // The peak depends on the order in which threads run.
    let peak = |program: &Program| (0..LONG_ROUNDS).map(|_| program.peak_kib()).min().unwrap_or_default();
    let (peak_kib, other_peak_kib) = (peak(own), peak(other));
    Some(Comparison {
        command,
        services: SERVICES,
        cpu_seconds: of(&|pair| pair[0]),
        other_cpu_seconds: of(&|pair| pair[1]),
        cpu_ratio: of(&|pair| pair[0] / pair[1]),
        peak_kib,
        other_peak_kib,
        peak_ratio: peak_kib as f64 / other_peak_kib as f64,
    })
}

/// Prints a table.
pub fn print(all: &[Comparison]) {
    println!("{:16} Services    CPU s  other s  ratio  peak MiB  other MiB  ratio", "command");
    let mib = |kib: u64| kib as f64 / 1024.0;
    for c in all {
        println!(
            "{:16} {:8} {:8.3} {:8.3} {:6.2} {:9.1} {:10.1} {:6.2}",
            c.command,
            c.services,
            c.cpu_seconds,
            c.other_cpu_seconds,
            c.cpu_ratio,
            mib(c.peak_kib),
            mib(c.other_peak_kib),
            c.peak_ratio,
        );
    }
}
