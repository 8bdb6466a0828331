//! Runs the guard, which keeps old addresses held during the soak, even if clients change their Services.

mod guard_lease;
mod guard_log;
mod guard_metrics;
mod shadow_updates;

use std::sync::Arc;
use std::time::Duration;

use self::guard_lease::GuardLease;
use self::guard_log::GuardLog;
pub use self::guard_log::{Line, Lines};
use self::guard_metrics::{Ledger, Looked};
use self::shadow_updates::Behind;
use super::{Ongoing, is_gone, open, open_operation, unfinished};
use crate::kube_api::Cluster;
use crate::operation::{Ambient as _, Lock, Repair, RepairOutcome, repair};
use crate::renumber::guard::{Watched, watch};
use crate::renumber::{Move, Renumbering};
use crate::session::metrics::{Counted, Metrics};
use crate::session::{self, Connect, Failure, LiveEtcd, StoredTime, is_leased};
use crate::store::WriteStore;
use crate::survey::{Era, Layout, Severity, Survey};

/// Maximum number of checks in one pass. A pass checks again after a concurrent change, or if a repair has a second part.
const MOST_LOOKS: u32 = 5;

/// Options of the guard.
pub struct Guard {
    /// Id of the renumbering; `None` for the renumbering under way.
    pub operation: Option<String>,
    /// The interval between checks.
    pub interval: Duration,
    /// Whether to report repairs without making them.
    pub dry_run: bool,
    /// Whether the guard waits until a renumbering starts, and waits for the next renumbering after the current renumbering has
    /// ended.
    pub stay: bool,
    /// The address that serves `GET /metrics`.
    pub metrics: Option<String>,
    /// Duration of the Lease, after which another guard can acquire it. This guard repairs only while it holds the Lease. `None`
    /// if no Lease is needed.
    pub lease: Option<Duration>,
    /// Layout of the API server's keys in etcd.
    pub layout: Layout,
    /// The etcd of the cluster.
    pub store: Arc<LiveEtcd>,
    /// Connects to the API when the API is needed.
    pub kube: Arc<dyn Connect>,
}

impl Guard {
    /// Checks once, makes the needed repairs, and ends.
    pub async fn once(&self, ui: &session::Ui, lines: &dyn Lines) -> Result<Pass, Failure> {
        self.with(ui, lines, async |guarding| guarding.once().await).await
    }

    /// Checks repeatedly until the renumbering ends or `over` completes.
    pub async fn keep(
        &self,
        ui: &session::Ui,
        lines: &dyn Lines,
        over: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let keep = async |guarding: &mut Guarding<'_>| {
            tokio::select! {
                ended = guarding.keep() => ended,
                () = over => Ok(()),
            }
        };
        self.with(ui, lines, keep).await
    }

    async fn with<T>(
        &self,
        ui: &session::Ui,
        lines: &dyn Lines,
        guard: impl AsyncFnOnce(&mut Guarding<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = self.store.as_ref();
        let cluster = Survey::identity(store, &self.layout).await?.unwrap_or_default();
        let metrics = Metrics::listen_if(self.metrics.as_deref()).await?;
        let writes = metrics.as_ref().map(Metrics::writes).unwrap_or_default();
        let counted = Counted { store, writes };
        let guard_lease = self.lease.map(|duration| GuardLease::start(self.kube.clone(), &cluster, duration));
        let ledger = Ledger::new(guard_lease.as_ref().map(GuardLease::standing), self.interval);
        if let Some(metrics) = &metrics {
            session::show(metrics, ui, ledger.clone());
        }
        let mut guarding = Guarding {
            terms: self,
            store: &counted,
            locks: store,
            cluster,
            api: None,
            guard_lease,
            standing: String::new(),
            ledger,
            log: GuardLog::new(lines),
            time: StoredTime::read(store, &self.layout).await,
        };
        let outcome = guard(&mut guarding).await;
        if let Some(guard_lease) = guarding.guard_lease.take() {
            guard_lease.release().await;
        }
        outcome
    }
}

/// Outcome of a pass of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// No finding and no repair is left.
    Fine,
    /// Findings or repairs are left.
    Wrong,
    /// Another process runs an operation.
    Busy,
}

struct Guarding<'a> {
    terms: &'a Guard,
    store: &'a dyn WriteStore,
    /// The same etcd as `store`, to read the operation lease.
    locks: &'a LiveEtcd,
    cluster: String,
    /// Client of the API; `None` before its first use.
    api: Option<Cluster>,
    guard_lease: Option<GuardLease>,
    /// The last message that reported whether this guard is allowed to repair.
    standing: String,
    ledger: Ledger,
    log: GuardLog<'a>,
    /// The time of the cluster, read before each pass.
    time: StoredTime,
}

