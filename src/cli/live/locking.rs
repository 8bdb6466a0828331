//! One operation on a cluster at a time: taking the operation lock, and what an operation that has not ended prevents.

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::source::LiveEtcd;
use crate::operation::{Journal, Listed, Lock, Status, Summary};
use crate::renumber::{plan, ranges};
use crate::store::ReadStore;

/// How to take the operation lock.
#[derive(Debug, Clone, Args)]
pub struct LockArgs {
    /// Take the lock from a process that carried out the same operation and is known to be gone
    #[arg(long)]
    pub(super) take_over: bool,
    /// How long the lock outlives a process that was killed, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub(super) lock_ttl: u64,
}

/// Whether an operation is to be resumed or rolled back before another one starts. A rewrite that cannot be rolled back is
/// in force as a whole, so nothing waits for it.
pub fn is_open(summary: &Summary) -> bool {
    let is_in_force = summary.kind == ranges::KIND && summary.status == Status::Stuck;
    !summary.has_ended() && !is_in_force
}

/// Returns the renumberings of a cluster that have not come to an end.
pub async fn unfinished(store: &dyn ReadStore, cluster: &str) -> Result<Vec<String>, Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let is_open = |listed: &Listed| listed.summary.kind == plan::KIND && is_open(&listed.summary);
    Ok(listed.into_iter().filter(is_open).map(|listed| listed.operation).collect())
}

/// Refuses to start an operation while another one of any kind has not ended.
pub async fn refuse_beside_another(store: &LiveEtcd, cluster: &str) -> Result<(), Failure> {
    let listed = Journal::list(store, Some(cluster)).await?;
    let Some(other) = listed.into_iter().find(|listed| is_open(&listed.summary)) else { return Ok(()) };
    let (id, kind) = (other.operation, other.summary.kind);
    let holder = Lock::holder(store, cluster).await?.filter(|held| held.claim.operation == id);
    let by = holder.map_or_else(String::new, |held| format!(": {held}"));
    Err(Failure::refused(format!("operation `{id}` ({kind}) of this cluster is under way{by}"))
        .hint(format!("to continue it: `netsurgeon operation resume {id}`"))
        .hint(format!("to go back: `netsurgeon operation rollback {id}`")))
}

/// Refuses to resume or retire an operation that has ended; its journal stays as it is.
pub fn refuse_ended(operation: &str, summary: &Summary) -> Result<(), Failure> {
    let ended = match summary.status {
        Status::RolledBack => "is rolled back",
        Status::Done => "is done",
        _ => return Ok(()),
    };
    Err(Failure::refused(format!("operation `{operation}` {ended}: there is nothing to resume"))
        .hint(format!("to see what it did: `netsurgeon operation show {operation}`"))
        .hint(format!("to remove its journal: `netsurgeon operation forget {operation}`")))
}

/// Refuses an operation whose journal is being removed.
pub fn refuse_removing(operation: &str, summary: &Summary) -> Result<(), Failure> {
    if summary.status != Status::Removing {
        return Ok(());
    }
    Err(Failure::refused(format!("the journal of operation `{operation}` is being removed"))
        .hint(format!("to remove the rest: `netsurgeon operation forget {operation}`")))
}

/// Refuses to roll back what is past its point of no return.
pub fn refuse_done(operation: &str, summary: &Summary) -> Result<(), Failure> {
    if summary.status == Status::RolledBack || !summary.has_ended() {
        return Ok(());
    }
    Err(Failure::refused(format!("operation `{operation}` is done: it has passed its point of no return"))
        .hint("to go back, renumber to the old range: that is an operation of its own"))
}
