//! Formats findings as text, and determines the outcome of a command from its findings.

use super::Outcome;
use super::output::{Output, Tone, table};
use crate::survey::{Finding, Severity};

/// Returns the outcome of a command from its findings. Only errors and warnings affect the outcome; infos do not.
pub(super) fn outcome(findings: &[Finding]) -> Outcome {
    let is_wrong = |finding: &Finding| finding.severity != Severity::Info;
    if findings.iter().any(is_wrong) { Outcome::Findings } else { Outcome::Done }
}

/// Returns the severity of a finding, in its colour.
pub(super) fn severity(output: &Output, finding: &Finding) -> String {
    let tone = match finding.severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Careful,
        Severity::Info => Tone::Faint,
    };
    output.paint(tone, &finding.severity.to_string())
}

/// Returns the remedy for each code, each as one line. Omits a code for which there is nothing to do.
pub(super) fn remedies(findings: &[Finding]) -> Vec<String> {
    let mut told: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for finding in findings {
        let is_empty = finding.remedy.is_empty() || finding.remedy == "nothing.";
        if !is_empty && !told.contains(&finding.code) {
            told.push(finding.code);
            lines.push(format!("{}: {}", finding.code, finding.remedy));
        }
    }
    lines
}

/// Returns the findings as a table, followed by the remedies; an empty text if there are no findings.
pub(super) fn tabled(output: &Output, findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        [
            severity(output, finding),
            finding.code.to_string(),
            finding.subject.clone(),
            finding.message.clone(),
        ]
    };
    let rows: Vec<[String; 4]> = findings.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let remedies = remedies(findings);
    let remedies = if remedies.is_empty() { String::new() } else { format!("\n\n{}", remedies.join("\n")) };
    table(["SEVERITY", "CODE", "SUBJECT", "MESSAGE"], rows) + &remedies
}
