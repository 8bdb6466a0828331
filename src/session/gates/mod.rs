//! Gates between two batches: a time limit, a program, a URL, a Prometheus query. A closed gate pauses the operation, rolls the
//! last batch back, or rolls everything back.

mod command;
mod gate_record;
mod prometheus;
pub mod until;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::time::sleep;

use self::command::Program;
use self::prometheus::{Limits, Query};
pub use self::prometheus::{prometheus_number, prometheus_probe};
use super::failure::Failure;
use super::message_kind::MessageKind;
use super::ui::Ui;
use crate::kube_api::Probe;
use crate::operation::{Checkpoint, Closed, Stage};

/// Name of the time gate. If this gate is closed, the operation always pauses. The setting for the other gates does not apply.
const UNTIL: &str = "until";

/// Default timeout for a gate.
const LIMIT: Duration = Duration::from_secs(30);

/// The gate settings, as the user gives them and as the journal records them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateSettings {
    /// How long to wait between two batches, in seconds.
    pub pause: Option<u64>,
    /// Time after which no batch starts.
    #[serde(with = "time::serde::rfc3339::option")]
    pub until: Option<OffsetDateTime>,
    /// A program. Any exit status other than 0 closes the gate.
    pub gate_command: Option<PathBuf>,
    /// Arguments of the program.
    pub gate_arg: Vec<String>,
    /// A URL. Any status other than 2xx closes the gate.
    pub gate_http: Option<String>,
    /// URL of the Prometheus server that runs the query.
    pub gate_prometheus: Option<String>,
    /// An instant query for Prometheus.
    pub gate_query: Option<String>,
    /// Maximum value of each sample.
    pub gate_max: Option<f64>,
    /// Minimum value of each sample.
    pub gate_min: Option<f64>,
    /// Timeout for each gate, in seconds.
    pub gate_timeout: Option<u64>,
    /// The action at a closed gate.
    pub on_gate_failure: Option<OnFailure>,
}

/// The action at a closed gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Pause before the next batch.
    #[default]
    Pause,
    /// Roll back the batch before the gate, then pause.
    Rollback,
    /// Roll everything back.
    RollbackAll,
}

impl GateSettings {
    /// Validates the settings. Invalid settings fail at the start, not hours later at a gate.
    pub fn resolve(&self) -> Result<Gates, Failure> {
        let now = OffsetDateTime::now_utc();
        if let Some(until) = self.until.filter(|until| *until <= now) {
            return Err(Failure::usage(format!("`--until {}` is in the past", until::words(until))));
        }
        let url = |flag: &str, url: &str| {
            Probe::new(url).map_err(|error| Failure::usage(format!("`{flag}`: {error}")))
        };
        let mut probes = Vec::new();
        if let Some(program) = &self.gate_command {
            let program = Program::find(program, &self.gate_arg);
            probes.push(Asked::Command(program.map_err(Failure::usage)?));
        }
        if let Some(text) = &self.gate_http {
            probes.push(Asked::Http(url("--gate-http", text)?));
        }
        if let (Some(base), Some(query)) = (&self.gate_prometheus, &self.gate_query) {
            let text = Query::url(base, query);
            let text = text.map_err(|reason| Failure::usage(format!("`--gate-prometheus`: {reason}")))?;
            let limits = Limits { min: self.gate_min, max: self.gate_max };
            probes.push(Asked::Prometheus(Query { probe: url("--gate-prometheus", &text)?, limits }));
        }
        Ok(Gates {
            pause: Duration::from_secs(self.pause.unwrap_or_default()),
            until: self.until,
            probes,
            limit: self.gate_timeout.map_or(LIMIT, Duration::from_secs),
            on_failure: self.on_gate_failure.unwrap_or_default(),
            repeated: self.repeated(),
        })
    }
}

/// A gate that is checked by a request or a program.
enum Asked {
    Command(Program),
    Http(Probe),
    Prometheus(Query),
}

impl Asked {
    fn name(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Http(_) => "http",
            Self::Prometheus(_) => "prometheus",
        }
    }

    /// Checks the gate. Returns why the gate is open, or fails with the reason why it is closed.
    async fn ask(&self, operation: &str, stage: &Stage, limit: Duration) -> Result<String, String> {
        match self {
            Self::Command(program) => program.run(operation, stage.batch, limit).await,
            Self::Http(probe) => {
                let code = probe.get(limit).await?.code;
                let text = format!("HTTP status {code}");
                if (200..300).contains(&code) { Ok(text) } else { Err(text) }
            }
            Self::Prometheus(query) => query.ask(limit).await,
        }
    }
}

