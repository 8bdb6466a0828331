//! The options of gates between two batches.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args};
use time::OffsetDateTime;

use crate::session::gates::{GateSettings, OnFailure, until};

/// Gates between two batches.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Gates between batches")]
#[command(group(ArgGroup::new("gate_limits").args(["gate_max", "gate_min"]).multiple(true)))]
pub struct GateArgs {
    /// Seconds to wait between two batches
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pause: Option<u64>,
    /// Pause at this time, before the next batch: RFC 3339, `HH:MM` (its next occurrence in UTC), or relative to now, for example
    /// `+90m` or `+1h30m`
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    until: Option<OffsetDateTime>,
    /// Run this program between batches. An exit status other than 0 closes the gate, and the last line of stderr is the reason.
    /// The program gets the environment variables NETSURGEON_OPERATION and NETSURGEON_BATCH: the number of the next batch,
    /// counted from 1, or empty after the last batch
    #[arg(long, value_name = "PROGRAM")]
    gate_command: Option<PathBuf>,
    /// An argument for that program, passed without a shell. The journal records it: do not pass a secret
    #[arg(long, value_name = "ARG", requires = "gate_command", allow_hyphen_values = true)]
    gate_arg: Vec<String>,
    /// Between batches request this URL: a status other than 2xx closes the gate. Redirects are not followed
    #[arg(long, value_name = "URL")]
    gate_http: Option<String>,
    /// Between batches send `--gate-query` to this Prometheus
    #[arg(long, value_name = "URL", requires = "gate_query", requires = "gate_limits")]
    gate_prometheus: Option<String>,
    /// An instant query; a result without a sample closes the gate
    #[arg(long, value_name = "PROMQL", requires = "gate_prometheus")]
    gate_query: Option<String>,
    /// Maximum value of every sample
    #[arg(long, value_name = "NUMBER", value_parser = limit, allow_hyphen_values = true)]
    #[arg(requires = "gate_prometheus")]
    gate_max: Option<f64>,
    /// Minimum value of every sample
    #[arg(long, value_name = "NUMBER", value_parser = limit, allow_hyphen_values = true)]
    #[arg(requires = "gate_prometheus")]
    gate_min: Option<f64>,
    /// How long each gate may take, in seconds; a gate that takes longer is closed [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    gate_timeout: Option<u64>,
    /// What to do at a closed gate: pause before the next batch; or roll back the batch before the gate, and pause before that
    /// batch; or roll back everything. Exit status 6 for the first two, 4 for the last. `--until` always pauses [default: pause]
    #[arg(long, value_name = "WHAT", value_parser = on_failure())]
    on_gate_failure: Option<OnFailure>,
}

fn moment(text: &str) -> Result<OffsetDateTime, String> {
    until::parse(text, OffsetDateTime::now_utc())
}

fn limit(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "give a number".to_string())?;
    if number.is_nan() { Err("give a number".to_string()) } else { Ok(number) }
}

fn on_failure() -> impl TypedValueParser<Value = OnFailure> {
    PossibleValuesParser::new(["pause", "rollback", "rollback-all"]).map(|name| match name.as_str() {
        "rollback" => OnFailure::Rollback,
        "rollback-all" => OnFailure::RollbackAll,
        _ => OnFailure::Pause,
    })
}

impl GateArgs {
    /// Returns the settings of the given gates.
    pub fn settings(&self) -> GateSettings {
        let given = self.clone();
        GateSettings {
            pause: given.pause,
            until: given.until,
            gate_command: given.gate_command,
            gate_arg: given.gate_arg,
            gate_http: given.gate_http,
            gate_prometheus: given.gate_prometheus,
            gate_query: given.gate_query,
            gate_max: given.gate_max,
            gate_min: given.gate_min,
            gate_timeout: given.gate_timeout,
            on_gate_failure: given.on_gate_failure,
        }
    }
}

#[cfg(test)]
mod tests;
