//! What is wrong with a cluster's Service addresses: pure rules over a survey, each with a stable code.
//!
//! The rules are those of the API server's repair loops (`ipallocator/controller/repair.go` and
//! `repairip.go`, v1.36.3) and of Service validation, plus what neither of them looks at.

mod addresses;
mod bitmaps;
mod node_ports;
mod ranges;

use std::fmt;

use serde::Serialize;

use super::{Era, Survey};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know; nothing needs to be done.
    Info,
    /// Works now, will bite later.
    Warning,
    /// Wrong now.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable name of the rule, as in `duplicate-address`; `docs/findings.md` lists them all.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about: `Service default/web`, `IPAddress 10.96.0.7`, `RangeAllocation serviceips`.
    pub subject: String,
    /// What is wrong, in a sentence, with the values.
    pub message: String,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

impl Finding {
    fn new(code: &'static str, severity: Severity, subject: impl Into<String>) -> Self {
        Self {
            code,
            severity,
            subject: subject.into(),
            message: String::new(),
            found: String::new(),
            expected: String::new(),
        }
    }

    /// Something wrong now.
    pub fn error(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, subject)
    }

    /// Something that works now and will bite later.
    pub fn warning(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, subject)
    }

    fn info(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(code, Severity::Info, subject)
    }

    /// Says what is wrong.
    #[must_use]
    pub fn says(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Gives the values.
    #[must_use]
    pub fn values(mut self, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        self.found = found.to_string();
        self.expected = expected.to_string();
        self
    }
}

/// Returns everything that is wrong, worst first, then by code and subject.
pub fn audit(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    addresses::services(survey, &mut findings);
    if survey.era.era != Era::Bitmap {
        addresses::ip_addresses(survey, &mut findings);
    }
    bitmaps::addresses(survey, &mut findings);
    node_ports::node_ports(survey, &mut findings);
    ranges::ranges(survey, &mut findings);
    ranges::capacity(survey, &mut findings);
    for unreadable in &survey.unreadable {
        findings.push(
            Finding::warning("object-unreadable", unreadable.key.to_string())
                .says(format!(
                    "cannot be read: {}; what it says about addresses is not checked",
                    unreadable.reason
                ))
                .values("unreadable", "readable"),
        );
    }
    findings.sort_by(|a, b| {
        b.severity
            .cmp(&a.severity)
            .then_with(|| (a.code, &a.subject, &a.found).cmp(&(b.code, &b.subject, &b.found)))
    });
    findings
}

#[cfg(test)]
mod tests;
