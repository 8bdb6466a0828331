//! The sections of the page except the drawings and the table of Services: the operation, the pauses, the manual steps and the
//! problems.

use std::collections::BTreeMap;
use std::ops::Range;

use maud::{Markup, Render, html};

use super::history::{History, Outside, Trouble};
use super::html::{code, facts, header, joined, lasting, moment, prose, section, table, thousands};
use super::{Subject, timeline};
use crate::operation::{State, Status};
use crate::renumber::Move;
use crate::renumber::run::progress::stage_now;
use crate::renumber::run::situation::Situation;
use crate::renumber::verify::{Phase, Verified};
use crate::survey::{Finding, Severity};
use crate::words::counted;

/// Largest number of rows in a table.
const MOST_ROWS: usize = 500;
/// Number of rows that a table shows before it is unfolded.
const FEW_ROWS: usize = 12;

/// Returns the head: the verdict, the figures, and the data of the operation.
pub fn head(subject: &Subject<'_>, history: &History, verified: &Verified) -> Markup {
    let situation = subject.situation();
    let class = match situation.status {
        Status::Soaking if situation.phases.waiting > 0 => "warn",
        Status::Soaking | Status::Done => "good",
        Status::Stopped | Status::Stuck => "bad",
        Status::WaitingForManualStep | Status::Paused | Status::Interrupted => "warn",
        Status::Running | Status::RollingBack | Status::RolledBack | Status::Removing => "info",
    };
    let (words, verdict) = (situation.words(), verdict(&situation));
    let more = html! { (tiles(history, verified)) (identity(subject, history)) };
    header(&subject.summary.kind, subject.operation, (class, &words), &verdict, &more)
}

/// Returns a text that explains the status.
fn verdict(situation: &Situation) -> String {
    let what = match situation.status {
        Status::Running => "A process is running the operation.",
        Status::RollingBack => "A process is rolling the operation back.",
        Status::Interrupted => "The process that ran the operation has ended unexpectedly.",
        Status::WaitingForManualStep => "A manual step is required.",
        Status::Paused => "The operation was stopped on request, or a gate was closed.",
        Status::Soaking if situation.phases.waiting > 0 => "Some Services were skipped: see the steps below.",
        Status::Soaking => "Every Service has its new address.",
        Status::Stopped => "A step failed; everything before it is done.",
        Status::Stuck => "Some steps failed or could not be undone: see the list below.",
        Status::Done => {
            "The Service range is changed. All Services that moved have their new addresses, and the old ones are retired."
        }
        Status::RolledBack => "Every Service has its old address.",
        Status::Removing => "The operation has ended, and its journal is being deleted.",
    };
    if situation.status.has_ended() {
        return what.to_string();
    }
    let facts = format!("{what} {}, {}.", situation.progress(), situation.held());
    match situation.next() {
        Some(next) => format!("{facts} Next: `{next}`."),
        None => facts,
    }
}

fn tiles(history: &History, verified: &Verified) -> Markup {
    let [waiting, held, retired] = verified.counts;
    let (all, moved) = (waiting.saturating_add(held).saturating_add(retired), held.saturating_add(retired));
    let paused = history.paused();
    let active = history.to.saturating_sub(history.from).saturating_sub(paused);
    let errors = verified.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let tiles = [
        (
            html! { (thousands(moved)) " " small { "of " (thousands(all)) } },
            "Services with their new address",
            "",
        ),
        (thousands(held).render(), "old addresses held", ""),
        (thousands(retired).render(), "old addresses retired", ""),
        (thousands(history.done).render(), "steps done", ""),
        (thousands(history.troubles.len()).render(), "steps open or failed", warn(history.troubles.len())),
        (thousands(errors).render(), "errors found now", warn(errors)),
        (lasting(active).render(), "running", ""),
        (lasting(paused).render(), "paused", ""),
    ];
    html! {
        dl.tiles { @for (value, label, class) in tiles { div class=(class) { dd { (value) } dt { (label) } } } }
    }
}

fn warn(count: usize) -> &'static str {
    if count > 0 { "wrong" } else { "" }
}

