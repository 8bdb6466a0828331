//! The options for gates between two batches.

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
    /// Start no batch after this time. The operation then pauses. Give a time in RFC 3339, `HH:MM` (in UTC, today or tomorrow),
    /// or a time from now, for example `+90m` or `+1h30m`
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    until: Option<OffsetDateTime>,
    /// Run this program between two batches. If the exit status is not 0, the gate is closed, and the last line of stderr is the
    /// reason. The program gets two environment variables. NETSURGEON_OPERATION is the id of the operation. NETSURGEON_BATCH is
    /// the number of the next batch, counted from 1; it is empty after the last batch
    #[arg(long, value_name = "PROGRAM")]
    gate_command: Option<PathBuf>,
    /// An argument for the program of `--gate-command`; can be repeated. No shell expands the argument. Do not pass a secret,
    /// because the journal records the argument
    #[arg(long, value_name = "ARG", requires = "gate_command", allow_hyphen_values = true)]
    gate_arg: Vec<String>,
    /// Send a GET request to this URL between two batches. If the status is not 2xx, the gate is closed. netsurgeon follows no
    /// redirects
    #[arg(long, value_name = "URL")]
    gate_http: Option<String>,
    /// Send the query of `--gate-query` to this Prometheus between two batches
    #[arg(long, value_name = "URL", requires = "gate_query", requires = "gate_limits")]
    gate_prometheus: Option<String>,
    /// An instant query. If the result has no sample, the gate is closed
    #[arg(long, value_name = "PROMQL", requires = "gate_prometheus")]
    gate_query: Option<String>,
    /// If a sample is above this number, the gate is closed
    #[arg(long, value_name = "NUMBER", value_parser = limit, allow_hyphen_values = true)]
    #[arg(requires = "gate_prometheus")]
    gate_max: Option<f64>,
    /// If a sample is below this number, the gate is closed
    #[arg(long, value_name = "NUMBER", value_parser = limit, allow_hyphen_values = true)]
    #[arg(requires = "gate_prometheus")]
    gate_min: Option<f64>,
    /// Maximum time for each gate, in seconds. A gate that takes longer is closed [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    gate_timeout: Option<u64>,
    /// What to do if a gate is closed. `pause`: pause before the next batch. `rollback`: roll back the last batch, then pause.
    /// `rollback-all`: roll back the whole operation. The exit status is 6 after a pause, and 4 after `rollback-all`. At the time
    /// of `--until`, the operation always pauses [default: pause]
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
