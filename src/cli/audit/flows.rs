//! Who uses old addresses from this host: the connections that its kernel tracks, and, for as long as it is told to look,
//! each one that begins.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use time::OffsetDateTime;

use super::AuditArgs;
use crate::audit::Old;
use crate::audit::evidence::{Client, Evidence, Seen, Used, VERSION, documents};
use crate::cli::failure::{Failure, Kind};
use crate::cli::output::{counted, table};
use crate::cli::{Context, Outcome};
use crate::host;
use crate::host::begun::{Beginnings, Heard};
use crate::host::conntrack::flows_to;

/// How long one wait for events is, so that the end is met in time.
const EAR: Duration = Duration::from_millis(500);

/// Whether to look at connections, and for how long.
#[derive(Debug, Clone, Args)]
pub(super) struct FlowArgs {
    /// With --host: look at the connections that this host tracks, in place of its files and processes
    #[arg(long, requires = "host")]
    flows: bool,
    /// Listen for so many seconds to each connection that begins, however short it is
    #[arg(long = "for", value_name = "SECONDS", requires = "flows", default_value = "0", value_parser = clap::value_parser!(u64).range(..=604_800))]
    seconds: u64,
    /// The Node's name [default: this host's name]
    #[arg(long, value_name = "NAME", requires = "flows", env = "NODE_NAME", hide_env_values = true)]
    node: Option<String>,
}

impl FlowArgs {
    pub(super) fn are_asked_for(&self) -> bool {
        self.flows
    }
}

pub(super) async fn run(context: &Context, args: &AuditArgs, old: Old) -> Result<Outcome, Failure> {
    let listen = Duration::from_secs(args.flows.seconds);
    let looked = tokio::task::spawn_blocking(move || look(&old, listen)).await;
    let looked = looked.map_err(|error| Failure::refused(format!("cannot look: {error}")))?;
    let (complete, began, ended, seen) = looked.map_err(|error| {
        Failure::new(Kind::Refused, error)
            .hint("run it on a node, as root (CAP_NET_ADMIN), in the host's network namespace")
    })?;
    let node = args.flows.node.clone().unwrap_or_else(host::name);
    let old = args.old.clone();
    let found = Evidence { version: VERSION, node, old, began, ended, complete, used: seen.used() };
    context.output.data(&found, |_| Ok(text(&found)))?;
    if listen > Duration::ZERO && !complete {
        context.output.warn("more connections began than could be told: some are missing");
    }
    context.output.progress(&format!(
        "`{}` for {} s: {} used",
        found.node,
        found.seconds(),
        counted(found.used.len(), "port of an old address", "ports of old addresses")
    ));
    let is_clean = found.used.is_empty() && (complete || listen.is_zero());
    Ok(if is_clean { Outcome::Done } else { Outcome::Findings })
}

type Looked = (bool, OffsetDateTime, OffsetDateTime, Seen);

/// Listens first and looks at the table last, so that no connection falls between the two.
fn look(old: &Old, listen: Duration) -> anyhow::Result<Looked> {
    let (mut seen, mut complete) = (Seen::default(), !listen.is_zero());
    let ears = if listen.is_zero() { None } else { Some(Beginnings::listen()?) };
    let (began, start) = (OffsetDateTime::now_utc(), Instant::now());
    while let Some(ears) = &ears
        && let Some(left) = listen.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
    {
        match ears.next(left.min(EAR))? {
            Heard::Begun(new) => {
                let now = OffsetDateTime::now_utc();
                new.into_iter().filter(|one| old.contains(one.to)).for_each(|one| seen.begun(one, now));
            }
            Heard::Silence => {}
            Heard::Lost => complete = false,
        }
    }
    let ended = OffsetDateTime::now_utc();
    flows_to(&|address| old.contains(address))?.iter().for_each(|flow| seen.open(flow, ended));
    Ok((complete, began, ended, seen))
}

fn text(found: &Evidence) -> String {
    if found.used.is_empty() {
        return String::new();
    }
    let rows = found.used.iter().flat_map(|used| used.clients.iter().map(move |client| row(used, client)));
    table(["ADDRESS", "PORT", "CLIENT", "OPEN", "BEGUN", "LAST"], rows)
}

fn row(used: &Used, client: &Client) -> [String; 6] {
    let port = used.port.map(|port| format!("{port}/")).unwrap_or_default();
    let last = client.last.time().to_string();
    let last = last.split('.').next().unwrap_or_default().to_string();
    [
        used.address.to_string(),
        format!("{port}{}", used.protocol),
        client.address.to_string(),
        client.open.to_string(),
        client.begun.to_string(),
        last,
    ]
}

/// Reads the documents of a file.
pub(in crate::cli) fn read(path: &Path) -> Result<Vec<Evidence>, Failure> {
    let unusable = |error: anyhow::Error| {
        let context = format!("cannot use the evidence `{}`", path.display());
        Failure::new(Kind::Refused, error.context(context))
            .hint("it is what `netsurgeon audit --old CIDR --host --flows --for SECONDS -o json` prints on each node")
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.into()))?;
    documents(&text).map_err(|reason| unusable(anyhow::Error::msg(reason)))
}
