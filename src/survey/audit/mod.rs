//! Finds errors in a cluster's Service addresses. The rules only read a survey, and each rule has a stable code.
//!
//! The rules come from the API server's repair loops (`ipallocator/controller/repair.go` and `repairip.go`, v1.36.3) and from
//! Service validation. netsurgeon adds some rules.

mod addresses;
mod bitmaps;
mod node_ports;
mod ranges;
mod remedies;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::{AddressRecord, Era, ServiceRecord, Survey};
use crate::wire::Text;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For information; no action is needed.
    Info,
    /// The cluster works now, but there will be a problem later.
    Warning,
    /// The state is wrong now.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A finding: a state that differs from the expected state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable name of the rule, for example `duplicate-address`; `docs/findings.md` lists all rules.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// Subject of the finding, for example `Service default/web`, `IPAddress 10.96.0.7` or `RangeAllocation serviceips`.
    pub subject: String,
    /// Description of the finding in a sentence, with the values.
    pub message: String,
    /// Value that was found.
    pub found: String,
    /// Value that was expected.
    pub expected: String,
    /// What to do, from docs/findings.md.
    pub remedy: &'static str,
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
            remedy: remedies::of(code),
        }
    }

    /// Creates a finding with severity [`Severity::Error`].
    pub fn error(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, subject)
    }

    /// Creates a finding with severity [`Severity::Warning`].
    pub fn warning(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, subject)
    }

    /// Creates a finding with severity [`Severity::Info`].
    pub fn info(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(code, Severity::Info, subject)
    }

    /// Sets the message.
    #[must_use]
    pub fn says(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Sets the found and the expected value.
    #[must_use]
    pub fn values(mut self, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        self.found = found.to_string();
        self.expected = expected.to_string();
        self
    }
}

/// Objects that unfinished operations create, keep or delete. The journals of the operations list these objects. A label alone
/// does not prove that an operation manages an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ours {
    /// Addresses that the operations keep, each with the namespace and the name of its Service.
    pub addresses: HashMap<IpAddr, (Text, Text)>,
    /// Namespaces and names of the Services that the operations created.
    pub services: HashSet<(Text, Text)>,
    /// Names of ServiceCIDRs that the operations delete.
    pub closed: HashSet<String>,
}

impl Ours {
    /// Adds the objects that another operation keeps.
    pub fn add(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        self.services.extend(other.services);
        self.closed.extend(other.closed);
    }

    /// Returns whether an operation has created this Service.
    pub fn has(&self, service: &ServiceRecord) -> bool {
        !self.services.is_empty()
            && self.services.contains(&(service.namespace.clone(), service.name.clone()))
    }

    /// Returns whether an operation moves this Service, or has created it.
    fn moves(&self, service: &ServiceRecord) -> bool {
        let is_it =
            |(namespace, name): &(Text, Text)| *namespace == service.namespace && *name == service.name;
        self.has(service) || self.addresses.values().any(is_it)
    }

    /// Returns whether two Services share an address because an operation created one of them as the shadow of the other.
    fn shares(&self, address: IpAddr, one: &ServiceRecord, other: &ServiceRecord) -> bool {
        let is_its = |service: &ServiceRecord| {
            self.has(service) || self.keeps(address, &(service.namespace.clone(), service.name.clone()))
        };
        (self.has(one) || self.has(other)) && is_its(one) && is_its(other)
    }

    /// Returns whether an operation keeps this IPAddress for the Service in its parent reference.
    fn keeps(&self, address: IpAddr, parent: &(Text, Text)) -> bool {
        self.addresses.get(&address) == Some(parent)
    }
}

/// Returns all findings for a cluster without unfinished operations. They are sorted by severity, code and subject. The most
/// severe findings come first.
pub fn audit(survey: &Survey) -> Vec<Finding> {
    audit_beside(&Ours::default(), survey)
}

/// Returns all findings for a cluster with unfinished operations. Accepts the objects that the operations keep, and counts them
/// in one finding.
pub fn audit_beside(ours: &Ours, survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    addresses::services(survey, ours, &mut findings);
    if survey.era.era != Era::Bitmap {
        addresses::ip_addresses(survey, ours, &mut findings);
    }
    kept(survey, ours, &mut findings);
    bitmaps::addresses(survey, ours, &mut findings);
    node_ports::node_ports(survey, &mut findings);
    ranges::ranges(survey, ours, &mut findings);
    ranges::capacity(survey, &mut findings);
    for unreadable in &survey.unreadable {
        findings.push(
            Finding::warning("object-unreadable", unreadable.key.to_string())
                .says(format!("cannot be read: {}; its addresses are not checked", unreadable.reason))
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

/// Counts the objects that an operation keeps, except addresses that Services list themselves.
fn kept(survey: &Survey, ours: &Ours, findings: &mut Vec<Finding>) {
    let services = survey.services.iter().filter(|service| ours.has(service)).count();
    let listed: HashSet<(&Text, &Text, IpAddr)> = survey
        .services
        .iter()
        .flat_map(|service| service.addresses.iter().map(move |it| (&service.namespace, &service.name, *it)))
        .collect();
    let is_kept = |object: &&AddressRecord| {
        object.address.is_some_and(|it| {
            ours.keeps(it, &object.parent) && !listed.contains(&(&object.parent.0, &object.parent.1, it))
        })
    };
    let addresses = survey.addresses.iter().filter(is_kept).count();
    if services > 0 || addresses > 0 {
        let counts =
            [(addresses, "IPAddress object", "IPAddress objects"), (services, "Service", "Services")];
        let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
        let words =
            counts.map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }));
        let words = words.collect::<Vec<_>>().join(" and ");
        findings.push(
            Finding::info("kept-by-operation", "operation")
                .says(format!("an unfinished operation keeps {words}"))
                .values(addresses.saturating_add(services), "0 after the operation has ended"),
        );
    }
}

#[cfg(test)]
mod tests;
