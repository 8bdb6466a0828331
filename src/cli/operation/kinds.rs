//! The kinds of operation: each is resumed, rolled back and reported in its own way. This is the only place that tells them
//! apart; an operation of a new kind is one more entry here.

use async_trait::async_trait;

use super::renumbering::Renumberings;
use super::rewriting::RangeRewrites;
use super::{ResumeArgs, UndoArgs};
use crate::cli::failure::Failure;
use crate::cli::live::refuse_ended;
use crate::cli::report::ReportArgs;
use crate::cli::source::EtcdArgs;
use crate::cli::{Context, Outcome};
use crate::operation::{Journal, Listed};
use crate::renumber::{plan, ranges};
use crate::store::ReadStore;

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

/// Returns what carries out operations of a kind.
fn of_kind(kind: &str) -> Option<&'static dyn OfKind> {
    match kind {
        plan::KIND => Some(&Renumberings),
        ranges::KIND => Some(&RangeRewrites),
        _ => None,
    }
}

/// Finds an operation by its id, of whatever cluster.
pub(super) async fn find(store: &dyn ReadStore, id: &str) -> Result<Listed, Failure> {
    let found = Journal::list(store, None).await?.into_iter().find(|listed| listed.operation == id);
    found.ok_or_else(|| {
        Failure::refused(format!("there is no operation `{id}`"))
            .hint("`netsurgeon operation list` lists all operations of this etcd")
    })
}

/// Returns what resumes the operation with an id; refuses one that has ended.
pub(super) async fn to_resume(etcd: &EtcdArgs, id: &str) -> Result<&'static dyn OfKind, Failure> {
    let listed = find(etcd.connect().await?.as_ref(), id).await?;
    refuse_ended(id, &listed.summary)?;
    known(&listed)
}

/// Returns what carries out the operation with an id.
pub(super) async fn of(etcd: &EtcdArgs, id: &str) -> Result<&'static dyn OfKind, Failure> {
    known(&find(etcd.connect().await?.as_ref(), id).await?)
}

fn known(listed: &Listed) -> Result<&'static dyn OfKind, Failure> {
    let (id, kind) = (&listed.operation, &listed.summary.kind);
    of_kind(kind).ok_or_else(|| {
        Failure::refused(format!("operation `{id}` is of kind `{kind}`, which this version does not know"))
            .hint("use the version of netsurgeon that started it")
    })
}
