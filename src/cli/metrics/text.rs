//! The figures in Prometheus' text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>); names by its conventions: a unit at the
//! end, `_total` for what only grows, `_info` for texts.

use std::fmt::{Display, Write as _};
use std::sync::{Mutex, PoisonError};

use crate::cli::tally::Tally;

/// What can be shown.
pub trait Figures: Send + Sync {
    /// Writes the families of metrics, each once.
    fn write(&self, page: &mut Page);

    /// Whether what they are the figures of still gets on, as a liveness probe asks.
    fn is_well(&self) -> bool {
        true
    }
}

impl Figures for Mutex<Tally> {
    fn write(&self, page: &mut Page) {
        let tally = self.lock().unwrap_or_else(PoisonError::into_inner).clone();
        operation(page, &tally);
        counts(page, &tally);
        barriers(page, &tally);
    }
}

/// Returns the page.
pub fn page(figures: Option<&dyn Figures>, writes: u64) -> String {
    let mut page = Page(String::new());
    page.info("netsurgeon_build_info", "The program.", &[("version", env!("CARGO_PKG_VERSION"))]);
    page.family("netsurgeon_writes_total", "counter", "Transactions that etcd has carried out.");
    page.sample("netsurgeon_writes_total", &[], writes);
    if let Some(figures) = figures {
        figures.write(&mut page);
    }
    page.0
}

fn operation(page: &mut Page, tally: &Tally) {
    let goal = tally.goal.name();
    let labels = [("operation", tally.operation.as_str()), ("goal", goal)];
    page.info("netsurgeon_operation_info", "The operation that is under way.", &labels);
    let stage = &tally.stage;
    let direction = if stage.back { "back" } else { "forward" };
    let labels = [("stage", stage.name.as_str()), ("direction", direction)];
    page.info("netsurgeon_stage_info", "The stage that is under way.", &labels);
    page.gauge("netsurgeon_batch", "The batch that is under way, from 1; 0 outside of batches.", stage.batch);
    page.gauge("netsurgeon_batches", "How many batches the plan has.", tally.batches);
    page.gauge(
        "netsurgeon_paused",
        "Whether the operation waits for something that a person or another component does.",
        u8::from(tally.paused),
    );
}

fn counts(page: &mut Page, tally: &Tally) {
    page.family("netsurgeon_services", "gauge", "Services of the plan, by where they are.");
    let phases = tally.phases;
    let states = [("waiting", phases.waiting), ("held", phases.held), ("retired", phases.retired)];
    for (state, count) in states {
        page.sample("netsurgeon_services", &[("state", state)], count);
    }
    page.family("netsurgeon_steps_total", "counter", "Steps of this process, by what came of them.");
    let steps = tally.steps;
    let outcomes = [
        ("done", steps.done),
        ("undone", steps.undone),
        ("skipped", steps.skipped),
        ("failed", steps.failed),
        ("left-alone", steps.left_alone),
    ];
    for (outcome, count) in outcomes {
        page.sample("netsurgeon_steps_total", &[("outcome", outcome)], count);
    }
}

fn barriers(page: &mut Page, tally: &Tally) {
    let waits = tally.barriers;
    let what = "How long every API server and every kube-proxy was waited for.";
    page.family("netsurgeon_barrier_seconds", "summary", what);
    page.sample("netsurgeon_barrier_seconds_sum", &[], waits.sum.as_secs_f64());
    page.sample("netsurgeon_barrier_seconds_count", &[], waits.count);
    let what = "How long they were waited for the last time; 0 before.";
    page.gauge("netsurgeon_barrier_last_seconds", what, waits.last.as_secs_f64());
}

/// A page that is being written.
pub struct Page(String);

impl Page {
    /// Begins a family of metrics: `counter`, `gauge` or `summary`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample to the family that was begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// Writes a family of one gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// Writes a family of one text.
    pub fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) {
        self.family(name, "gauge", help);
        self.sample(name, labels, 1);
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_its_quotes() {
        let mut page = Page(String::new());
        page.sample("name", &[("label", "a\"b\\c\nd")], 1);
        assert_eq!(page.0, "name{label=\"a\\\"b\\\\c\\nd\"} 1\n");
    }
}
