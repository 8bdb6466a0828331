//! The page about an activation: what has moved, what has not, and every step.

use maud::{Markup, Render, html};

use super::html::{code, prose, section, table};
use super::page::KindSections;
use crate::mirror::activation::{Activation, Entry};
use crate::operation::{State, Status};
use crate::session::Recorded;

/// Returns the page about an activation. `is_leased` is true if a process holds the operation lease for it.
pub fn page(recorded: &Recorded<Activation>, is_leased: bool) -> String {
    let status = recorded.summary.status_now(recorded.journal.is_being_undone(), is_leased);
    let work = &recorded.plan.work;
    let moves = work.moves().count();
    let done = work.moves().filter(|entry| state(recorded, entry) == Some(State::Done)).count();
    let class = match status {
        Status::Done => "good",
        Status::Stopped | Status::Stuck => "bad",
        _ => "info",
    };
    let verdict = (class, status.name(), format!("{done} of {moves} objects are active in the mirror"));
    let facts = vec![("Source", code(&work.source)), ("Namespaces", prose(&names(work)))];
    super::page::page(recorded, is_leased, KindSections { verdict, facts, sections: objects(recorded) })
}

fn names(work: &Activation) -> String {
    if work.namespaces.is_empty() { "all".to_string() } else { work.namespaces.join(", ") }
}

fn state(recorded: &Recorded<Activation>, entry: &Entry) -> Option<State> {
    recorded.journal.state(&entry.step())
}

fn objects(recorded: &Recorded<Activation>) -> Markup {
    let rows = recorded.plan.work.objects.iter().map(|entry| {
        let record = recorded.journal.find(&entry.step());
        let state = record.map_or_else(|| "–".to_string(), |record| record.state.to_string());
        let last = record.and_then(|record| record.made.as_deref()?["last_run"].as_str().map(str::to_string));
        let error = record.and_then(|record| record.error.clone());
        let note = error.or_else(|| entry.reason.clone()).unwrap_or_else(|| "–".to_string());
        [
            code(&entry.object.to_string()),
            entry.action.name().render(),
            state.render(),
            last.unwrap_or_else(|| "–".to_string()).render(),
            prose(&note),
        ]
    });
    let content = html! {
        (table("objects", ["Object", "Planned", "State", "Last run before the move", "Note"], rows))
        p.faint { "The mirror runs no scheduled time up to the last run before the move." }
    };
    section("objects", "Objects", &content)
}
