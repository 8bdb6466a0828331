//! Faults in the content of a file. They do not contain a file name, because the page reader works on bytes.

use std::path::Path;

use crate::store::StoreError;

/// A fault in the bytes of a database file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SnapshotFault {
    /// The bytes are not a database of etcd.
    NotASnapshot(String),
    /// The bytes end too early.
    Truncated(String),
    /// The structure of the database is broken.
    Damaged {
        /// Id of the page.
        page: u64,
        /// Offset in bytes from the start of the file.
        offset: u64,
        /// What is wrong with the page.
        reason: String,
    },
}

impl SnapshotFault {
    /// Returns [`Self::Damaged`] as an error.
    pub(super) fn damaged<T>(page: u64, offset: u64, reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Damaged { page, offset, reason: reason.into() })
    }

    /// Returns the error for this fault in a file.
    pub(super) fn at(self, path: &Path) -> StoreError {
        let path = path.to_path_buf();
        match self {
            Self::NotASnapshot(reason) => StoreError::NotASnapshot { path, reason },
            Self::Truncated(reason) => StoreError::Truncated { path, reason },
            Self::Damaged { page, offset, reason } => StoreError::Damaged { path, page, offset, reason },
        }
    }
}
