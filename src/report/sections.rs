//! The sections of the page except the drawings and the table of Services: the operation, the pauses, the manual steps and the
//! problems.

use std::collections::BTreeMap;
use std::ops::Range;

use super::history::{History, Outside, Trouble};
use super::html::{Html, code, esc, lasting, moment, prose, thousands};
use super::{Subject, timeline};
use crate::operation::{State, Status};
use crate::renumber::Move;
use crate::renumber::run::situation::Situation;
use crate::renumber::run::tally::stage_now;
use crate::renumber::verify::{Phase, Verified};
use crate::session::counted;
use crate::survey::{Finding, Severity};

/// Largest number of rows in a table.
const MOST_ROWS: usize = 500;
/// Number of rows that a table shows before it is unfolded.
const FEW_ROWS: usize = 12;

/// Writes the head: the verdict, the figures, and the data of the operation.
pub fn head(html: &mut Html, subject: &Subject<'_>, history: &History, verified: &Verified) {
    let situation = subject.situation();
    let class = match situation.status {
        Status::Soaking if situation.phases.waiting > 0 => "warn",
        Status::Soaking | Status::Done => "good",
        Status::Stopped | Status::Stuck => "bad",
        Status::WaitingForManualStep | Status::Paused | Status::Interrupted => "warn",
        Status::Running | Status::RollingBack | Status::RolledBack | Status::Removing => "info",
    };
    let (words, verdict) = (situation.words(), verdict(&situation));
    html.head(&subject.summary.kind, subject.operation, (class, &words), &verdict);
    tiles(html, history, verified);
    identity(html, subject, history);
    html.add(format_args!("</header>"));
}

