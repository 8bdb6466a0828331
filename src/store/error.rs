//! Errors of a store, grouped by how to fix them.

use std::fmt;
use std::path::PathBuf;

use super::{Expected, Key, KeyRange, Revision};

/// Part of the message with which etcd refuses a write because its database is full (`ErrNoSpace`, `api/v3rpc/rpctypes/error.go`,
/// v3.6.16).
pub const NO_SPACE: &str = "database space exceeded";

/// How to make room in a full etcd. etcd refuses all writes until the alarm is disarmed, even if there is room again
/// (etcd's operations guide, "Space quota").
pub const MAKE_ROOM: &str = "make room in etcd: `etcdctl compact \"$(etcdctl endpoint status -w fields | sed -n 's/^\"Revision\" : //p' | \
                             head -n 1)\"`, then `etcdctl defrag --cluster`, or raise `--quota-backend-bytes`; then `etcdctl alarm \
                             disarm`";

/// Access for which the etcd user needs a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Permission to read these keys.
    Read(Vec<KeyRange>),
    /// Permission to read and write these keys. A write also needs the read permission, because its transaction compares the
    /// keys.
    Write(Vec<Key>),
    /// Permission of the role `root`, needed for members, alarms and snapshots.
    Administer(&'static str),
}

impl Access {
    /// Returns the permissions in the format of `etcdctl role grant-permission ROLE ...`; `None` if only the role `root` has the
    /// permission for this access.
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
        /// The time limit, in seconds.
        seconds: u64,
        /// Why the last attempt failed.
        reason: String,
    },
    /// etcd rejected the user, password, token or client certificate.
    #[error("etcd at `{endpoints}` rejected the credentials: {reason}")]
    Unauthenticated {
        /// The endpoints, as given.
        endpoints: String,
        /// Message from etcd.
        reason: String,
    },
    /// The user has no permission for the access.
    #[error("the etcd user is not allowed to {access} at `{endpoints}`: {reason}")]
    PermissionDenied {
        /// The endpoints, as given.
        endpoints: String,
        /// The refused access.
        access: Access,
        /// Message from etcd.
        reason: String,
    },
    /// A certificate, a key or another connection setting cannot be used.
    #[error("cannot use {what}: {reason}")]
    Configuration {
        /// The setting, for example ``the client certificate `FILE` ``.
        what: String,
        /// The reason.
        reason: String,
    },
    /// The requested revision is compacted.
    #[error("revision {asked} has been compacted; the oldest available revision is {oldest}")]
    Compacted {
        /// The requested revision.
        asked: Revision,
        /// The oldest available revision.
        oldest: Revision,
    },
    /// The requested revision does not exist yet.
    #[error("revision {asked} does not exist; the newest revision is {newest}")]
    FutureRevision {
        /// The requested revision.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// etcd answered with an error of another kind.
    #[error("etcd at `{endpoints}` failed: {reason}")]
    Server {
        /// The endpoints, as given.
        endpoints: String,
        /// Message from etcd.
        reason: String,
    },
    /// A value that is encrypted at rest cannot be decrypted, or a value cannot be encrypted.
    #[error("the given encryption configuration is not usable for `{key}`: {reason}")]
    Sealed {
        /// The key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// A file could not be opened or mapped.
    #[error("cannot read `{path}`: {source}", path = path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error from the operating system.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write `{path}`: {source}", path = path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error from the operating system.
        source: std::io::Error,
    },
    /// A file is not an etcd snapshot.
    #[error("`{path}` is not an etcd snapshot: {reason}", path = path.display())]
    NotASnapshot {
        /// Path of the file.
        path: PathBuf,
        /// Why the file is not a snapshot.
        reason: String,
    },
    /// A file is shorter than its structure requires.
    #[error("snapshot `{path}` is truncated: {reason}", path = path.display())]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Why the file is too short.
        reason: String,
    },
    /// The trailing SHA-256 does not match the content.
    #[error("snapshot `{path}` is damaged: its SHA-256 is {computed}, but the file has {stored}", path = path.display())]
    Checksum {
        /// Path of the file.
        path: PathBuf,
        /// SHA-256 of the content, in hexadecimal.
        computed: String,
        /// SHA-256 at the end of the file, in hexadecimal.
        stored: String,
    },
    /// The structure of a database file is broken.
    #[error("snapshot `{path}` is damaged at page {page}, byte {offset} of the file: {reason}", path = path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Id of the page.
        page: u64,
        /// Offset in bytes from the start of the file.
        offset: u64,
        /// What is wrong with the page.
        reason: String,
    },
}

impl StoreError {
    /// Sets the access that a [`Self::PermissionDenied`] reports as denied. Returns any other error unchanged.
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

/// Why a commit failed, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The state of a key differs from the expected state. Nothing was written.
    #[error("`{key}` was changed by another client: expected {expected}, found {found}", expected = describe(expected), found = found.as_ref().map_or_else(|| "no such key".to_string(), |r| format!("revision {r}")))]
    Conflict {
        /// The first key whose state differs.
        key: Key,
        /// The expected state.
        expected: Expected,
        /// Revision of the key's last change. For [`super::Guard::SameCreation`], the revision of the key's creation. `None` if
        /// the key does not exist.
        found: Option<Revision>,
    },
    /// The whole transaction was refused, for example because it is too large or contains a key twice. Nothing was written.
    #[error("the transaction was refused: {reason}")]
    Refused {
        /// The reason.
        reason: String,
    },
    /// The response was lost, so it is unknown whether the transaction was executed.
    #[error("the response to a write was lost, so its outcome is unknown: {reason}")]
    OutcomeUnknown {
        /// The reason.
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
