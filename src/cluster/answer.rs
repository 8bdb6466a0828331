//! What comes back from an API server.

use std::time::Duration;

use time::OffsetDateTime;

/// What came back.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// HTTP status.
    pub(super) code: u16,
    pub(super) body: Vec<u8>,
    /// When the server asks to be asked again.
    pub(super) retry_after: Option<Duration>,
    /// The server's time (`Date`, RFC 9110, section 6.6.1), in whole seconds.
    pub(super) date: Option<OffsetDateTime>,
}
