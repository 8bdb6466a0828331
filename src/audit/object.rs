//! Scans one stored object, and limits the number of its findings, because an object of a tenant can contain an address a hundred
//! thousand times.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::Arc;

use serde_json::Value as Json;

use super::finding;
use super::places::{self, Site};
use super::scan::Old;
use super::unfinished_renumbering::Expected;
use super::{Finding, Located, Subject, lines};
use crate::store::Record;
use crate::wire::WireError;
use crate::wire::envelope::PROTOBUF_MAGIC;
use crate::wire::texts::{self, FieldPath, Head};

/// Maximum number of findings for each kind of place in one object or file. Further findings are counted, but not listed.
pub const KEPT: usize = 10;
/// Maximum number of characters of a path that are printed. A name in a path can be as long as an object.
pub const LONGEST_WAY: usize = 300;
/// Maximum number of characters of a key or a name that are printed. Kubernetes' own keys have at most about 400.
pub const LONGEST_NAME: usize = 500;

/// The findings of one object.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) findings: Vec<Finding>,
    /// Number of places that are not listed, because the limit for their kind of place is reached.
    pub(super) not_listed: usize,
    /// Number of places that belong to an unfinished operation.
    pub(super) held: usize,
}

/// Scans an object. `secrets` contains the key prefixes of Secrets and ConfigMaps. An object can have findings even if a part of
/// it is unreadable.
pub(super) fn look(
    old: &Old,
    expected: &Expected,
    secrets: &[String],
    record: Record<'_>,
) -> (Found, Result<(), WireError>) {
    let mut object = Object {
        old,
        expected,
        record,
        is_secret: secrets.first().is_some_and(|prefix| record.key.starts_with(prefix.as_bytes())),
        about: None,
        places: BTreeSet::new(),
        kept: BTreeMap::new(),
        found: Found::default(),
    };
    let read = texts::each(record.value, &mut |way, text| object.text(way, text));
    (object.found, read)
}

/// The head of an object. It is read only if the object has a finding.
struct About {
    head: Head,
    subject: Arc<Subject>,
    is_ours: bool,
}

struct Object<'o> {
    old: &'o Old,
    expected: &'o Expected,
    record: Record<'o>,
    is_secret: bool,
    about: Option<About>,
    /// Offsets of hits in the value. With them, a hit counts only once, even if two scans find it.
    places: BTreeSet<usize>,
    kept: BTreeMap<&'static str, usize>,
    found: Found,
}

impl Object<'_> {
    /// Scans one text. If the text is JSON, scans each of its members.
    fn text(&mut self, way: &FieldPath<'_>, text: &[u8]) {
        if !self.old.may_say(text) {
            return;
        }
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        if matches!(first, Some(b'{' | b'['))
            && let Ok(tree) = serde_json::from_slice::<Json>(text)
        {
            return texts::texts(&tree, way, &mut |way, text| self.plain(way, text, None));
        }
        let start = self.record.value.as_ptr() as usize;
        let place = (text.as_ptr() as usize).checked_sub(start).filter(|at| *at < self.record.value.len());
        self.plain(way, text, place);
    }

    /// Scans one text that is not JSON. `place` is the offset of the text in the value, if the value contains the text unchanged.
    fn plain(&mut self, way: &FieldPath<'_>, text: &[u8], place: Option<usize>) {
        let mut path = None;
        for located in lines(self.old, text) {
            let at = place.and_then(|place| place.checked_add(located.hit.start));
            if at.is_none_or(|at| self.places.insert(at)) {
                let path = path.get_or_insert_with(|| shortened(way, LONGEST_WAY));
                self.judge(path, located);
            }
        }
    }

    fn judge(&mut self, path: &str, located: Located<'_>) {
        if self.about.is_none() {
            self.about = Some(self.ask());
        }
        let Some(About { head, subject, is_ours }) = &self.about else { return };
        let (namespace, name) = named(head);
        if *is_ours {
            // All places in an object of an operation count as one place.
            self.found.held = 1;
            return;
        }
        if head.kind == "Service" && self.expected.has_address(&located.hit, path, namespace, name) {
            self.found.held = self.found.held.saturating_add(1);
            return;
        }
        let is_json = !self.record.value.starts_with(PROTOBUF_MAGIC);
        let (api_version, kind, form) = (head.api_version.as_str(), head.kind.as_str(), located.hit.form);
        let is_custom = is_json && is_foreign(api_version);
        let site = Site { api_version, kind, namespace, name, path, form, text: located.near, is_custom };
        let place = places::of(&site);
        let (found, path, line) = if self.is_secret || head.kind == "Secret" {
            (None, without_content(path), None)
        } else {
            (Some(located.hit.found), path.to_string(), located.line)
        };
        let changed_by_move = places::is_changed_by_move(&site, place);
        let finding = finding(place, subject.clone(), (path, line), (form, found));
        let finding = Finding { changed_by_move, ..finding };
        // For a Secret, one finding per key is enough.
        if finding.found.is_none() && self.found.findings.last() == Some(&finding) {
            return;
        }
        let kept = self.kept.entry(place.code).or_default();
        if *kept < KEPT {
            *kept = kept.saturating_add(1);
            self.found.findings.push(finding);
        } else {
            self.found.not_listed = self.found.not_listed.saturating_add(1);
        }
    }

    /// Reads the head of the object. The head can be empty if the object is damaged.
    fn ask(&self) -> About {
        let head = texts::head(self.record.value).unwrap_or_default();
        let (namespace, name) = named(&head);
        let is_ours = self.expected.has_object(&head, namespace, name);
        let subject = Subject::Object {
            key: shortened(&self.record.key.escape_ascii(), LONGEST_NAME),
            kind: shortened(&head.kind, LONGEST_NAME),
            namespace: shortened(&namespace, LONGEST_NAME),
            name: shortened(&name, LONGEST_NAME),
        };
        About { subject: Arc::new(subject), is_ours, head }
    }
}

fn named(head: &Head) -> (&str, &str) {
    let meta = &head.metadata;
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// Returns whether an API group does not belong to Kubernetes itself, such as the group of a custom resource.
fn is_foreign(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_own = group.ends_with(".k8s.io") && !group.ends_with(".x-k8s.io");
    group.contains('.') && !is_own
}

/// Removes the content of a Secret from a path. The path keeps only the names of the Secret's keys and annotations.
fn without_content(path: &str) -> String {
    match path.split_once(']') {
        Some((key, _)) => format!("{key}]"),
        None => path.split('.').take(2).collect::<Vec<_>>().join("."),
    }
}

/// Formats a value, and stops after `most` characters.
pub fn shortened(what: &dyn fmt::Display, most: usize) -> String {
    let mut short = Short { text: String::new(), left: most };
    // The error only means that the text was truncated.
    let _ = write!(short, "{what}");
    short.text
}

struct Short {
    text: String,
    left: usize,
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let Some(left) = self.left.checked_sub(1) else {
                self.text.push('…');
                return Err(fmt::Error);
            };
            self.left = left;
            self.text.push(character);
        }
        Ok(())
    }
}