/// Validated gates.
#[derive(Default)]
pub struct Gates {
    pause: Duration,
    /// Time after which no batch starts.
    pub until: Option<OffsetDateTime>,
    probes: Vec<Asked>,
    limit: Duration,
    on_failure: OnFailure,
    /// Options that the next command must repeat, each with a leading space.
    pub repeated: String,
}

impl Gates {
    /// Returns whether there is a gate or a pause.
    pub fn are_there(&self) -> bool {
        !self.pause.is_zero() || self.until.is_some() || !self.probes.is_empty()
    }

    /// Returns the number of gates, except the time gate.
    #[cfg(test)]
    pub(crate) fn asked(&self) -> usize {
        self.probes.len()
    }

    /// Fails if the time limit for new batches has passed, or would pass during a pause with the duration `ahead`.
    fn over(&self, ahead: Duration) -> Result<(), String> {
        let Some(until) = self.until else { return Ok(()) };
        let (now, words) = (OffsetDateTime::now_utc(), until::words(until));
        if now >= until {
            return Err(format!("no batch starts after {words}"));
        }
        let then = time::Duration::try_from(ahead).ok().and_then(|ahead| now.checked_add(ahead));
        if then.is_none_or(|then| then >= until) {
            return Err(format!("no batch starts after {words}, and the pause would end after that time"));
        }
        Ok(())
    }
}

/// Checks the gates of one operation, and reports the results.
pub struct Gatekeeper<'a> {
    gates: &'a Gates,
    ui: &'a Ui,
    operation: &'a str,
}

impl<'a> Gatekeeper<'a> {
    /// Returns the gatekeeper for these gates.
    pub fn new(gates: &'a Gates, ui: &'a Ui, operation: &'a str) -> Self {
        Self { gates, ui, operation }
    }

    /// Returns the action for a closed gate.
    pub fn on_failure(&self, gate: &str) -> OnFailure {
        if gate == UNTIL { OnFailure::Pause } else { self.gates.on_failure }
    }

    /// Reports the action for a closed gate.
    pub fn warn(&self, text: &str) {
        self.ui.warn(text);
    }

    fn say(&self, text: &str, gate: &str, open: bool, stage: &Stage) {
        let batch = stage.batch.map(|batch| batch.saturating_add(1));
        let fields = [("gate", Value::from(gate)), ("open", open.into()), ("batch", batch.into())];
        self.ui.say(if open { MessageKind::Progress } else { MessageKind::Warning }, text, &fields);
    }

    fn is_in_time(&self, ahead: Duration, stage: &Stage) -> Result<(), Closed> {
        self.gates.over(ahead).map_err(|reason| self.closed(UNTIL, reason, stage))
    }

    fn closed(&self, gate: &str, reason: String, stage: &Stage) -> Closed {
        self.say(&format!("gate `{gate}` is closed {}: {reason}", before(stage)), gate, false, stage);
        Closed { gate: gate.to_string(), reason }
    }
}

fn before(stage: &Stage) -> String {
    stage.batch.map_or_else(
        || "after the last batch".to_string(),
        |batch| format!("before batch {}", batch.saturating_add(1)),
    )
}

#[async_trait]
impl Checkpoint for Gatekeeper<'_> {
    async fn pass(&self, stage: &Stage) -> Result<(), Closed> {
        let Gates { pause, probes, limit, .. } = self.gates;
        self.is_in_time(*pause, stage)?;
        if !pause.is_zero() {
            let text = format!("waiting {} s {}", pause.as_secs(), before(stage));
            self.say(&text, "pause", true, stage);
            sleep(*pause).await;
        }
        for asked in probes {
            let (name, answer) = (asked.name(), asked.ask(self.operation, stage, *limit).await);
            let found = answer.map_err(|reason| self.closed(name, reason, stage))?;
            self.say(&format!("gate `{name}` is open {}: {found}", before(stage)), name, true, stage);
        }
        self.is_in_time(Duration::ZERO, stage)
    }
}
