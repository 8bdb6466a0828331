//! The page about a rewrite of a RangeAllocation.

use maud::{Markup, Render, html};

use super::html::{code, section, table};
use super::page::KindSections;
use crate::operation::Status;
use crate::renumber::rewrite::{Content, RangeRewrite};
use crate::session::Recorded;

/// Largest number of rows in a table.
const MOST_ROWS: usize = 500;

/// Returns the page about a rewrite.
pub fn page(opened: &Recorded<RangeRewrite>) -> String {
    let (class, words) = verdict(opened.summary.status);
    let verdict = (class, opened.summary.status.name(), words.to_string());
    let kind = KindSections { verdict, facts: facts(&opened.plan.work), sections: changes(opened) };
    super::page::page(opened, false, kind)
}

/// Returns the CSS class and the explanation of a status.
fn verdict(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Running | Status::RollingBack | Status::Interrupted => (
            "info",
            "The operation is running, or its process was killed. You can resume it or roll it back.",
        ),
        Status::Stopped => ("bad", "The transaction failed: it can be resumed or rolled back."),
        Status::Done => ("good", "The RangeAllocation was rewritten."),
        Status::RolledBack => {
            ("info", "This operation restored the old value of the RangeAllocation, or never changed it.")
        }
        Status::Stuck => (
            "bad",
            "The old value could not be restored, because addresses were allocated after the rewrite. The rewrite stays in effect.",
        ),
        _ => ("info", ""),
    }
}

fn facts(work: &RangeRewrite) -> Vec<(&'static str, Markup)> {
    let range = |content: &Content| code(&content.range);
    vec![
        ("RangeAllocation", code(&work.name)),
        ("Range before", work.before.as_ref().map_or_else(|| "–".render(), range)),
        ("Range after", range(&work.after)),
        ("Services with an address outside the range", work.outside.render()),
    ]
}

fn changes(opened: &Recorded<RangeRewrite>) -> Markup {
    let (allocated, freed) = opened.plan.work.difference();
    let changes = |id, heading, items: &[String]| {
        let rows = items.iter().take(MOST_ROWS).map(|item| [code(item)]);
        let more = items.len().saturating_sub(MOST_ROWS);
        let content = html! {
            (table(id, ["Address or port"], rows))
            @if more > 0 { p.faint { "and " (more) " more, not on this page" } }
        };
        section(id, heading, &content)
    };
    html! { (changes("allocated", "Newly allocated", &allocated)) (changes("freed", "Freed", &freed)) }
}