/// Returns a text that explains the status.
fn verdict(situation: &Situation) -> String {
    let what = match situation.status {
        Status::Running => "A process is running it.",
        Status::RollingBack => "A process is rolling it back.",
        Status::Interrupted => "The process that ran it has ended unexpectedly.",
        Status::WaitingForManualStep => "A manual step is required.",
        Status::Paused => "It was stopped on request, or a gate was closed.",
        Status::Soaking if situation.phases.waiting > 0 => "Some Services were skipped: see the steps below.",
        Status::Soaking => "Every Service has its new address.",
        Status::Stopped => "A step failed; everything before it is done.",
        Status::Stuck => "Some steps failed or could not be undone: see the list below.",
        Status::Done => "Every Service has its new address, and no old address is held any more.",
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

fn tiles(html: &mut Html, history: &History, verified: &Verified) {
    let [waiting, held, retired] = verified.counts;
    let (all, moved) = (waiting.saturating_add(held).saturating_add(retired), held.saturating_add(retired));
    let paused = history.paused();
    let active = history.to.saturating_sub(history.from).saturating_sub(paused);
    let errors = verified.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let tiles = [
        (
            format!("{} <small>of {}</small>", thousands(moved), thousands(all)),
            "Services with their new address",
            "",
        ),
        (thousands(held), "old addresses held", ""),
        (thousands(retired), "old addresses retired", ""),
        (thousands(history.done), "steps done", ""),
        (thousands(history.troubles.len()), "steps open or failed", warn(history.troubles.len())),
        (thousands(errors), "errors found now", warn(errors)),
        (lasting(active), "running", ""),
        (lasting(paused), "paused", ""),
    ];
    html.add(format_args!("<dl class=\"tiles\">"));
    for (value, label, class) in tiles {
        html.add(format_args!("<div class=\"{class}\"><dd>{value}</dd><dt>{label}</dt></div>"));
    }
    html.add(format_args!("</dl>"));
}

fn warn(count: usize) -> &'static str {
    if count > 0 { "wrong" } else { "" }
}

fn identity(html: &mut Html, subject: &Subject<'_>, history: &History) {
    let (work, summary, header) = (&subject.plan.work, subject.summary, &subject.plan.header);
    let from = work.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let ended = match summary.ended {
        Some(ended) if summary.status.has_ended() => format!("{} ({})", moment(ended), summary.status),
        _ => "not yet".to_string(),
    };
    let next = match stage_now(work, subject.journal) {
        Some(stage) if summary.status != Status::RolledBack => prose(&stage),
        _ => "–".to_string(),
    };
    let rows = [
        ("From", code(&from)),
        ("To", code(&work.to.to_string())),
        ("Started by", esc(summary.holder.as_deref().unwrap_or("not known")).to_string()),
        ("Started", moment(summary.started)),
        ("Last step", moment(history.to)),
        ("Current or next stage", next),
        ("Ended", ended),
        ("Cluster", code(&header.cluster)),
        ("Plan digest", code(&subject.plan.digest)),
        (
            "Plan",
            format!(
                "{} Services in {}, {} skipped; storage era {}, revision {}, {}",
                thousands(work.moves.len()),
                counted(work.batches().len(), "batch", "batches"),
                work.skipped.len(),
                work.era,
                header.base_revision,
                esc(&header.tool),
            ),
        ),
    ];
    html.facts(rows);
}

/// Writes the timeline.
pub fn timeline(html: &mut Html, subject: &Subject<'_>, history: &History) {
    html.section("timeline", "Timeline");
    html.add(format_args!("<div class=\"wide\">{}</div>", timeline::draw(history)));
    legend(html, &timeline::LEGEND);
    tiers(html, subject, history);
    if !history.pauses.is_empty() {
        let rows = history.pauses.iter().enumerate().take(MOST_ROWS).map(|(index, pause)| {
            let lasted = pause.to.saturating_sub(pause.from);
            let number = index.saturating_add(1).to_string();
            let why = match &pause.external {
                Some(name) => format!("waiting for manual step {}", code(name)),
                None => esc(&pause.what).to_string(),
            };
            [number, moment(pause.from), moment(pause.to), lasting(lasted), why]
        });
        html.table("pauses", ["#", "Paused from", "to", "for", "Why"], rows);
    }
    html.add(format_args!("<p class=\"faint\">All times are UTC, in whole seconds.</p>"));
    html.end_section();
}

/// Writes a table that shows when each tier moved.
fn tiers(html: &mut Html, subject: &Subject<'_>, history: &History) {
    if history.tiers.is_empty() {
        return;
    }
    let work = &subject.plan.work;
    let is_there = |m: &&Move| Phase::of(m, |step| subject.journal.state(step)) != Phase::Waiting;
    let moved = |name: &str| work.moves.iter().filter(|m| m.tier == name).filter(is_there).count();
    let rows = history.tiers.iter().take(MOST_ROWS).map(|tier| {
        let when = history.of_batches(&tier.batches, false);
        let at = |time: Option<i64>| time.map_or_else(|| "–".to_string(), moment);
        let back = history.of_batches(&tier.batches, true).map(|(from, _)| from);
        [
            esc(&tier.name).to_string(),
            format!("{} of {}", thousands(moved(&tier.name)), thousands(tier.services)),
            batches(&tier.batches),
            at(when.map(|(from, _)| from)),
            at(when.map(|(_, to)| to)),
            when.map_or_else(|| "–".to_string(), |(from, to)| lasting(to.saturating_sub(from))),
            at(back),
        ]
    });
    let headings = ["Tier", "Services moved", "Batches", "Running from", "to", "for", "Rollback from"];
    html.table("tiers", headings, rows);
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

/// Writes the legend of a drawing.
pub fn legend(html: &mut Html, entries: &[(&str, &str)]) {
    html.add(format_args!("<ul class=\"legend\">"));
    for (class, words) in entries {
        html.add(format_args!(
            "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"12\" height=\"12\"/>\
             </svg>{words}</li>"
        ));
    }
    html.add(format_args!("</ul>"));
}

/// Writes the findings of `renumber verify`.
pub fn findings(html: &mut Html, subject: &Subject<'_>, verified: &Verified) {
    html.section("findings", "Findings");
    let revision = subject.survey.revision;
    if verified.findings.is_empty() {
        html.add(format_args!(
            "<p class=\"good\">None: every Service matches the journal, at revision {revision}.</p>"
        ));
    } else {
        html.add(format_args!(
            "<p>Findings of <code>netsurgeon renumber verify</code> at revision {revision}; docs/findings.md has the \
             remedies.</p>"
        ));
        kinds(html, verified);
        let rows = verified.findings.iter().take(MOST_ROWS).map(finding);
        folded(html, "findings", ["Severity", "Code", "Subject", "Problem"], rows.collect());
        more(html, verified.findings.len());
    }
    html.end_section();
}

/// Writes the number of findings by code, if there are more findings than fit a screen.
fn kinds(html: &mut Html, verified: &Verified) {
    if verified.findings.len() <= FEW_ROWS {
        return;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &verified.findings {
        let count = counts.entry(finding.code).or_default();
        *count = count.saturating_add(1);
    }
    let words: Vec<String> =
        counts.iter().map(|(name, count)| format!("{} {}", thousands(*count), code(name))).collect();
    html.add(format_args!("<p>{}.</p>", words.join(", ")));
}

fn finding(finding: &Finding) -> [String; 4] {
    let class = if finding.severity == Severity::Error { "bad" } else { "warn" };
    [
        format!("<span class=\"pill {class}\">{}</span>", finding.severity),
        code(finding.code),
        esc(&finding.subject).to_string(),
        prose(&finding.message),
    ]
}

/// Writes a table that shows only its first rows until it is unfolded.
fn folded<const N: usize>(html: &mut Html, class: &str, headings: [&str; N], mut rows: Vec<[String; N]>) {
    let rest = rows.split_off(rows.len().min(FEW_ROWS));
    html.table(class, headings, rows);
    if !rest.is_empty() {
        html.add(format_args!("<details><summary>{} more</summary>", thousands(rest.len())));
        html.table(class, headings, rest);
        html.add(format_args!("</details>"));
    }
}

/// Writes the steps that are open, failed or could not be undone.
pub fn troubles(html: &mut Html, history: &History) {
    html.section("steps", "Steps that are open, failed or stuck");
    if history.troubles.is_empty() {
        html.add(format_args!(
            "<p class=\"good\">None; done: {}{}.</p>",
            thousands(history.done),
            if history.undone > 0 {
                format!(", undone: {}", thousands(history.undone))
            } else {
                String::new()
            }
        ));
    } else {
        let rows = history.troubles.iter().take(MOST_ROWS).map(trouble);
        folded(html, "steps", ["Step", "State", "Since", "Why"], rows.collect());
        more(html, history.troubles.len());
    }
    html.end_section();
}

fn trouble(trouble: &Trouble) -> [String; 4] {
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
        format!("<span class=\"pill {class}\">{words}</span>"),
        moment(trouble.since),
        prose(trouble.error.as_deref().unwrap_or("–")),
    ]
}

fn more(html: &mut Html, count: usize) {
    let more = count.saturating_sub(MOST_ROWS);
    if more > 0 {
        html.add(format_args!("<p class=\"faint\">and {} more, not on this page</p>", thousands(more)));
    }
}

/// Writes the manual steps.
pub fn outside(html: &mut Html, history: &History) {
    html.section("outside", "Manual steps");
    let rows = history.outside.iter().map(|outside| {
        let Outside { name, what, why, .. } = outside;
        let waited = if outside.waited > 0 { lasting(outside.waited) } else { "–".to_string() };
        let text = format!("{}<br><span class=\"faint\">{}</span>", prose(what), prose(why));
        [code(name), text, confirmation(outside), waited]
    });
    html.table("outside", ["Name", "Description and reason", "Confirmed", "Waited"], rows);
    html.end_section();
}

fn confirmation(outside: &Outside) -> String {
    match (outside.confirmed, outside.undone) {
        (Some(done), Some(undone)) => format!("{}<br>undone {}", moment(done), moment(undone)),
        (Some(done), None) => moment(done),
        (None, _) => "<span class=\"faint\">not yet</span>".to_string(),
    }
}