fn identity(subject: &Subject<'_>, history: &History) -> Markup {
    let (work, summary, header) = (&subject.plan.work, subject.summary, &subject.plan.header);
    let from = work.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let ended = match summary.ended {
        Some(ended) if summary.status.has_ended() => {
            html! { (moment(ended)) " (" (summary.status.to_string()) ")" }
        }
        _ => "not yet".render(),
    };
    let next = match stage_now(work, subject.journal) {
        Some(stage) if summary.status != Status::RolledBack => prose(&stage),
        _ => "–".render(),
    };
    facts([
        ("From", code(&from)),
        ("To", code(&work.to.to_string())),
        ("Started by", summary.holder.as_deref().unwrap_or("not known").render()),
        ("Started", moment(summary.started)),
        ("Last step", moment(history.to)),
        ("Current or next stage", next),
        ("Ended", ended),
        ("Cluster", code(&header.cluster)),
        ("Plan digest", code(&subject.plan.digest)),
        (
            "Plan",
            format!(
                "{} {} in {}, {} skipped; storage era {}, revision {}, {}",
                thousands(work.moves.len()),
                if work.moves.len() == 1 { "Service" } else { "Services" },
                counted(work.batches().len(), "batch", "batches"),
                work.staying(),
                work.era,
                header.base_revision,
                header.tool,
            )
            .render(),
        ),
    ])
}

/// Returns the timeline.
pub fn timeline(subject: &Subject<'_>, history: &History) -> Markup {
    let rows = history.pauses.iter().enumerate().take(MOST_ROWS).map(|(index, pause)| {
        let lasted = pause.to.saturating_sub(pause.from);
        let number = index.saturating_add(1).render();
        let why = match &pause.external {
            Some(name) => html! { "waiting for manual step " (code(name)) },
            None => prose(&pause.what),
        };
        [number, moment(pause.from), moment(pause.to), lasting(lasted).render(), why]
    });
    let content = html! {
        div.wide { (timeline::draw(history)) }
        (legend(&timeline::LEGEND))
        (tiers(subject, history))
        @if !history.pauses.is_empty() {
            (table("pauses", ["#", "Paused from", "to", "for", "Why"], rows))
        }
        p.faint { "All times are UTC, in whole seconds." }
    };
    section("timeline", "Timeline", &content)
}

/// Returns a table that shows when each tier moved.
fn tiers(subject: &Subject<'_>, history: &History) -> Markup {
    if history.tiers.is_empty() {
        return html! {};
    }
    let work = &subject.plan.work;
    let is_there = |m: &&Move| Phase::of(m, |step| subject.journal.state(step)) != Phase::Waiting;
    let moved = |name: &str| work.moves.iter().filter(|m| m.tier == name).filter(is_there).count();
    let rows = history.tiers.iter().take(MOST_ROWS).map(|tier| {
        let when = history.of_batches(&tier.batches, false);
        let at = |time: Option<i64>| time.map_or_else(|| "–".render(), moment);
        let back = history.of_batches(&tier.batches, true).map(|(from, _)| from);
        [
            tier.name.render(),
            format!("{} of {}", thousands(moved(&tier.name)), thousands(tier.services)).render(),
            batches(&tier.batches).render(),
            at(when.map(|(from, _)| from)),
            at(when.map(|(_, to)| to)),
            when.map_or_else(|| "–".to_string(), |(from, to)| lasting(to.saturating_sub(from))).render(),
            at(back),
        ]
    });
    let headings = ["Tier", "Services moved", "Batches", "Running from", "to", "for", "Rollback from"];
    table("tiers", headings, rows)
}

/// Formats batches, counted from 1: `3`, `3 to 7`.
fn batches(batches: &Range<usize>) -> String {
    let first = batches.start.saturating_add(1);
    if batches.len() == 1 {
        thousands(first)
    } else {
        format!("{} to {}", thousands(first), thousands(batches.end))
    }
}

/// Returns the legend of a drawing.
pub fn legend(entries: &[(&str, &str)]) -> Markup {
    html! {
        ul.legend {
            @for (class, words) in entries {
                li {
                    svg viewBox="0 0 12 12" aria-hidden="true" { rect class=(class) width="12" height="12" {} }
                    (words)
                }
            }
        }
    }
}

