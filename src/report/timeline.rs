//! The timeline as a drawing, with a row for each part of the operation. Time runs from left to right. The longest pauses have a
//! fixed width, because otherwise a soak of several days would leave no room for the minutes of work.

use maud::{Markup, html};

use super::float;
use super::history::{History, Pause, Span, Tier};
use super::html::{clock, px};
use crate::operation::Stage;

/// Sizes in pixels.
const WIDTH: f64 = 1180.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 22.0;
const ROW: f64 = 22.0;
const PAUSE: f64 = 30.0;
/// Largest total height of all batches.
const BATCHES: f64 = 420.0;
const LEAST_ROW: f64 = 2.0;
const LEAST_LABEL: f64 = 15.0;
/// Smallest distance between two times on the axis.
const TICK: f64 = 92.0;
/// Number of characters of a tier's name that fit next to its row.
const LONGEST_NAME: usize = 15;
/// Maximum number of pauses that are drawn with a fixed width.
const MOST_PAUSES: usize = 14;

/// Draws the timeline.
pub fn draw(history: &History) -> Markup {
    let axis = Axis::new(history);
    let rows = Row::all(history);
    let bottom = rows.last().map_or(TOP, |row| row.y + row.height);
    html! {
        svg.timeline viewBox=(format!("0 0 {WIDTH:.0} {:.0}", bottom + 44.0)) role="img" aria-label="timeline" {
            (bands(&rows))
            @for (number, x) in &axis.marks {
                rect.pause x=(px(*x)) y=(TOP) width=(PAUSE) height=(px(bottom - TOP)) {}
                text.number x=(px(x + PAUSE / 2.0)) y=(px(TOP - 7.0)) { (number) }
            }
            @for row in &rows { (row.draw(history, &axis)) }
            (axis.draw(bottom))
        }
    }
}

/// Draws a background under the rows of each tier, to show that they belong together.
fn bands(rows: &[Row]) -> Markup {
    html! {
        @for (index, head) in rows.iter().enumerate().filter(|(_, row)| row.is_tier) {
            @let own = rows.get(index..).unwrap_or_default();
            @let bottom = own.iter().take_while(|row| row.tier == head.tier).last().map_or(head.y, Row::bottom);
            rect.band x="0" y=(px(head.y + 1.0)) width=(WIDTH) height=(px(bottom - head.y - 2.0)) {}
        }
    }
}

/// A part of the axis, from one time and position to another.
struct Piece {
    from: i64,
    to: i64,
    x: f64,
    width: f64,
    is_pause: bool,
}

struct Axis {
    pieces: Vec<Piece>,
    /// The pauses that are drawn, each with its index in the list and its position.
    marks: Vec<(usize, f64)>,
}

impl Axis {
    fn new(history: &History) -> Self {
        // The longest pauses are drawn with a fixed width. Other pauses keep their length.
        let mut longest: Vec<(usize, &Pause)> = history.pauses.iter().enumerate().collect();
        longest.sort_by_key(|(index, pause)| (pause.from.saturating_sub(pause.to), *index));
        longest.truncate(MOST_PAUSES);
        longest.sort_by_key(|(index, _)| *index);
        let cut = longest
            .iter()
            .fold(0_i64, |sum, (_, pause)| sum.saturating_add(pause.to.saturating_sub(pause.from)));
        let active = float(history.to.saturating_sub(history.from).saturating_sub(cut).max(1));
        let room = WIDTH - LEFT - RIGHT - PAUSE * float(longest.len());
        let per_second = room / active;
        let mut axis = Self { pieces: Vec::new(), marks: Vec::new() };
        let (mut time, mut x) = (history.from, LEFT);
        for (index, pause) in longest {
            let width = float(pause.from.saturating_sub(time)) * per_second;
            axis.pieces.push(Piece { from: time, to: pause.from, x, width, is_pause: false });
            x += width;
            axis.marks.push((index.saturating_add(1), x));
            axis.pieces.push(Piece { from: pause.from, to: pause.to, x, width: PAUSE, is_pause: true });
            (time, x) = (pause.to, x + PAUSE);
        }
        axis.pieces.push(Piece { from: time, to: history.to, x, width: WIDTH - RIGHT - x, is_pause: false });
        axis
    }

