//! `netsurgeon controlplane wait`: until every API server is back, and was given the range.

use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use super::seen::{Seen, in_pods, in_processes};
use super::{API_SERVER, Ranges};
use crate::cli::failure::Failure;
use crate::cli::live::KubeArgs;
use crate::cli::output::counted;
use crate::cli::{Context, Outcome, findings};
use crate::cluster::Cluster;
use crate::survey::Finding;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Wait until every API server is healthy and has a Service range
///
/// Every endpoint of `default/kubernetes` says that it is ready, and as many flags as there are API servers are seen, in Pods
/// or in processes on this host, all with that range. Exit status 3 if that is not so in time.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon controlplane wait --range 10.200.0.0/16
  netsurgeon controlplane wait --range 10.200.0.0/16 --host --timeout 120       # this host's API server only")]
pub(super) struct WaitArgs {
    /// The range, or one of each family with a comma between them
    #[arg(long, value_name = "CIDR")]
    range: Ranges,
    /// For how long
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    timeout: u32,
    /// Look at the flags of this host's API server only, where others run without Pods
    #[arg(long)]
    host: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &WaitArgs) -> Result<Outcome, Failure> {
    let cluster = args.kube.connect().await?;
    let (begun, patience) = (Instant::now(), Duration::from_secs(args.timeout.into()));
    let mut said = String::new();
    loop {
        let found = args.look(&cluster).await;
        let Some(first) = found.first() else { break };
        if begun.elapsed() >= patience {
            context.output.data(&found, |output| Ok(findings::tabled(output, &found)))?;
            let seconds = args.timeout;
            context.output.progress(&format!(
                "not within {seconds} s: {}",
                counted(found.len(), "finding", "findings")
            ));
            return Ok(findings::outcome(&found));
        }
        let words = format!("waiting: {}: {}", first.subject, first.message);
        if said != words {
            context.output.progress(&words);
            said = words;
        }
        sleep(PAUSE).await;
    }
    if context.output.is_structured() {
        context.output.data(&Vec::<Finding>::new(), |_| Ok(String::new()))?;
    }
    context.output.progress(&format!("every API server is ready and has `{}`", args.range));
    Ok(Outcome::Done)
}

impl WaitArgs {
    /// Returns what is not yet as it must be.
    async fn look(&self, cluster: &Cluster) -> Vec<Finding> {
        let servers = match cluster.api_servers().await {
            Ok(servers) => servers,
            Err(error) => {
                return vec![Finding::error("api-server-not-ready", API_SERVER).says(error.to_string())];
            }
        };
        let mut found = Vec::new();
        for server in &servers {
            let ready = match cluster.dial(*server).await {
                Ok(client) => client.ready().await,
                Err(error) => Err(error),
            };
            if let Err(error) = ready {
                found
                    .push(Finding::error("api-server-not-ready", server.to_string()).says(error.to_string()));
            }
        }
        let mut seen = if self.host { Ok(Vec::new()) } else { in_pods(cluster).await };
        if let Ok(seen) = &mut seen {
            seen.retain(|one| one.component == API_SERVER);
            if seen.is_empty() {
                seen.extend(in_processes().into_iter().filter(|one| one.component == API_SERVER));
            }
        }
        match seen {
            Ok(seen) => found.extend(self.judge(&seen, if self.host { 1 } else { servers.len() })),
            Err(failure) => {
                let text = failure.error.to_string();
                found.push(Finding::error("api-server-not-ready", API_SERVER).says(text));
            }
        }
        found
    }

    fn judge(&self, seen: &[Seen], expected: usize) -> Vec<Finding> {
        let wanted = self.range.to_string();
        let mut found: Vec<Finding> = seen
            .iter()
            .filter(|one| one.range.as_deref() != Some(&wanted))
            .map(|one| {
                let has = one.range.as_deref().unwrap_or("no range");
                let finding =
                    Finding::error("api-server-has-another-range", format!("{} {}", one.source, one.at));
                finding.says(format!("it has `{has}`"))
            })
            .collect();
        if seen.len() < expected {
            let text = format!(
                "the flags of {} of {} are seen from here; `--host` on each host looks at its own",
                seen.len(),
                counted(expected, "API server", "API servers")
            );
            found.push(Finding::error("api-server-unseen", API_SERVER).says(text));
        }
        found
    }
}
