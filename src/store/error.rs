//! The errors of a store, by what the reader of the message can do about them.

use std::fmt;
use std::path::PathBuf;

use super::{Expected, Key, KeyRange, Revision};

/// The access for which a user of etcd needs a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// To read these keys.
    Read(Vec<KeyRange>),
    /// To write these keys, and to read them: a transaction compares them.
    Write(Vec<Key>),
    /// What only the role `root` can do: members, alarms, a snapshot.
    Administer(&'static str),
}

impl Access {
    /// Returns the permission in the form of `etcdctl role grant-permission ROLE ...`; `None` if only the role `root` has it.
    pub fn grants(&self) -> Option<Vec<String>> {
        match self {
            Self::Read(ranges) => Some(ranges.iter().map(|range| grant("read", range)).collect()),
            Self::Write(keys) => {
                Some(keys.iter().map(|key| grant("readwrite", &KeyRange::exact(key))).collect())
            }
            Self::Administer(_) => None,
        }
    }
}

fn grant(kind: &str, range: &KeyRange) -> String {
    let start = range.start();
    if *range == KeyRange::exact(start) {
        format!("{kind} {start}")
    } else if start.as_bytes().is_empty() {
        format!("--prefix=true {kind} ''")
    } else {
        format!("--prefix=true {kind} {start}")
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, first, count) = match self {
            Self::Read(ranges) => ("read", ranges.first().map(KeyRange::start), ranges.len()),
            Self::Write(keys) => ("write", keys.first(), keys.len()),
            Self::Administer(what) => return f.write_str(what),
        };
        match first {
            Some(key) => write!(f, "{verb} `{key}`")?,
            None => write!(f, "{verb} this")?,
        }
        match count.saturating_sub(1) {
            0 => Ok(()),
            1 => f.write_str(" or 1 other key"),
            more => write!(f, " or one of {more} other keys"),
        }
    }
}

/// Why a store cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No endpoint answered within the time limit.
    #[error("no etcd endpoint of `{endpoints}` answered within {seconds} s: {reason}")]
    Unreachable {
        /// The endpoints, as given.
        endpoints: String,
        /// The time limit.
        seconds: u64,
        /// The last failure.
        reason: String,
    },
    /// The server rejected user, password, token or client certificate.
    #[error("etcd at `{endpoints}` rejected the credentials: {reason}")]
    Unauthenticated {
        /// The endpoints, as given.
        endpoints: String,
        /// The server's message.
        reason: String,
    },
    /// The user is not allowed to read or write this.
    #[error("the etcd user is not allowed to {access} at `{endpoints}`: {reason}")]
    PermissionDenied {
        /// The endpoints, as given.
        endpoints: String,
        /// The refused access.
        access: Access,
        /// The server's message.
        reason: String,
    },
    /// A certificate, key or other connection setting cannot be used.
    #[error("cannot use {what}: {reason}")]
    Configuration {
        /// The setting, as in `the client certificate `FILE``.
        what: String,
        /// Why.
        reason: String,
    },
    /// The requested revision is compacted.
    #[error("revision {asked} has been compacted; the oldest available revision is {oldest}")]
    Compacted {
        /// The requested revision.
        asked: Revision,
        /// The oldest one available.
        oldest: Revision,
    },
    /// The requested revision does not exist yet.
    #[error("revision {asked} does not exist; the newest revision is {newest}")]
    FutureRevision {
        /// The requested revision.
        asked: Revision,
        /// The newest one.
        newest: Revision,
    },
    /// The server answered with another failure.
    #[error("etcd at `{endpoints}` failed: {reason}")]
    Server {
        /// The endpoints, as given.
        endpoints: String,
        /// The server's message.
        reason: String,
    },
    /// A value that is encrypted at rest cannot be decrypted, or a value cannot be encrypted.
    #[error("the given encryption configuration is not usable for `{key}`: {reason}")]
    Sealed {
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
    /// A file could not be opened or mapped.
    #[error("cannot read `{path}`: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's message.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write `{path}`: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's message.
        source: std::io::Error,
    },
    /// A file is not an etcd snapshot.
    #[error("`{path}` is not an etcd snapshot: {reason}", path = path.display())]
    NotASnapshot {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A file is shorter than its structure requires.
    #[error("snapshot `{path}` is truncated: {reason}", path = path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What was found and expected.
        reason: String,
    },
    /// The trailing SHA-256 does not match the content.
    #[error("snapshot `{path}` is damaged: its SHA-256 is {computed}, but the file has {stored}", path = path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Hexadecimal, of the content.
        computed: String,
        /// Hexadecimal, from the end of the file.
        stored: String,
    },
    /// The structure of a database file is broken.
    #[error("snapshot `{path}` is damaged at page {page}, byte {offset} of the file: {reason}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The page.
        page: u64,
        /// Offset in bytes from the start of the file.
        offset: u64,
        /// What was found and expected.
        reason: String,
    },
}

impl StoreError {
    /// Returns the same error; a missing permission gets the access that it is missing for.
    #[must_use]
    pub fn denied(self, access: impl FnOnce() -> Access) -> Self {
        match self {
            Self::PermissionDenied { endpoints, reason, .. } => {
                Self::PermissionDenied { endpoints, access: access(), reason }
            }
            other => other,
        }
    }
}

/// Why a commit did not happen, or possibly did not.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// An expectation did not hold. Nothing was written.
    #[error("`{key}` was changed by another client: expected {expected}, found {found}", expected = describe(expected), found = found.as_ref().map_or_else(|| "no such key".to_string(), |r| format!("revision {r}")))]
    Conflict {
        /// The first key that differs.
        key: Key,
        /// The expectation.
        expected: Expected,
        /// The key's present revision (last change, or creation for a creation precondition), `None` if it is absent.
        found: Option<Revision>,
    },
    /// The transaction was refused as a whole: too large, no space, a key twice. Nothing was written.
    #[error("the transaction was refused: {reason}")]
    Refused {
        /// The reason.
        reason: String,
    },
    /// The response was lost; it is unknown whether the transaction happened.
    #[error("the response to a write was lost, so its outcome is unknown: {reason}")]
    OutcomeUnknown {
        /// The failure.
        reason: String,
    },
    /// The store failed before anything was written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn describe(expected: &Expected) -> String {
    match expected {
        Expected::Absent => "no such key".to_string(),
        Expected::At(revision) => format!("revision {revision}"),
    }
}
