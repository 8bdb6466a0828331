//! What the guard says: a line for everything that it sees or does, each thing once.

use std::collections::BTreeSet;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cli::failure::Failure;
use crate::cli::output::{Output, Tone};
use crate::operation::{Ambient, SystemAmbient};

/// A line of what it says.
#[derive(Serialize)]
struct Line<'a> {
    version: u8,
    /// Seconds since 1970.
    at: i64,
    /// The operation's id, or empty.
    operation: &'a str,
    /// `watching`, `mended`, `would-mend`, `wrong`, `busy`, `failed`, `ended`, `waiting`, `holding` or `standby`.
    event: &'a str,
    /// `namespace/name`, or empty.
    subject: &'a str,
    /// The kind of mend or finding, or empty.
    code: &'a str,
    message: &'a str,
}

/// What is said, and was.
pub struct Voice<'a> {
    output: &'a Output,
    /// Of which operation; empty without one.
    pub operation: String,
    /// What was said already: said again only when it changes.
    said: BTreeSet<String>,
}

impl<'a> Voice<'a> {
    /// Has said nothing yet.
    pub fn new(output: &'a Output) -> Self {
        Self { output, operation: String::new(), said: BTreeSet::new() }
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
        if self.output.is_structured() {
            let line = Line { version: 1, at, operation: &self.operation, event, subject, code, message };
            // Plain data always serialises.
            self.output.line(&serde_json::to_string(&line).unwrap_or_default())
        } else {
            let time = OffsetDateTime::from_unix_timestamp(at).ok();
            let time = time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default();
            let tone = match event {
                "wrong" | "failed" => Tone::Bad,
                "would-mend" | "busy" | "standby" => Tone::Careful,
                _ => Tone::Good,
            };
            let event = self.output.paint(tone, event);
            let words: Vec<&str> =
                [event.as_str(), code, subject, message].into_iter().filter(|w| !w.is_empty()).collect();
            self.output.line(&format!("{time}  {}", words.join("  ")))
        }
    }
}
