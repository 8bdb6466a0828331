//! Finds processes of this machine by their command line.

use std::path::Path;
use std::{fs, io};

/// A running process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Command line arguments, with the program first.
    pub arguments: Vec<String>,
}

/// Returns the processes that run a program, either directly (`kube-apiserver`) or as a command of another program
/// (`hyperkube kube-apiserver`). Finds only processes that the kernel shows to this process. Blocks the thread.
pub fn running(program: &str) -> Vec<Process> {
    let process = |pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        Some(Process { pid, arguments: words.collect() })
    };
    let pids = pids(Path::new("/proc")).unwrap_or_default();
    pids.into_iter().filter_map(process).filter(|process| process.runs(program)).collect()
}

/// Returns the sorted ids of the processes in a `/proc` folder.
pub(super) fn pids(proc: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(proc)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let mut pids: Vec<u32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

impl Process {
    fn runs(&self, program: &str) -> bool {
        self.arguments.iter().take(2).any(|word| word.rsplit('/').next() == Some(program))
    }

    /// Returns whether the process is in the network namespace of this process. Returns true if the namespaces cannot be
    /// compared.
    pub fn shares_network(&self) -> bool {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let its = namespace(&self.pid.to_string());
        its.is_none() || its == namespace("self")
    }

    /// Returns the value of a flag. If the flag is repeated, the last value counts. Kubernetes programs do the same
    /// (`github.com/spf13/pflag`, v1.0).
    pub fn flag(&self, name: &str) -> Option<&str> {
        let (alone, with_value) = (format!("--{name}"), format!("--{name}="));
        let mut value = None;
        for (number, word) in self.arguments.iter().enumerate() {
            if let Some(found) = word.strip_prefix(&with_value) {
                value = Some(found);
            } else if *word == alone {
                value = self.arguments.get(number.saturating_add(1)).map(String::as_str);
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_the_program_does() {
        let of = |line: &str| Process { pid: 1, arguments: line.split(' ').map(String::from).collect() };
        let one = of("/usr/bin/kube-apiserver --range=a --range b --other");
        assert!(one.runs("kube-apiserver") && !one.runs("apiserver"));
        assert_eq!((one.flag("range"), one.flag("other"), one.flag("ran")), (Some("b"), None, None));
        assert!(of("/hyperkube kube-apiserver --v=2").runs("kube-apiserver"));
        assert!(!of("/usr/bin/vi file kube-apiserver").runs("kube-apiserver"));
    }

    #[test]
    fn this_process_is_found() {
        let own = std::env::current_exe().unwrap();
        let found = running(own.file_name().unwrap().to_str().unwrap());
        let process = found.iter().find(|process| process.pid == std::process::id()).expect("this process");
        assert!(process.shares_network());
    }
}
