//! Finds clients that use old addresses from this host, in the connections that the kernel tracks and, with `--for`, in each new
//! connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use clap::Args;
use time::OffsetDateTime;
use tokio::sync::mpsc;

use super::AuditArgs;
use crate::audit::Old;
use crate::audit::evidence::{Client, Evidence, Seen, Used, VERSION, moment};
use crate::audit::evidence_document::publish;
use crate::cli::output::{counted, table};
use crate::cli::{Context, Outcome};
use crate::host;
use crate::host::conntrack::flows_to;
use crate::host::conntrack_events::{Beginnings, Heard};
use crate::ip::ServiceCidr;
use crate::session::{ExitKind, Failure};

/// Maximum duration of one wait for events. It limits how late a result is sent, and how late the observation ends after the
/// receiver is closed.
const EAR: Duration = Duration::from_millis(500);

/// Whether to check connections, and for how long.
#[derive(Debug, Clone, Args)]
pub(super) struct FlowArgs {
    /// With --host: find clients of old addresses in the connections that the kernel of this host tracks. Do not search files or
    /// processes
    #[arg(long, requires = "host")]
    pub(super) flows: bool,
    /// Listen for new connections for this many seconds, and record each connection, even if it is very short
    #[arg(long = "for", value_name = "SECONDS", requires = "flows", default_value = "0", value_parser = clap::value_parser!(u64).range(..=604_800))]
    seconds: u64,
    /// With --flows: the Node's name, as in `kubectl get nodes` [default: this host's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME", hide_env_values = true)]
    node: Option<String>,
    /// Also write the result to a ConfigMap with the Node's name: at the start, every --publish-every seconds, and at the end.
    /// The exit status then does not depend on the result
    #[arg(long, requires = "flows")]
    publish: bool,
    /// How often to publish, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "300", requires = "publish", value_parser = clap::value_parser!(u64).range(1..=3600))]
    publish_every: u64,
}

/// The connections that were observed so far, and the time of the observation.
struct Looked {
    complete: bool,
    began: OffsetDateTime,
    ended: OffsetDateTime,
    used: (Vec<Used>, u64),
}

pub(super) async fn run(context: &Context, args: &AuditArgs, old: Old) -> Result<Outcome, Failure> {
    let publisher = if args.flows.publish { Some(args.kube.connect().await?) } else { None };
    let listen = Duration::from_secs(args.flows.seconds);
    let every = publisher.as_ref().map(|_| Duration::from_secs(args.flows.publish_every));
    let (sender, mut seen) = mpsc::channel(1);
    let looking = tokio::task::spawn_blocking(move || look(&old, listen, every, &sender));
    let node = args.flows.node.clone().unwrap_or_else(|| host::name().to_lowercase());
    let (mut last, mut outcome) = (None, Ok(()));
    while let Some(looked) = seen.recv().await {
        let found = evidence(args, &node, looked);
        if let Some(cluster) = &publisher {
            outcome = publish(cluster, &args.gather.evidence_namespace, &found).await;
            // If the first publication fails, the command fails immediately.
            if last.is_none() {
                std::mem::replace(&mut outcome, Ok(()))?;
            }
            if let Err(error) = &outcome {
                context.output.warn(&format!("not published: {error}"));
            }
        }
        last = Some(found);
    }
    let looked =
        looking.await.map_err(|error| Failure::refused(format!("cannot check connections: {error}")))?;
    looked.map_err(|error| {
        Failure::new(ExitKind::Refused, error)
            .hint("run this command on a node, as root (CAP_NET_ADMIN), in the host's network namespace")
            .hint("if the kernel has no `/proc/net/nf_conntrack`, install the program `conntrack`, also in the image of deploy/evidence.yaml")
    })?;
    let found = last.ok_or_else(|| Failure::refused("no connections were checked"))?;
    context.output.data(&found, |_| text(&found))?;
    if !listen.is_zero() && !found.complete {
        context.output.warn("the kernel dropped events: some new connections are missing");
    }
    context.output.progress(&format!(
        "`{}`, observed for {} s: {} used",
        found.node,
        found.seconds(),
        counted(found.used.len(), "port of an old address was", "ports of old addresses were")
    ));
    outcome?;
    let is_clean = found.used.is_empty() && (found.complete || listen.is_zero());
    Ok(if is_clean || args.flows.publish { Outcome::Done } else { Outcome::Findings })
}