/// Returns the findings of `renumber verify`.
pub fn findings(subject: &Subject<'_>, verified: &Verified) -> Markup {
    let revision = subject.survey.revision.to_string();
    let rows = verified.findings.iter().take(MOST_ROWS).map(finding);
    let content = html! {
        @if verified.findings.is_empty() {
            p.good { "None: every Service matches the journal, at revision " (revision) "." }
        } @else {
            p {
                "Findings of " (code("netsurgeon renumber verify")) " at revision " (revision)
                "; docs/findings.md has the remedies."
            }
            (kinds(verified))
            (folded("findings", ["Severity", "Code", "Subject", "Problem"], rows.collect()))
            (more(verified.findings.len()))
        }
    };
    section("findings", "Findings", &content)
}

/// Returns the number of findings for each code, if the folded table does not show all findings.
fn kinds(verified: &Verified) -> Markup {
    if verified.findings.len() <= FEW_ROWS {
        return html! {};
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &verified.findings {
        let count = counts.entry(finding.code).or_default();
        *count = count.saturating_add(1);
    }
    let counts = counts.iter().map(|(name, count)| html! { (thousands(*count)) " " (code(name)) });
    html! { p { (joined(counts, &", ".render())) "." } }
}

fn finding(finding: &Finding) -> [Markup; 4] {
    let class = if finding.severity == Severity::Error { "bad" } else { "warn" };
    [
        html! { span class={ "pill " (class) } { (finding.severity.to_string()) } },
        code(finding.code),
        finding.subject.render(),
        prose(&finding.message),
    ]
}

/// Returns a table that shows only its first rows until it is unfolded.
fn folded<const N: usize>(class: &str, headings: [&str; N], mut rows: Vec<[Markup; N]>) -> Markup {
    let rest = rows.split_off(rows.len().min(FEW_ROWS));
    html! {
        (table(class, headings, rows))
        @if !rest.is_empty() {
            details { summary { (thousands(rest.len())) " more" } (table(class, headings, rest)) }
        }
    }
}

/// Returns the section about steps that are open, have failed, or could not be undone.
pub fn troubles(history: &History) -> Markup {
    let rows = history.troubles.iter().take(MOST_ROWS).map(trouble);
    let content = html! {
        @if history.troubles.is_empty() {
            p.good {
                "None; done: " (thousands(history.done))
                @if history.undone > 0 { ", undone: " (thousands(history.undone)) }
                "."
            }
        } @else {
            (folded("steps", ["Step", "State", "Since", "Why"], rows.collect()))
            (more(history.troubles.len()))
        }
    };
    section("steps", "Steps that are open, failed or stuck", &content)
}

fn trouble(trouble: &Trouble) -> [Markup; 4] {
    let words = match trouble.state {
        State::Started => "started, outcome unknown",
        State::UndoStarted => "undo started, outcome unknown",
        State::UndoFailed => "could not be undone",
        State::Failed => "failed",
        State::Done => "done",
        State::UndoDone | State::Reset => "undone",
    };
    let class = if matches!(trouble.state, State::UndoFailed | State::Failed) { "bad" } else { "warn" };
    [
        code(&trouble.step.to_string()),
        html! { span class={ "pill " (class) } { (words) } },
        moment(trouble.since),
        prose(trouble.error.as_deref().unwrap_or("–")),
    ]
}

fn more(count: usize) -> Markup {
    let more = count.saturating_sub(MOST_ROWS);
    html! { @if more > 0 { p.faint { "and " (thousands(more)) " more, not on this page" } } }
}

/// Returns the manual steps.
pub fn outside(history: &History) -> Markup {
    let rows = history.outside.iter().map(|outside| {
        let Outside { name, what, why, .. } = outside;
        let waited = if outside.waited > 0 { lasting(outside.waited) } else { "–".to_string() };
        let text = html! { (prose(what)) br; span.faint { (prose(why)) } };
        [code(name), text, confirmation(outside), waited.render()]
    });
    let headings = ["Name", "Description and reason", "Confirmed", "Waited"];
    section("outside", "Manual steps", &table("outside", headings, rows))
}

fn confirmation(outside: &Outside) -> Markup {
    match (outside.confirmed, outside.undone) {
        (Some(done), Some(undone)) => html! { (moment(done)) br; "undone " (moment(undone)) },
        (Some(done), None) => moment(done),
        (None, _) => html! { span.faint { "not yet" } },
    }
}
