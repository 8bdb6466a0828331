//! The table of Services: one table if there are few Services, or one table for each batch if there are thousands.

use super::Subject;
use super::history::History;
use super::html::{Html, clock, code, esc, lasting, thousands};
use crate::renumber::Move;
use crate::renumber::verify::Phase;
use crate::session::counted;

/// Largest number of Services in a single table.
const FEW: usize = 60;
/// Largest number of batches that are not folded into one element.
const FEW_BATCHES: usize = 15;
/// Largest number of skipped Services that are listed; of the rest, only the number is shown.
const MOST_SKIPPED: usize = 2000;

/// Returns the phase of a Service.
fn state(subject: &Subject<'_>, candidate: &Move) -> Phase {
    Phase::of(candidate, |step| subject.journal.state(step))
}

fn rows<'a>(subject: &'a Subject<'_>, moves: &'a [Move]) -> impl Iterator<Item = [String; 6]> + 'a {
    moves.iter().map(move |candidate| {
        let (class, word) = match state(subject, candidate) {
            Phase::Waiting => ("waiting", "old address"),
            Phase::Held => ("held", "moved, old held"),
            Phase::Retired => ("retired", "moved, old retired"),
        };
        [
            format!("<span class=\"faint\">{}/</span>{}", esc(&candidate.namespace), esc(&candidate.name)),
            code(&candidate.old.join(", ")),
            code(&candidate.new.join(", ")),
            esc(&candidate.hold.to_string()).to_string(),
            format!("<span class=\"state {class}\">{word}</span>"),
            format!("<span class=\"faint\">{}</span>", esc(&candidate.hold_reason)),
        ]
    })
}

const HEADINGS: [&str; 6] = ["Service", "Old address", "New address", "Held by", "State", "Reason for hold"];

/// Writes a table of Services, with their tiers if the plan has tiers.
fn table(html: &mut Html, subject: &Subject<'_>, moves: &[Move]) {
    if subject.plan.work.tiers.is_empty() {
        return html.table("services", HEADINGS, rows(subject, moves));
    }
    let [service, old, new, hold, state, why] = HEADINGS;
    let tiers = moves.iter().map(|candidate| esc(&candidate.tier).to_string());
    let rows = rows(subject, moves)
        .zip(tiers)
        .map(|([service, old, new, hold, state, why], tier)| [service, old, new, tier, hold, state, why]);
    html.table("services", [service, old, new, "Tier", hold, state, why], rows);
}

/// Writes the section about Services.
pub fn section(html: &mut Html, subject: &Subject<'_>, history: &History) {
    let work = &subject.plan.work;
    html.section("services", "Services");
    if work.moves.len() <= FEW {
        table(html, subject, &work.moves);
    } else {
        by_batch(html, subject, history);
    }
    if !work.skipped.is_empty() {
        skipped(html, subject);
    }
    html.end_section();
}

fn by_batch(html: &mut Html, subject: &Subject<'_>, history: &History) {
    let work = &subject.plan.work;
    let batches = work.batches();
    let many = batches.len() > FEW_BATCHES;
    if many {
        html.add(format_args!(
            "<details><summary>All {} Services, by batch</summary>",
            thousands(work.moves.len())
        ));
    }
    for (batch, range) in batches.iter().enumerate() {
        let moves = work.moves.get(range.clone()).unwrap_or_default();
        let there = moves.iter().filter(|candidate| state(subject, candidate) != Phase::Waiting).count();
        let when = history.of_batches(&(batch..batch.saturating_add(1)), false).map_or_else(
            || "not started".to_string(),
            |(from, to)| format!("{}, {}", clock(from).0, lasting(to.saturating_sub(from))),
        );
        html.add(format_args!(
            "<details><summary>Batch {} of {}<span class=\"faint\">{} · {there} of {} moved · {when} · from {}</span>\
             </summary>",
            batch.saturating_add(1),
            batches.len(),
            work.tier_of_batch(batch).map(|tier| format!(" · tier {}", esc(tier))).unwrap_or_default(),
            moves.len(),
            esc(&moves.first().map(Move::subject).unwrap_or_default()),
        ));
        table(html, subject, moves);
        html.add(format_args!("</details>"));
    }
    if many {
        html.add(format_args!("</details>"));
    }
}

fn skipped(html: &mut Html, subject: &Subject<'_>) {
    let skipped = &subject.plan.work.skipped;
    html.add(format_args!(
        "<details><summary>{} skipped<span class=\"faint\">{}</span></summary>",
        counted(skipped.len(), "Service", "Services"),
        esc(&crate::renumber::run::reasons(&subject.plan.work)),
    ));
    let rows = skipped.iter().take(MOST_SKIPPED).map(|skipped| {
        [
            format!("<span class=\"faint\">{}/</span>{}", esc(&skipped.namespace), esc(&skipped.name)),
            esc(&skipped.reason).to_string(),
        ]
    });
    html.table("services", ["Service", "Reason"], rows);
    let more = skipped.len().saturating_sub(MOST_SKIPPED);
    if more > 0 {
        html.add(format_args!("<p class=\"faint\">and {} more</p>", thousands(more)));
    }
    html.add(format_args!("</details>"));
}
