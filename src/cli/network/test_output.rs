//! The output of `netsurgeon network test`.

use serde::Serialize;

use crate::cli::output::{Output, Tone, table};
use crate::network::cause::Cause;
use crate::network::cell::{Cell, CellKey, Verdict};
use crate::network::{Path, TestResult};
use crate::words::{and_more, counted};

/// The largest number of nodes of which the matrix is printed.
const MATRIX: usize = 20;
/// The number of failed paths of one kind that are printed in full.
const IN_FULL: usize = 4;
/// The number of agents that were not there of which the reason is printed.
const ABSENT: usize = 12;
/// The width of the output, in columns.
const WIDTH: usize = 100;

/// The output of `network test -o json`: the result, the causes, and how many failures are new.
#[derive(Serialize)]
pub struct TestOutput<'r> {
    #[serde(flatten)]
    result: &'r TestResult,
    /// The number of failed paths that the baseline does not have.
    pub new_failures: usize,
    /// The number of failed paths that the baseline has, too.
    known_failures: usize,
    /// Paths that passed in the baseline, and that this test could not test.
    vanished: Vec<CellKey>,
    /// Kinds of paths of which none could be tested.
    untested: Vec<Path>,
    causes: Vec<Cause>,
    #[serde(skip)]
    known: std::collections::BTreeSet<&'r CellKey>,
}

impl<'r> TestOutput<'r> {
    /// Returns the output of a result. `is_known`: whether a failure is in the baseline.
    pub fn new(
        result: &'r TestResult,
        causes: Vec<Cause>,
        is_known: &dyn Fn(&CellKey, &Cell) -> bool,
        vanished: Vec<CellKey>,
    ) -> Self {
        let failed = result.cells().filter(|(_, cell)| cell.verdict() == Verdict::Failed);
        let (known, new): (Vec<_>, Vec<_>) = failed.partition(|(key, cell)| is_known(key, cell));
        let has_only_untested = |path: &Path| {
            let mut cells = result.cells().filter(|(key, _)| key.path == *path).peekable();
            cells.peek().is_some() && cells.all(|(_, cell)| cell.verdict() == Verdict::NotTested)
        };
        Self {
            vanished,
            untested: Path::ALL.into_iter().filter(has_only_untested).collect(),
            result,
            new_failures: new.len(),
            known_failures: known.len(),
            causes,
            known: known.into_iter().map(|(key, _)| key).collect(),
        }
    }

    /// Whether something failed that the baseline does not have, or could not be tested at all.
    pub fn has_findings(&self) -> bool {
        self.new_failures > 0 || !self.vanished.is_empty() || !self.untested.is_empty()
    }
}

/// Returns the text for people.
pub fn text(output: &Output, of: &TestOutput<'_>) -> String {
    let result = of.result;
    let mut parts = vec![summary(output, of)];
    let has_failed = of.new_failures > 0 || of.known_failures > 0;
    if has_failed && (2..=MATRIX).contains(&result.nodes.len()) {
        parts.push(matrix(output, result));
    }
    if has_failed {
        parts.push(failures(output, of));
    }
    parts.extend(gaps(output, of));
    parts.push(verdict(of));
    parts.join("\n")
}

/// What could not be tested.
fn gaps(output: &Output, of: &TestOutput<'_>) -> Option<String> {
    let mut lines = Vec::new();
    for path in &of.untested {
        let reason = of
            .result
            .cells()
            .find(|(key, _)| key.path == *path)
            .and_then(|(_, cell)| cell.not_tested.as_deref());
        lines.push(format!("{path}: not tested: {}", reason.unwrap_or("no reason is known")));
    }
    lines.extend(absent_agents(of.result));
    if let Some(first) = of.vanished.first() {
        let count = counted(of.vanished.len(), "path", "paths");
        let to = if first.to.is_empty() { String::new() } else { format!(" to {}", first.to) };
        lines.push(format!(
            "{count} passed in the baseline and could not be tested now, for example {} from {}{to}",
            first.path, first.from
        ));
    }
    let partly = of.result.cells().filter(|(_, cell)| cell.untested > 0 && cell.passed > 0).count();
    if partly > 0 {
        lines.push(format!("{} could not be tested in every round", counted(partly, "path", "paths")));
    }
    (!lines.is_empty()).then(|| output.paint(Tone::Careful, &lines.join("\n")) + "\n")
}

