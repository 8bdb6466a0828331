//! Remarks about a new range that shares addresses with the old range: what changes for Services that keep their address, and
//! whether the renumbering is needed at all.

use serde_json::json;

use crate::cli::output::counted;
use crate::ip::as_flag;
use crate::renumber::Renumbering;
use crate::survey::Era;

/// Largest number of Services that a remark names.
const MOST_NAMED: usize = 10;

/// Returns the remarks; empty if the ranges share no address.
pub(super) fn remarks(work: &Renumbering) -> Vec<String> {
    if !work.is_overlapping() {
        return Vec::new();
    }
    let kept = counted(work.stays, "Service keeps its address", "Services keep their addresses");
    let mut lines = vec![format!("{kept}: netsurgeon writes nothing to them")];
    lines.extend((work.flag != work.flag_before).then(|| restarts(work)));
    lines.push(match work.kubernetes() {
        None => "certificates stay as they are: `default/kubernetes` keeps its address".to_string(),
        Some(moved) => format!(
            "every API server needs a certificate that also covers `{}`, the new address of `default/kubernetes`",
            moved.new_address
        ),
    });
    lines.extend(out_of_band(work));
    if !work.moves.is_empty() {
        let old: Vec<String> = work.searched_ranges().iter().map(|range| format!("--old {range}")).collect();
        lines.push(format!(
            "to find uses of the addresses that go away: `netsurgeon audit {}`",
            old.join(" ")
        ));
    }
    lines.extend(enough(work));
    lines
}

fn restarts(work: &Renumbering) -> String {
    let stored = match work.era {
        Era::Objects => "then ServiceCIDR `kubernetes`",
        Era::DualWrite => "then the RangeAllocation and ServiceCIDR `kubernetes`",
        Era::Bitmap => "and each of them rewrites the RangeAllocation",
    };
    let (before, after) = (as_flag(&work.flag_before), as_flag(&work.flag));
    format!("`{before}` becomes `{after}`: first the flag of every API server, which restarts it, {stored}")
}

/// Names the Services whose address leaves the static band.
fn out_of_band(work: &Renumbering) -> Option<String> {
    let all = &work.out_of_band;
    let named: Vec<&str> = all.iter().take(MOST_NAMED).map(String::as_str).collect();
    let more = all.len().saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!all.is_empty()).then(|| {
        format!(
            "{} an address that leaves the static band, so the allocator can give it to another Service while its own is \
             recreated: {}{more}",
            counted(all.len(), "Service keeps", "Services keep"),
            named.join(", ")
        )
    })
}

/// If the cluster only gets more addresses, returns the command that does this without a renumbering. In the bitmap era, there is no
/// such command.
fn enough(work: &Renumbering) -> Option<String> {
    let has_range = work.others.iter().any(|other| other.ranges.contains(&work.to));
    if !work.is_growth() || work.era == Era::Bitmap || work.from.contains(&work.to) || has_range {
        return None;
    }
    let name = format!("services-{}", work.to.to_string().replace(['.', ':', '/'], "-").replace("--", "-"));
    let manifest = json!({
        "apiVersion": work.api_version, "kind": "ServiceCIDR",
        "metadata": {"name": name}, "spec": {"cidrs": [work.to]},
    });
    Some(format!(
        "for more addresses alone, a second ServiceCIDR is enough, and restarts nothing: `kubectl apply -f - <<< '{manifest}'`"
    ))
}
