//! The commands that differ between the kinds of operation.

use async_trait::async_trait;

use super::{ResumeArgs, UndoArgs};
use crate::cli::report::ReportArgs;
use crate::cli::{Context, Outcome};
use crate::session::Failure;

/// The commands of one kind of operation.
#[async_trait(?Send)]
pub(super) trait OfKind {
    /// Continues an operation from its journal.
    async fn resume(&self, context: &Context, id: &str, args: &ResumeArgs) -> Result<Outcome, Failure>;

    /// Rolls an operation back.
    async fn roll_back(&self, context: &Context, id: &str, args: &UndoArgs) -> Result<Outcome, Failure>;

    /// Writes a page about an operation.
    async fn report(&self, context: &Context, id: &str, args: &ReportArgs) -> Result<Outcome, Failure>;
}
