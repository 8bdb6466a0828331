//! What the guard has seen and done, for Prometheus, and whether it still turns, for a liveness probe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::keeper::Standing;
use crate::operation::Status;
use crate::renumber::guard::{MENDS, Watched};
use crate::session::metrics::{Figures, Page};

/// Without a sign of life for so long, beside what it rests between looks, it is thought to hang: every request to
/// etcd and to the API ends much sooner.
const PATIENCE: Duration = Duration::from_mins(3);

/// How a look ended, each with its name in the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Looked {
    /// Everything is as it should be.
    Fine,
    /// There is something to look at, or to mend.
    Wrong,
    /// Another process carries an operation out.
    Busy,
    /// There is no renumbering.
    Idle,
    /// etcd could not be read, say.
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
    /// How it stood at the last look.
    status: Option<Status>,
    looks: BTreeMap<Looked, u64>,
    mends: BTreeMap<String, u64>,
    held: usize,
    pending: usize,
    findings: BTreeMap<String, usize>,
    looked: Option<Instant>,
    alive: Instant,
}

/// The figures, as they are shared with the metrics.
#[derive(Debug, Clone)]
pub struct Ledger {
    counts: Arc<Mutex<Counts>>,
    /// Whether it has the Lease; `None` where it needs none.
    lease: Option<watch::Receiver<Standing>>,
    rest: Duration,
}

impl Ledger {
    /// Begins at zero; `rest` is how long the guard rests between looks.
    pub fn new(lease: Option<watch::Receiver<Standing>>, rest: Duration) -> Self {
        let counts = Counts {
            operation: None,
            status: None,
            looks: Looked::ALL.into_iter().map(|(looked, _)| (looked, 0)).collect(),
            mends: MENDS.iter().map(|code| ((*code).to_string(), 0)).collect(),
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

    /// Takes note that a look has ended.
    pub fn looked(&self, how: Looked) {
        let mut counts = self.counts();
        let count = counts.looks.entry(how).or_default();
        *count = count.saturating_add(1);
        counts.alive = Instant::now();
        if how != Looked::Failed {
            counts.looked = Some(counts.alive);
        }
    }

    /// Takes note of how the renumbering stands.
    pub fn stands(&self, status: Status) {
        self.counts().status = Some(status);
    }

    /// Takes note of what was seen of a renumbering.
    pub fn saw(&self, watched: &Watched) {
        let mut counts = self.counts();
        counts.alive = Instant::now();
        counts.held = watched.held;
        counts.pending = watched.mends.len().saturating_add(watched.follows.len());
        // One that was there and is no more is 0, not gone.
        counts.findings.values_mut().for_each(|count| *count = 0);
        for finding in &watched.findings {
            let count = counts.findings.entry(finding.code.to_string()).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Takes note of what was put right.
    pub fn mended(&self, code: &str) {
        let mut counts = self.counts();
        counts.alive = Instant::now();
        let count = counts.mends.entry(code.to_string()).or_default();
        *count = count.saturating_add(1);
    }

    /// Takes note that it gets on.
    pub fn alive(&self) {
        self.counts().alive = Instant::now();
    }

    /// Begins with a renumbering, or is without one.
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
            page.info("netsurgeon_operation_info", "The operation that is under way.", &labels);
            if let Some(status) = counts.status {
                let labels = [("operation", operation.as_str()), ("status", status.name())];
                page.info(
                    "netsurgeon_operation_status_info",
                    "How the operation stood at the last look.",
                    &labels,
                );
            }
        }
        page.family("netsurgeon_guard_looks_total", "counter", "Looks of this process, by how they ended.");
        for (looked, name) in Looked::ALL {
            let count = counts.looks.get(&looked).copied().unwrap_or_default();
            page.sample("netsurgeon_guard_looks_total", &[("outcome", name)], count);
        }
        page.family(
            "netsurgeon_guard_mends_total",
            "counter",
            "What this process has put right, by its kind.",
        );
        for (code, count) in &counts.mends {
            page.sample("netsurgeon_guard_mends_total", &[("code", code)], count);
        }
        let what = "Services whose old address is held, or should be.";
        page.gauge("netsurgeon_guard_held_services", what, counts.held);
        let what = "What is to be put right and was not yet, at the last look.";
        page.gauge("netsurgeon_guard_pending_mends", what, counts.pending);
        if !counts.findings.is_empty() {
            let what = "What people must look at, by its code.";
            page.family("netsurgeon_guard_findings", "gauge", what);
            for (code, count) in &counts.findings {
                page.sample("netsurgeon_guard_findings", &[("code", code)], count);
            }
        }
        if let Some(lease) = &self.lease {
            let held = u8::from(lease.borrow().is_ours());
            page.gauge("netsurgeon_guard_lease_held", "Whether this process has the Lease, and mends.", held);
        }
        if let Some(looked) = counts.looked {
            let what = "How long ago the last look ended that did not fail.";
            page.gauge("netsurgeon_guard_last_look_seconds", what, looked.elapsed().as_secs_f64());
        }
    }

    fn is_well(&self) -> bool {
        self.counts().alive.elapsed() < PATIENCE.saturating_add(self.rest)
    }
}
