//! A result as a picture: a square of nodes by nodes, rows ask and columns answer. A broken node is a red row and a red column.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::cell::Verdict;
use super::path::Path;
use super::result::Result;
use crate::words::xml_escaped as escape;

/// The largest width of a cell, in pixels.
const LARGEST: usize = 22;
/// The width of the whole matrix in a large cluster, in pixels.
const WIDTH: usize = 1000;
/// The longest name that is drawn, in letters.
const LONGEST_NAME: usize = 28;
const LETTER: usize = 7;

/// The worst verdict of a pair, and the paths that failed.
#[derive(Default)]
struct Pair {
    has_passed: bool,
    failed: Vec<Path>,
}

/// Returns the picture as an SVG document.
pub fn svg(result: &Result) -> String {
    let pairs = pairs(result);
    let count = result.nodes.len().max(1);
    let size = WIDTH.checked_div(count).unwrap_or(1).clamp(2, LARGEST);
    let has_names = size >= 10;
    let longest =
        result.nodes.iter().map(|node| node.chars().count().min(LONGEST_NAME)).max().unwrap_or_default();
    let margin = if has_names { longest.saturating_mul(LETTER).saturating_add(16) } else { 20 };
    let edge = size.saturating_mul(count);
    let (width, height) = (
        margin.saturating_add(edge).saturating_add(20).max(420),
        margin.saturating_add(edge).saturating_add(64),
    );
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"11\" role=\"img\" aria-label=\"network of {count} nodes\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    if has_names {
        names(&result.nodes, (margin, size), &mut text);
    }
    for (row, from) in result.nodes.iter().enumerate() {
        for (column, to) in result.nodes.iter().enumerate() {
            let pair = pairs.get(&(from.as_str(), to.as_str()));
            let x = margin.saturating_add(column.saturating_mul(size));
            let y = margin.saturating_add(row.saturating_mul(size));
            square((x, y, size), (from, to), pair, &mut text);
        }
    }
    legend(margin.saturating_add(edge).saturating_add(24), &mut text);
    text.push_str("</svg>\n");
    text
}

fn pairs(result: &Result) -> BTreeMap<(&str, &str), Pair> {
    let mut pairs: BTreeMap<(&str, &str), Pair> = BTreeMap::new();
    for (key, cell) in result.cells() {
        let to = if key.path.is_pair() { key.to.as_str() } else { key.from.as_str() };
        let pair = pairs.entry((key.from.as_str(), to)).or_default();
        match cell.verdict() {
            Verdict::Passed => pair.has_passed = true,
            Verdict::Failed if !pair.failed.contains(&key.path) => pair.failed.push(key.path),
            Verdict::Failed | Verdict::NotTested => {}
        }
    }
    pairs
}

fn names(nodes: &[String], (margin, size): (usize, usize), text: &mut String) {
    for (place, node) in nodes.iter().enumerate() {
        let short: String = node.chars().take(LONGEST_NAME).collect();
        let short = escape(&short);
        let middle = margin.saturating_add(place.saturating_mul(size)).saturating_add(size / 2);
        let (end, base) = (margin.saturating_sub(6), middle.saturating_add(4));
        let _ = writeln!(text, "<text x=\"{end}\" y=\"{base}\" text-anchor=\"end\">{short}</text>");
        let _ = writeln!(text, "<text transform=\"translate({base} {end}) rotate(-90)\">{short}</text>");
    }
}

fn square(
    (x, y, size): (usize, usize, usize),
    (from, to): (&str, &str),
    pair: Option<&Pair>,
    text: &mut String,
) {
    let (color, what) = match pair {
        Some(pair) if !pair.failed.is_empty() => {
            let paths: Vec<&str> = pair.failed.iter().map(|path| path.name()).collect();
            ("#c62828", format!("failed: {}", paths.join(", ")))
        }
        Some(Pair { has_passed: true, .. }) => ("#9ccc65", "passed".to_string()),
        _ => ("#eeeeee", "not tested".to_string()),
    };
    let inner = size.saturating_sub(1).max(1);
    let title =
        escape(&if from == to { format!("{from}: {what}") } else { format!("{from} → {to}: {what}") });
    let _ = writeln!(
        text,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{inner}\" height=\"{inner}\" fill=\"{color}\"><title>{title}</title></rect>"
    );
}

fn legend(y: usize, text: &mut String) {
    let entries = [("#9ccc65", "passed"), ("#c62828", "failed"), ("#eeeeee", "not tested")];
    for (place, (color, word)) in entries.into_iter().enumerate() {
        let x = place.saturating_mul(90).saturating_add(20);
        let (base, after) = (y.saturating_add(10), x.saturating_add(18));
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{color}\"/><text x=\"{after}\" y=\"{base}\">{word}</text>"
        );
    }
    let base = y.saturating_add(28);
    let _ = writeln!(
        text,
        "<text x=\"20\" y=\"{base}\" fill=\"#555\">rows ask, columns answer; the diagonal is the node itself</text>"
    );
}
