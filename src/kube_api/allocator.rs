//! Creates objects, and retries while the API server cannot allocate the Service address yet. There are three causes. After a new
//! ServiceCIDR is created, the allocator needs some milliseconds to load it. After the API server starts, the allocator must
//! first fill its caches. A process that has lost the operation lease can still be releasing the requested address.

use kube::api::PostParams;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Cluster, ClusterError};

/// Maximum time of the retries. An error after this time is final, because the range can actually be full.
const LAG: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

impl Cluster {
    /// Creates an object like [`Self::create`]. Retries while the allocator has not loaded the ranges yet, or while the address
    /// is still allocated.
    pub async fn create_once_allocated<K: DeserializeOwned>(
        &self,
        manifest: &Value,
    ) -> Result<K, ClusterError> {
        let started = Instant::now();
        loop {
            match self.connection.create(manifest, &PostParams::default()).await {
                Err(error) if is_behind(&error) && started.elapsed() < LAG => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }
}

/// Returns whether a create request can succeed later, because the API server cannot allocate the address yet. There are two
/// cases. In the first case, the allocator has not loaded a range yet: `ErrMismatchedNetwork`, `ErrNotReady`, or the last error
/// of a dual-write allocator. `ErrFull` belongs to this case, too, because an allocator without any range returns it
/// (`AllocateNextService`). In the second case, the address is not free yet: `ErrAllocated`
/// (`pkg/registry/core/service/ipallocator/{interfaces,cidrallocator}.go`, v1.36.3).
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
