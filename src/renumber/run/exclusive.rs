//! Allows only one operation on a cluster at a time: an unfinished operation blocks other operations.

use crate::operation::{Journal, Listed, Lock, Status, Summary};
use crate::renumber::{plan, ranges};
use crate::session::{Failure, LiveEtcd, status_hint};
use crate::store::ReadStore;

/// Returns whether an operation must be resumed or rolled back before another operation can start. A rewrite that cannot be
/// rolled back is completely in effect, so it blocks no other operation.
pub fn is_open(summary: &Summary) -> bool {
    let is_in_force = summary.kind == ranges::KIND && summary.status == Status::Stuck;
    !summary.has_ended() && !is_in_force
}

/// Returns the unfinished renumberings of a cluster.
pub async fn unfinished(store: &dyn ReadStore, cluster: &str) -> Result<Vec<String>, Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let is_open = |listed: &Listed| listed.summary.kind == plan::KIND && is_open(&listed.summary);
    Ok(listed.into_iter().filter(is_open).map(|listed| listed.operation).collect())
}

/// Refuses to start an operation while another operation of any kind is unfinished.
pub async fn refuse_beside_another(store: &LiveEtcd, cluster: &str) -> Result<(), Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let Some(other) = listed.into_iter().find(|listed| is_open(&listed.summary)) else { return Ok(()) };
    let (id, kind) = (other.operation, other.summary.kind);
    let holder = Lock::holder(store, cluster).await?.filter(|held| held.claim.operation == id);
    let by = holder.map_or_else(String::new, |held| format!(": {held}"));
    Err(Failure::refused(format!("operation `{id}` ({kind}) of this cluster is under way{by}"))
        .hint(status_hint(&id)))
}
