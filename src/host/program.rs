//! Runs a program of the user with a time limit.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Maximum number of bytes of a program's output that are kept.
const MOST_OUTPUT: u64 = 4096;

/// The result of a program.
#[derive(Debug)]
pub struct Ran {
    /// The exit status; `None` if the program did not end in time.
    pub status: Option<ExitStatus>,
    /// The end of stderr, as [`text`] returns it.
    pub stderr: String,
}

/// A running program. If it has not ended when this value is dropped, its whole process group is killed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // `id` returns `None` after netsurgeon has read the exit status of the program. Until then, the system does not reuse the
        // id.
        let pid = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| matches!(self.0.try_wait(), Ok(None)))
            && kill_process_group(pid, Signal::KILL).is_err()
        {
            // The program has left its group.
            let _ = self.0.start_kill();
        }
    }
}

/// Runs a program in its own process group, so that Ctrl-C does not reach it. After the time limit, or when the returned future
/// is dropped, kills the whole group. Stdout goes where the caller sends it. Fails if the program cannot be started, or if its
/// stderr cannot be stored or read.
pub async fn run(command: &mut Command, limit: Duration) -> io::Result<Ran> {
    // Stderr goes to a file, because a background process of the program could hold a pipe open forever.
    let mut stderr = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stderr(stderr.try_clone()?).process_group(0);
    let mut running = Running(command.spawn()?);
    let status = match timeout(limit, running.0.wait()).await {
        Ok(status) => Some(status?),
        Err(_) => None,
    };
    drop(running);
    let length = stderr.seek(SeekFrom::End(0))?;
    stderr.seek(SeekFrom::Start(length.saturating_sub(MOST_OUTPUT)))?;
    Ok(Ran { status, stderr: text(stderr)? })
}

/// Reads at most 4,096 bytes of a program's output, without control characters other than line breaks.
pub fn text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MOST_OUTPUT).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim().chars().filter(|character| !character.is_control() || *character == '\n').collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(Stdio::null());
        command
    }

    #[tokio::test]
    async fn end_of_stderr_is_kept() {
        let script = "printf 'first\\n' >&2; head -c 5000 /dev/zero | tr '\\0' x >&2; printf '\\n\\033last\\n' >&2; exit 3";
        let ran = run(&mut shell(script), LONG).await.unwrap();
        assert_eq!(ran.status.unwrap().code(), Some(3));
        assert!(ran.stderr.ends_with("x\nlast") && !ran.stderr.contains("first"), "{}", ran.stderr);
    }

    /// A process that the program leaves behind holds stderr open.
    #[tokio::test]
    async fn background_process_does_not_delay_the_end() {
        let ran = run(&mut shell("sleep 600 & echo $! >&2"), LONG).await.unwrap();
        assert!(ran.status.unwrap().success());
        let left: i32 = ran.stderr.parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn whole_group_is_killed_after_the_limit() {
        let ran = run(&mut shell("sleep 600 & echo $! >&2; wait"), Duration::from_secs(2)).await.unwrap();
        assert!(ran.status.is_none());
        let status = Path::new("/proc").join(&ran.stderr).join("status");
        // A killed process is a zombie until its new parent has waited for it.
        let runs = || std::fs::read_to_string(&status).is_ok_and(|text| !text.contains("State:\tZ"));
        let started = Instant::now();
        while runs() {
            assert!(started.elapsed() < LONG, "{} runs", ran.stderr);
            tokio::task::yield_now().await;
        }
    }
}
