//! The API servers that run, as far as etcd shows it. A session without the API must not change what a running API server uses.

use std::ops::ControlFlow;

use super::failure::Failure;
use crate::store::{KeyRange, ReadStore, Record};
use crate::survey::Layout;

/// Returns the addresses of the API servers that have a lease in etcd. Each API server renews its own lease, which expires 15 s
/// after the API server ends (`DefaultEndpointReconcilerTTL`, `pkg/controlplane/instance.go`, v1.36.3).
pub(super) async fn alive(store: &dyn ReadStore, layout: &Layout) -> Result<Vec<String>, Failure> {
    let prefix = layout.api_server_leases();
    let mut found = Vec::new();
    let mut visit = |record: Record<'_>| {
        found.push(String::from_utf8_lossy(record.key.get(prefix.len()..).unwrap_or_default()).into_owned());
        ControlFlow::Continue(())
    };
    store.scan(&[KeyRange::prefix(prefix.clone())], None, &mut visit).await?;
    Ok(found)
}
