//! What still says an address of an old Service range, or the range itself: in whatever a cluster stores, and on a machine.
//!
//! [`scan`] finds addresses in bytes; [`objects`] looks through stored objects of every kind, known or not, and tells the
//! way to each text that has one; [`places`] says what it means there, and what to do; [`pods`] tells which Pods were
//! started with an address that their Service has given up; [`evidence`] is what a node has seen of who uses old addresses, and
//! [`judgement`] whether that of all nodes shows that nobody does. All but [`published`], which reads and writes what nodes publish, is pure.

pub mod evidence;
mod expected;
pub mod judgement;
mod object;
pub mod objects;
pub mod places;
pub mod pods;
pub mod published;
pub mod scan;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

pub use expected::Expected;
pub use object::{KEPT, LONGEST_WAY, shortened};
pub use objects::{Audit, Counted};
pub use places::Place;
pub use scan::{Form, Hit, Old};

/// When it will be felt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// When the old addresses answer no more: somebody connects to one, or decides by it.
    BreaksAtRetirement,
    /// When something starts, is upgraded, or is applied again with it.
    BreaksAtNextRestart,
    /// Nothing acts by it.
    Cosmetic,
}

impl Severity {
    /// All, worst first.
    pub const ALL: [Self; 3] = [Self::BreaksAtRetirement, Self::BreaksAtNextRestart, Self::Cosmetic];
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BreaksAtRetirement => "breaks-at-retirement",
            Self::BreaksAtNextRestart => "breaks-at-next-restart",
            Self::Cosmetic => "cosmetic",
        })
    }
}

/// What something was found in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Subject {
    /// A stored object.
    Object {
        /// Its key in etcd.
        key: String,
        /// Its kind.
        kind: String,
        /// Its namespace, empty where it has none.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A file of this machine.
    File {
        /// Its path.
        file: String,
    },
    /// A process of this machine.
    Process {
        /// Its id.
        pid: u32,
        /// What it is called.
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

/// Something that says an address of the old range. Never anything of the text around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// When it will be felt.
    pub severity: Severity,
    /// What kind of place it is: a code of [`places::PLACES`].
    pub place: &'static str,
    /// In what.
    #[serde(flatten)]
    pub subject: Arc<Subject>,
    /// Where in it: a way of field names, or a variable.
    pub path: String,
    /// In which line of the text there, from 1, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// How it is said.
    pub form: Form,
    /// What is said; `None` in a Secret, of whose content nothing is told.
    pub found: Option<String>,
    /// What that means.
    pub meaning: Cow<'static, str>,
    /// What to do.
    pub remedy: &'static str,
}

/// So much of a text before and after a hit is looked at for what it means; texts without lines may be long.
const BEFORE: usize = 1024;
const AFTER: usize = 64;

/// Something found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<'t> {
    /// What, and where.
    pub hit: Hit,
    /// In which line, from 1; `None` in a text of one line.
    pub line: Option<usize>,
    /// What stands in that line, as far as it is near.
    pub near: &'t [u8],
}

/// Finds everything in a text, with its line.
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
    let before = text.get(at.saturating_sub(BEFORE)..at).unwrap_or_default();
    let after = text.get(at..).unwrap_or_default();
    let back = before.iter().rev().take_while(|byte| **byte != b'\n').count();
    let on = after.iter().take(AFTER).take_while(|byte| **byte != b'\n').count();
    text.get(at.saturating_sub(back)..at.saturating_add(on)).unwrap_or_default()
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
        remedy: place.remedy,
    }
}
