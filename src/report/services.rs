//! The table of Services: one table if there are few Services, or one table for each batch if there are more.

use maud::{Markup, Render, html};

use super::Subject;
use super::history::History;
use super::html::{self, clock, code, lasting, thousands};
use crate::renumber::Move;
use crate::renumber::verify::Phase;
use crate::words::counted;

/// Largest number of Services in a single table.
const FEW: usize = 60;
/// Largest number of batches that are always shown. If there are more, all batches are folded into one element.
const FEW_BATCHES: usize = 15;
/// Largest number of skipped Services in the list. For the remaining skipped Services, only their number is shown.
const MOST_SKIPPED: usize = 2000;

/// Returns the phase of a Service.
fn state(subject: &Subject<'_>, candidate: &Move) -> Phase {
    Phase::of(candidate, |step| subject.journal.state(step))
}

fn rows<'a>(subject: &'a Subject<'_>, moves: &'a [Move]) -> impl Iterator<Item = [Markup; 6]> + 'a {
    moves.iter().map(move |candidate| {
        let (class, word) = match state(subject, candidate) {
            Phase::Waiting => ("waiting", "old address"),
            Phase::Held => ("held", "moved, old held"),
            Phase::Retired => ("retired", "moved, old retired"),
        };
        [
            name(&candidate.namespace, &candidate.name),
            code(&candidate.old.join(", ")),
            code(&candidate.new.join(", ")),
            candidate.hold.to_string().render(),
            html! { span class={ "state " (class) } { (word) } },
            html! { span.faint { (candidate.hold_reason) } },
        ]
    })
}

fn name(namespace: &str, name: &str) -> Markup {
    html! { span.faint { (namespace) "/" } (name) }
}

const HEADINGS: [&str; 6] = ["Service", "Old address", "New address", "Held by", "State", "Reason for hold"];

/// Returns a table of Services, with their tiers if the plan has tiers.
fn table(subject: &Subject<'_>, moves: &[Move]) -> Markup {
    if subject.plan.work.tiers.is_empty() {
        return html::table("services", HEADINGS, rows(subject, moves));
    }
    let [service, old, new, hold, state, why] = HEADINGS;
    let tiers = moves.iter().map(|candidate| candidate.tier.render());
    let rows = rows(subject, moves)
        .zip(tiers)
        .map(|([service, old, new, hold, state, why], tier)| [service, old, new, tier, hold, state, why]);
    html::table("services", [service, old, new, "Tier", hold, state, why], rows)
}

/// Returns the section about Services.
pub fn section(subject: &Subject<'_>, history: &History) -> Markup {
    let work = &subject.plan.work;
    let content = html! {
        @if work.moves.len() <= FEW { (table(subject, &work.moves)) } @else { (by_batch(subject, history)) }
        @if !work.skipped.is_empty() { (skipped(subject)) }
    };
    html::section("services", "Services", &content)
}

fn by_batch(subject: &Subject<'_>, history: &History) -> Markup {
    let work = &subject.plan.work;
    let batches = work.batches();
    let all = html! {
        @for (batch, range) in batches.iter().enumerate() {
            @let moves = work.moves.get(range.clone()).unwrap_or_default();
            @let there = moves.iter().filter(|candidate| state(subject, candidate) != Phase::Waiting).count();
            details {
                summary {
                    "Batch " (batch.saturating_add(1)) " of " (batches.len())
                    span.faint {
                        @if let Some(tier) = work.tier_of_batch(batch) { " · tier " (tier) }
                        " · " (there) " of " (moves.len()) " moved · "
                        @match history.of_batches(&(batch..batch.saturating_add(1)), false) {
                            Some((from, to)) => { (clock(from).0) ", " (lasting(to.saturating_sub(from))) }
                            None => "not started",
                        }
                        " · from " (moves.first().map(Move::subject).unwrap_or_default())
                    }
                }
                (table(subject, moves))
            }
        }
    };
    if batches.len() <= FEW_BATCHES {
        return all;
    }
    html! { details { summary { "All " (thousands(work.moves.len())) " Services, by batch" } (all) } }
}

fn skipped(subject: &Subject<'_>) -> Markup {
    let skipped = &subject.plan.work.skipped;
    let rows = skipped.iter().take(MOST_SKIPPED);
    let rows = rows.map(|skipped| [name(&skipped.namespace, &skipped.name), skipped.reason.render()]);
    let more = skipped.len().saturating_sub(MOST_SKIPPED);
    html! {
        details {
            summary {
                (counted(skipped.len(), "Service", "Services")) " skipped"
                span.faint { (crate::renumber::run::reasons(&subject.plan.work)) }
            }
            (html::table("services", ["Service", "Reason"], rows))
            @if more > 0 { p.faint { "and " (thousands(more)) " more" } }
        }
    }
}
