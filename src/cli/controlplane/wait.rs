//! `netsurgeon controlplane wait`: waits until every API server is ready and, with `--range`, has this Service range.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::ranges;
use crate::cli::api::KubeArgs;
use crate::cli::output::counted;
use crate::cli::{Context, Outcome, findings};
use crate::controlplane::{Look, Places, look};
use crate::session::Failure;
use crate::survey::Finding;

/// The pause between two checks.
const PAUSE: Duration = Duration::from_secs(1);

/// Wait until every API server is ready and, with `--range`, has this Service range
///
/// Waits until every API server (every endpoint of `default/kubernetes`) reports that it is ready. The command also reads the
/// flag of every API server, from its Pod or from its process on this host. With `--range`, every flag that it checks must have
/// this range. The exit status is 3 if the wait takes longer than `--timeout`, and at once if this host can never read a flag.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # before the next host
  netsurgeon controlplane wait --range 10.200.0.0/16 --host --timeout 120
  # after the last host
  netsurgeon controlplane wait --range 10.200.0.0/16")]
pub struct WaitArgs {
    /// The range, or one per address family, separated by a comma [default: any range]
    #[arg(long, value_name = "CIDR", value_parser = ranges)]
    range: Option<String>,
    /// How long to wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    timeout: u32,
    /// Check only the flag of this host's API server, before you change the next host
    #[arg(long)]
    host: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

/// The output of `controlplane wait -o json`.
#[derive(Serialize)]
struct Waited<'a> {
    version: u8,
    findings: &'a [Finding],
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &WaitArgs) -> Result<Outcome, Failure> {
    let range = args.range.as_deref();
    let places = if args.host { Places::Host } else { Places::PodsOrHost };
    let (started, patience) = (Instant::now(), Duration::from_secs(args.timeout.into()));
    let cluster = args.kube.connect_within(patience).await?;
    let mut said = String::new();
    loop {
        let Look { findings: found, is_final } = look(&cluster, range, places).await;
        let Some(first) = found.first() else { break };
        if is_final || started.elapsed() >= patience {
            let waited = Waited { version: 1, findings: &found };
            context.output.data(&waited, |output| findings::tabled(output, &found))?;
            let count = counted(found.len(), "finding", "findings");
            let seconds = args.timeout;
            context.output.progress(&if is_final {
                format!("every API server is ready, but this host cannot read every flag: {count}")
            } else {
                format!("not ready after {seconds} s: {count}")
            });
            return Ok(findings::outcome(&found));
        }
        let words = format!("waiting: {}: {}", first.subject, first.message);
        if said != words {
            context.output.progress(&words);
            said = words;
        }
        sleep(PAUSE).await;
    }
    context.output.data(&Waited { version: 1, findings: &[] }, |_| String::new())?;
    let has = match range {
        Some(range) if args.host => format!(", and the API server of this host has `{range}`"),
        Some(range) => format!(" and has `{range}`"),
        None => String::new(),
    };
    context.output.progress(&format!("every API server is ready{has}"));
    Ok(Outcome::Done)
}
