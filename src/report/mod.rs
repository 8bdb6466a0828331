//! Builds one HTML page about an operation, from its journal and plan. The page needs no network and no script. The same journal
//! and the same state of the cluster always produce the same page.

pub mod activation;
pub mod cutover;
mod history;
mod html;
pub mod mirror;
pub mod network_test;
mod page;
pub mod picture;
mod ranges;
pub mod rewrite;
mod runs;
pub mod sans;
mod sections;
mod services;
mod style;
mod timeline;

use std::net::IpAddr;

use maud::{Markup, Render, html};

use self::history::{History, Tier};
use self::html::{code, document, moment, prose, section, table};
use self::ranges::Allocation;
use crate::operation::{Journal, Plan, Summary};
use crate::renumber::drift;
use crate::renumber::run::situation::Situation;
use crate::renumber::verify::{self, Phase};
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
    /// A renumbering that started after this one had ended.
    pub later: Option<String>,
}

impl Subject<'_> {
    /// Returns the situation of the operation: its status and progress.
    fn situation(&self) -> Situation {
        let newcomers = drift::newcomer_names(&self.plan.work, self.survey);
        Situation::of(self.operation, &self.plan.work, self.journal, self.summary, self.is_leased)
            .with_newcomers(&newcomers)
    }
}

/// Returns the page about a renumbering.
pub fn page(subject: &Subject<'_>) -> String {
    let (work, journal) = (&subject.plan.work, subject.journal);
    let history = History { tiers: tiers(work), ..History::of(work, journal, subject.summary) };
    let verified = verify::verify(work, subject.survey, |step| journal.state(step));
    let verified = match &subject.later {
        Some(later) => verified.superseded_by(later),
        None => verified,
    };
    let problems = html! {
        (sections::findings(subject, &verified))
        (sections::troubles(&history))
    };
    // Problems come first. If there are none, the page states this at its end.
    let has_problems = !history.troubles.is_empty() || !verified.findings.is_empty();
    let content = html! {
        (sections::head(subject, &history, &verified))
        @if has_problems { (problems) }
        (sections::timeline(subject, &history))
        (runs::section_of(subject.summary, subject.is_leased))
        (allocation(subject))
        (sections::outside(&history))
        (services::section(subject, &history))
        @if !has_problems { (problems) }
    };
    let revision = subject.survey.revision;
    let sources = format!("the journal of the operation and the cluster at revision {revision}");
    document(subject.operation, &content, &sources)
}

/// Converts a number for a drawing. The maximum is `i32::MAX`. In seconds, this is 68 years, longer than any operation.
fn float(number: impl TryInto<i32>) -> f64 {
    f64::from(number.try_into().unwrap_or(i32::MAX))
}

/// Returns the tiers of a plan that have a batch, in order.
fn tiers(work: &Renumbering) -> Vec<Tier> {
    let mut tiers: Vec<Tier> = Vec::new();
    for (batch, moves) in work.batches().iter().enumerate() {
        let Some(name) = work.tier_of_batch(batch) else { continue };
        let end = batch.saturating_add(1);
        match tiers.last_mut() {
            Some(last) if last.name == name && last.batches.end == batch => {
                last.batches.end = end;
                last.services = last.services.saturating_add(moves.len());
            }
            _ => tiers.push(Tier { name: name.to_string(), services: moves.len(), batches: batch..end }),
        }
    }
    tiers
}

/// Returns every step of an operation, with its states.
fn steps(journal: &Journal) -> Markup {
    let rows = journal.records().into_iter().flat_map(|(step, record)| {
        let error = record.error.as_deref().unwrap_or("–");
        record.history.iter().map(move |(state, time)| {
            [code(&step.to_string()), state.to_string().render(), moment(*time), prose(error)]
        })
    });
    let content = html! {
        (table("steps", ["Step", "State", "Since", "Why"], rows))
        p.faint { "All times are UTC, in whole seconds." }
    };
    section("steps", "Steps", &content)
}

fn allocation(subject: &Subject<'_>) -> Markup {
    let work = &subject.plan.work;
    let phase = |candidate: &Move| Phase::of(candidate, |step| subject.journal.state(step));
    let addresses = |wanted: &dyn Fn(&Move) -> Option<IpAddr>| work.moves.iter().filter_map(wanted).collect();
    let old = |what: &str, addresses: Vec<IpAddr>| -> Vec<Allocation> {
        let of = |range| Allocation { range, what: what.to_string(), addresses: addresses.clone() };
        work.from.iter().copied().map(of).collect()
    };
    let new = |what: &str, addresses| Allocation { range: work.to, what: what.to_string(), addresses };
    let mut before = old("by Services that move", addresses(&|m| Some(m.old_address)));
    before.push(new("by these Services", Vec::new()));
    let is_left = |m: &Move| (phase(m) != Phase::Retired).then_some(m.old_address);
    let mut after = old("by Services, or held for them", addresses(&is_left));
    let has_moved = |m: &Move| (phase(m) != Phase::Waiting).then_some(m.new_address);
    after.push(new("by Services that have moved", addresses(&has_moved)));
    let content = html! {
        div.ranges {
            (ranges::column("Before", &before))
            (ranges::column("After, according to the journal", &after))
        }
        (sections::legend(&ranges::LEGEND))
    };
    section("allocation", "The ranges before and after", &content)
}
