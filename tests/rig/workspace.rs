//! One temporary directory per server or cluster, removed with it unless `NETSURGEON_KEEP=1` keeps it to read the logs.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory that is removed on drop. Hold it in the last field of a struct: fields drop in the order of their declaration, and
/// the processes that write into it must have ended first.
pub struct Workspace {
    directory: TempDir,
}

impl Workspace {
    /// Creates the directory.
    pub fn create(purpose: &str) -> Self {
        let keep = std::env::var_os("NETSURGEON_KEEP").is_some_and(|value| value == "1");
        let directory = tempfile::Builder::new()
            .prefix(&format!("netsurgeon-{purpose}-"))
            .disable_cleanup(keep)
            .tempdir()
            .expect("a temporary directory can be created");
        if keep {
            eprintln!("kept: {}", directory.path().display());
        }
        Self { directory }
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns arguments of `env` for a program in Python that writes only into the directory.
    pub fn python_environment(&self) -> Vec<String> {
        let folder = self.path().display();
        vec![
            "-i".to_owned(),
            format!("HOME={folder}"),
            format!("TMPDIR={folder}"),
            "PYTHONDONTWRITEBYTECODE=1".to_owned(),
        ]
    }

    /// Returns a path inside the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file into the directory and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("`{}`: {error}", path.display()));
        path
    }
}
