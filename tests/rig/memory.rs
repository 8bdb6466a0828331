//! The memory of a program: the peak of its resident set (`ru_maxrss`), mapped files included.

use std::process::Command;

/// Returns the command under `/usr/bin/time` (Debian's package `time`), which prints the peak last, in a separate line. Its
/// environment has only the variables that were set for it.
pub fn under_time(command: &Command) -> Command {
    let mut timed = Command::new("/usr/bin/time");
    timed.env_clear().args(["-f", "%M"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        timed.env(name, value.unwrap_or_default());
    }
    if let Some(directory) = command.get_current_dir() {
        timed.current_dir(directory);
    }
    timed
}

/// Takes the peak, in KiB, from the end of the standard error.
pub fn take_peak(err: &mut String) -> u64 {
    let at = err.trim_end().rfind('\n').map_or(0, |at| at + 1);
    err.split_off(at).trim().parse().expect("a number of KiB, which `time` writes last")
}
