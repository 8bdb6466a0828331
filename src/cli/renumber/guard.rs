//! `netsurgeon renumber guard`: keeps old addresses held while they soak, whatever clients do to their Services.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cli::failure::Failure;
use crate::cli::live::{KubeArgs, Ongoing, open_operation};
use crate::cli::output::{Lines, Tone};
use crate::cli::source::EtcdArgs;
use crate::cli::{Context, Outcome};
use crate::cluster::{Cluster, ClusterError, ObjectRef};
use crate::operation::{Ambient, Lock, Mended, SystemAmbient, mend};
use crate::renumber::guard::{Follow, Watched, watch};
use crate::store::etcd::EtcdStore;
use crate::survey::Survey;

/// How often one pass looks again because things moved, or because a mend has a second part.
const MOST_LOOKS: u32 = 5;

/// Keep the old addresses held while they soak, whatever clients do to their Services
///
/// A client that replaces a Service drops the old address that it holds; one that deletes it leaves the address
/// reserved for nobody. The guard looks every few seconds and puts right what can be put right, each in one
/// transaction with its record in the journal; it names what people must look at. It takes no lock, and writes
/// nothing while another process carries an operation out. Several guards do no harm. The API is needed only where
/// a shadow must follow the selector or ports of its Service.
///
/// Ends with the renumbering, or when it is told to (SIGINT, SIGTERM). With `--once` the exit status is 3 if
/// something is left to look at, and 6 if another process is at work.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon renumber guard                           # in the foreground, until the renumbering ends
  netsurgeon renumber guard --once                    # from a timer
  netsurgeon renumber guard --once --dry-run          # what would be put right
  netsurgeon renumber guard -o json >> guard.log      # one JSON document a line")]
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
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// A line of what it says.
#[derive(Serialize)]
struct Line<'a> {
    version: u8,
    /// Seconds since 1970.
    at: i64,
    operation: &'a str,
    /// `watching`, `mended`, `would-mend`, `wrong`, `busy`, `failed` or `ended`.
    event: &'a str,
    /// `namespace/name`, or empty.
    subject: &'a str,
    /// The kind of mend or finding, or empty.
    code: &'a str,
    message: &'a str,
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

/// What came of shadows that are behind.
#[derive(Debug, Clone, Copy, Default)]
struct Behind {
    /// Some were changed: look again.
    again: bool,
    /// Some were not.
    left: bool,
}

struct Guarding<'a> {
    context: &'a Context,
    args: &'a GuardArgs,
    store: &'a EtcdStore,
    cluster: String,
    operation: String,
    /// The API, once it was needed.
    api: Option<Cluster>,
    /// What was said of others already: said again only when it changes.
    said: BTreeSet<String>,
}

/// Runs the command.
pub async fn run(context: &Context, args: &GuardArgs) -> Result<Outcome, Failure> {
    let store = args.etcd.connect().await?;
    let cluster = Survey::identity(store.as_ref(), &args.etcd.layout()).await?.unwrap_or_default();
    let ongoing = open_operation(store.as_ref(), &cluster, args.operation.as_deref(), None).await?;
    let (operation, said) = (ongoing.operation.clone(), BTreeSet::new());
    let mut guarding = Guarding { context, args, store: store.as_ref(), cluster, operation, api: None, said };
    if args.once {
        return Ok(match guarding.pass(&ongoing).await? {
            Pass::Fine => Outcome::Done,
            Pass::Wrong => Outcome::Findings,
            Pass::Busy => Outcome::Paused,
        });
    }
    tokio::select! {
        ended = guarding.keep(ongoing) => ended,
        signal = told_to_end() => signal.map(|()| Outcome::Done),
    }
}

/// A transaction that is under way when this returns is carried out by etcd, or not, as a whole.
async fn told_to_end() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

