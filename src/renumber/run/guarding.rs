//! The guard: keeps old addresses held while they soak, whatever clients do to their Services.

mod figures;
mod following;
mod keeper;
mod voice;

use std::sync::Arc;
use std::time::Duration;

use self::figures::{Ledger, Looked};
use self::following::Behind;
use self::keeper::Keeper;
use self::voice::Voice;
pub use self::voice::{Line, Lines};
use super::{Ongoing, is_gone, open, open_operation, unfinished};
use crate::cluster::Cluster;
use crate::operation::{Ambient as _, Lock, Mend, Mended, SystemAmbient, mend};
use crate::renumber::Move;
use crate::renumber::guard::{Watched, watch};
use crate::session::metrics::{Counted, Metrics};
use crate::session::{self, Connect, Failure, LiveEtcd, is_leased};
use crate::store::WriteStore;
use crate::survey::{Layout, Severity, Survey};

/// How often one pass looks again because things moved, or because a mend has a second part.
const MOST_LOOKS: u32 = 5;

/// What to guard, and how.
pub struct Guard {
    /// Which renumbering; `None` for the one under way.
    pub operation: Option<String>,
    /// How often to look.
    pub interval: Duration,
    /// Put nothing right.
    pub dry_run: bool,
    /// Wait where no renumbering is under way, and for the next one when one has ended.
    pub stay: bool,
    /// Where `GET /metrics` is answered.
    pub metrics: Option<String>,
    /// Mend only while holding the guards' Lease, which the others take after so long.
    pub lease: Option<Duration>,
    /// Where the API server keeps what.
    pub layout: Layout,
    /// The etcd.
    pub store: Arc<LiveEtcd>,
    /// The API, once it is needed.
    pub kube: Arc<dyn Connect>,
}

impl Guard {
    /// Looks once, puts right what there is, and ends.
    pub async fn once(&self, voice: &session::Voice, lines: &dyn Lines) -> Result<Pass, Failure> {
        self.with(voice, lines, async |guarding| guarding.once().await).await
    }

    /// Looks again and again until the renumbering ends, or that is over.
    pub async fn keep(
        &self,
        voice: &session::Voice,
        lines: &dyn Lines,
        over: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let keep = async |guarding: &mut Guarding<'_>| {
            tokio::select! {
                ended = guarding.keep() => ended,
                () = over => Ok(()),
            }
        };
        self.with(voice, lines, keep).await
    }

    async fn with<T>(
        &self,
        voice: &session::Voice,
        lines: &dyn Lines,
        guard: impl AsyncFnOnce(&mut Guarding<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = self.store.as_ref();
        let cluster = Survey::identity(store, &self.layout).await?.unwrap_or_default();
        let metrics = Metrics::listen_if(self.metrics.as_deref()).await?;
        let writes = metrics.as_ref().map(Metrics::writes).unwrap_or_default();
        let counted = Counted { store, writes };
        let keeper = self.lease.map(|duration| Keeper::start(self.kube.clone(), &cluster, duration));
        let ledger = Ledger::new(keeper.as_ref().map(Keeper::standing), self.interval);
        if let Some(metrics) = &metrics {
            session::show(metrics, voice, ledger.clone());
        }
        let mut guarding = Guarding {
            terms: self,
            store: &counted,
            locks: store,
            cluster,
            api: None,
            keeper,
            standing: String::new(),
            ledger,
            voice: Voice::new(lines),
        };
        let outcome = guard(&mut guarding).await;
        if let Some(keeper) = guarding.keeper.take() {
            keeper.release().await;
        }
        outcome
    }
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Everything is as it should be.
    Fine,
    /// There is something to look at.
    Wrong,
    /// Another process carries an operation out.
    Busy,
}

struct Guarding<'a> {
    terms: &'a Guard,
    store: &'a dyn WriteStore,
    /// The same etcd, for its leases.
    locks: &'a LiveEtcd,
    cluster: String,
    /// The API, once it was needed.
    api: Option<Cluster>,
    keeper: Option<Keeper>,
    /// Whether it may mend, in words, as it was said last.
    standing: String,
    ledger: Ledger,
    voice: Voice<'a>,
}

