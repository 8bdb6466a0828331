//! Messages on stderr for programs (`--log-format json`): one JSON object per line. Messages, progress, errors and the log of
//! `-v` have the same structure.

use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::macros::format_description;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub use crate::session::MessageKind;

/// Format of messages on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// For programs: one JSON object per line
    Json,
}

impl MessageKind {
    /// Returns the label of a line for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Paused => "paused",
            Self::Cause => "caused by",
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Progress => "progress",
        }
    }

    fn level(self) -> &'static str {
        match self {
            Self::Error | Self::Cause => "error",
            Self::Warning => "warn",
            Self::Paused | Self::Hint | Self::Note | Self::Progress => "info",
        }
    }

    /// Returns the value of the field `kind` in a line for programs.
    fn word(self) -> &'static str {
        if self == Self::Cause { "cause" } else { self.label() }
    }
}

/// Whether this process writes JSON messages on stderr.
static IS_JSON: AtomicBool = AtomicBool::new(false);
/// Fields that every line contains, such as the id of the current operation.
static STANDING: Mutex<Vec<(&str, Value)>> = Mutex::new(Vec::new());

/// Sets the format of the messages of this process.
pub fn start(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Returns whether messages on stderr are JSON.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Returns whether the arguments request JSON messages. Other arguments can be invalid.
pub fn is_asked_for(arguments: &[OsString]) -> bool {
    let next_is = |(one, next): (&OsString, &OsString)| one == "--log-format" && next == "json";
    arguments.iter().any(|one| one == "--log-format=json")
        || arguments.iter().zip(arguments.iter().skip(1)).any(next_is)
}

/// Adds a field to every later line.
pub fn about(name: &'static str, value: &str) {
    let mut standing = STANDING.lock().unwrap_or_else(PoisonError::into_inner);
    standing.retain(|(other, _)| *other != name);
    standing.push((name, Value::from(value)));
}

/// Returns a line of this kind with these fields.
pub fn line(kind: MessageKind, message: &str, fields: &[(&str, Value)]) -> String {
    let mut all = Map::from_iter([("kind".to_string(), Value::from(kind.word()))]);
    all.extend(fields.iter().map(|(name, value)| ((*name).to_string(), value.clone())));
    compose(OffsetDateTime::now_utc(), kind.level(), message, all)
}

fn compose(now: OffsetDateTime, level: &str, message: &str, mut fields: Map<String, Value>) -> String {
    let standing = STANDING.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, value) in standing.iter() {
        fields.entry(*name).or_insert_with(|| value.clone());
    }
    // RFC 3339, always in UTC and with milliseconds, so that lines sorted as text are also sorted by time.
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let time = now.format(format).unwrap_or_default();
    json!({"time": time, "level": level, "message": message, "fields": fields}).to_string()
}

/// The formatter for the log of `-v`.
pub struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let mut collected = Collected::default();
        event.record(&mut collected);
        let mut fields = collected.fields;
        fields.insert("kind".to_string(), Value::from("log"));
        fields.insert("target".to_string(), Value::from(event.metadata().target()));
        writeln!(writer, "{}", compose(OffsetDateTime::now_utc(), level, &collected.message, fields))
    }
}

#[derive(Default)]
struct Collected {
    message: String,
    fields: Map<String, Value>,
}

impl Collected {
    fn take(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_string(), value);
    }
}

impl Visit for Collected {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.take(field, text.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_is_one_json_object_with_time() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let fields = Map::from_iter([("step".to_string(), json!("flip/default/web"))]);
        let line = compose(now, "info", "two\nlines \u{1b}[1m", fields);
        assert_eq!(
            line,
            "{\"time\":\"2027-01-15T08:00:00.000Z\",\"level\":\"info\",\"message\":\"two\\nlines \\u001b[1m\",\
             \"fields\":{\"step\":\"flip/default/web\"}}"
        );
    }

    #[test]
    fn log_format_is_found_in_invalid_arguments() {
        let asked = |text: &str| is_asked_for(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(asked("netsurgeon --log-format json nonsense") && asked("netsurgeon x --log-format=json"));
        assert!(!asked("netsurgeon --log-format text json") && !asked("netsurgeon json"));
    }
}
