//! Making objects while an API server's allocator of Service addresses is not as far as the rest of it: after a new
//! ServiceCIDR for milliseconds, after a start until its caches are filled. Or while the address that is asked for is on
//! its way back: a process that has lost its lock takes back what it had asked for.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Cluster, ClusterError};

/// How long it may be behind. Afterwards what it says is taken for the truth, which it is when a range is full.
const LAG: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

impl Cluster {
    /// Makes an object as [`Self::create`] does, and tries again while the allocator does not know the ranges yet, or has
    /// given its address away.
    pub async fn create_once_allocated<K: DeserializeOwned>(
        &self,
        manifest: &Value,
    ) -> Result<K, ClusterError> {
        let begun = Instant::now();
        loop {
            match self.connection.create(manifest, false).await {
                Err(error) if is_behind(&error) && begun.elapsed() < LAG => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }
}

/// Whether an allocator may not know a range yet: `ErrMismatchedNetwork`, `ErrNotReady`, what the last resort of a
/// dual-write allocator says, or `ErrFull`, which an allocator without any range says, too (`AllocateNextService`); or an
/// address not yet to be free: `ErrAllocated` (`pkg/registry/core/service/ipallocator/{interfaces,cidrallocator}.go`,
/// v1.36.3).
fn is_behind(error: &ClusterError) -> bool {
    let words = [
        "does not match the current range",
        "not ready",
        "not in the valid range",
        "range is full",
        "already allocated",
    ];
    let (ClusterError::Invalid { reason, .. } | ClusterError::Server { reason, .. }) = error else {
        return false;
    };
    words.iter().any(|word| reason.contains(word))
}
