//! Answers of an API server.

use std::time::Duration;

use time::OffsetDateTime;

/// An HTTP answer of an API server.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// HTTP status.
    pub(super) code: u16,
    pub(super) body: Vec<u8>,
    /// Time to wait before a retry, as requested by the server.
    pub(super) retry_after: Option<Duration>,
    /// Time of the server (`Date`, RFC 9110, section 6.6.1), in whole seconds.
    pub(super) date: Option<OffsetDateTime>,
    /// Warnings of the server.
    pub(super) warnings: Vec<String>,
}
