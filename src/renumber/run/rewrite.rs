//! Opens the journal of a rewrite of a RangeAllocation.

use std::collections::BTreeSet;

use crate::ip::Item;
use crate::operation::EtcdRecord;
use crate::renumber::ranges::{Content, RangeRewrite};
use crate::session::{Failure, LiveEtcd, Recorded};

/// Opens the journal of a rewrite.
pub async fn open_rewrite(
    store: &LiveEtcd,
    cluster: &str,
    operation: &str,
) -> Result<Recorded<RangeRewrite>, Failure> {
    Recorded::open_to_change(operation, &EtcdRecord::new(store, cluster, operation)).await
}

/// Returns the addresses or ports that a rewrite allocates, and the addresses or ports that it frees.
pub fn difference(work: &RangeRewrite) -> (Vec<String>, Vec<String>) {
    let before = work.before.as_ref().map(Content::marked).unwrap_or_default();
    let after = work.after.marked();
    let only = |a: &BTreeSet<Item>, b: &BTreeSet<Item>| a.difference(b).map(ToString::to_string).collect();
    (only(&after, &before), only(&before, &after))
}
