//! Builds one HTML page about an operation, from its journal and plan. The page needs no network and no script. The same journal
//! and cluster give the same page.

pub mod cutover;
mod history;
mod html;
pub mod picture;
mod ranges;
pub mod rewritten;
mod sections;
mod services;
mod style;
mod timeline;

use std::net::IpAddr;

use self::history::History;
use self::html::{Html, code, esc, moment, prose};
use self::ranges::Allocation;
use crate::operation::{Journal, Plan, Summary};
use crate::renumber::run::situation::Situation;
use crate::renumber::verify::{self, Phase, Verified};
use crate::renumber::{Move, Renumbering};
use crate::survey::Survey;

/// The data of a page.
pub struct Subject<'a> {
    /// Id of the operation.
    pub operation: &'a str,
    /// Plan of the operation.
    pub plan: &'a Plan<Renumbering>,
    /// The status of the operation.
    pub summary: &'a Summary,
    /// The records of the operation's steps.
    pub journal: &'a Journal,
    /// The current state of the cluster.
    pub survey: &'a Survey,
    /// Whether a process holds the operation lease for this operation.
    pub is_leased: bool,
}

impl Subject<'_> {
    /// Returns the situation of the operation: its status and progress.
    fn situation(&self) -> Situation {
        Situation::of(self.operation, &self.plan.work, self.journal, self.summary, self.is_leased)
    }
}

/// Returns the page about a renumbering.
pub fn page(subject: &Subject<'_>) -> String {
    let (work, journal) = (&subject.plan.work, subject.journal);
    let history = History::of(work, journal, subject.summary);
    let verified = verify::verify(work, subject.survey, |step| journal.state(step));
    let mut html = Html::default();
    begin(&mut html, subject.operation);
    sections::head(&mut html, subject, &history, &verified);
    problems(&mut html, subject, &history, &verified);
    sections::timeline(&mut html, subject, &history);
    allocation(&mut html, subject);
    sections::outside(&mut html, &history);
    services::section(&mut html, subject, &history);
    if !has_problems(&history, &verified) {
        sections::findings(&mut html, subject, &verified);
        sections::troubles(&mut html, &history);
    }
    end(
        &mut html,
        &format!("the journal of the operation and the cluster at revision {}", subject.survey.revision),
    );
    html.0
}

fn end(html: &mut Html, sources: &str) {
    html.add(format_args!(
        "<footer>Created by netsurgeon {} from {sources}.</footer>\n</body>\n</html>",
        env!("CARGO_PKG_VERSION")
    ));
}

fn begin(html: &mut Html, operation: &str) {
    // The page must not load or run anything, even if it had an escaping bug.
    html.add(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>{}</title>\n<style>\n{}</style>\n\
         </head>\n<body>",
        esc(operation),
        style::CSS
    ));
}

/// Converts a number for a drawing. The maximum is `i32::MAX`: as a number of seconds this is 68 years, longer than any
/// operation.
fn float(number: impl TryInto<i32>) -> f64 {
    f64::from(number.try_into().unwrap_or(i32::MAX))
}

/// Adds every step of an operation, with its states.
fn steps(html: &mut Html, journal: &Journal) {
    html.section("steps", "Steps");
    let rows = journal.records().into_iter().flat_map(|(step, record)| {
        let error = record.error.as_deref().unwrap_or("–");
        record.history.iter().map(move |(state, time)| {
            [code(&step.to_string()), state.to_string(), moment(*time), prose(error)]
        })
    });
    html.table("steps", ["Step", "State", "Since", "Why"], rows);
    html.add(format_args!("<p class=\"faint\">All times are UTC, in whole seconds.</p>"));
    html.end_section();
}

fn has_problems(history: &History, verified: &Verified) -> bool {
    !history.troubles.is_empty() || !verified.findings.is_empty()
}

/// Writes the problems at the start of the page. If there are none, the page states this at its end.
fn problems(html: &mut Html, subject: &Subject<'_>, history: &History, verified: &Verified) {
    if has_problems(history, verified) {
        sections::findings(html, subject, verified);
        sections::troubles(html, history);
    }
}

fn allocation(html: &mut Html, subject: &Subject<'_>) {
    let work = &subject.plan.work;
    let phase = |candidate: &Move| Phase::of(candidate, |step| subject.journal.state(step));
    let addresses = |wanted: &dyn Fn(&Move) -> Option<IpAddr>| work.moves.iter().filter_map(wanted).collect();
    let old = |what: &str, addresses: Vec<IpAddr>| -> Vec<Allocation> {
        let of = |range| Allocation { range, what: what.to_string(), addresses: addresses.clone() };
        work.from.iter().copied().map(of).collect()
    };
    let new = |what: &str, addresses| Allocation { range: work.to, what: what.to_string(), addresses };
    html.section("allocation", "The ranges before and after");
    html.add(format_args!("<div class=\"ranges\">"));
    let mut before = old("by Services that move", addresses(&|m| Some(m.old_address)));
    before.push(new("by these Services", Vec::new()));
    ranges::column(html, "Before", &before);
    let is_left = |m: &Move| (phase(m) != Phase::Retired).then_some(m.old_address);
    let mut after = old("by Services, or held for them", addresses(&is_left));
    let has_moved = |m: &Move| (phase(m) != Phase::Waiting).then_some(m.new_address);
    after.push(new("by Services that have moved", addresses(&has_moved)));
    ranges::column(html, "After, according to the journal", &after);
    html.add(format_args!("</div>"));
    sections::legend(html, &ranges::LEGEND);
    html.end_section();
}
