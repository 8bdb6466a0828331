//! What each kind of operation does in its own way.

use async_trait::async_trait;

use super::{ResumeArgs, UndoArgs};
use crate::cli::report::ReportArgs;
use crate::cli::{Context, Outcome};
use crate::session::Failure;

/// What is done in another way for each kind.
#[async_trait(?Send)]
pub(super) trait OfKind {
    /// Continues an operation where its journal says.
    async fn resume(&self, context: &Context, args: &ResumeArgs) -> Result<Outcome, Failure>;

    /// Undoes an operation.
    async fn roll_back(&self, context: &Context, args: &UndoArgs) -> Result<Outcome, Failure>;

    /// Writes a page about an operation.
    async fn report(&self, context: &Context, args: &ReportArgs) -> Result<Outcome, Failure>;
}
