//! The runs of an operation: when a process ran it, and how each run ended.

use maud::{Markup, Render, html};

use super::html::{moment, prose, section, table};
use crate::operation::{Run, Summary};

/// How a run without a recorded end is described, if no process runs the operation now.
pub const KILLED: &str = "no end is recorded: the process was killed, or it lost the operation lease";

/// Returns the section; empty for an operation of an older version, whose journal has no runs. `is_leased` is true if a process
/// runs the operation now.
pub fn section_of(summary: &Summary, is_leased: bool) -> Markup {
    if summary.runs.is_empty() {
        return html! {};
    }
    let last = summary.runs.len().saturating_sub(1);
    let rows = summary.runs.iter().enumerate().map(|(index, run)| {
        let is_running = is_leased && index == last;
        let ended = run.ended.map_or_else(|| "–".render(), moment);
        let exit = run.exit.map_or_else(|| "–".to_string(), |exit| exit.to_string());
        let direction = if run.back { "rollback" } else { "forward" };
        [moment(run.started), ended, direction.render(), exit.render(), prose(&outcome(run, is_running))]
    });
    let content = html! {
        (table("runs", ["Started", "Ended", "Direction", "Exit status", "Result"], rows))
        p.faint { "A run is the work of one process. All times are UTC, by the cluster's clock." }
    };
    section("runs", "Runs", &content)
}

/// Describes how a run ended. `is_running` is true if its process runs now.
pub fn outcome(run: &Run, is_running: bool) -> String {
    if run.ended.is_none() {
        return if is_running { "running".to_string() } else { KILLED.to_string() };
    }
    let status = run.status.map(|status| status.to_string());
    match (status, &run.why) {
        (Some(status), Some(why)) => format!("{status}: {why}"),
        (None, Some(why)) => why.clone(),
        (Some(status), None) => status,
        (None, None) => "ended".to_string(),
    }
}