/// Which agents were not there, and why.
fn absent_agents(result: &TestResult) -> Vec<String> {
    let is_of_agent = |key: &CellKey| matches!(key.path, Path::Agent | Path::NewPod);
    let absent = result.cells().filter(|(key, cell)| is_of_agent(key) && cell.untested > 0);
    let lines: Vec<String> = absent
        .map(|(key, cell)| {
            let rounds = counted(usize::try_from(cell.untested).unwrap_or(usize::MAX), "round", "rounds");
            format!(
                "{}: not tested in {rounds}: {}",
                key.from,
                cell.not_tested.as_deref().unwrap_or_default()
            )
        })
        .collect();
    let more = lines.len().saturating_sub(ABSENT);
    let note = (more > 0).then(|| format!("{more} more agents were not there"));
    lines.into_iter().take(ABSENT).chain(note).collect()
}

fn summary(output: &Output, of: &TestOutput<'_>) -> String {
    let rows = Path::ALL.into_iter().filter_map(|path| {
        let of_path = |verdict: Verdict| {
            of.result.cells().filter(move |(key, cell)| key.path == path && cell.verdict() == verdict).count()
        };
        let [passed, failed, open] = [Verdict::Passed, Verdict::Failed, Verdict::NotTested].map(of_path);
        if passed.saturating_add(failed).saturating_add(open) == 0 {
            return None;
        }
        let failed_text =
            if failed > 0 { output.paint(Tone::Bad, &failed.to_string()) } else { "0".to_string() };
        let open_text =
            if open > 0 { output.paint(Tone::Careful, &open.to_string()) } else { "0".to_string() };
        Some([path.name().to_string(), path.title().to_string(), passed.to_string(), failed_text, open_text])
    });
    table(["PATH", "WHAT", "PASSED", "FAILED", "NOT TESTED"], rows) + "\n"
}

/// A row for each node that asks, a column for each node that answers.
fn matrix(output: &Output, result: &TestResult) -> String {
    let mut lines = vec!["from (rows) to (columns): . passed, x failed, ? not tested".to_string()];
    let columns: Vec<String> = (1..=result.nodes.len()).map(|column| format!("{column:>2}")).collect();
    lines.push(format!("    {}", columns.join(" ")));
    for (row, from) in result.nodes.iter().enumerate() {
        let marks: String = result
            .nodes
            .iter()
            .map(|to| match pair(result, from, to) {
                Verdict::Failed => output.paint(Tone::Bad, "  x"),
                Verdict::Passed => "  .".to_string(),
                Verdict::NotTested => "  ?".to_string(),
            })
            .collect();
        lines.push(format!("{:>3}{marks}  {from}", row.saturating_add(1)));
    }
    lines.join("\n") + "\n"
}

fn pair(result: &TestResult, from: &str, to: &str) -> Verdict {
    let of_pair = result
        .cells()
        .filter(|(key, _)| key.from == from && if key.path.is_pair() { key.to == to } else { from == to });
    of_pair
        .map(|(_, cell)| cell.verdict())
        .max_by_key(|verdict| match verdict {
            Verdict::NotTested => 0,
            Verdict::Passed => 1,
            Verdict::Failed => 2,
        })
        .unwrap_or(Verdict::NotTested)
}

