//! The page about a mirror operation: what was copied, what was not, and every step.

use maud::{Markup, Render, html};

use super::html::{code, prose, section, table};
use super::page::KindSections;
use crate::mirror::{Entry, Mirror, Planned};
use crate::operation::{State, Status};
use crate::session::Recorded;

/// Returns the page about a mirror operation. `is_leased` is true if a process holds the operation lease for it.
pub fn page(recorded: &Recorded<Mirror>, is_leased: bool) -> String {
    let is_back = recorded.journal.is_being_undone();
    let status = recorded.summary.status_now(is_back, is_leased);
    let work = &recorded.plan.work;
    let changes = work.changes().count();
    let done = work.changes().filter(|entry| state(recorded, entry) == Some(State::Done)).count();
    let words = format!("{done} of {changes} objects are copied");
    let class = match status {
        Status::Done => "good",
        Status::Stopped | Status::Stuck => "bad",
        _ => "info",
    };
    let verdict = (class, status.name(), words);
    super::page::page(
        recorded,
        is_leased,
        KindSections { verdict, facts: facts(work), sections: objects(recorded) },
    )
}

fn state(recorded: &Recorded<Mirror>, entry: &Entry) -> Option<State> {
    recorded.journal.state(&entry.step())
}

fn facts(work: &Mirror) -> Vec<(&'static str, Markup)> {
    let counts = work.counts();
    let actions = Planned::ALL
        .into_iter()
        .map(|action| format!("{} {}", counts.get(&action).copied().unwrap_or_default(), action.name()));
    vec![
        ("Source", code(&work.source)),
        ("Namespaces", prose(&work.namespaces.join(", "))),
        ("Objects", actions.collect::<Vec<_>>().join(", ").render()),
    ]
}

fn objects(recorded: &Recorded<Mirror>) -> Markup {
    let shown = recorded.plan.work.objects.iter().filter(|entry| entry.action != Planned::Same);
    let rows = shown.map(|entry| {
        let state = state(recorded, entry).map_or_else(|| "–".to_string(), |state| state.to_string());
        let error = recorded.journal.find(&entry.step()).and_then(|record| record.error.clone());
        let note = error.or_else(|| entry.detail.clone()).unwrap_or_else(|| "–".to_string());
        [code(&entry.object.to_string()), entry.action.name().render(), state.render(), prose(&note)]
    });
    let content = html! {
        (table("objects", ["Object", "Planned", "State", "Note"], rows))
        p.faint { "Objects that were already the same are not listed. The page contains no content of any object." }
    };
    section("objects", "Objects", &content)
}
