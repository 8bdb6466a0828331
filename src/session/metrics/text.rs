//! Metrics in the text format of Prometheus, version 0.0.4 (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//! Metric names follow the conventions of Prometheus: the unit is at the end, `_total` is for counters, and `_info` is for texts.
//!
//! This module does not use the library `prometheus-client` 0.26, because that library has no summaries. It can write
//! `netsurgeon_barrier_seconds` only as a histogram. With the library, this file and its callers would be longer.

use std::fmt::{Display, Write as _};

/// A source of metrics.
pub trait Figures: Send + Sync {
    /// Writes each family of metrics once.
    fn write(&self, page: &mut Page);

    /// Returns whether the process still makes progress, for a liveness probe.
    fn is_well(&self) -> bool {
        true
    }
}

/// Returns the page of metrics.
pub fn page(figures: Option<&dyn Figures>, writes: u64) -> String {
    let mut page = Page(String::new());
    page.info(
        "netsurgeon_build_info",
        "The version of netsurgeon.",
        &[("version", env!("CARGO_PKG_VERSION"))],
    );
    page.family(
        "netsurgeon_writes_total",
        "counter",
        "Writes of this process: transactions in etcd, or ConfigMaps of the record in the cluster.",
    );
    page.sample("netsurgeon_writes_total", &[], writes);
    if let Some(figures) = figures {
        figures.write(&mut page);
    }
    page.0
}

/// A page of metrics.
pub struct Page(String);

impl Page {
    /// Starts a family of metrics with this kind: `counter`, `gauge` or `summary`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample to the family that was started last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// Writes a family with one gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// Writes a family with one sample, which has labels and the value 1.
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
    fn quotes_in_a_label_are_escaped() {
        let mut page = Page(String::new());
        page.sample("name", &[("label", "a\"b\\c\nd")], 1);
        assert_eq!(page.0, "name{label=\"a\\\"b\\\\c\\nd\"} 1\n");
    }
}
