//! A result as JUnit XML: a test case for each path, from each node.

use std::fmt::Write as _;

use super::cause::{Cause, causes};
use super::cell::Verdict;
use super::result::Result;
use crate::words::xml_escaped as escape;

/// Returns the content of the file. Paths that are not new, according to `is_known`, are skipped tests.
pub fn file(result: &Result, is_known: impl Fn(&super::cell::CellKey, &super::cell::Cell) -> bool) -> String {
    let causes = causes(result);
    let of = |verdict| result.cells().filter(move |(_, cell)| cell.verdict() == verdict);
    let failures = of(Verdict::Failed).filter(|(key, cell)| !is_known(key, cell)).count();
    let skipped = of(Verdict::NotTested)
        .count()
        .saturating_add(of(Verdict::Failed).filter(|(key, cell)| is_known(key, cell)).count());
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<testsuite name=\"netsurgeon network test\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">",
        result.paths.len(),
    );
    let _ = writeln!(
        text,
        "  <properties><property name=\"rounds\" value=\"{}\"/><property name=\"ended-early\" value=\"{}\"/></properties>",
        result.rounds, result.ended_early,
    );
    for (key, cell) in result.cells() {
        let name = escape(&format!("{} to {} {}", key.from, key.to, key.variant));
        let _ = write!(text, "  <testcase classname=\"{}\" name=\"{}\">", key.path, name.trim());
        let last = cell.last.as_ref();
        let (tried, seen) = last.map_or(("", ""), |last| (last.tried.as_str(), last.seen.as_str()));
        let _ = match cell.verdict() {
            Verdict::Passed => Ok(()),
            Verdict::Failed if is_known(key, cell) => {
                write!(text, "<skipped message=\"failed in the baseline, too: {}\"/>", escape(seen))
            }
            Verdict::Failed => {
                let of_path = |one: &&Cause| one.path == key.path && Some(one.fault) == cell.fault();
                let cause = causes.iter().find(of_path).map(|one| (one.likely.as_str(), one.remedy.as_str()));
                let (likely, remedy) = cause.unwrap_or_default();
                let why = [tried, likely, remedy].map(escape);
                let [tried, likely, remedy] = why;
                write!(
                    text,
                    "<failure message=\"{}\">tried: {tried}
likely: {likely}
remedy: {remedy}</failure>",
                    escape(seen)
                )
            }
            Verdict::NotTested => {
                write!(
                    text,
                    "<skipped message=\"{}\"/>",
                    escape(cell.not_tested.as_deref().unwrap_or_default())
                )
            }
        };
        text.push_str("</testcase>\n");
    }
    text.push_str("</testsuite>\n");
    text
}