fn evidence(args: &AuditArgs, node: &str, looked: Looked) -> Evidence {
    let Looked { complete, began, ended, used: (used, left_out) } = looked;
    let (node, old) = (node.to_string(), args.old.clone());
    Evidence { version: VERSION, node, old, began, ended, complete, used, left_out }
}

/// Observes connections, and sends the result at the end. Starts to listen for events before it reads the connection table, so
/// that it misses no connection. With `every`, also sends the result at the start and at this interval, until the receiver is
/// closed. With `every`, also restarts the observation if events were lost.
fn look(
    old: &Old,
    listen: Duration,
    every: Option<Duration>,
    tell: &mpsc::Sender<Looked>,
) -> anyhow::Result<()> {
    let (mut seen, mut complete) = (Seen::default(), !listen.is_zero());
    let mut here: Vec<IpAddr> = old.ranges().iter().map(loopback).collect();
    here.dedup();
    let mut ears = if listen.is_zero() { None } else { Some(Beginnings::listen(&here)?) };
    let start = Instant::now();
    let (mut since, mut due) = (start, every.map(|_| start));
    while !tell.is_closed() {
        let left = listen.saturating_sub(start.elapsed());
        if left.is_zero() || due.is_some_and(|due| due <= Instant::now()) {
            // The monotonic clock measures the duration, because the wall clock can change during the observation.
            let ended = OffsetDateTime::now_utc();
            let began = ended.checked_sub(since.elapsed().try_into()?).unwrap_or(ended);
            seen.open(&flows_to(&|address| old.contains(address))?, ended);
            let (used, is_last) = (seen.used(), left.is_zero());
            if tell.blocking_send(Looked { complete, began, ended, used }).is_err() || is_last {
                break;
            }
            due = every.and_then(|every| Instant::now().checked_add(every));
        }
        let Some(open) = &ears else { continue };
        match open.next(left.min(EAR))? {
            Heard::Begun(new) => {
                let now = OffsetDateTime::now_utc();
                new.into_iter().filter(|one| old.contains(one.to)).for_each(|one| seen.begun(one, now));
            }
            Heard::Silence => {}
            // A socket that has lost events keeps losing events until its buffer is empty, so open another socket.
            Heard::Lost if every.is_some() => {
                ears = Some(Beginnings::listen(&here)?);
                since = Instant::now();
            }
            Heard::Lost => complete = false,
        }
    }
    Ok(())
}

/// Returns the loopback address of the range's address family.
fn loopback(range: &ServiceCidr) -> IpAddr {
    match range.network() {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

fn text(found: &Evidence) -> String {
    if found.used.is_empty() {
        return String::new();
    }
    table(["ADDRESS", "PORT", "CLIENT", "OPEN", "STARTED", "LAST"], rows(found))
}

/// Returns one row for each client of each port.
pub(super) fn rows(found: &Evidence) -> impl Iterator<Item = [String; 6]> {
    found.used.iter().flat_map(|used| used.clients.iter().map(move |client| row(used, client)))
}

fn row(used: &Used, client: &Client) -> [String; 6] {
    let port = used.port.map(|port| format!("{port}/")).unwrap_or_default();
    [
        used.address.to_string(),
        format!("{port}{}", used.protocol),
        client.address.to_string(),
        client.open.to_string(),
        client.begun.to_string(),
        moment(client.last),
    ]
}
