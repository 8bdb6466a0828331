//! Looks through stored objects one by one, of whatever kind, and keeps what it found.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value as Json;

use super::places::{self, Site};
use super::pods::{self, Given};
use super::scan::{Form, Hit, Old};
use super::{Finding, Located, Place, Subject, lines, plain};
use crate::store::Record;
use crate::survey::{Layout, Ours};
use crate::wire::envelope::PROTOBUF_MAGIC;
use crate::wire::texts::{self, Head, Way};
use crate::wire::{Envelope, Text, WireError};

/// Of values that cannot be read so many keys are told.
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
    fn has_object(&self, head: &Head, namespace: &str, name: &str) -> bool {
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
    fn has_address(&self, hit: &Hit, path: &str, namespace: &str, name: &str) -> bool {
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

/// Values that could not be read, for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// How many.
    pub count: usize,
    /// The first few keys.
    pub keys: Vec<String>,
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
    pub unread: BTreeMap<&'static str, Unread>,
    /// What was found, in the order of the keys.
    pub findings: Vec<Finding>,
}

/// Something found in an object, before it is known what the object is.
struct Raw {
    path: String,
    hit: Hit,
    line: Option<usize>,
    text: Vec<u8>,
    /// Where in the text, if it stands there as it is.
    offset: Option<usize>,
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
        let unread = self.unread.entry(reason).or_default();
        let key = key.escape_ascii().to_string();
        if unread.keys.contains(&key) {
            return;
        }
        unread.count = unread.count.saturating_add(1);
        if unread.keys.len() < KEYS_TOLD {
            unread.keys.push(key);
        }
    }

    fn look(&mut self, record: Record<'_>) -> Result<(), WireError> {
        let mut raw: Vec<Raw> = Vec::new();
        // Where in the value, to know what was found in two ways.
        let mut places = BTreeSet::new();
        let start = record.value.as_ptr() as usize;
        let mut seen = |way: &Way<'_>, text: &[u8]| {
            if self.old.may_say(text) {
                let place = (text.as_ptr() as usize).checked_sub(start).filter(|at| *at < record.value.len());
                for found in read(self.old, way, text) {
                    let offset = place.and_then(|place| place.checked_add(found.offset?));
                    if offset.is_none_or(|offset| places.insert(offset)) {
                        raw.push(found);
                    }
                }
            }
        };
        let read = texts::each(record.value, &mut seen);
        if !raw.is_empty() {
            // Of one that is broken it may not even be known what it is.
            let head = texts::head(record.value).unwrap_or_default();
            self.judge(record, &head, raw);
        }
        read
    }

    fn judge(&mut self, record: Record<'_>, head: &Head, raw: Vec<Raw>) {
        let meta = &head.metadata;
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        if self.expected.has_object(head, namespace, name) {
            self.held = self.held.saturating_add(1);
            return;
        }
        let is_secret = head.kind == "Secret"
            || record.key.starts_with(self.secrets.first().map_or(b"/", |s| s.as_bytes()));
        let is_json = !record.value.starts_with(PROTOBUF_MAGIC);
        let subject = Subject::Object {
            key: record.key.escape_ascii().to_string(),
            kind: head.kind.clone(),
            namespace: namespace.to_string(),
            name: name.to_string(),
        };
        for Raw { path, hit, line, text, .. } in raw {
            let (api_version, kind, form) = (head.api_version.as_str(), head.kind.as_str(), hit.form);
            let is_custom = is_json && is_foreign(api_version);
            let site = Site { api_version, kind, namespace, name, path: &path, form, text: &text, is_custom };
            if kind == "Service" && self.expected.has_address(&hit, &path, namespace, name) {
                self.held = self.held.saturating_add(1);
                continue;
            }
            let place = places::of(&site);
            let (found, path, line) =
                if is_secret { (None, without_content(&path), None) } else { (Some(hit.found), path, line) };
            let finding = finding(place, subject.clone(), (path, line), (form, found));
            // Of a Secret one is enough to be told of a key.
            if !is_secret || self.findings.last() != Some(&finding) {
                self.findings.push(finding);
            }
        }
    }
}

/// Whether a value is one that nothing can be seen in.
fn is_closed(value: &[u8]) -> bool {
    let first = value.iter().find(|byte| !byte.is_ascii_whitespace());
    !value.starts_with(PROTOBUF_MAGIC) && first != Some(&b'{') || Envelope::of(value).is_err()
}

/// Whether a group is none of Kubernetes' own: custom resources.
fn is_foreign(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_own = group.ends_with(".k8s.io") && !group.ends_with(".x-k8s.io");
    group.contains('.') && !is_own
}

/// Takes what is of a Secret's content out of a way: its keys and its annotations are told, and nothing within them.
fn without_content(path: &str) -> String {
    match path.split_once(']') {
        Some((key, _)) => format!("{key}]"),
        None => path.split('.').take(2).collect::<Vec<_>>().join("."),
    }
}

/// Puts a finding together.
pub fn finding(
    place: &'static Place,
    subject: Subject,
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

/// Finds everything in one text; in JSON with the way through it.
fn read(old: &Old, way: &Way<'_>, text: &[u8]) -> Vec<Raw> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if matches!(first, Some(b'{' | b'['))
        && let Ok(tree) = serde_json::from_slice::<Json>(text)
    {
        let mut within = Vec::new();
        texts::texts(&tree, way, &mut |way, text| {
            if old.may_say(text) {
                within.extend(read_plain(old, way, text).into_iter().map(|raw| Raw { offset: None, ..raw }));
            }
        });
        return within;
    }
    read_plain(old, way, text)
}

fn read_plain(old: &Old, way: &Way<'_>, text: &[u8]) -> Vec<Raw> {
    let raw = |located: Located<'_>| Raw {
        path: plain(&way.to_string()),
        line: located.line,
        text: located.near.to_vec(),
        offset: Some(located.hit.start),
        hit: located.hit,
    };
    lines(old, text).into_iter().map(raw).collect()
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
