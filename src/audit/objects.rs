//! Looks through stored objects one by one, of whatever kind, and keeps what it found.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use super::pods::{self, Given};
use super::scan::{Form, Hit, Old};
use super::{Finding, Place, Subject, object};
use crate::store::Record;
use crate::survey::{Layout, Ours};
use crate::wire::envelope::PROTOBUF_MAGIC;
use crate::wire::texts::Head;
use crate::wire::{Envelope, Text, WireError};

/// So many keys are told of what is counted.
const KEYS_TOLD: usize = 5;

/// What a renumbering that is under way makes of old addresses, so that it is nothing to find.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Old addresses that Services hold as external IPs, with `namespace/name`.
    pub held: BTreeSet<(IpAddr, String)>,
    /// What Services gave up when, for Pods that are older.
    pub given_up: Option<Vec<Given>>,
    /// What operations keep that have not ended: known from their journals, never by a label.
    pub ours: Ours,
}

impl Expected {
    /// Whether an operation has created the object, keeps it, or changes it at its end.
    pub(super) fn has_object(&self, head: &Head, namespace: &str, name: &str) -> bool {
        let keeps = |kind: &str| match kind {
            "Service" => {
                self.ours.services.contains(&(namespace.into(), name.into())) || is_sentinel(head, namespace)
            }
            "IPAddress" => name.parse().is_ok_and(|address| self.ours.addresses.contains_key(&address)),
            "ServiceCIDR" => self.ours.closed.contains(name),
            "RangeAllocation" => name != "servicenodeports",
            _ => false,
        };
        !self.ours.addresses.is_empty() && keeps(&head.kind)
    }

    /// Whether a Service has the address that an operation moves it from, or holds it.
    pub(super) fn has_address(&self, hit: &Hit, path: &str, namespace: &str, name: &str) -> bool {
        let Ok(address) = hit.found.parse::<IpAddr>() else { return false };
        if path.starts_with("spec.externalIPs") {
            return self.held.contains(&(address, format!("{namespace}/{name}")));
        }
        let is_its = |kept: &(Text, Text)| kept.0 == namespace && kept.1 == name;
        path.starts_with("spec.clusterIP") && self.ours.addresses.get(&address).is_some_and(is_its)
    }
}

/// Whether a Service is there for a moment, for a barrier: in `kube-system`, where tenants create nothing.
fn is_sentinel(head: &Head, namespace: &str) -> bool {
    let labels = &head.metadata.labels;
    namespace == "kube-system" && labels.get("netsurgeon.io/part").is_some_and(|part| part == "barrier")
}

/// How many there are of something, and the first few that have it: keys, or what else they are called by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// How many.
    pub count: usize,
    /// The first few keys.
    pub keys: Vec<String>,
}

impl Counted {
    /// Adds so many of one.
    pub fn add(&mut self, key: String, count: usize) {
        self.count = self.count.saturating_add(count);
        if self.keys.len() < KEYS_TOLD && self.keys.last().is_none_or(|last| *last != key) {
            self.keys.push(key);
        }
    }
}

/// A look through a cluster's objects.
#[derive(Debug)]
pub struct Audit<'a> {
    old: &'a Old,
    expected: &'a Expected,
    events: Vec<String>,
    secrets: [String; 2],
    /// Objects that were looked through.
    pub objects: usize,
    /// Events, leases and API servers' own leases, which were not.
    pub skipped: usize,
    /// Places that belong to an operation that has not ended: not findings.
    pub held: usize,
    /// What could not be read, by reason.
    pub unread: BTreeMap<&'static str, Counted>,
    last_unread: Vec<u8>,
    /// Places of objects that have many of one kind, past those that are findings.
    pub not_listed: Counted,
    /// What was found, in the order of the keys.
    pub findings: Vec<Finding>,
}

impl<'a> Audit<'a> {
    /// Begins one.
    pub fn new(layout: &Layout, old: &'a Old, expected: &'a Expected) -> Self {
        let under = |folder: &str| format!("{}/{folder}/", layout.prefix());
        Self {
            old,
            expected,
            events: ["events", "leases", "masterleases"].map(under).to_vec(),
            secrets: ["secrets", "configmaps"].map(under),
            objects: 0,
            skipped: 0,
            held: 0,
            unread: BTreeMap::new(),
            last_unread: Vec::new(),
            not_listed: Counted::default(),
            findings: Vec::new(),
        }
    }

    /// Looks through one object.
    pub fn take(&mut self, record: Record<'_>) {
        let under = |folder: &String| record.key.starts_with(folder.as_bytes());
        if self.events.iter().any(under) {
            self.skipped = self.skipped.saturating_add(1);
            return;
        }
        self.objects = self.objects.saturating_add(1);
        // Addresses in base64 are not seen by a look at the whole.
        let hides = self.secrets.iter().any(under) && !record.value.starts_with(PROTOBUF_MAGIC);
        if (hides || is_closed(record.value) || self.old.may_say(record.value))
            && let Err(error) = self.look(record)
        {
            self.note_unread(record.key, &error);
        }
        if let Some(given_up) = &self.expected.given_up {
            match pods::look(self.old, given_up, record) {
                Ok(found) => self.findings.extend(found),
                Err(error) => self.note_unread(record.key, &error),
            }
        }
    }

    fn note_unread(&mut self, key: &[u8], error: &WireError) {
        let reason = match error {
            WireError::Encrypted { .. } => "encrypted",
            _ => "broken",
        };
        // A Pod is looked at in two ways, one after the other.
        if self.last_unread != key {
            self.last_unread = key.to_vec();
            self.unread
                .entry(reason)
                .or_default()
                .add(object::shortened(&key.escape_ascii(), object::LONGEST_NAME), 1);
        }
    }

    fn look(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let (found, read) = object::look(self.old, self.expected, &self.secrets, record);
        self.held = self.held.saturating_add(found.held);
        self.findings.extend(found.findings);
        if found.not_listed > 0 {
            self.not_listed
                .add(object::shortened(&record.key.escape_ascii(), object::LONGEST_NAME), found.not_listed);
        }
        read
    }
}

/// Whether a value is one that nothing can be seen in.
fn is_closed(value: &[u8]) -> bool {
    let first = value.iter().find(|byte| !byte.is_ascii_whitespace());
    !value.starts_with(PROTOBUF_MAGIC) && first != Some(&b'{') || Envelope::of(value).is_err()
}

/// Puts a finding together.
pub fn finding(
    place: &'static Place,
    subject: Arc<Subject>,
    (path, line): (String, Option<usize>),
    (form, found): (Form, Option<String>),
) -> Finding {
    Finding {
        severity: place.severity,
        place: place.code,
        subject,
        path,
        line,
        form,
        found,
        meaning: Cow::Borrowed(place.meaning),
        todo: place.todo,
    }
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
