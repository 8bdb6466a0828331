//! Why an attempt of an agent failed.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// The address refused the connection, or answered that the port is closed.
    Refused,
    /// No answer arrived.
    NoAnswer {
        /// The time that was waited, in milliseconds.
        millis: u64,
    },
    /// A router, or this host, answered that there is no path.
    Unreachable {
        /// The message of the operating system.
        reason: String,
    },
    /// The connection ended too early.
    Broken {
        /// What was received until then, or the message of the operating system.
        reason: String,
    },
    /// The answer is not that of an agent of this test.
    Stranger {
        /// The start of the answer.
        answer: String,
    },
    /// The question does not apply here, for example because there is no name server.
    Impossible {
        /// The reason.
        reason: String,
    },
}

impl Fault {
    /// Returns the fault that an error of the operating system means.
    pub(super) fn of(error: &io::Error) -> Self {
        let reason = error.to_string();
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED) => Self::Refused,
            Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS | Errno::PERM) => {
                Self::Unreachable { reason }
            }
            // What a blackhole route answers to a sender of its own node (ip-route(8)).
            Some(Errno::INVAL) => Self::Unreachable { reason: format!("a blackhole route ({reason})") },
            _ => Self::Broken { reason },
        }
    }

    /// Returns the fault of an attempt that ran out of time.
    pub(super) fn silence(limit: Duration) -> Self {
        Self::NoAnswer { millis: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::NoAnswer { millis } => write!(f, "no answer within {millis} ms"),
            Self::Unreachable { reason } => write!(f, "unreachable: {reason}"),
            Self::Broken { reason } => write!(f, "the connection broke: {reason}"),
            Self::Stranger { answer } => write!(f, "another program answered: {answer:?}"),
            Self::Impossible { reason } => f.write_str(reason),
        }
    }
}

/// The time for one attempt: less than the second after which the kernel sends a lost SYN again (RFC 6298, section 2), so that a
/// lost packet does not look like a slow answer.
const ATTEMPT: Duration = Duration::from_millis(900);
/// The time for the last one of several attempts: an agent on a busy node answers late.
const LAST_ATTEMPT: Duration = Duration::from_secs(3);

/// Repeats an attempt until one succeeds; returns its result and its number, from 1. The fault is that of the last attempt.
pub(super) async fn repeated<T, F>(tries: u8, attempt: impl Fn() -> F) -> Result<(T, u8), Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    for number in 1..tries {
        if let Ok(found) = within(ATTEMPT, attempt()).await {
            return Ok((found, number));
        }
    }
    let limit = if tries > 1 { LAST_ATTEMPT } else { ATTEMPT };
    within(limit, attempt()).await.map(|found| (found, tries))
}

/// Runs an attempt with a time limit.
pub(super) async fn within<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::time::timeout(limit, attempt).await.unwrap_or_else(|_| Err(Fault::silence(limit)))
}
