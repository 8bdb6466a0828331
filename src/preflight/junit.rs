//! The results of the checks as JUnit XML, for CI systems. The verdict `fail` becomes a failure, `unknown` becomes an error, and
//! `skipped` becomes a skipped test. A warning becomes the output of a passing test. With `--strict`, a warning becomes a
//! failure.

use std::fmt::Write as _;

use super::{CheckResult, Verdict};
use crate::words::xml_escaped as escape;

/// Returns the content of the XML file. `strict`: whether warnings are failures.
pub fn file(suite: &str, checks: &[CheckResult], strict: bool) -> String {
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let warned = if strict { count(Verdict::Warn) } else { 0 };
    let failures = count(Verdict::Fail).saturating_add(warned);
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{}\" skipped=\"{}\">",
        escape(suite),
        checks.len(),
        count(Verdict::Unknown),
        count(Verdict::Skipped),
    );
    for check in checks {
        let (name, seen) = (escape(check.name), escape(&check.observed));
        let _ = write!(text, "  <testcase classname=\"{}\" name=\"{name}\">", escape(suite));
        let more = escape(&format!("{}\nwhy: {}\n{}", check.remedy, check.why, check.link));
        let _ = match check.verdict {
            Verdict::Pass => write!(text, "<system-out>{seen}</system-out>"),
            Verdict::Warn if !strict => write!(text, "<system-out>warning: {seen}\n{more}</system-out>"),
            Verdict::Warn | Verdict::Fail => write!(text, "<failure message=\"{seen}\">{more}</failure>"),
            Verdict::Unknown => write!(text, "<error message=\"{seen}\">{more}</error>"),
            Verdict::Skipped => write!(text, "<skipped/>"),
        };
        text.push_str("</testcase>\n");
    }
    text.push_str("</testsuite>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Judged;

    #[test]
    fn every_verdict_has_an_element() {
        let result = |judged: Judged| CheckResult::of("nodes", "Pods need them", judged);
        let checks = [
            result(Judged::pass("3 < 5 \u{1b}[31m")),
            result(Judged::warn("almost \"full\"", "make room")),
            result(Judged::fail("down", "repair it")),
            result(Judged::unknown("no answer", "")),
            result(Judged::skipped("not run")),
        ];
        let text = file("preflight renumber", &checks, false);
        assert!(text.contains("tests=\"5\" failures=\"1\" errors=\"1\" skipped=\"1\""), "{text}");
        for part in [
            "3 &lt; 5 \u{fffd}[31m",
            "warning: almost &quot;full&quot;",
            "<failure message=\"down\">",
            "<error",
            "<skipped/>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(file("x", &checks, true).contains("failures=\"2\""));
    }
}
