//! Answers of an API server.

use std::time::Duration;

use time::OffsetDateTime;

/// An answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// HTTP status.
    pub(super) code: u16,
    pub(super) body: Vec<u8>,
    /// How long the server asks to wait before a retry.
    pub(super) retry_after: Option<Duration>,
    /// The server's time (`Date`, RFC 9110, section 6.6.1), in whole seconds.
    pub(super) date: Option<OffsetDateTime>,
}
