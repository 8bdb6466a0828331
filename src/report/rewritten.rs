//! The page about a rewrite of a RangeAllocation.

use super::html::{Html, code, esc, moment};
use super::{begin, end, steps};
use crate::operation::Status;
use crate::renumber::ranges::Content;
use crate::renumber::run::rewrite::{OpenedRewrite, difference};

/// Largest number of rows in a table.
const MOST_ROWS: usize = 500;

/// Returns the page about a rewrite.
pub fn page(operation: &str, opened: &OpenedRewrite) -> String {
    let mut html = Html::default();
    begin(&mut html, operation);
    head(&mut html, operation, opened);
    changes(&mut html, opened);
    steps(&mut html, &opened.journal);
    end(&mut html, "the journal of the operation");
    html.0
}

/// Returns the CSS class and the explanation of a status.
fn verdict(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Running | Status::RollingBack | Status::Interrupted => {
            ("info", "It is running, or its process was killed: it can be resumed or rolled back.")
        }
        Status::Stopped => ("bad", "The transaction failed: it can be resumed or rolled back."),
        Status::Done => ("good", "The RangeAllocation was rewritten."),
        Status::RolledBack => {
            ("info", "This operation restored the old value of the RangeAllocation, or never changed it.")
        }
        Status::Stuck => (
            "bad",
            "The old value could not be restored, because addresses were allocated since: the rewrite stays in effect.",
        ),
        _ => ("info", ""),
    }
}

fn head(html: &mut Html, operation: &str, opened: &OpenedRewrite) {
    let (summary, plan) = (&opened.summary, &opened.plan);
    let (class, words) = verdict(summary.status);
    html.head(&summary.kind, operation, (class, summary.status.name()), words);
    let range = |content: &Content| code(&content.range);
    let rows = [
        ("RangeAllocation", code(&plan.work.name)),
        ("Range before", plan.work.before.as_ref().map_or_else(|| "–".to_string(), range)),
        ("Range after", range(&plan.work.after)),
        ("Services with an address outside", plan.work.outside.to_string()),
        ("Started by", esc(summary.holder.as_deref().unwrap_or("not known")).to_string()),
        ("Started", moment(summary.started)),
        ("Ended", summary.ended.map_or_else(|| "not yet".to_string(), moment)),
        ("Cluster", code(&plan.header.cluster)),
        ("Plan digest", code(&plan.digest)),
        ("Plan", format!("revision {}, {}", plan.header.base_revision, esc(&plan.header.tool))),
    ];
    html.facts(rows);
    html.add(format_args!("</header>"));
}

fn changes(html: &mut Html, opened: &OpenedRewrite) {
    let (allocated, freed) = difference(&opened.plan.work);
    for (id, heading, items) in [("allocated", "Newly allocated", &allocated), ("freed", "Freed", &freed)] {
        html.section(id, heading);
        let rows = items.iter().take(MOST_ROWS).map(|item| [code(item)]);
        html.table(id, ["Address or port"], rows);
        let more = items.len().saturating_sub(MOST_ROWS);
        if more > 0 {
            html.add(format_args!("<p class=\"faint\">and {more} more, not on this page</p>"));
        }
        html.end_section();
    }
}
