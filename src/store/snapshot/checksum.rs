//! The check of a file's SHA-256. It is the slowest part of opening a file, so it has a thread of its own;
//! readers wait for it only at the end.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::fault::Fault;
use super::file::SnapshotFile;
use crate::store::StoreError;

/// A checksum in progress, or its result.
#[derive(Debug)]
pub(super) struct Checksum {
    running: Mutex<Option<JoinHandle<Outcome>>>,
    outcome: OnceLock<Outcome>,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// The file has no checksum, or a correct one.
    Passed,
    /// It is wrong.
    Differs { computed: String, stored: String },
    /// It was not computed.
    Failed(String),
}

impl Checksum {
    /// Starts to compute the checksum of a file, if it has one.
    pub(super) fn begin(file: &Arc<SnapshotFile>, path: &Path) -> Self {
        if !file.has_checksum() {
            return Self { running: Mutex::new(None), outcome: OnceLock::from(Outcome::Passed) };
        }
        let own = Arc::clone(file);
        let thread = std::thread::Builder::new().name(format!("sha256 {}", path.display()));
        match thread.spawn(move || compare(&own)) {
            Ok(handle) => Self { running: Mutex::new(Some(handle)), outcome: OnceLock::new() },
            // The thread could not be started: compute it here.
            Err(_) => Self { running: Mutex::new(None), outcome: OnceLock::from(compare(file)) },
        }
    }

    /// Waits for the checksum. Fails with [`StoreError::Checksum`] if it is wrong.
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

    /// Returns the error to report for a fault in the file. A wrong checksum is more useful than the place where the damage
    /// shows. But if a file is not a snapshot, or is shorter than its meta page (which has a checksum of its own)
    /// requires, that is reported.
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
