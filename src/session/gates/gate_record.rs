//! The gates in the journal of an operation. On resume, a recorded pause or time limit applies again. A recorded program or URL
//! does not: any client that can write the journal could name a program, and it would run on the operator's machine. So the
//! operator must give programs and URLs again.

use std::path::Path;

use serde_json::Value;
use time::OffsetDateTime;

use super::{GateSettings, LIMIT, OnFailure, until};
use crate::session::{Failure, Ui};
use crate::words::pasted;

impl GateSettings {
    /// Returns the gates as JSON for the journal; `null` if there are none.
    pub fn record(&self) -> Result<Value, Failure> {
        if *self == Self::default() {
            return Ok(Value::Null);
        }
        serde_json::to_value(self)
            .map_err(|error| Failure::usage(format!("these gates cannot be recorded: {error}")))
    }

    /// Returns these gates if there are any. Otherwise returns the recorded gates, or no gates if `none` is true. Omits a
    /// recorded time limit that has passed, because the operator resumed the operation after that time.
    ///
    /// Fails if a recorded gate runs a program or opens a URL. The hint contains the options that give the recorded gates again.
    pub fn or_recorded(&self, recorded: &Value, none: bool) -> Result<Self, Failure> {
        if none || *self != Self::default() || recorded.is_null() {
            return Ok(self.clone());
        }
        let unread = |error: &dyn std::fmt::Display| {
            Failure::refused(format!("the recorded gates of the operation cannot be used: {error}"))
                .hint("give the gates again, or `--no-gates`")
        };
        let mut gates: Self = serde_json::from_value(recorded.clone()).map_err(|error| unread(&error))?;
        let now = OffsetDateTime::now_utc();
        gates.until = gates.until.filter(|until| *until > now);
        if gates.asks() {
            let words = gates.words().unwrap_or_default();
            return Err(Failure::usage(format!(
                "the journal names gates that this command does not give: {words}. netsurgeon runs no program and opens no URL \
                 that only a journal names"
            ))
            .hint(format!("to check these gates, add these options to the command: `{}`", gates.options().trim_start()))
            .hint("to continue without gates: add `--no-gates`"));
        }
        if let Err(failure) = gates.resolve() {
            return Err(unread(&failure.error));
        }
        Ok(gates)
    }

    /// Reports which gates are checked and recorded, or that recorded gates are ignored.
    pub fn report(&self, ui: &Ui, recorded: &Value) {
        match (self.words(), recorded.is_null()) {
            (Some(words), _) => ui.note(&format!(
                "gates between batches: {words}. {}",
                if self.asks() {
                    "To check them after a resume, give them again: netsurgeon runs no program and opens no URL that only the journal names"
                } else {
                    "The journal records them: `operation resume` applies them again, unless you give other gates or `--no-gates`"
                }
            )),
            (None, false) => ui.note("no gates between batches: the recorded gates are ignored"),
            (None, true) => {}
        }
    }

    /// Returns whether a gate runs a program or opens a URL.
    fn asks(&self) -> bool {
        self.gate_command.is_some() || self.gate_http.is_some() || self.gate_prometheus.is_some()
    }

    /// Returns the options that the next command must repeat, each with a leading space. The result is empty if no gate runs a
    /// program or opens a URL, because the journal records all other gates.
    pub(super) fn repeated(&self) -> String {
        if self.asks() { self.options() } else { String::new() }
    }

    /// Returns the options that give these gates, each with a leading space.
    fn options(&self) -> String {
        let quoted = |text: &String| pasted(Path::new(text));
        let on_failure = self.on_gate_failure.map(|action| match action {
            OnFailure::Pause => "pause",
            OnFailure::Rollback => "rollback",
            OnFailure::RollbackAll => "rollback-all",
        });
        let options = [
            ("pause", self.pause.map(|seconds| seconds.to_string())),
            ("until", self.until.map(until::words)),
            ("gate-command", self.gate_command.as_deref().map(pasted)),
            ("gate-http", self.gate_http.as_ref().map(quoted)),
            ("gate-prometheus", self.gate_prometheus.as_ref().map(quoted)),
            ("gate-query", self.gate_query.as_ref().map(quoted)),
            ("gate-max", self.gate_max.map(|number| number.to_string())),
            ("gate-min", self.gate_min.map(|number| number.to_string())),
            ("gate-timeout", self.gate_timeout.map(|seconds| seconds.to_string())),
            ("on-gate-failure", on_failure.map(str::to_string)),
        ];
        let options = options.into_iter().filter_map(|(name, value)| Some(format!(" --{name} {}", value?)));
        // An argument can start with a hyphen.
        let arguments = self.gate_arg.iter().map(|argument| format!(" --gate-arg={}", quoted(argument)));
        options.chain(arguments).collect()
    }

    /// Describes the gates; `None` if there are none.
    fn words(&self) -> Option<String> {
        let command = self.gate_command.as_ref().map(|program| {
            let words = [program.display().to_string()].into_iter().chain(self.gate_arg.iter().cloned());
            format!("program `{}`", words.collect::<Vec<_>>().join(" "))
        });
        let query = self.gate_query.as_ref().zip(self.gate_prometheus.as_ref());
        let words: Vec<String> = [
            self.until.map(|until| format!("no batch starts after {}", until::words(until))),
            self.pause.map(|seconds| format!("a pause of {seconds} s")),
            command,
            self.gate_http.as_ref().map(|url| format!("URL `{url}`")),
            query.map(|(query, url)| format!("query `{query}` of Prometheus `{url}`")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if words.is_empty() {
            return None;
        }
        let limit = self.gate_timeout.unwrap_or(LIMIT.as_secs());
        let closed = match self.on_gate_failure.unwrap_or_default() {
            OnFailure::Pause => "the operation pauses",
            OnFailure::Rollback => "the last batch is rolled back",
            OnFailure::RollbackAll => "everything is rolled back",
        };
        Some(format!("{}; timeout of each gate: {limit} s; if a gate is closed, {closed}", words.join(", ")))
    }
}
