//! The page about a test of the network: the matrix, the paths, and the failures with their likely causes.

use maud::{Markup, Render, html};

use super::html::{code, document, drawing, facts, header, prose, section, table};
use crate::network::cause::Cause;
use crate::network::cell::Verdict;
use crate::network::{Path, TestResult, svg};

/// The number of failed paths of one kind that the page shows in full.
const IN_FULL: usize = 50;

/// Returns the page about a result.
pub fn page(result: &TestResult, causes: &[Cause]) -> String {
    let failed = result.cells().filter(|(_, cell)| cell.verdict() == Verdict::Failed).count();
    let verdict = if failed == 0 { ("good", "passed") } else { ("bad", "failed") };
    let words = if failed == 0 {
        "Every tested path passed.".to_string()
    } else {
        format!("{failed} of {} paths failed.", result.paths.len())
    };
    let identity = facts([
        ("Started", code(&result.started)),
        ("Nodes", result.nodes.len().render()),
        ("Rounds", rounds(result).render()),
        ("Time of the rounds", format!("{:.0} s", result.seconds).render()),
        ("Rounds until every pair is tested", result.rounds_to_cover.render()),
    ]);
    let content = html! {
        (header("network test", &format!("Network of {} nodes", result.nodes.len()), verdict, &words, &identity))
        (section("matrix", "Nodes", &html! { div.wide { (drawing(&svg(result))) } }))
        @for cause in causes { (section_of(result, cause)) }
        (section("paths", "Paths", &paths(result)))
    };
    document("Network test", &content, "the agents on the nodes")
}

fn rounds(result: &TestResult) -> String {
    let ended = if result.ended_early { ", then ended early by a signal" } else { "" };
    format!("{}{ended}", result.rounds)
}

fn section_of(result: &TestResult, cause: &Cause) -> Markup {
    let heading = format!("{}: {} failed, {}", cause.path, cause.paths, cause.pattern);
    let failed = result.cells().filter(|(key, cell)| {
        key.path == cause.path && cell.verdict() == Verdict::Failed && cell.fault() == Some(cause.fault)
    });
    let rows = failed.take(IN_FULL).map(|(key, cell)| {
        let (tried, seen) = cell.last.as_ref().map_or(("", ""), |last| (&*last.tried, &*last.seen));
        [key.from.as_str(), key.to.as_str(), key.variant.as_str(), tried, seen].map(Render::render)
    });
    let content = html! {
        p { "Likely: " (prose(&cause.likely)) "." }
        p { "Remedy: " (prose(&cause.remedy)) "." }
        (table("", ["From", "To", "Probe", "Tried", "Seen"], rows))
    };
    section(cause.path.name(), &heading, &content)
}

fn paths(result: &TestResult) -> Markup {
    let rows = Path::ALL.into_iter().filter_map(|path| {
        let of = |verdict: Verdict| {
            result.cells().filter(move |(key, cell)| key.path == path && cell.verdict() == verdict).count()
        };
        let counts = [Verdict::Passed, Verdict::Failed, Verdict::NotTested].map(of);
        let [passed, failed, open] = counts.map(|count| count.render());
        counts
            .iter()
            .any(|count| *count > 0)
            .then(|| [code(path.name()), path.title().render(), passed, failed, open])
    });
    table("", ["Path", "What", "Passed", "Failed", "Not tested"], rows)
}