fn failures(output: &Output, of: &TestOutput<'_>) -> String {
    let mut lines = Vec::new();
    for cause in &of.causes {
        let is_of_cause = |key: &CellKey, cell: &Cell| {
            key.path == cause.path && cell.verdict() == Verdict::Failed && cell.fault() == Some(cause.fault)
        };
        let cells: Vec<_> = of.result.cells().filter(|(key, cell)| is_of_cause(key, cell)).collect();
        let all_known = cells.iter().all(|(key, _)| of.known.contains(key));
        let note = if all_known { ", as in the baseline" } else { "" };
        let title = format!(
            "{}: {} failed, {}{note}",
            cause.path,
            counted(cells.len(), "path", "paths"),
            cause.pattern
        );
        lines.push(output.paint(if all_known { Tone::Careful } else { Tone::Bad }, &title));
        for (key, cell) in cells.iter().take(IN_FULL) {
            lines.extend(wrapped("  ", &failure(key, cell)));
        }
        if cells.len() > IN_FULL {
            lines.push(format!(
                "  {}",
                and_more(cells.len().saturating_sub(IN_FULL)).trim_start_matches(", ")
            ));
        }
        lines.extend(wrapped("  likely: ", &cause.likely));
        lines.extend(wrapped("  remedy: ", &cause.remedy));
        lines.push(String::new());
    }
    lines.join("\n")
}

fn failure(key: &CellKey, cell: &Cell) -> String {
    let place = if key.to.is_empty() || key.to == key.from {
        key.from.to_string()
    } else {
        format!("{} → {}", key.from, key.to)
    };
    let variant = if key.variant.is_empty() { String::new() } else { format!(" ({})", key.variant) };
    let rounds = cell.passed.saturating_add(cell.failed);
    let rounds =
        if cell.passed > 0 { format!(" [{} of {rounds} rounds]", cell.failed) } else { String::new() };
    let (tried, seen) = cell.last.as_ref().map_or(("", ""), |last| (&*last.tried, &*last.seen));
    let series = if cell.sent > 0 {
        format!("; {} of {} lost in all rounds", cell.lost, cell.sent)
    } else {
        String::new()
    };
    format!("{place}{variant}{rounds}: {tried}: {seen}{series}")
}

/// Returns a text in lines of at most [`WIDTH`] columns. Further lines are indented.
fn wrapped(start: &str, text: &str) -> Vec<String> {
    let indent = " ".repeat(start.chars().count().max(4));
    let (mut lines, mut line) = (Vec::new(), start.to_string());
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let needed = line.chars().count().saturating_add(word.chars().count()).saturating_add(1);
        if !is_empty && needed > WIDTH {
            lines.push(std::mem::replace(&mut line, indent.clone()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

fn verdict(of: &TestOutput<'_>) -> String {
    let result = of.result;
    let tested = format!(
        "{}, {} in {:.0} s",
        counted(result.nodes.len(), "node", "nodes"),
        counted(usize::try_from(result.rounds).unwrap_or(usize::MAX), "round", "rounds"),
        result.seconds
    );
    let ended = if result.ended_early { "; ended early by a signal" } else { "" };
    let covered = if usize::try_from(result.rounds).unwrap_or(usize::MAX) < result.rounds_to_cover {
        format!("; every pair of nodes is tested after {} rounds", result.rounds_to_cover)
    } else {
        String::new()
    };
    let outcome = match (of.new_failures, of.known_failures) {
        (0, 0) => "every tested path passed".to_string(),
        (0, known) => {
            format!("no new failure; {} failed, as in the baseline", counted(known, "path", "paths"))
        }
        (new, 0) => format!("{} failed", counted(new, "path", "paths")),
        (new, known) => {
            format!("{} failed, and {known} as in the baseline", counted(new, "new path", "new paths"))
        }
    };
    format!("{outcome} ({tested}{covered}{ended})\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped() {
        let lines = wrapped("  likely: ", &"word ".repeat(60));
        assert!(lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
        assert!(lines.iter().skip(1).all(|line| line.starts_with("          word")));
    }
}
