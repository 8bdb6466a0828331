//! The page about a DNS cutover. The page shows the mirror's share of the answers over time, every name, and every step.

use std::fmt::Write as _;

use maud::{Markup, Render, html};

use super::float;
use super::html::{clock, code, joined, prose, px, section, table};
use super::page::KindSections;
use crate::dns::{Cutover, Name, NameState, Point, Share, Situation};
use crate::nameserver::RecordSet;
use crate::operation::{State, Status};
use crate::session::Recorded;

/// Sizes of the drawing in pixels.
const WIDTH: f64 = 1180.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 60.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 30.0;

/// Returns the page about a cutover. `is_leased` is true if a process holds the operation lease for the cutover.
pub fn page(recorded: &Recorded<Cutover>, is_leased: bool) -> String {
    let situation = Situation::of(recorded, is_leased);
    let work = &recorded.plan.work;
    let status = situation.status;
    let sections = html! { (shares(recorded, &situation)) (names(work, &situation)) };
    let verdict = (class(status), status.name(), situation.progress());
    super::page::page(recorded, is_leased, KindSections { verdict, facts: facts(work), sections })
}

/// Returns the CSS class of a status.
fn class(status: Status) -> &'static str {
    match status {
        Status::Done => "good",
        Status::Stopped | Status::Stuck => "bad",
        _ => "info",
    }
}

fn facts(work: &Cutover) -> Vec<(&'static str, Markup)> {
    let listed: Vec<String> = work.shares.iter().map(|share| format!("{share} %")).collect();
    vec![
        ("Zone", code(&work.zone)),
        ("Provider", prose(&work.service.to_string())),
        ("Resolver", code(&work.resolver.to_string())),
        ("Stages", listed.join(", ").render()),
        (
            "Duration of a stage",
            format!("{} s, TTL at most {} s", work.soak, work.stage_ttl().as_secs()).render(),
        ),
    ]
}

/// Returns the mirror's share after each change: the time, and the mean share of all names, in percent. The last share is the share
/// in the head of the page.
fn history(recorded: &Recorded<Cutover>, situation: &Situation) -> Vec<(i64, f64)> {
    let work = &recorded.plan.work;
    let points = work.points();
    let mut changes: Vec<(i64, usize, Share)> = Vec::new();
    for (index, name) in work.names.iter().enumerate() {
        let (mut before, mut forward, mut back) = (None, Vec::new(), Vec::new());
        for point in &points {
            let record = recorded.journal.find(&work.step(name, *point));
            for (state, time) in record.into_iter().flat_map(|record| &record.history) {
                match state {
                    State::Done => forward.push((*time, index, share(work, name, Some(*point)))),
                    State::UndoDone => back.push((*time, index, share(work, name, before))),
                    _ => {}
                }
            }
            before = Some(*point);
        }
        // Several points can have the same second. A rollback undoes the last point first.
        changes.extend(forward.into_iter().chain(back.into_iter().rev()));
    }
    changes.sort_by_key(|(time, ..)| *time);
    let mut now: Vec<Share> = vec![0; work.names.len()];
    let mut found = vec![(recorded.summary.started, 0.0)];
    for (time, index, share) in changes {
        if let Some(place) = now.get_mut(index) {
            *place = share;
        }
        let sum: f64 = now.iter().map(|share| f64::from(*share)).sum();
        found.push((time, sum / float(now.len().max(1))));
    }
    let last = found.last().map_or(recorded.summary.started, |(time, _)| *time);
    found.push((last, mean(situation)));
    found
}

/// Returns the mirror's share now, as the mean of all names, in percent.
fn mean(situation: &Situation) -> f64 {
    let least = |standing: &NameState| f64::from(standing.shares.values().copied().min().unwrap_or_default());
    let sum: f64 = situation.names.iter().map(least).sum();
    sum / float(situation.names.len().max(1))
}

/// Returns the mirror's share of a name at a point of the cutover: the smallest share of the name's record types.
fn share(work: &Cutover, name: &Name, at: Option<Point>) -> Share {
    let sets = work.sets(name, at);
    name.shares_of(&sets).into_values().min().unwrap_or_default()
}

fn shares(recorded: &Recorded<Cutover>, situation: &Situation) -> Markup {
    let seen = seen(recorded);
    let content = html! {
        (draw(&history(recorded, situation), &seen))
        @if !seen.is_empty() { p.faint { "A point is the share of requests that the mirror's metrics showed at the end of a stage." } }
        p.faint {
            "The line is the mirror's share of answers, as the mean of all names: now " (format!("{:.0} %", mean(situation))) ". \
             Clients follow a change within the TTL."
        }
    };
    section("shares", "The mirror's share of answers", &content)
}

/// Returns the share of requests that the mirror's metrics showed at the end of each stage: the time, and the share in percent.
fn seen(recorded: &Recorded<Cutover>) -> Vec<(i64, f64)> {
    let (work, journal) = (&recorded.plan.work, &recorded.journal);
    let at = |share: usize| Some((work.soaked_at(share, journal)?, work.seen_at(share, journal)?.mean));
    (0..work.shares.len()).filter_map(at).collect()
}

/// Draws the share over time, from left to right. `seen` contains the shares that metrics showed.
fn draw(history: &[(i64, f64)], seen: &[(i64, f64)]) -> Markup {
    let (Some((first, _)), Some((last, _))) = (history.first(), history.last()) else { return html! {} };
    let length = float(last.saturating_sub(*first).max(1));
    let x = |time: i64| LEFT + (WIDTH - LEFT - RIGHT) * float(time.saturating_sub(*first)) / length;
    let y = |share: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share / 100.0);
    let mut path = format!("M {LEFT:.1} {:.1}", y(0.0));
    for (time, share) in history {
        let _ = write!(path, " H {:.1} V {:.1}", x(*time), y(*share));
    }
    html! {
        svg.timeline viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label="share of the mirror over time" {
            @for share in [0.0, 50.0, 100.0] {
                line.axis x1=(LEFT) y1=(px(y(share))) x2=(px(WIDTH - RIGHT)) y2=(px(y(share))) {}
                text.label x=(px(LEFT - 8.0)) y=(px(y(share) + 4.0)) { (share) " %" }
            }
            path.share d={ (path) " H " (px(WIDTH - RIGHT)) } {}
            @for (time, share) in seen {
                circle.seen cx=(px(x(*time))) cy=(px(y(*share))) r="5" { title { (format!("{share:.1} %")) } }
            }
            @for time in [*first, *last] {
                text.tick x=(px(x(time) - 20.0)) y=(px(HEIGHT - 8.0)) { (clock(time).0) }
            }
        }
    }
}

fn names(work: &Cutover, situation: &Situation) -> Markup {
    let text = |sets: &[RecordSet]| joined(sets.iter().map(|set| code(&set.to_string())), &html! { br; });
    let row = |(name, standing): (&Name, &NameState)| {
        [
            code(&name.name),
            joined(name.by.iter().map(|by| prose(by)), &html! { br; }),
            text(&name.before),
            if standing.unknown {
                prose("not known: the records of earlier runs are lost")
            } else {
                text(&standing.expected)
            },
            standing.share().render(),
            code(&name.probe.to_string()),
            prose(standing.remark().as_deref().unwrap_or("–")),
        ]
    };
    let rows = work.names.iter().zip(&situation.names).map(row);
    let headings =
        ["Name", "Object", "Before", "Now, by the journal", "Share", "Probe", "Skipped or given up"];
    section("names", "Names", &table("names", headings, rows))
}
