//! Checks the SHA-256 of a file. The check is the slowest part of opening a file, so it runs in its own thread. A reader waits
//! for the result only at the end.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::fault::SnapshotFault;
use super::file::SnapshotFile;
use crate::store::StoreError;

/// The verification of a checksum, in progress or finished. The first reader waits for the thread that verifies it.
#[derive(Debug)]
pub(super) struct Checksum(LazyLock<Outcome, Join>);

type Join = Box<dyn FnOnce() -> Outcome + Send>;

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// The file has no checksum, or its checksum is correct.
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
            return Self(LazyLock::new(Box::new(|| Outcome::Passed)));
        }
        let own = Arc::clone(file);
        let thread = std::thread::Builder::new().name(format!("sha256 {}", path.display()));
        let join: Join = if let Ok(handle) = thread.spawn(move || compare(&own)) {
            let failed = "the thread that computes the checksum failed";
            Box::new(move || handle.join().unwrap_or_else(|_| Outcome::Failed(failed.to_string())))
        } else {
            // The thread could not be started, so the checksum is computed in this thread.
            let outcome = compare(file);
            Box::new(move || outcome)
        };
        Self(LazyLock::new(join))
    }

    /// Waits for the result of the check. Fails with [`StoreError::Checksum`] if the checksum is wrong.
    pub(super) fn check(&self, path: &Path) -> Result<(), StoreError> {
        match &*self.0 {
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

    /// Returns the error to report for a fault in the file. If the structure is damaged and the checksum is also wrong, returns
    /// only the checksum error, which is more useful. If the file is truncated or not a snapshot, returns an error for the fault
    /// itself. The meta page, which shows that a file is truncated, has its own checksum.
    pub(super) fn explain(&self, fault: SnapshotFault, path: &Path) -> StoreError {
        match (&fault, self.check(path)) {
            (SnapshotFault::Damaged { .. }, Err(error)) => error,
            _ => fault.at(path),
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