impl Guarding<'_> {
    async fn once(&mut self) -> Result<Pass, Failure> {
        let operation = self.terms.operation.as_deref();
        let ongoing = open(self.store, &self.cluster, operation, None, true).await?;
        self.voice.operation.clone_from(&ongoing.operation);
        self.pass(&ongoing).await
    }

    /// Guards a renumbering until it ends; with `--stay` the next one, too.
    async fn keep(&mut self) -> Result<(), Failure> {
        if let Some(keeper) = &mut self.keeper {
            keeper.known().await;
        }
        self.may_mend()?;
        loop {
            let ongoing = self.next().await?;
            self.begin(Some(&ongoing.operation));
            match self.guard(&ongoing).await {
                Ok(()) => self.voice.say("ended", ("", ""), "the renumbering has ended")?,
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
        self.voice.operation = operation.unwrap_or_default().to_string();
        self.voice.forget();
    }

    /// Finds what to guard.
    async fn next(&mut self) -> Result<Ongoing, Failure> {
        loop {
            match self.find().await {
                Ok(Some(ongoing)) => return Ok(ongoing),
                Ok(None) => {
                    self.ledger.looked(Looked::Idle);
                    self.voice.say_once("waiting", ("", ""), "no renumbering is under way")?;
                }
                Err(failure) if self.terms.stay => self.failed(&failure)?,
                Err(failure) => return Err(failure),
            }
            self.rest().await;
            self.may_mend()?;
        }
    }

    /// The renumbering that is under way; `None` if there is none, and it is to be waited for.
    async fn find(&self) -> Result<Option<Ongoing>, Failure> {
        if self.terms.stay && unfinished(self.store, &self.cluster).await?.is_empty() {
            return Ok(None);
        }
        let operation = self.terms.operation.as_deref();
        let ongoing = open(self.store, &self.cluster, operation, None, true).await?;
        Ok(Some(ongoing).filter(|ongoing| !self.terms.stay || !is_over(ongoing)))
    }

    /// Looks again and again until the renumbering ends. What fails once is tried again.
    async fn guard(&mut self, first: &Ongoing) -> Result<(), Failure> {
        let held = self.watch(first).await?.held;
        self.voice.say("watching", ("", ""), &format!("{held} old addresses are held"))?;
        self.pass(first).await?;
        loop {
            self.rest().await;
            let looked = match open_operation(self.store, &self.cluster, Some(&first.operation), None).await {
                Ok(ongoing) if is_over(&ongoing) => return Ok(()),
                Ok(ongoing) => self.pass(&ongoing).await.map(drop),
                // A journal that is removed is a renumbering that has ended.
                Err(_) if is_gone(self.store, &first.operation).await.unwrap_or(false) => return Ok(()),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = looked {
                self.failed(&failure)?;
            }
        }
    }

    /// Waits until it is time to look again: the interval, or until the Lease comes or goes.
    async fn rest(&mut self) {
        let interval = tokio::time::sleep(self.terms.interval);
        match &mut self.keeper {
            None => interval.await,
            Some(keeper) => tokio::select! {
                () = interval => {}
                () = keeper.passed() => {}
            },
        }
    }

    fn failed(&mut self, failure: &Failure) -> Result<(), Failure> {
        self.ledger.looked(Looked::Failed);
        let words: Vec<String> = failure.lines().into_iter().map(|(_, text)| text).collect();
        self.voice.say_once("failed", ("", ""), &words.join("; "))
    }

    /// Whether it has the Lease, where it needs one; says so when that changes.
    fn may_mend(&mut self) -> Result<bool, Failure> {
        let Some(keeper) = &self.keeper else { return Ok(true) };
        let (may, event, words) = match keeper.may_mend() {
            Ok(()) => (true, "holding", "this guard has the Lease and mends".to_string()),
            Err(reason) => (false, "standby", reason),
        };
        if self.standing != words {
            self.voice.say(event, ("", ""), &words)?;
            self.standing = words;
        }
        Ok(may)
    }

    async fn watch(&self, ongoing: &Ongoing) -> Result<Watched, Failure> {
        let survey = Survey::read(self.store, &self.terms.layout, None).await?;
        let journal = &ongoing.journal;
        Ok(watch(&ongoing.plan.work, &survey, |step| journal.state(step), SystemAmbient.now()))
    }

    async fn pass(&mut self, ongoing: &Ongoing) -> Result<Pass, Failure> {
        let held = Lock::holder(self.locks, &self.cluster).await?;
        let is_leased = is_leased(held.as_ref(), &ongoing.operation);
        self.ledger.stands(ongoing.summary.status_now(ongoing.journal.is_being_undone(), is_leased));
        let pass = self.look_and_mend(ongoing).await?;
        self.ledger.looked(match pass {
            Pass::Fine => Looked::Fine,
            Pass::Wrong => Looked::Wrong,
            Pass::Busy => Looked::Busy,
        });
        Ok(pass)
    }

    /// Looks, puts right what there is, and looks again until there is nothing more.
    async fn look_and_mend(&mut self, ongoing: &Ongoing) -> Result<Pass, Failure> {
        for _ in 0..MOST_LOOKS {
            if let Some(held) = Lock::holder(self.locks, &self.cluster).await? {
                self.voice.say_once("busy", ("", ""), &held.claim.to_string())?;
                // Endpoints change whoever has the lock, and nobody else copies them once a batch is through.
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
                self.voice.say_once("wrong", (subject, finding.code), &finding.message)?;
            }
            let is_quiet = watched.mends.is_empty() && watched.follows.is_empty();
            let behind = if self.may_mend()? {
                self.follow_all(ongoing, watched.follows.iter().chain(&watched.copies)).await?
            } else if is_quiet {
                Behind::default()
            } else {
                return Ok(Pass::Wrong);
            };
            if watched.mends.is_empty() && !behind.again {
                if watched.findings.iter().all(|finding| finding.severity == Severity::Info) && !behind.left {
                    self.voice.forget();
                    return Ok(Pass::Fine);
                }
                return Ok(Pass::Wrong);
            }
            if !self.mend_all(ongoing, &watched.mends).await? {
                return Ok(Pass::Wrong);
            }
        }
        Ok(Pass::Wrong)
    }

    /// Returns whether to look again.
    async fn mend_all(&mut self, ongoing: &Ongoing, mends: &[Mend]) -> Result<bool, Failure> {
        for one in mends {
            let about = (one.subject.as_str(), one.code);
            if self.terms.dry_run {
                self.voice.say_once("would-mend", about, &one.says)?;
                continue;
            }
            if !self.may_mend()? {
                return Ok(false);
            }
            match mend(self.store, &self.cluster, &ongoing.journal, one, &SystemAmbient).await? {
                Mended::Done => self.mended(one)?,
                Mended::Locked => break,
                Mended::Moved => {}
            }
        }
        Ok(!self.terms.dry_run)
    }

    fn mended(&mut self, one: &Mend) -> Result<(), Failure> {
        self.ledger.mended(one.code);
        self.voice.say("mended", (&one.subject, one.code), &one.says)
    }
}

fn is_over(ongoing: &Ongoing) -> bool {
    ongoing.summary.status.has_ended()
}
