//! `api-flags`: whether all API servers have the same Service range flag.

use std::collections::BTreeSet;

use super::{Renumber, unread_flags};
use crate::controlplane::{API_SERVER, Seen, in_pods};
use crate::inventory::unread_by;
use crate::preflight::{Check, Judged, Read, Source};
use crate::words::{counted, quoted_or};

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "api-flags",
    why: "API servers with different Service ranges overwrite each other's allocations",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Reads the Service ranges from the flags in the Pods of the API servers.
async fn read(input: &Renumber) -> Read<Judged> {
    let (cluster, servers) = (input.read.cluster()?, input.read.servers().await?);
    let mut seen = in_pods(cluster).await.map_err(|failure| unread_by(&failure))?;
    seen.retain(|one| one.component == API_SERVER);
    judge(&seen, servers.len())
}

/// Checks whether the flags of all API servers have the same Service range. `of`: number of API servers.
fn judge(seen: &[Seen], of: usize) -> Read<Judged> {
    let words = |range: &Option<String>| quoted_or(range.as_deref(), "no range");
    let ranges: BTreeSet<String> = seen.iter().map(|one| words(&one.range)).collect();
    if ranges.len() > 1 {
        let each: Vec<String> = seen.iter().map(|one| format!("{}: {}", one.at, words(&one.range))).collect();
        return Ok(Judged::fail(
            each.join(", "),
            "set the same range on each host: `netsurgeon controlplane set-range --to CIDR`",
        ));
    }
    if seen.len() < of || seen.is_empty() {
        return Err(unread_flags(seen.len(), of));
    }
    let ranges: Vec<String> = ranges.into_iter().collect();
    Ok(Judged::pass(format!(
        "{} with {}",
        counted(seen.len(), "API server", "API servers"),
        ranges.join(", ")
    )))
}
