//! Checks the SHA-256 of a file. The check is the slowest part of opening a file, so it runs in its own thread. A reader waits
//! for the result only at the end.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::fault::Fault;
use super::file::SnapshotFile;
use crate::store::StoreError;

/// The verification of a checksum, in progress or finished.
#[derive(Debug)]
pub(super) struct Checksum {
    running: Mutex<Option<JoinHandle<Outcome>>>,
    outcome: OnceLock<Outcome>,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// The file has no checksum, or a correct one.
    Passed,
    /// The checksum is wrong.
    Differs { computed: String, stored: String },
    /// The checksum could not be computed.
    Failed(String),
}

impl Checksum {
    /// Starts to check the checksum of a file, if the file has a checksum.
    pub(super) fn begin(file: &Arc<SnapshotFile>, path: &Path) -> Self {
        if !file.has_checksum() {
            return Self { running: Mutex::new(None), outcome: OnceLock::from(Outcome::Passed) };
        }
        let own = Arc::clone(file);
        let thread = std::thread::Builder::new().name(format!("sha256 {}", path.display()));
        match thread.spawn(move || compare(&own)) {
            Ok(handle) => Self { running: Mutex::new(Some(handle)), outcome: OnceLock::new() },
            // The thread could not be started, so the checksum is computed in this thread.
            Err(_) => Self { running: Mutex::new(None), outcome: OnceLock::from(compare(file)) },
        }
    }

    /// Waits for the result of the check. Fails with [`StoreError::Checksum`] if the checksum is wrong.
    pub(super) fn check(&self, path: &Path) -> Result<(), StoreError> {
        match self.outcome.get_or_init(|| self.join()) {
            Outcome::Passed => Ok(()),
            Outcome::Differs { computed, stored } => Err(StoreError::Checksum {
                path: path.to_path_buf(),
                computed: computed.clone(),
                stored: stored.clone(),
            }),
            Outcome::Failed(reason) => Err(StoreError::Io {
                path: path.to_path_buf(),
                source: std::io::Error::other(reason.clone()),
            }),
        }
    }

    /// Returns the error to report for a fault in the file. If the structure is damaged and the checksum is wrong, returns only
    /// the checksum error, which is more useful. If the file is not a snapshot or is truncated, returns this fault. Truncation is
    /// detected by the meta page, which has its own checksum.
    pub(super) fn explain(&self, fault: Fault, path: &Path) -> StoreError {
        match (&fault, self.check(path)) {
            (Fault::Damaged { .. }, Err(error)) => error,
            _ => fault.at(path),
        }
    }

    fn join(&self) -> Outcome {
        let handle = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let joined = handle.map(JoinHandle::join);
        match joined {
            Some(Ok(outcome)) => outcome,
            _ => Outcome::Failed("the thread that computes the checksum failed".to_string()),
        }
    }
}

fn compare(file: &SnapshotFile) -> Outcome {
    let Some(stored) = file.stored_checksum() else { return Outcome::Passed };
    let computed = Sha256::digest(file.content());
    if computed.as_slice() == stored {
        Outcome::Passed
    } else {
        Outcome::Differs { computed: HEXLOWER.encode(&computed), stored: HEXLOWER.encode(stored) }
    }
}
