//! Scans stored objects of any kind one by one, and collects the findings.

use std::collections::BTreeMap;

use serde::Serialize;

use super::places::is_other_object;
use super::pods;
use super::scan::Old;
use super::unfinished_renumbering::Expected;
use super::{Finding, object};
use crate::store::Record;
use crate::survey::Layout;
use crate::wire::envelope::PROTOBUF_MAGIC;
use crate::wire::{Envelope, WireError};

/// The remedy of a place that a renumbering changes itself.
const BY_THE_MOVE: &str = "nothing: the renumbering changes this place itself";
/// Maximum number of keys that a counter lists.
const KEYS_TOLD: usize = 5;

/// A counter, with the keys or names of the first few subjects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Value of the counter.
    pub count: usize,
    /// Keys or names of the first few subjects.
    pub keys: Vec<String>,
}

impl Counted {
    /// Adds to the counter.
    pub fn add(&mut self, key: String, count: usize) {
        self.count = self.count.saturating_add(count);
        if self.keys.len() < KEYS_TOLD && self.keys.last().is_none_or(|last| *last != key) {
            self.keys.push(key);
        }
    }
}

/// A scan of a cluster's objects.
#[derive(Debug)]
pub struct Audit<'a> {
    old: &'a Old,
    expected: &'a Expected,
    events: Vec<String>,
    secrets: [String; 2],
    service_cidrs: String,
    /// Whether the cluster has ServiceCIDRs. If it has none, allocations are stored only as a bitmap.
    has_service_cidrs: bool,
    /// Number of scanned objects.
    pub objects: usize,
    /// Number of skipped objects: Events, Leases and the API servers' own leases.
    pub skipped: usize,
    /// Number of places that belong to an unfinished operation. They are not reported as findings.
    pub held: usize,
    /// Objects that cannot be read, by reason.
    pub unread: BTreeMap<&'static str, Counted>,
    last_unread: Vec<u8>,
    /// Places that are not listed, because the object has more findings for this kind of place than the limit allows.
    pub not_listed: Counted,
    /// The findings, in the order of the objects' keys.
    pub findings: Vec<Finding>,
}

impl<'a> Audit<'a> {
    /// Starts a scan.
    pub fn new(layout: &Layout, old: &'a Old, expected: &'a Expected) -> Self {
        let under = |folder: &str| format!("{}/{folder}/", layout.prefix());
        Self {
            old,
            expected,
            events: ["events", "leases", "masterleases"].map(under).to_vec(),
            secrets: ["secrets", "configmaps"].map(under),
            service_cidrs: layout.service_cidrs(),
            has_service_cidrs: false,
            objects: 0,
            skipped: 0,
            held: 0,
            unread: BTreeMap::new(),
            last_unread: Vec::new(),
            not_listed: Counted::default(),
            findings: Vec::new(),
        }
    }

    /// Scans one object.
    pub fn take(&mut self, record: Record<'_>) {
        let under = |folder: &String| record.key.starts_with(folder.as_bytes());
        if self.events.iter().any(under) {
            self.skipped = self.skipped.saturating_add(1);
            return;
        }
        self.objects = self.objects.saturating_add(1);
        self.has_service_cidrs |= record.key.starts_with(self.service_cidrs.as_bytes());
        // A search of the raw value does not find addresses in base64.
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

    /// Ends the scan: decides which places a renumbering changes itself. Before a renumbering, the cluster still has the old range as
    /// its Service range. During a renumbering, the journal contains the Services, and the findings are Services that were created
    /// meanwhile; the renumbering then still changes the other objects.
    pub fn finish(&mut self) {
        let range = if self.has_service_cidrs { "service-cidr" } else { "range-allocation" };
        let is_before = self.findings.iter().any(|finding| finding.place == range);
        let is_under_way = !self.expected.ours.addresses.is_empty();
        for finding in self.findings.iter_mut().filter(|finding| finding.changed_by_move) {
            finding.changed_by_move = is_before || (is_under_way && is_other_object(finding.place));
            if finding.changed_by_move {
                finding.remedy = BY_THE_MOVE;
            }
        }
    }

    fn note_unread(&mut self, key: &[u8], error: &WireError) {
        let reason = match error {
            WireError::Encrypted { .. } => "encrypted",
            _ => "broken",
        };
        // A Pod is scanned twice: by the scan of all objects, and by the scan of Pods. An unreadable Pod counts once.
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

/// Returns whether a value cannot be searched, because it is encrypted or cannot be parsed.
fn is_closed(value: &[u8]) -> bool {
    let first = value.iter().find(|byte| !byte.is_ascii_whitespace());
    !value.starts_with(PROTOBUF_MAGIC) && first != Some(&b'{') || Envelope::of(value).is_err()
}

#[cfg(test)]
mod tests;
