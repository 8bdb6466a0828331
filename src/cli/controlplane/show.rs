//! `netsurgeon controlplane show`: shows the Service range in the flags of each API server and controller manager.

use clap::Args;
use serde::Serialize;

use super::ManifestArgs;
use crate::cli::api::KubeArgs;
use crate::cli::output::{Output, counted, table};
use crate::cli::{Context, Outcome, findings};
use crate::controlplane::{
    API_SERVER, Seen, differences, duplicates, in_manifests, in_pods, in_processes, in_processes_of,
    manifests,
};
use crate::session::Failure;
use crate::survey::Finding;

/// Show the Service range of every API server and controller manager
///
/// Reads the flag `--service-cluster-ip-range` from the static Pod manifests and processes on this host, and through the API from
/// the Pods of all hosts. The exit status is 3 if the values differ, or if two manifests of this host run the same component.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a control-plane host
  netsurgeon controlplane show
  # from the API only, on any machine
  netsurgeon controlplane show --no-host
  netsurgeon controlplane show -o json \\
      | jq -r '.components[] | [.component, .at, .range] | @tsv'")]
pub struct ShowArgs {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// Do not inspect this host
    #[arg(long, conflicts_with = "manifests")]
    no_host: bool,
    /// Do not query the API
    #[arg(long)]
    no_api: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

/// The output of `controlplane show -o json`.
#[derive(Serialize)]
pub(super) struct FlagsOutput {
    version: u8,
    pub(super) components: Vec<Seen>,
    pub(super) findings: Vec<Finding>,
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: &ShowArgs) -> Result<Outcome, Failure> {
    let (mut components, mut files) = (Vec::new(), Vec::new());
    if !args.no_host {
        files = args.manifests.folder().map(|folder| manifests(&folder)).transpose()?.unwrap_or_default();
        components.extend(in_manifests(&files)?);
        components.extend(in_processes());
    }
    if !args.no_api {
        let cluster = args.kube.connect().await?;
        let pods = in_pods(&cluster).await;
        components.extend(pods.map_err(|failure| failure.hint("`--no-api` checks only this host"))?);
        // This host can also run the API server of another cluster, at another port.
        if let Ok(servers) = cluster.api_servers().await {
            let own = in_processes_of(&servers);
            components.retain(|one| {
                one.source != "process"
                    || one.component != API_SERVER
                    || own.iter().any(|own| own.at == one.at)
            });
        }
    }
    let mut findings = differences(&components);
    findings.extend(duplicates(&files));
    let shown = FlagsOutput { version: 1, findings, components };
    context.output.data(&shown, |output| shown.text(output))?;
    let count = counted(shown.components.len(), "flag", "flags");
    context.output.progress(&format!("{count}, {}", counted(shown.findings.len(), "finding", "findings")));
    Ok(findings::outcome(&shown.findings))
}

impl FlagsOutput {
    fn text(&self, output: &Output) -> String {
        let row = |one: &Seen| {
            let range = one.range.clone().unwrap_or_else(|| "not set".to_string());
            [one.component.to_string(), one.source.to_string(), one.at.clone(), range]
        };
        let rows: Vec<[String; 4]> = self.components.iter().map(row).collect();
        let mut parts = Vec::new();
        if !rows.is_empty() {
            parts.push(table(["COMPONENT", "SOURCE", "AT", "SERVICE RANGE"], rows));
        }
        if !self.findings.is_empty() {
            parts.push(findings::tabled(output, &self.findings));
        }
        parts.join("\n\n")
    }
}
