//! Opens the journal of a rewrite of a RangeAllocation.

use std::collections::BTreeSet;

use crate::ip::Item;
use crate::operation::{Journal, Plan, Summary};
use crate::renumber::ranges::{Content, KIND, RangeRewrite};
use crate::session::{Failure, LiveEtcd};

/// A rewrite of a RangeAllocation that has a journal.
pub struct OpenedRewrite {
    /// Plan of the rewrite.
    pub plan: Plan<RangeRewrite>,
    /// Journal of the rewrite.
    pub journal: Journal,
    /// Status of the rewrite.
    pub summary: Summary,
}

/// Opens the journal of a rewrite.
pub async fn open_rewrite(
    store: &LiveEtcd,
    cluster: &str,
    operation: &str,
) -> Result<OpenedRewrite, Failure> {
    let (journal, summary, text) = Journal::open(store, cluster, operation).await?;
    if summary.kind != KIND {
        let text = format!("operation `{operation}` is of kind `{}`, not `{KIND}`", summary.kind);
        return Err(Failure::refused(text));
    }
    let plan: Plan<RangeRewrite> = Plan::of_operation(&text, operation)?;
    plan.compiles_as(&summary.compiled, operation)?;
    Ok(OpenedRewrite { plan, journal, summary })
}

/// Returns the addresses or ports that a rewrite allocates, and the addresses or ports that it frees.
pub fn difference(work: &RangeRewrite) -> (Vec<String>, Vec<String>) {
    let before = work.before.as_ref().map(Content::marked).unwrap_or_default();
    let after = work.after.marked();
    let only = |a: &BTreeSet<Item>, b: &BTreeSet<Item>| a.difference(b).map(ToString::to_string).collect();
    (only(&after, &before), only(&before, &after))
}
