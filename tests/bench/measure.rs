//! Measures whole processes from outside.
//!
//! *Time* is wall time from start to end, with the output discarded and the file in the page cache. Programs that are compared
//! take turns, so that other load on the machine affects all of them; figures are medians.
//!
//! *Memory* is measured in separate runs. The peak of the resident set (`tests/rig/memory.rs`) counts pages of the mapped file,
//! which belong to the page cache. To separate the program's own anonymous memory, the program writes its result into a pipe that
//! no process reads: it blocks with its memory still allocated, and `/proc/PID/status` is read. A plan maps and reads the whole
//! file (the checksum) before it starts to build anything, and keeps it mapped. `VmHWM - RssFile` is therefore the most anonymous
//! memory that it had since, freed memory included.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::rig::memory::{take_peak, under_time};

/// How often a process that is about to fill its pipe is checked.
const POLL: Duration = Duration::from_millis(5);
/// How many checks in a row must find it waiting.
const LOOKS: usize = 5;

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
}

impl Program {
    pub fn new(path: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self { path: path.into(), arguments: arguments.iter().map(ToString::to_string).collect() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs the program; returns seconds.
    fn seconds(&self) -> f64 {
        let begin = Instant::now();
        let status = self.command().status();
        let seconds = begin.elapsed().as_secs_f64();
        assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{self:?}: {status:?}");
        seconds
    }

    /// Runs the program; returns the CPU time of its process, user and system, to the millisecond, or `None` if it fails. The
    /// shell measures it: `/usr/bin/time` knows only hundredths of a second.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let mut shell = Command::new("bash");
        shell.args(["-c", r#"TIMEFORMAT='%3U %3S'; time "$@" >/dev/null 2>&1"#, "bash"]);
        shell.arg(&self.path).args(&self.arguments).env("LC_ALL", "C").stdin(Stdio::null());
        let output = shell.output().expect("bash starts");
        let times = String::from_utf8_lossy(&output.stderr);
        let seconds = times.split_whitespace().map(|time| time.parse::<f64>().expect("seconds"));
        output.status.success().then(|| seconds.sum())
    }

    /// Returns the peak of the resident set, mapped files included, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        let output = under_time(&command).stdout(Stdio::null()).output().expect("`/usr/bin/time` runs");
        let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{self:?}: {said}");
        take_peak(&mut said)
    }

    /// Returns the most anonymous memory that the program can have had, in KiB. Its output must be longer than a pipe holds (64
    /// KiB).
    pub fn anonymous_kib(&self) -> u64 {
        let mut child = self.command().stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut pipe = child.stdout.take().expect("a pipe");
        pipe.read_exact(&mut [0]).expect("the program writes");
        let mut waiting = 0;
        while waiting < LOOKS {
            std::thread::sleep(POLL);
            let sleeps = field(&status(child.id()), "State:").starts_with('S');
            waiting = if sleeps { waiting + 1 } else { 0 };
        }
        let status = status(child.id());
        let kib = |name: &str| -> u64 {
            field(&status, name).trim_end_matches(" kB").parse().expect("a number of KiB")
        };
        let anonymous = kib("VmHWM:") - kib("RssFile:");
        std::io::copy(&mut pipe, &mut std::io::sink()).expect("the program writes");
        assert!(child.wait().expect("the program ends").success(), "{self:?}");
        anonymous
    }
}

fn status(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process exists")
}

fn field<'s>(status: &'s str, name: &str) -> &'s str {
    status.lines().find_map(|line| line.strip_prefix(name)).expect("the field exists").trim()
}

/// Runs the programs in turns, so many rounds after one to warm up; returns the median seconds of each.
pub fn medians(programs: &[Program], rounds: usize) -> Vec<f64> {
    for program in programs {
        program.seconds();
    }
    let mut samples = vec![Vec::new(); programs.len()];
    for _ in 0..rounds {
        for (program, samples) in programs.iter().zip(&mut samples) {
            samples.push(program.seconds());
        }
    }
    samples.into_iter().map(median).collect()
}

pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