impl Guarding<'_> {
    /// Looks again and again until the renumbering ends. What fails once is tried again.
    async fn keep(&mut self, first: Ongoing) -> Result<Outcome, Failure> {
        let held = self.watch(&first).await?.held;
        self.say("watching", "", "", &format!("{held} old addresses are held"))?;
        self.pass(&first).await?;
        loop {
            tokio::time::sleep(Duration::from_secs(self.args.interval)).await;
            let looked = match open_operation(self.store, &self.cluster, Some(&self.operation), None).await {
                Ok(ongoing) if is_over(&ongoing) => break,
                Ok(ongoing) => self.pass(&ongoing).await.map(drop),
                // A journal that is removed is a renumbering that has ended.
                Err(_) if self.is_gone().await => break,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = looked {
                let words: Vec<String> = failure.lines().into_iter().map(|(_, text)| text).collect();
                self.say_once("failed", "", "", &words.join("; "))?;
            }
        }
        self.say("ended", "", "", "the renumbering has ended")?;
        Ok(Outcome::Done)
    }

    async fn is_gone(&self) -> bool {
        let listed = crate::operation::Journal::list(self.store, Some(&self.cluster)).await;
        listed.is_ok_and(|listed| listed.iter().all(|one| one.operation != self.operation))
    }

    async fn watch(&self, ongoing: &Ongoing) -> Result<Watched, Failure> {
        let survey = Survey::read(self.store, &self.args.etcd.layout(), None).await?;
        let journal = &ongoing.journal;
        Ok(watch(
            &ongoing.plan.work,
            &survey,
            journal.is_being_undone() || journal.returning().is_some(),
            |step| journal.state(step),
        ))
    }

    /// Looks, puts right what there is, and looks again until there is nothing more.
    async fn pass(&mut self, ongoing: &Ongoing) -> Result<Pass, Failure> {
        for _ in 0..MOST_LOOKS {
            if let Some(held) = Lock::holder(self.store, &self.cluster).await? {
                self.say_once("busy", "", "", &held.claim.to_string())?;
                return Ok(Pass::Busy);
            }
            let watched = self.watch(ongoing).await?;
            for finding in &watched.findings {
                let subject = finding.subject.trim_start_matches("Service ");
                self.say_once("wrong", subject, finding.code, &finding.message)?;
            }
            let behind = self.follow_all(ongoing, &watched.follows).await?;
            if watched.mends.is_empty() && !behind.again {
                if watched.findings.is_empty() && !behind.left {
                    self.said.clear();
                    return Ok(Pass::Fine);
                }
                return Ok(Pass::Wrong);
            }
            for one in &watched.mends {
                if self.args.dry_run {
                    self.say_once("would-mend", &one.subject, one.code, &one.says)?;
                    continue;
                }
                match mend(self.store, &self.cluster, &ongoing.journal, one, &SystemAmbient).await? {
                    Mended::Done => self.say("mended", &one.subject, one.code, &one.says)?,
                    Mended::Locked => break,
                    Mended::Moved => {}
                }
            }
            if self.args.dry_run {
                return Ok(Pass::Wrong);
            }
        }
        Ok(Pass::Wrong)
    }

    /// Changes shadows as their Services were changed.
    async fn follow_all(&mut self, ongoing: &Ongoing, follows: &[Follow]) -> Result<Behind, Failure> {
        let mut behind = Behind::default();
        for follow in follows {
            let Follow { finding, mend: record, .. } = follow;
            if self.args.dry_run {
                self.say_once("would-mend", &record.subject, record.code, &record.says)?;
                behind.left = true;
                continue;
            }
            match self.follow(follow).await {
                Ok(false) => behind.again = true,
                Ok(true) => {
                    behind.again = true;
                    mend(self.store, &self.cluster, &ongoing.journal, record, &SystemAmbient).await?;
                    self.say("mended", &record.subject, record.code, &record.says)?;
                }
                Err(failure) => {
                    behind.left = true;
                    let text = format!("{}, and it cannot be changed: {:#}", finding.message, failure.error);
                    self.say_once("wrong", &record.subject, finding.code, &text)?;
                }
            }
        }
        Ok(behind)
    }

    /// Returns whether the shadow was changed; if not, somebody else was faster.
    async fn follow(&mut self, follow: &Follow) -> Result<bool, Failure> {
        let api = match self.api.take() {
            Some(api) => api,
            None => self.args.kube.connect().await?,
        };
        if api.identity().await? != self.cluster {
            return Err(Failure::refused("the kubeconfig is another cluster's than etcd"));
        }
        let shadow = ObjectRef::new("v1", "Service", Some(&follow.namespace), &follow.name);
        let outcome = api.merge(&shadow, &follow.change).await;
        self.api = Some(api);
        match outcome {
            Ok(_) => Ok(true),
            Err(ClusterError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn say_once(&mut self, event: &str, subject: &str, code: &str, message: &str) -> Result<(), Failure> {
        if self.said.insert(format!("{event} {subject} {code} {message}")) {
            self.say(event, subject, code, message)?;
        }
        Ok(())
    }

    fn say(&self, event: &str, subject: &str, code: &str, message: &str) -> Result<(), Failure> {
        let at = SystemAmbient.now();
        let mut lines = Lines::new();
        if self.context.output.is_structured() {
            let line = Line { version: 1, at, operation: &self.operation, event, subject, code, message };
            // Plain data always serialises.
            lines.line(&serde_json::to_string(&line).unwrap_or_default())?;
        } else {
            let time = OffsetDateTime::from_unix_timestamp(at).ok();
            let time = time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default();
            let tone = match event {
                "wrong" | "failed" => Tone::Bad,
                "would-mend" | "busy" => Tone::Careful,
                _ => Tone::Good,
            };
            let event = self.context.output.paint(tone, event);
            let words: Vec<&str> =
                [event.as_str(), code, subject, message].into_iter().filter(|w| !w.is_empty()).collect();
            lines.line(&format!("{time}  {}", words.join("  ")))?;
        }
        lines.finish()
    }
}

fn is_over(ongoing: &Ongoing) -> bool {
    matches!(ongoing.summary.status.as_str(), "done" | "rolled-back" | "removing")
}
