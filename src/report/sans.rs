//! The page about names that were added to certificates: what has changed, what has not, and every step.

use maud::{Markup, Render, html};

use super::html::{code, prose, section, table};
use super::page::KindSections;
use crate::mirror::sans::{Sans, SansEntry};
use crate::operation::{State, Status};
use crate::session::Recorded;

/// Returns the page. `is_leased` is true if a process holds the operation lease for the operation.
pub fn page(recorded: &Recorded<Sans>, is_leased: bool) -> String {
    let status = recorded.summary.status_now(recorded.journal.is_being_undone(), is_leased);
    let work = &recorded.plan.work;
    let planned = work.additions().count();
    let state = |entry: &&SansEntry| recorded.journal.state(&entry.step()) == Some(State::Done);
    let done = work.additions().filter(state).count();
    let class = match status {
        Status::Done => "good",
        Status::Stopped | Status::Stuck => "bad",
        _ => "info",
    };
    let verdict = (class, status.name(), format!("{done} of {planned} certificates have the added names"));
    let facts = vec![("Namespaces", prose(&work.namespaces.join(", ")))];
    super::page::page(recorded, is_leased, KindSections { verdict, facts, sections: certificates(recorded) })
}

fn certificates(recorded: &Recorded<Sans>) -> Markup {
    let rows = recorded.plan.work.certificates.iter().map(|entry| {
        let record = recorded.journal.find(&entry.step());
        let state = record.map_or_else(|| "–".to_string(), |record| record.state.to_string());
        let error = record.and_then(|record| record.error.clone());
        let note = error.or_else(|| entry.detail.clone()).unwrap_or_else(|| "–".to_string());
        [
            code(&entry.object.to_string()),
            entry.action.name().render(),
            state.render(),
            prose(&entry.issuer),
            code(&entry.names.join(" ")),
            prose(&note),
        ]
    });
    let headings = ["Certificate", "Planned", "State", "Issuer", "Names to add", "Note"];
    let content = html! {
        (table("certificates", headings, rows))
        p.faint { "A rollback removes the added names, and cert-manager issues a new certificate." }
    };
    section("certificates", "Certificates", &content)
}
