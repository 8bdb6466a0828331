//! Rejects operations that cannot be resumed or rolled back in their current state.

use std::path::Path;

use super::Failure;
use crate::operation::{Status, Summary};
use crate::words::pasted;

/// Fails if the operation has ended, because it can no longer be resumed or retired. Its journal stays unchanged.
pub fn refuse_ended(operation: &str, summary: &Summary) -> Result<(), Failure> {
    let ended = match summary.status {
        Status::RolledBack => "was rolled back",
        Status::Done => "is done",
        _ => return Ok(()),
    };
    Err(Failure::refused(format!("operation `{operation}` {ended}: there is nothing to resume"))
        .hint(format!("to see what it did: `netsurgeon operation show {operation}`"))
        .hint(format!("to remove its journal: `netsurgeon operation forget {operation}`")))
}

/// Fails if the journal of an operation is being deleted.
pub fn refuse_removing(operation: &str, summary: &Summary) -> Result<(), Failure> {
    if summary.status != Status::Removing {
        return Ok(());
    }
    Err(Failure::refused(format!("the journal of operation `{operation}` is being deleted")).hint(format!(
        "to remove the remaining part of the journal: `netsurgeon operation forget {operation}`"
    )))
}

/// Returns the options that give these subjects up, for a shell. Each option has a leading space.
pub fn give_up<'s>(subjects: impl Iterator<Item = &'s str>) -> String {
    subjects.map(|subject| [" --give-up ", &pasted(Path::new(subject))].concat()).collect()
}

/// Returns the hint about an operation whose process holds the lease: that process can have been killed.
pub fn if_killed(operation: &str) -> String {
    format!(
        "if that process was killed: `netsurgeon operation resume {operation}` waits until its lease expires, then continues"
    )
}

/// Returns the hint about an operation that has not ended. The hint refers to `operation show`, because only this command can
/// determine what is possible now. For example, the operation may be past its point of no return, or a process may be running it.
pub fn status_hint(operation: &str) -> String {
    format!("to see its status and what is possible now: `netsurgeon operation show {operation}`")
}
