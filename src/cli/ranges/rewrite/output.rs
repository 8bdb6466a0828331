//! The output of a rewrite of a RangeAllocation.

use serde::Serialize;

use crate::cli::Context;
use crate::cli::output::{Output, Tone, counted};
use crate::renumber::rewrite::RangeRewrite;
use crate::session::Failure;

/// Maximum number of addresses or ports in each of the two lists of the text: allocated and freed.
const SHOWN: usize = 20;

/// The output of `ranges rewrite -o json`.
#[derive(Serialize)]
struct Rewritten<'a> {
    version: u8,
    /// `planned`, `rewritten` or `undone`.
    status: &'static str,
    operation: Option<&'a str>,
    name: &'a str,
    range_before: Option<&'a str>,
    range_after: &'a str,
    /// Addresses or ports that become allocated.
    allocated: Vec<String>,
    /// Addresses or ports that become free.
    freed: Vec<String>,
    /// Number of Services with an address outside the range.
    outside: usize,
}

pub(super) fn show(
    context: &Context,
    work: &RangeRewrite,
    status: &'static str,
    operation: Option<&str>,
) -> Result<(), Failure> {
    let (allocated, freed) = work.difference();
    let value = Rewritten {
        version: 1,
        status,
        operation,
        name: &work.name,
        range_before: work.before.as_ref().map(|content| content.range.as_str()),
        range_after: &work.after.range,
        allocated,
        freed,
        outside: work.outside,
    };
    context.output.data(&value, |output| describe(output, work))
}

pub(super) fn describe(output: &Output, work: &RangeRewrite) -> String {
    let (allocated, freed) = work.difference();
    let before = work.before.as_ref().map_or("(none)", |content| content.range.as_str());
    let mut lines = vec![format!("RangeAllocation {}", work.name)];
    if before == work.after.range {
        lines.push(format!("  range  {before}, unchanged"));
    } else {
        lines.push(format!("  range  {before} -> {}", work.after.range));
    }
    lines.push(format!(
        "  bits   {} allocated, {} free",
        counted(allocated.len(), "becomes", "become"),
        counted(freed.len(), "becomes", "become")
    ));
    if work.outside > 0 {
        let services = counted(work.outside, "Service has", "Services have");
        lines.push(output.paint(Tone::Careful, &format!("  {services} an address outside that range")));
    }
    for (sign, tone, items) in [("+", Tone::Good, &allocated), ("-", Tone::Bad, &freed)] {
        for item in items.iter().take(SHOWN) {
            lines.push(output.paint(tone, &format!("  {sign} {item}")));
        }
        if items.len() > SHOWN {
            lines.push(format!(
                "  {sign} and {} more (`-o json` shows all)",
                items.len().saturating_sub(SHOWN)
            ));
        }
    }
    lines.join("\n")
}
