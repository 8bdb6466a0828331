//! What the guard says: a line for everything that it sees or does, each thing once.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::operation::{Ambient, SystemAmbient};
use crate::session::Failure;

/// A line of what it says.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// Of its form.
    pub version: u8,
    /// Seconds since 1970.
    pub at: i64,
    /// The operation's id, or empty.
    pub operation: &'a str,
    /// `watching`, `mended`, `would-mend`, `wrong`, `busy`, `failed`, `ended`, `waiting`, `holding` or `standby`.
    pub event: &'a str,
    /// `namespace/name`, or empty.
    pub subject: &'a str,
    /// The kind of mend or finding, or empty.
    pub code: &'a str,
    /// What it is about, in words.
    pub message: &'a str,
}

/// Takes the lines.
pub trait Lines: Send + Sync {
    /// Prints one.
    fn line(&self, line: &Line<'_>) -> Result<(), Failure>;
}

/// What is said, and was.
pub struct Voice<'a> {
    lines: &'a dyn Lines,
    /// Of which operation; empty without one.
    pub operation: String,
    /// What was said already: said again only when it changes.
    said: BTreeSet<String>,
}

impl<'a> Voice<'a> {
    /// Has said nothing yet.
    pub fn new(lines: &'a dyn Lines) -> Self {
        Self { lines, operation: String::new(), said: BTreeSet::new() }
    }

    /// Everything may be said again: things were in order meanwhile.
    pub fn forget(&mut self) {
        self.said.clear();
    }

    /// Says something unless it was said before.
    pub fn say_once(&mut self, event: &str, about: (&str, &str), message: &str) -> Result<(), Failure> {
        let (subject, code) = about;
        if self.said.insert(format!("{event} {subject} {code} {message}")) {
            self.say(event, about, message)?;
        }
        Ok(())
    }

    /// Says something; `about` is a Service, `namespace/name`, and a code, each of which may be empty.
    pub fn say(&self, event: &str, about: (&str, &str), message: &str) -> Result<(), Failure> {
        let (subject, code) = about;
        let at = SystemAmbient.now();
        let line = Line { version: 1, at, operation: &self.operation, event, subject, code, message };
        self.lines.line(&line)
    }
}
