//! The output of the guard: one line for each observation and each repair. Lines are not repeated.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::operation::{Ambient, SystemAmbient};
use crate::session::Failure;

/// A line of output.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// Version of the format.
    pub version: u8,
    /// Time in seconds since 1970.
    pub at: i64,
    /// The operation's id, or empty.
    pub operation: &'a str,
    /// `watching`, `repaired`, `would-repair`, `wrong`, `busy`, `failed`, `ended`, `waiting`, `holding` or `standby`.
    pub event: &'a str,
    /// `namespace/name`, or empty.
    pub subject: &'a str,
    /// The kind of repair or finding, or empty.
    pub code: &'a str,
    /// The message.
    pub message: &'a str,
}

/// Prints the lines of the guard.
pub trait Lines: Send + Sync {
    /// Prints a line.
    fn line(&self, line: &Line<'_>) -> Result<(), Failure>;
}

/// Prints lines, and records which lines were printed.
pub struct GuardLog<'a> {
    lines: &'a dyn Lines,
    /// The operation's id; empty if there is no operation.
    pub operation: String,
    /// Lines that were printed, and are not repeated.
    said: BTreeSet<String>,
}

impl<'a> GuardLog<'a> {
    /// Returns a log that has printed no line yet.
    pub fn new(lines: &'a dyn Lines) -> Self {
        Self { lines, operation: String::new(), said: BTreeSet::new() }
    }

    /// Clears the record of printed lines, so that each line can be printed again.
    pub fn forget(&mut self) {
        self.said.clear();
    }

    /// Prints a line unless it was printed before.
    pub fn say_once(&mut self, event: &str, about: (&str, &str), message: &str) -> Result<(), Failure> {
        let (subject, code) = about;
        if self.said.insert(format!("{event} {subject} {code} {message}")) {
            self.say(event, about, message)?;
        }
        Ok(())
    }

    /// Prints a line. `about` is a Service (`namespace/name`) and a code; both can be empty.
    pub fn say(&self, event: &str, about: (&str, &str), message: &str) -> Result<(), Failure> {
        let (subject, code) = about;
        let at = SystemAmbient.now();
        let line = Line { version: 1, at, operation: &self.operation, event, subject, code, message };
        self.lines.line(&line)
    }
}
