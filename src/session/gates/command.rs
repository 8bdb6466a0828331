//! A program as a gate.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::host::program;

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    /// Finds the program at a path, or by its name in PATH.
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

    /// Runs the program, and ends it when the time `limit` has passed. Returns why the gate is open, or fails with the reason why
    /// it is closed. `batch` is the batch that would start, from 0.
    pub async fn run(
        &self,
        operation: &str,
        batch: Option<usize>,
        limit: Duration,
    ) -> Result<String, String> {
        let batch = batch.map_or_else(String::new, |batch| batch.saturating_add(1).to_string());
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).env("NETSURGEON_OPERATION", operation).env("NETSURGEON_BATCH", batch);
        command.stdout(Stdio::null());
        let ran = program::run(&mut command, limit).await;
        let ran = ran.map_err(|error| format!("`{}` cannot be run: {error}", self.path.display()))?;
        let last = ran.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        match ran.status {
            Some(status) if status.success() => Ok(status.to_string()),
            Some(status) if last.is_empty() => Err(status.to_string()),
            Some(status) => Err(format!("{last} ({status})")),
            None => Err(format!("the program did not end within {} s", limit.as_secs())),
        }
    }
}
