//! The page about an operation of any kind. A kind adds its facts and its sections.

use maud::{Markup, Render, html};

use super::html::{code, document, facts, header, moment};
use super::{runs, steps};
use crate::session::Recorded;

/// What a kind of operation adds to the page.
pub(super) struct KindSections {
    /// CSS class of the status, its name, and the text that explains it.
    pub verdict: (&'static str, &'static str, String),
    /// The kind's facts: names and values.
    pub facts: Vec<(&'static str, Markup)>,
    /// The kind's sections.
    pub sections: Markup,
}

/// Returns the page about an operation. `is_leased` is true if a process holds the operation lease for the operation.
pub(super) fn page<W>(recorded: &Recorded<W>, is_leased: bool, kind: KindSections) -> String {
    let (summary, plan) = (&recorded.summary, &recorded.plan);
    let (class, status, words) = kind.verdict;
    let ended = if summary.has_ended() { "Ended" } else { "Last run ended" };
    let every = [
        ("Started by", summary.holder.as_deref().unwrap_or("not known").render()),
        ("Started", moment(summary.started)),
        (ended, summary.ended.map_or_else(|| "not yet".render(), moment)),
        ("Cluster", code(&plan.header.cluster)),
        ("Plan digest", code(&plan.digest)),
        ("Plan", format!("revision {}, {}", plan.header.base_revision, plan.header.tool).render()),
    ];
    let facts = facts(kind.facts.into_iter().chain(every));
    let content = html! {
        (header(&summary.kind, &recorded.operation, (class, status), &words, &facts))
        (kind.sections)
        (runs::section_of(summary, is_leased))
        (steps(&recorded.journal))
    };
    document(&recorded.operation, &content, "the journal of the operation")
}
