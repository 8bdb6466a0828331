//! `netsurgeon renumber guard`: keeps old addresses held while they soak, whatever clients do to their Services.

mod figures;
mod following;
mod keeper;
mod voice;

use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::figures::{Ledger, Looked};
use self::following::Behind;
use self::keeper::{Keeper, LeaseArgs};
use self::voice::Voice;
use crate::cli::api::KubeArgs;
use crate::cli::failure::Failure;
use crate::cli::live::{Ongoing, is_gone, is_leased, open, open_operation, unfinished};
use crate::cli::log::Kind;
use crate::cli::metrics::{Counted, Metrics};
use crate::cli::source::EtcdArgs;
use crate::cli::source::LiveEtcd;
use crate::cli::{Context, Outcome};
use crate::cluster::Cluster;
use crate::operation::{Ambient as _, Lock, Mend, Mended, SystemAmbient, mend};
use crate::renumber::Move;
use crate::renumber::guard::{Watched, watch};
use crate::store::WriteStore;
use crate::survey::{Severity, Survey};

/// How often one pass looks again because things moved, or because a mend has a second part.
const MOST_LOOKS: u32 = 5;

/// Keep the old addresses held while they soak, whatever clients do to their Services
///
/// A client that replaces a Service drops the old address that it holds; one that deletes it leaves the address
/// reserved for nobody. The guard looks every few seconds and puts right what can be put right, each in one
/// transaction with its record in the journal; it names what people must look at. It takes no lock, and mends
/// nothing while another process carries an operation out. Several guards do no harm; with `--lease` one of them
/// mends and the others watch. Without it the API is needed only where a shadow must follow the selector or ports
/// of its Service, or its endpoints where it has no selector: those at any time.
///
/// Ends with the renumbering, or when it is told to (SIGINT, SIGTERM). With `--once` the exit status is 3 if
/// something is left to look at, and 6 if another process is at work. For a soak of days run it in the cluster:
/// deploy/guard.yaml and docs/guard.md.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber guard                           # in the foreground, until the renumbering ends
  netsurgeon renumber guard --once                    # from a timer
  netsurgeon renumber guard --once --dry-run          # what would be put right
  netsurgeon renumber guard -o json >> guard.log      # one JSON document a line
  netsurgeon renumber guard --metrics-listen 127.0.0.1:9464
  netsurgeon renumber guard --stay --lease            # as in a Deployment: one of several mends, none ends")]
pub struct GuardArgs {
    /// Which renumbering [default: the one under way]
    #[arg(long, value_name = "ID")]
    operation: Option<String>,
    /// Look once, put right what there is, and end
    #[arg(long)]
    once: bool,
    /// How often to look, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Put nothing right, only say what would be
    #[arg(long)]
    dry_run: bool,
    /// Wait where no renumbering is under way, and for the next one when one has ended, until told to end
    #[arg(long, conflicts_with_all = ["once", "operation"])]
    stay: bool,
    /// Answer `GET /metrics`, for Prometheus, and `GET /healthz` here; docs/metrics.md lists what there is
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "once")]
    metrics_listen: Option<String>,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Everything is as it should be.
    Fine,
    /// There is something to look at.
    Wrong,
    /// Another process carries an operation out.
    Busy,
}

struct Guarding<'a> {
    args: &'a GuardArgs,
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

/// Runs the command.
pub async fn run(context: &Context, args: &GuardArgs) -> Result<Outcome, Failure> {
    // Process 1 of a container does not die of a signal that nobody waits for.
    let told = if args.once { None } else { Some(Signals::new()?) };
    let store = args.etcd.connect().await?;
    let cluster = Survey::identity(store.as_ref(), &args.etcd.layout()).await?.unwrap_or_default();
    let metrics = match &args.metrics_listen {
        Some(address) => Some(Metrics::listen(address).await?),
        None => None,
    };
    let writes = metrics.as_ref().map(Metrics::writes).unwrap_or_default();
    let counted = Counted { store: store.as_ref(), writes };
    let keeper = args.lease.keeper(&args.kube, &cluster);
    let ledger = Ledger::new(keeper.as_ref().map(Keeper::standing), Duration::from_secs(args.interval));
    if let Some(metrics) = &metrics {
        metrics.show(std::sync::Arc::new(ledger.clone()));
        let url = metrics.url();
        context.output.say(Kind::Note, &format!("metrics are at {url}"), &[("url", url.as_str().into())]);
    }
    let voice = Voice::new(&context.output);
    let mut guarding = Guarding {
        args,
        store: &counted,
        locks: store.as_ref(),
        cluster,
        api: None,
        keeper,
        standing: String::new(),
        ledger,
        voice,
    };
    let Some(told) = told else { return guarding.once().await };
    let outcome = tokio::select! {
        ended = guarding.keep() => ended,
        () = told.received() => Ok(Outcome::Done),
    };
    if let Some(keeper) = guarding.keeper.take() {
        keeper.release().await;
    }
    outcome
}

/// The signals that end it. A transaction that is under way is carried out by etcd, or not, as a whole.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn received(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Guarding<'_> {
    async fn once(&mut self) -> Result<Outcome, Failure> {
        let operation = self.args.operation.as_deref();
        let ongoing = open(self.store, &self.cluster, operation, None, true).await?;
        self.voice.operation.clone_from(&ongoing.operation);
        Ok(match self.pass(&ongoing).await? {
            Pass::Fine => Outcome::Done,
            Pass::Wrong => Outcome::Findings,
            Pass::Busy => Outcome::Paused,
        })
    }

    /// Guards a renumbering until it ends; with `--stay` the next one, too.
    async fn keep(&mut self) -> Result<Outcome, Failure> {
        if let Some(keeper) = &mut self.keeper {
            keeper.known().await;
        }
        self.may_mend()?;
        loop {
            let ongoing = self.next().await?;
            self.begin(Some(&ongoing.operation));
            match self.guard(&ongoing).await {
                Ok(()) => self.voice.say("ended", ("", ""), "the renumbering has ended")?,
                Err(failure) if self.args.stay => self.failed(&failure)?,
                Err(failure) => return Err(failure),
            }
            if !self.args.stay {
                return Ok(Outcome::Done);
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
                Err(failure) if self.args.stay => self.failed(&failure)?,
                Err(failure) => return Err(failure),
            }
            self.rest().await;
            self.may_mend()?;
        }
    }

    /// The renumbering that is under way; `None` if there is none, and it is to be waited for.
    async fn find(&self) -> Result<Option<Ongoing>, Failure> {
        if self.args.stay && unfinished(self.store, &self.cluster).await?.is_empty() {
            return Ok(None);
        }
        let operation = self.args.operation.as_deref();
        let ongoing = open(self.store, &self.cluster, operation, None, true).await?;
        Ok(Some(ongoing).filter(|ongoing| !self.args.stay || !is_over(ongoing)))
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
        let interval = tokio::time::sleep(Duration::from_secs(self.args.interval));
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
        let survey = Survey::read(self.store, &self.args.etcd.layout(), None).await?;
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
            if self.args.dry_run {
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
        Ok(!self.args.dry_run)
    }

    fn mended(&mut self, one: &Mend) -> Result<(), Failure> {
        self.ledger.mended(one.code);
        self.voice.say("mended", (&one.subject, one.code), &one.says)
    }
}

fn is_over(ongoing: &Ongoing) -> bool {
    ongoing.summary.status.has_ended()
}
