//! The renumberings of a cluster that have not ended.

use crate::operation::{Journal, Listed};
use crate::renumber::plan::KIND;
use crate::session::Failure;
use crate::store::ReadStore;

/// Returns the unfinished renumberings of a cluster.
pub async fn unfinished(store: &dyn ReadStore, cluster: &str) -> Result<Vec<String>, Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let is_open = |listed: &Listed| listed.summary.kind == KIND && listed.summary.is_under_way();
    Ok(listed.into_iter().filter(is_open).map(|listed| listed.operation).collect())
}
