//! Runs a program of the user with a time limit.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Maximum number of bytes of each output that are kept.
const MOST_OUTPUT: u64 = 4096;

/// The result of a program.
#[derive(Debug)]
pub struct Ran {
    /// The exit status; `None` if the program did not end in time.
    pub status: Option<ExitStatus>,
    /// The start of stdout, at most 4,096 bytes, without control characters other than line breaks.
    pub stdout: String,
    /// The end of stderr, in the same form.
    pub stderr: String,
}

/// A running program. Dropping this value ends its whole process group.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The system does not reuse the process id before this process has waited for it.
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Runs a program in its own process group, so that Ctrl-C does not reach it. After the time limit, or when the returned future
/// is dropped, kills the whole group. Fails if the program cannot be started, or if its output cannot be stored or read.
pub async fn run(command: &mut Command, limit: Duration) -> io::Result<Ran> {
    // Output goes to files, not to pipes: a background process of the program could hold a pipe open forever.
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).process_group(0);
    let mut running = Running(command.spawn()?);
    let pid = Pid::from_child(&running.0);
    let status = match timeout(limit, spawn_blocking(move || until_ended(pid))).await {
        Ok(_) => Some(running.0.wait()?),
        Err(_) => None,
    };
    drop(running);
    stdout.rewind()?;
    let length = stderr.seek(SeekFrom::End(0))?;
    stderr.seek(SeekFrom::Start(length.saturating_sub(MOST_OUTPUT)))?;
    Ok(Ran { status, stdout: text(stdout)?, stderr: text(stderr)? })
}

/// Waits until a process ends. Does not reap it, so its id is not reused before the caller does.
fn until_ended(pid: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}
}

/// Reads a limited number of bytes of a program's output.
fn text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MOST_OUTPUT).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim().chars().filter(|character| !character.is_control() || *character == '\n').collect())
}
