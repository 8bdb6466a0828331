//! Finds addresses of an old Service range, and the range itself, in the stored objects of a cluster and on a host.
//!
//! [`scan`] finds addresses in bytes. [`objects`] scans stored objects of every kind, including unknown kinds, and reports the
//! path to each address. [`places`] defines the kinds of places that can contain an address, with meaning and remedy. [`pods`]
//! finds Pods that started before a Service gave up its address, and still have the address. [`evidence`] is a node's record of
//! the clients of old addresses. [`judgement`] checks whether the evidence of all nodes shows that clients have stopped using old
//! addresses. [`evidence_document`] reads and writes the nodes' documents. The other modules do no input or output.

pub mod evidence;
pub mod evidence_document;
pub mod judgement;
mod object;
pub mod objects;
pub mod places;
pub mod pods;
pub mod scan;
mod unfinished_renumbering;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use memchr::{memchr, memrchr};
use serde::Serialize;

pub use object::{KEPT, LONGEST_WAY, shortened};
pub use objects::{Audit, Counted};
pub use places::Place;
pub use scan::{Form, Hit, Old};
pub use unfinished_renumbering::Expected;

/// When the address causes a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// When the old addresses stop answering, because a client connects to the address, or a component uses the address to route
    /// or filter traffic.
    BreaksAtRetirement,
    /// When a component starts or is upgraded, or a manifest is applied again.
    BreaksAtNextRestart,
    /// Never, because no component acts on the address.
    Cosmetic,
}

impl Severity {
    /// All severities, worst first.
    pub const ALL: [Self; 3] = [Self::BreaksAtRetirement, Self::BreaksAtNextRestart, Self::Cosmetic];
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The object, file or process that has an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Subject {
    /// A stored object.
    Object {
        /// Key of the object in etcd.
        key: String,
        /// Kind of the object.
        kind: String,
        /// Namespace of the object, empty if it has none.
        namespace: String,
        /// Name of the object.
        name: String,
    },
    /// A file of this machine.
    File {
        /// Path of the file.
        file: String,
    },
    /// A process of this machine.
    Process {
        /// Id of the process.
        pid: u32,
        /// Command name of the process.
        process: String,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { kind, namespace, name, .. } if namespace.is_empty() => write!(f, "{kind} {name}"),
            Self::Object { kind, namespace, name, .. } => write!(f, "{kind} {namespace}/{name}"),
            Self::File { file } => f.write_str(file),
            Self::Process { pid, process } => write!(f, "process {process} ({pid})"),
        }
    }
}

/// A place with an address of the old range. A finding never contains the text around the address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// When the address causes a failure.
    pub severity: Severity,
    /// The kind of place: a code of [`places::PLACES`].
    pub place: &'static str,
    /// The object, file or process.
    #[serde(flatten)]
    pub subject: Arc<Subject>,
    /// Path of the field in the subject, or the name of a variable.
    pub path: String,
    /// The line of the text, counted from 1, if the text has several lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The notation of the address.
    pub form: Form,
    /// The address or range. `None` for a Secret, because the content of a Secret is never shown.
    pub found: Option<String>,
    /// The meaning of the address in this place.
    pub meaning: Cow<'static, str>,
    /// The remedy: what to do.
    pub remedy: &'static str,
    /// Whether a renumbering of this range changes the place itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub changed_by_move: bool,
}

/// Maximum number of bytes before a hit that are used to classify the hit. Up to [`AFTER`] bytes from the start of the hit are
/// also used. Only bytes in the line of the hit are used.
const BEFORE: usize = 1024;
const AFTER: usize = 64;

/// A hit in a text, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<'t> {
    /// The address or range, and its offset.
    pub hit: Hit,
    /// The line of the hit, counted from 1; `None` in a text of one line.
    pub line: Option<usize>,
    /// The part of the line that is near the hit.
    pub near: &'t [u8],
}

/// Finds every hit in a text, with its line.
pub fn lines<'t>(old: &Old, text: &'t [u8]) -> Vec<Located<'t>> {
    let has_lines = text.contains(&b'\n');
    let (mut line, mut counted) = (1_usize, 0);
    let place = |hit: Hit| {
        let passed = text.get(counted..hit.start).unwrap_or_default();
        line = line.saturating_add(passed.split(|byte| *byte == b'\n').count().saturating_sub(1));
        counted = hit.start;
        Located { line: has_lines.then_some(line), near: near(text, hit.start), hit }
    };
    old.hits(text).into_iter().map(place).collect()
}

fn near(text: &[u8], at: usize) -> &[u8] {
    let from = at.saturating_sub(BEFORE);
    let to = at.saturating_add(AFTER).min(text.len());
    let before = text.get(from..at).unwrap_or_default();
    let after = text.get(at..to).unwrap_or_default();
    let start = memrchr(b'\n', before).map_or(from, |newline| from.saturating_add(newline).saturating_add(1));
    let end = memchr(b'\n', after).map_or(to, |newline| at.saturating_add(newline));
    text.get(start..end).unwrap_or_default()
}

/// Builds a finding.
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
        remedy: place.remedy,
        changed_by_move: false,
    }
}