    /// Returns the position of a time on the axis. At the boundary between two pieces of the axis, a span that starts there uses
    /// the later piece, and a span that ends there uses the earlier piece.
    fn x(&self, time: i64, begins: bool) -> f64 {
        let fits = |piece: &&Piece| piece.from <= time && time <= piece.to;
        let mut pieces = self.pieces.iter().filter(fits);
        let found = if begins { pieces.next_back() } else { pieces.next() };
        let Some(piece) = found else { return WIDTH - RIGHT };
        let lasts = float(piece.to.saturating_sub(piece.from));
        let share = if lasts > 0.0 { float(time.saturating_sub(piece.from)) / lasts } else { 0.0 };
        piece.x + piece.width * share
    }

    fn draw(&self, y: f64) -> Markup {
        let (mut free, mut day, mut ticks) = (0.0, String::new(), Vec::new());
        for piece in self.pieces.iter().filter(|piece| !piece.is_pause) {
            let lasts = piece.to.saturating_sub(piece.from);
            let per_second = if lasts > 0 { piece.width / float(lasts) } else { 0.0 };
            let mut time = piece.from;
            while time <= piece.to {
                let x = piece.x + float(time.saturating_sub(piece.from)) * per_second;
                if x >= free && x <= WIDTH - TICK / 2.0 {
                    let (of_day, date) = clock(time);
                    ticks.push(html! {
                        line.axis x1=(px(x)) y1=(px(y)) x2=(px(x)) y2=(px(y + 4.0)) {}
                        text.tick x=(px(x)) y=(px(y + 17.0)) { (of_day) }
                        @if date != day { text.tick x=(px(x)) y=(px(y + 31.0)) { (date) } }
                    });
                    (day, free) = (date, x + TICK);
                }
                time = time.saturating_add(tick_after(per_second));
            }
        }
        html! {
            line.axis x1=(LEFT) y1=(px(y)) x2=(px(WIDTH - RIGHT)) y2=(px(y)) {}
            @for tick in ticks { (tick) }
        }
    }
}

/// Returns the seconds between two ticks: a round number, large enough that the texts do not overlap.
fn tick_after(per_second: f64) -> i64 {
    let steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];
    steps.into_iter().find(|step| float(*step) * per_second >= TICK).unwrap_or(604_800)
}

/// A row of the drawing.
struct Row {
    label: String,
    y: f64,
    height: f64,
    spans: Vec<Span>,
    has_label: bool,
    /// Position of the row's tier in the list of tiers.
    tier: Option<usize>,
    /// Whether this is the row of the tier itself, above the rows of its batches.
    is_tier: bool,
}

impl Row {
    fn new(label: String, height: f64) -> Self {
        Self { label, y: 0.0, height, spans: Vec::new(), has_label: true, tier: None, is_tier: false }
    }

    /// Returns the row of a tier.
    fn of_tier(history: &History, place: usize) -> Option<Self> {
        let tier = history.tiers.get(place)?;
        let mut name: String = tier.name.chars().take(LONGEST_NAME).collect();
        if name.len() < tier.name.len() {
            name.push('…');
        }
        let stage = history.stages.iter().find(|stage| stage.batch == Some(tier.batches.start))?.index;
        let span = |back| {
            let (from, to) = history.of_batches(&tier.batches, back)?;
            Some(Span { stage, back, others: false, from, to })
        };
        let spans = [false, true].into_iter().filter_map(span).collect();
        Some(Self { spans, tier: Some(place), is_tier: true, ..Self::new(format!("tier {name}"), ROW) })
    }

