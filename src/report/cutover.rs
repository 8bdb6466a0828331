//! The page about a cutover of DNS names: the share of the mirror over time, every name, and every step.

use std::fmt::Write as _;

use super::html::{Html, clock, code, esc, moment, prose};
use super::{begin, end, float, steps};
use crate::dns::{Cutover, Name, Point, Share, Situation, Standing};
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

/// Returns the page about a cutover. `is_leased`: whether a process holds the operation lease for it.
pub fn page(recorded: &Recorded<Cutover>, is_leased: bool) -> String {
    let situation = Situation::of(recorded, is_leased);
    let mut html = Html::default();
    begin(&mut html, &recorded.operation);
    head(&mut html, recorded, &situation);
    shares(&mut html, recorded);
    names(&mut html, &recorded.plan.work, &situation);
    steps(&mut html, &recorded.journal);
    end(&mut html, "the journal of the operation");
    html.0
}

/// Returns the CSS class of a status.
fn class(status: Status) -> &'static str {
    match status {
        Status::Done => "good",
        Status::Stopped | Status::Stuck => "bad",
        _ => "info",
    }
}

fn head(html: &mut Html, recorded: &Recorded<Cutover>, situation: &Situation) {
    let (summary, plan) = (&recorded.summary, &recorded.plan);
    let (status, work) = (situation.status, &plan.work);
    html.head(&summary.kind, &recorded.operation, (class(status), status.name()), &situation.progress());
    let listed: Vec<String> = work.shares.iter().map(|share| format!("{share} %")).collect();
    html.facts([
        ("Zone", code(&work.zone)),
        ("Provider", prose(&work.service.to_string())),
        ("Resolver", code(&work.resolver.to_string())),
        ("Stages", listed.join(", ")),
        ("Duration of a stage", format!("{} s, TTL at most {} s", work.soak, work.stage_ttl().as_secs())),
        ("Started by", esc(summary.holder.as_deref().unwrap_or("not known")).to_string()),
        ("Started", moment(summary.started)),
        ("Ended", summary.ended.map_or_else(|| "not yet".to_string(), moment)),
        ("Cluster", code(&plan.header.cluster)),
        ("Plan digest", code(&plan.digest)),
    ]);
    html.add(format_args!("</header>"));
}

/// The share of the mirror after each change: the time, and the mean over all names in percent.
fn history(recorded: &Recorded<Cutover>) -> Vec<(i64, f64)> {
    let work = &recorded.plan.work;
    let points = work.points();
    let mut changes: Vec<(i64, usize, Share)> = Vec::new();
    for (index, name) in work.names.iter().enumerate() {
        let mut before = None;
        for point in &points {
            let record = recorded.journal.find(&work.step(name, *point));
            for (state, time) in record.into_iter().flat_map(|record| &record.history) {
                let at = match state {
                    State::Done => Some(*point),
                    State::UndoDone => before,
                    _ => continue,
                };
                changes.push((*time, index, share(work, name, at)));
            }
            before = Some(*point);
        }
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
    found
}

/// Returns the share of a name at a point: the smallest of its record types.
fn share(work: &Cutover, name: &Name, at: Option<Point>) -> Share {
    let sets = work.sets(name, at);
    name.shares_of(&sets).into_values().min().unwrap_or_default()
}

fn shares(html: &mut Html, recorded: &Recorded<Cutover>) {
    html.section("shares", "Share of the mirror");
    html.add(format_args!("{}", draw(&history(recorded))));
    html.add(format_args!(
        "<p class=\"faint\">The share of the mirror's addresses in the answers for a name, as the mean over all names. Clients follow \
         within the TTL.</p>"
    ));
    html.end_section();
}

/// Draws the share over time, from left to right.
fn draw(history: &[(i64, f64)]) -> String {
    let (Some((first, _)), Some((last, _))) = (history.first(), history.last()) else { return String::new() };
    let length = float(last.saturating_sub(*first).max(1));
    let x = |time: i64| LEFT + (WIDTH - LEFT - RIGHT) * float(time.saturating_sub(*first)) / length;
    let y = |share: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share / 100.0);
    let mut svg = format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" aria-label=\"share of the mirror over time\">\n"
    );
    for share in [0.0, 50.0, 100.0] {
        let (at, text) = (y(share), y(share) + 4.0);
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"label\" x=\"{:.1}\" y=\"{text:.1}\">{share:.0} %</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
        );
    }
    let mut path = format!("M {LEFT:.1} {:.1}", y(0.0));
    for (time, share) in history {
        let _ = write!(path, " H {:.1} V {:.1}", x(*time), y(*share));
    }
    let _ = writeln!(svg, "<path class=\"share\" d=\"{path} H {:.1}\"/>", WIDTH - RIGHT);
    for time in [*first, *last] {
        let (hours, _) = clock(time);
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{hours}</text>",
            x(time) - 20.0,
            HEIGHT - 8.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn names(html: &mut Html, work: &Cutover, situation: &Situation) {
    html.section("names", "Names");
    let text =
        |sets: &[RecordSet]| sets.iter().map(|set| code(&set.to_string())).collect::<Vec<_>>().join("<br>");
    let row = |(name, standing): (&Name, &Standing)| {
        [
            code(&name.name),
            name.by.iter().map(|by| prose(by)).collect::<Vec<_>>().join("<br>"),
            text(&name.before),
            text(&standing.expected),
            standing.share(),
            code(&name.probe.to_string()),
            prose(standing.skipped.as_deref().unwrap_or("–")),
        ]
    };
    let rows = work.names.iter().zip(&situation.names).map(row);
    html.table(
        "names",
        ["Name", "Object", "Before", "Now, by the journal", "Share", "Probe", "Why skipped"],
        rows,
    );
    html.end_section();
}
