//! The guard's metrics for Prometheus, and its answer to a liveness probe. The answer is positive while the guard makes progress.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::guard_lease::Leadership;
use crate::operation::Status;
use crate::renumber::guard::{REPAIRS, Watched};
use crate::session::metrics::{Figures, Page};

/// The liveness probe fails if the guard makes no progress for longer than this time plus the interval between checks. Every
/// request to etcd and to the API ends much sooner.
const PATIENCE: Duration = Duration::from_mins(3);

/// Outcome of a check by the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Looked {
    /// No finding and no repair is left.
    Fine,
    /// Findings or repairs are left.
    Wrong,
    /// Another process runs an operation.
    Busy,
    /// No renumbering is under way.
    Idle,
    /// The check failed, for example because etcd could not be read.
    Failed,
}

impl Looked {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Fine, "fine"),
        (Self::Wrong, "wrong"),
        (Self::Busy, "busy"),
        (Self::Idle, "idle"),
        (Self::Failed, "failed"),
    ];
}

#[derive(Debug)]
struct Counts {
    operation: Option<String>,
    /// Status of the renumbering at the last check.
    status: Option<Status>,
    looks: BTreeMap<Looked, u64>,
    repairs: BTreeMap<String, u64>,
    held: usize,
    pending: usize,
    findings: BTreeMap<String, usize>,
    looked: Option<Instant>,
    alive: Instant,
}

/// The guard's figures, shared with the metrics server.
#[derive(Debug, Clone)]
pub struct Ledger {
    counts: Arc<Mutex<Counts>>,
    /// Whether this guard holds the Lease; `None` if this guard needs no Lease.
    lease: Option<watch::Receiver<Leadership>>,
    rest: Duration,
}

impl Ledger {
    /// Returns figures that start at zero. `rest` is the interval between checks.
    pub fn new(lease: Option<watch::Receiver<Leadership>>, rest: Duration) -> Self {
        let counts = Counts {
            operation: None,
            status: None,
            looks: Looked::ALL.into_iter().map(|(looked, _)| (looked, 0)).collect(),
            repairs: REPAIRS.iter().map(|code| ((*code).to_string(), 0)).collect(),
            held: 0,
            pending: 0,
            findings: BTreeMap::new(),
            looked: None,
            alive: Instant::now(),
        };
        Self { counts: Arc::new(Mutex::new(counts)), lease, rest }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the end of a check.
    pub fn looked(&self, how: Looked) {
        let mut counts = self.counts();
        let count = counts.looks.entry(how).or_default();
        *count = count.saturating_add(1);
        counts.alive = Instant::now();
        if how != Looked::Failed {
            counts.looked = Some(counts.alive);
        }
    }

    /// Records the status of the renumbering.
    pub fn stands(&self, status: Status) {
        self.counts().status = Some(status);
    }

    /// Records the findings and the needed repairs of a check.
    pub fn saw(&self, watched: &Watched) {
        let mut counts = self.counts();
        counts.alive = Instant::now();
        counts.held = watched.held;
        counts.pending = watched.repairs.len().saturating_add(watched.follows.len());
        // If a code no longer has a finding, its metric becomes 0.
        counts.findings.values_mut().for_each(|count| *count = 0);
        for finding in &watched.findings {
            let count = counts.findings.entry(finding.code.to_string()).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Records a repair.
    pub fn repaired(&self, code: &str) {
        let mut counts = self.counts();
        counts.alive = Instant::now();
        let count = counts.repairs.entry(code.to_string()).or_default();
        *count = count.saturating_add(1);
    }

    /// Records that the guard makes progress.
    pub fn alive(&self) {
        self.counts().alive = Instant::now();
    }

    /// Records which renumbering is guarded; `None` if there is none.
    pub fn guards(&self, operation: Option<&str>) {
        let mut counts = self.counts();
        counts.operation = operation.map(str::to_string);
        (counts.held, counts.pending, counts.status) = (0, 0, None);
        counts.findings.values_mut().for_each(|count| *count = 0);
    }
}

impl Figures for Ledger {
    fn write(&self, page: &mut Page) {
        let counts = self.counts();
        if let Some(operation) = &counts.operation {
            let labels = [("operation", operation.as_str()), ("goal", "guard")];
            page.info("netsurgeon_operation_info", "The current operation.", &labels);
            if let Some(status) = counts.status {
                let labels = [("operation", operation.as_str()), ("status", status.name())];
                page.info(
                    "netsurgeon_operation_status_info",
                    "Status of the operation at the last check.",
                    &labels,
                );
            }
        }
        page.family("netsurgeon_guard_looks_total", "counter", "Checks by this process, by outcome.");
        for (looked, name) in Looked::ALL {
            let count = counts.looks.get(&looked).copied().unwrap_or_default();
            page.sample("netsurgeon_guard_looks_total", &[("outcome", name)], count);
        }
        page.family("netsurgeon_guard_repairs_total", "counter", "Repairs by this process, by kind.");
        for (code, count) in &counts.repairs {
            page.sample("netsurgeon_guard_repairs_total", &[("code", code)], count);
        }
        let what = "Services whose old address is held or must be held.";
        page.gauge("netsurgeon_guard_held_services", what, counts.held);
        let what = "Repairs that were needed at the last check, before the guard made any repair.";
        page.gauge("netsurgeon_guard_pending_repairs", what, counts.pending);
        if !counts.findings.is_empty() {
            let what = "Findings that an operator must check, by code.";
            page.family("netsurgeon_guard_findings", "gauge", what);
            for (code, count) in &counts.findings {
                page.sample("netsurgeon_guard_findings", &[("code", code)], count);
            }
        }
        if let Some(lease) = &self.lease {
            let held = u8::from(lease.borrow().is_ours());
            page.gauge(
                "netsurgeon_guard_lease_held",
                "Whether this process holds the Lease and makes repairs.",
                held,
            );
        }
        if let Some(looked) = counts.looked {
            let what = "Seconds since the last successful check.";
            page.gauge("netsurgeon_guard_last_look_seconds", what, looked.elapsed().as_secs_f64());
        }
    }

    fn is_well(&self) -> bool {
        self.counts().alive.elapsed() < PATIENCE.saturating_add(self.rest)
    }
}
