//! The gates in the journal of an operation. The operator does not have to give them again on resume.

use serde_json::Value;
use time::OffsetDateTime;

use super::{GateSettings, LIMIT, until};
use crate::session::{Failure, Voice};

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
        if let Err(failure) = gates.resolve() {
            return Err(unread(&failure.error));
        }
        Ok(gates)
    }

    /// Reports which gates are checked and recorded, or that recorded gates are ignored.
    pub fn report(&self, voice: &Voice, recorded: &Value) {
        match (self.words(), recorded.is_null()) {
            (Some(words), _) => voice.note(&format!(
                "gates between batches: {words}. The journal records them: `operation resume` checks them again, unless you \
                 give other gates or `--no-gates`"
            )),
            (None, false) => voice.note("no gates between batches: the recorded gates are ignored"),
            (None, true) => {}
        }
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
            super::OnFailure::Pause => "the operation pauses",
            super::OnFailure::Rollback => "the last batch is rolled back",
            super::OnFailure::RollbackAll => "everything is rolled back",
        };
        Some(format!("{}; timeout of each gate: {limit} s; if a gate is closed, {closed}", words.join(", ")))
    }
}
