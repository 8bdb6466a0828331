//! Which rules have changed or matched an object. A rule without a match is probably a typing error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Collects the matches of rules while a plan is created.
#[derive(Debug, Default)]
pub struct Uses {
    /// Rules with a match, each with the name of its list in the configuration and its index.
    matched: Mutex<BTreeSet<(&'static str, usize)>>,
    /// Findings, each with the objects that it concerns.
    findings: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

/// Maximum number of objects that a finding names.
const MOST_NAMED: usize = 5;

impl Uses {
    /// Notes that a rule has matched.
    pub(in crate::mirror) fn mark(&self, list: &'static str, index: usize) {
        self.matched.lock().unwrap_or_else(PoisonError::into_inner).insert((list, index));
    }

    /// Notes a finding about an object.
    pub(in crate::mirror) fn note(&self, finding: String, object: String) {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        findings.entry(finding).or_default().insert(object);
    }

    /// Returns whether a rule has matched.
    pub(super) fn has(&self, list: &'static str, index: usize) -> bool {
        self.matched.lock().unwrap_or_else(PoisonError::into_inner).contains(&(list, index))
    }

    /// Returns the findings for people, each with the number of its objects and the first of their names.
    pub(in crate::mirror) fn findings(&self) -> Vec<String> {
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |(finding, objects): (&String, &BTreeSet<String>)| {
            let named: Vec<&str> = objects.iter().take(MOST_NAMED).map(String::as_str).collect();
            let more = objects.len().saturating_sub(named.len());
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            format!("{finding}: {}{more}", named.join(", "))
        };
        findings.iter().map(told).collect()
    }
}