impl Guarding<'_> {
    async fn once(&mut self) -> Result<Pass, Failure> {
        let operation = self.terms.operation.as_deref();
        let ongoing = open(self.store, &self.cluster, operation, None, true).await?;
        self.log.operation.clone_from(&ongoing.operation);
        self.pass(&ongoing).await
    }

    /// Guards a renumbering until it ends. With `--stay`, then waits for the next renumbering.
    async fn keep(&mut self) -> Result<(), Failure> {
        if let Some(guard_lease) = &mut self.guard_lease {
            guard_lease.known().await;
        }
        self.may_repair()?;
        loop {
            let ongoing = self.next().await?;
            self.begin(Some(&ongoing.operation));
            match self.guard(&ongoing).await {
                Ok(()) => self.log.say("ended", ("", ""), "the renumbering has ended")?,
                Err(failure) if self.terms.stay => self.failed(&failure)?,
                Err(failure) => return Err(failure),
            }
            if !self.terms.stay {
                return Ok(());
            }
            self.begin(None);
        }
    }

    fn begin(&mut self, operation: Option<&str>) {
        self.ledger.guards(operation);
        self.log.operation = operation.unwrap_or_default().to_string();
        self.log.forget();
    }

    /// Waits for a renumbering to guard.
    async fn next(&mut self) -> Result<Ongoing, Failure> {
        loop {
            match self.find().await {
                Ok(Some(ongoing)) => return Ok(ongoing),
                Ok(None) => {
                    self.ledger.looked(Looked::Idle);
                    self.log.say_once("waiting", ("", ""), "no renumbering is under way")?;
                }
                Err(failure) if self.terms.stay => self.failed(&failure)?,
                Err(failure) => return Err(failure),
            }
            self.rest().await;
            self.may_repair()?;
        }
    }

    /// Returns the renumbering under way. With `--stay`, returns `None` if no renumbering is under way.
    async fn find(&self) -> Result<Option<Ongoing>, Failure> {
        if self.terms.stay && unfinished(self.store, &self.cluster).await?.is_empty() {
            return Ok(None);
        }
        let operation = self.terms.operation.as_deref();
        let ongoing = open(self.store, &self.cluster, operation, None, true).await?;
        Ok(Some(ongoing).filter(|ongoing| !self.terms.stay || !is_over(ongoing)))
    }

    /// Checks repeatedly until the renumbering ends. A failed check is retried at the next interval.
    async fn guard(&mut self, first: &Ongoing) -> Result<(), Failure> {
        let held = self.watch(first).await?.held;
        let held = crate::words::counted(held, "old address is held", "old addresses are held");
        self.log.say("watching", ("", ""), &held)?;
        self.pass(first).await?;
        loop {
            self.rest().await;
            let looked = match open_operation(self.store, &self.cluster, Some(&first.operation), None).await {
                Ok(ongoing) if is_over(&ongoing) => return Ok(()),
                Ok(ongoing) => self.pass(&ongoing).await.map(drop),
                // The journal is removed, so the renumbering has ended.
                Err(_) if is_gone(self.store, &first.operation).await.unwrap_or(false) => return Ok(()),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = looked {
                self.failed(&failure)?;
            }
        }
    }

    /// Waits until the next check. The wait ends after the interval, or earlier if the holder of the Lease changes.
    async fn rest(&mut self) {
        let interval = tokio::time::sleep(self.terms.interval);
        match &mut self.guard_lease {
            None => interval.await,
            Some(guard_lease) => tokio::select! {
                () = interval => {}
                () = guard_lease.passed() => {}
            },
        }
    }

    fn failed(&mut self, failure: &Failure) -> Result<(), Failure> {
        self.ledger.looked(Looked::Failed);
        let words: Vec<String> = failure.lines().into_iter().map(|(_, text)| text).collect();
        self.log.say_once("failed", ("", ""), &words.join("; "))
    }

    /// Returns whether this guard is allowed to repair, because it holds the Lease or needs no Lease. Prints a line when this
    /// changes.
    fn may_repair(&mut self) -> Result<bool, Failure> {
        let Some(guard_lease) = &self.guard_lease else { return Ok(true) };
        let (may, event, words) = match guard_lease.may_repair() {
            Ok(()) => (true, "holding", "this guard holds the Lease and repairs".to_string()),
            Err(reason) => (false, "standby", reason),
        };
        if self.standing != words {
            self.log.say(event, ("", ""), &words)?;
            self.standing = words;
        }
        Ok(may)
    }

    async fn watch(&self, ongoing: &Ongoing) -> Result<Watched, Failure> {
        let survey = Survey::read(self.store, &self.terms.layout, None).await?;
        let (journal, now) = (&ongoing.journal, self.time.now());
        Ok(watch(&ongoing.plan.work, &survey, |step| journal.state(step), now))
    }

    /// Reads the time of the cluster, for the dates of IPAddresses. Fails if neither etcd nor the API shows this time.
    async fn read_time(&mut self, work: &Renumbering) -> Result<(), Failure> {
        self.time = StoredTime::read(self.locks, &self.terms.layout).await;
        if self.time.is_of_the_cluster() || work.era == Era::Bitmap {
            return Ok(());
        }
        let unknown = |reason: String| {
            let text = "the time of the cluster is not known, and the clock of this host can be wrong";
            Failure::refused(format!("{text}: etcd has no Lease of the control plane, and {reason}"))
        };
        let api = self.api().await.map_err(|failure| unknown(failure.to_string()))?;
        let now = api.clock().now().ok_or_else(|| unknown("the API does not report its time".to_string()))?;
        self.time = StoredTime::of(now.unix_timestamp());
        Ok(())
    }

    async fn pass(&mut self, ongoing: &Ongoing) -> Result<Pass, Failure> {
        let held = Lock::holder(self.locks, &self.cluster).await?;
        let is_leased = is_leased(held.as_ref(), &ongoing.operation);
        self.ledger.stands(ongoing.summary.status_now(ongoing.journal.is_being_undone(), is_leased));
        let pass = self.look_and_repair(ongoing).await?;
        self.ledger.looked(match pass {
            Pass::Fine => Looked::Fine,
            Pass::Wrong => Looked::Wrong,
            Pass::Busy => Looked::Busy,
        });
        Ok(pass)
    }

    /// Checks the cluster, makes the needed repairs, and checks again until no repair is left.
    async fn look_and_repair(&mut self, ongoing: &Ongoing) -> Result<Pass, Failure> {
        self.read_time(&ongoing.plan.work).await?;
        for _ in 0..MOST_LOOKS {
            if let Some(held) = Lock::holder(self.locks, &self.cluster).await? {
                self.log.say_once("busy", ("", ""), &held.claim.to_string())?;
                // Endpoints change at any time. The operation copies the endpoints of a batch only while it runs this batch, so
                // the guard updates the copies.
                if ongoing.plan.work.moves.iter().any(Move::has_copies) {
                    let copies = self.watch(ongoing).await?.copies;
                    self.follow_all(ongoing, copies.iter()).await?;
                }
                return Ok(Pass::Busy);
            }
            let watched = self.watch(ongoing).await?;
            self.ledger.saw(&watched);
            for finding in &watched.findings {
                let subject = finding.subject.trim_start_matches("Service ");
                self.log.say_once("wrong", (subject, finding.code), &finding.message)?;
            }
            let is_quiet = watched.repairs.is_empty() && watched.follows.is_empty();
            let behind = if self.may_repair()? {
                self.follow_all(ongoing, watched.follows.iter().chain(&watched.copies)).await?
            } else if is_quiet {
                Behind::default()
            } else {
                return Ok(Pass::Wrong);
            };
            if watched.repairs.is_empty() && !behind.again {
                if watched.findings.iter().all(|finding| finding.severity == Severity::Info) && !behind.left {
                    self.log.forget();
                    return Ok(Pass::Fine);
                }
                return Ok(Pass::Wrong);
            }
            if !self.repair_all(ongoing, &watched.repairs).await? {
                return Ok(Pass::Wrong);
            }
        }
        Ok(Pass::Wrong)
    }

    /// Makes the repairs. Returns whether to check again.
    async fn repair_all(&mut self, ongoing: &Ongoing, repairs: &[Repair]) -> Result<bool, Failure> {
        for one in repairs {
            let about = (one.subject.as_str(), one.code);
            if self.terms.dry_run {
                self.log.say_once("would-repair", about, &one.says)?;
                continue;
            }
            if !self.may_repair()? {
                return Ok(false);
            }
            match repair(self.store, &self.cluster, &ongoing.journal, one, &self.time).await? {
                RepairOutcome::Done => self.repaired(one)?,
                RepairOutcome::Locked => break,
                RepairOutcome::Stale => {}
            }
        }
        Ok(!self.terms.dry_run)
    }

    fn repaired(&mut self, one: &Repair) -> Result<(), Failure> {
        self.ledger.repaired(one.code);
        self.log.say("repaired", (&one.subject, one.code), &one.says)
    }
}

fn is_over(ongoing: &Ongoing) -> bool {
    ongoing.summary.status.has_ended()
}
