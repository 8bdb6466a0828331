//! The holder of an operation lease, as other clients read it.

use std::fmt;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Ambient as _, SystemAmbient};

/// The process that runs an operation. The operation lease stores this process as its holder. The journal stores the user and
/// host of the process that started the operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    /// User and host of the process: `USER@HOST`.
    pub holder: String,
    /// Id of the process on that host.
    pub pid: u32,
    /// Id of the operation.
    pub operation: String,
    /// Description of the operation for people, such as `renumber to 10.200.0.0/16`.
    pub purpose: String,
    /// Start time, in seconds since 1970.
    pub since: i64,
}

impl LeaseHolder {
    /// Returns the lease holder for this process. Its `USER@HOST` contains the user name from the environment, or the uid if the
    /// environment has no user name. The host is the host name (in a Pod, the name of the Pod).
    pub fn of_this_process(operation: &str, purpose: &str, now: i64) -> Self {
        let name = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let user = name
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            holder: format!("{user}@{host}"),
            pid: std::process::id(),
            operation: operation.to_string(),
            purpose: purpose.to_string(),
            since: now,
        }
    }
}

impl LeaseHolder {
    /// Returns operation, purpose and start as text, such as ``operation `ID` (renumber to 10.200.0.0/16) since
    /// 2027-01-15T08:00:00Z``.
    pub(super) fn matter(&self) -> String {
        let Self { operation, purpose, since, .. } = self;
        let since = instant(*since);
        let purpose = if purpose.is_empty() { String::new() } else { format!(" ({purpose})") };
        format!("operation `{operation}`{purpose} since {since}")
    }
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (pid {}) for {}", self.holder, self.pid, self.matter())
    }
}

/// Returns a time in seconds since 1970 as text (RFC 3339), such as `2027-01-15T08:00:00Z`.
pub fn instant(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|time| time.format(&Rfc3339).ok());
    time.unwrap_or_else(|| seconds.to_string())
}

/// Returns the current time in the form used in names: `YYYYMMDDTHHMMSSZ`.
pub fn moment() -> String {
    let format = time::macros::format_description!("[year][month][day]T[hour][minute][second]Z");
    OffsetDateTime::now_utc().format(&format).unwrap_or_default()
}

/// Returns a new operation id without the kind of operation: `YYYYMMDDTHHMMSSZ-xxxx`. Ids sort by time. The random end
/// distinguishes operations that start in the same second.
pub fn new_id() -> String {
    let unique: String = SystemAmbient.uid().chars().take(4).collect();
    format!("{}-{unique}", moment())
}
