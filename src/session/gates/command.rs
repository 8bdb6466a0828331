//! A program as a gate.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::{sleep, timeout};

/// How often to check whether the program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Number of bytes that are read from the end of the program's stderr.
const END: u64 = 4096;

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
}

/// A running program. Dropping this value ends its whole process group.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The system does not reuse the process id before this process has waited for it.
        if matches!(self.0.try_wait(), Ok(None)) {
            if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }
}

impl Program {
    /// Finds the program: at a path, or by its name in PATH.
    pub fn find(path: &Path, arguments: &[String]) -> Result<Self, String> {
        let is_program = |path: &Path| {
            path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let is_name = path.components().count() == 1 && !path.to_string_lossy().contains('/');
        let found = if is_name {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| is_program(path))
        } else {
            Some(path.to_path_buf()).filter(|path| is_program(path))
        };
        match found {
            Some(path) => Ok(Self { path, arguments: arguments.to_vec() }),
            None => Err(format!(
                "`--gate-command {}`: no such program; give arguments with `--gate-arg`",
                path.display()
            )),
        }
    }

    /// Runs the program until it ends and returns the result. `batch` is the batch that would start, from 0.
    pub async fn run(
        &self,
        operation: &str,
        batch: Option<usize>,
        limit: Duration,
    ) -> Result<String, String> {
        let batch = batch.map_or_else(String::new, |batch| batch.saturating_add(1).to_string());
        // Stderr goes to a file, not to a pipe: a background process of the program could hold a pipe open forever.
        let failed = |error: std::io::Error| format!("`{}` cannot be run: {error}", self.path.display());
        let mut said = tempfile::tempfile().map_err(failed)?;
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .env("NETSURGEON_OPERATION", operation)
            .env("NETSURGEON_BATCH", batch)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone().map_err(failed)?)
            // Ctrl-C must reach only netsurgeon, which ends the program itself.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut running = Running(child);
        let ended = timeout(limit, ended(&mut running.0)).await;
        let last = last_line(&mut said).unwrap_or_default();
        match ended {
            Ok(Ok(status)) if status.success() => Ok(status.to_string()),
            Ok(Ok(status)) if last.is_empty() => Err(status.to_string()),
            Ok(Ok(status)) => Err(format!("{last} ({status})")),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(format!("it did not end within {} s", limit.as_secs())),
        }
    }
}

async fn ended(child: &mut Child) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        sleep(LOOK).await;
    }
}

/// Returns the last line that is not empty, without control characters.
fn last_line(file: &mut File) -> std::io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end)?;
    let text = String::from_utf8_lossy(&end);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    Ok(last.chars().filter(|character| !character.is_control()).collect())
}
