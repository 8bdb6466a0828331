//! The commands that are different for each kind of operation.

use async_trait::async_trait;

use super::{ResumeArgs, UndoArgs};
use crate::cli::report::ReportArgs;
use crate::cli::{Context, Outcome};
use crate::operation::Status;
use crate::session::Failure;
use crate::session::ledger_place::FoundOperation;
use crate::survey::Layout;

/// How an operation continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Next {
    /// The command that continues the operation. `None` while a process runs the operation, and after it has ended.
    pub command: Option<String>,
    /// The command that rolls the operation back. `None` if this is not possible now.
    pub rollback: Option<String>,
    /// The command that continues without the subjects that were skipped. `None` if no subject was skipped, or if this is not
    /// possible now.
    pub give_up: Option<String>,
    /// The manual step that the operation waits for.
    pub manual_step: Option<String>,
}

impl Next {
    /// Returns a line for each command, with its purpose.
    pub fn lines(&self) -> Vec<String> {
        let with = |purpose: &str, command: &Option<String>| {
            command.as_ref().map(|command| format!("{purpose}: `{command}`"))
        };
        let lines = [
            with("next", &self.command),
            with("to go back", &self.rollback),
            with(
                "to continue without the subjects that were skipped, and leave them as they are",
                &self.give_up,
            ),
        ];
        lines.into_iter().flatten().collect()
    }
}

/// The commands of one kind of operation.
#[async_trait(?Send)]
pub(super) trait OfKind {
    /// Returns how to continue an operation with this status. The result is empty if this version cannot compile the plan of the
    /// operation. `layout` is the layout of the API server's keys in etcd.
    async fn next(&self, found: &FoundOperation, status: Status, layout: &Layout) -> Next;

    /// Continues an operation from its journal.
    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure>;

    /// Rolls an operation back.
    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure>;

    /// Fails if the journal of an operation that has ended is still needed.
    async fn refuse_forget(&self, _found: &FoundOperation) -> Result<(), Failure> {
        Ok(())
    }

    /// Writes a report about an operation as an HTML page.
    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure>;
}
