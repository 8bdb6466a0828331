//! Faults inside a file, before the file's name is known: the page reader works on bytes.

use std::path::Path;

use crate::store::StoreError;

/// A fault in the bytes of a database file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// They are not a database of etcd.
    NotASnapshot(String),
    /// They end too early.
    Truncated(String),
    /// Their structure is broken.
    Damaged {
        /// The page.
        page: u64,
        /// Offset in bytes from the start of the file.
        offset: u64,
        /// What was found and expected.
        reason: String,
    },
}

impl Fault {
    /// Shorthand for the most common fault.
    pub(super) fn damaged<T>(page: u64, offset: u64, reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Damaged { page, offset, reason: reason.into() })
    }

    /// Returns the fault as an error about this file.
    pub(super) fn at(self, path: &Path) -> StoreError {
        let path = path.to_path_buf();
        match self {
            Self::NotASnapshot(reason) => StoreError::NotASnapshot { path, reason },
            Self::Truncated(reason) => StoreError::Truncated { path, reason },
            Self::Damaged { page, offset, reason } => StoreError::Damaged { path, page, offset, reason },
        }
    }
}