    /// Returns the rows: the parts of the operation in the order of the plan, and a row for each batch, below its tier.
    fn all(history: &History) -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::new();
        let batches = history.stages.iter().filter_map(|stage| stage.batch).max();
        let count = batches.map_or(1, |last| last.saturating_add(1));
        let of_batch = (BATCHES / float(count)).clamp(LEAST_ROW, ROW);
        for stage in &history.stages {
            let spans = history.spans.iter().filter(|span| span.stage == stage.index).copied();
            let (label, height) = match stage.batch {
                Some(batch) => (format!("batch {} of {count}", batch.saturating_add(1)), of_batch),
                None => (part(&stage.name).to_string(), ROW),
            };
            if let Some(row) = rows.iter_mut().find(|row| !row.is_tier && row.label == label) {
                row.spans.extend(spans);
                continue;
            }
            let is_its = |tier: &Tier| stage.batch.is_some_and(|batch| tier.batches.contains(&batch));
            let tier = history.tiers.iter().position(is_its);
            if let Some(place) = tier.filter(|_| rows.last().is_none_or(|last| last.tier != tier)) {
                rows.extend(Self::of_tier(history, place));
            }
            rows.push(Self { spans: spans.collect(), tier, ..Self::new(label, height) });
        }
        rows.retain(|row| !row.spans.is_empty());
        let mut y = TOP;
        for row in &mut rows {
            row.y = y;
            y += row.height;
        }
        Self::label_some(&mut rows);
        rows
    }

    /// Removes labels that would overlap other labels. A row that is at least as high as a label keeps its label.
    fn label_some(rows: &mut [Self]) {
        let full: Vec<f64> = rows.iter().filter(|row| row.height >= LEAST_LABEL).map(Self::middle).collect();
        let mut last = f64::NEG_INFINITY;
        for row in rows {
            let middle = row.middle();
            let is_free = || full.iter().all(|other| (other - middle).abs() >= LEAST_LABEL);
            row.has_label = row.height >= LEAST_LABEL || (middle - last >= LEAST_LABEL && is_free());
            if row.has_label {
                last = middle;
            }
        }
    }

    fn middle(&self) -> f64 {
        self.y + self.height / 2.0
    }

    fn bottom(&self) -> f64 {
        self.y + self.height
    }

    fn draw(&self, history: &History, axis: &Axis) -> Markup {
        let gap = match () {
            () if self.is_tier => 8.0,
            () if self.height > 8.0 => 3.0,
            () => 0.4,
        };
        let mut spans = self.spans.clone();
        // Short spans are drawn over long spans.
        spans.sort_by_key(|span| span.from.saturating_sub(span.to));
        html! {
            @if self.has_label {
                text.label.tier[self.is_tier] x=(px(LEFT - 10.0)) y=(px(self.middle() + 4.0)) { (self.label) }
            }
            @for span in &spans {
                @if let Some(stage) = history.stages.get(span.stage) {
                    (self.span(span, stage, axis, gap))
                }
            }
        }
    }

    fn span(&self, span: &Span, stage: &Stage, axis: &Axis, gap: f64) -> Markup {
        let (from, to) = (axis.x(span.from, true), axis.x(span.to, false));
        let class = match () {
            () if span.others => "others",
            () if span.back => "back",
            () if self.is_tier => "tier",
            () => class(&stage.name),
        };
        let width = (to - from).max(2.5);
        let (x, height) = (from.min(WIDTH - RIGHT - width), (self.height - gap * 2.0).max(1.0));
        html! {
            rect class=(class) x=(px(x)) y=(px(self.y + gap)) width=(px(width)) height=(px(height)) {
                title {
                    @if span.back { "rollback: " }
                    (if self.is_tier { &self.label } else { &stage.title }) ": "
                    (clock(span.from).0) " to " (clock(span.to).0)
                }
            }
        }
    }
}

/// Returns the name of the row for a stage that belongs to no batch.
fn part(stage: &str) -> &'static str {
    match stage {
        "prepare" | "reserve" | "open-range" | "overlap" => "prepare",
        "flags" => "API servers' flag",
        "records" | "close" => "soak",
        "no-return" | "retire" => "retire",
        _ => "finish",
    }
}

/// Returns the CSS class of a stage. Each kind of work has its own colour.
fn class(stage: &str) -> &'static str {
    match stage {
        "barrier" | "verify" => "wait",
        "flip" => "flip",
        "no-return" | "retire" => "retire",
        _ => "write",
    }
}

/// The legend: CSS class and text of each entry.
pub const LEGEND: [(&str, &str); 7] = [
    ("write", "write, route, settle"),
    ("wait", "wait for every node"),
    ("flip", "move addresses"),
    ("retire", "retire"),
    ("back", "roll back"),
    ("others", "manual step"),
    ("pause", "paused (numbered below)"),
];
