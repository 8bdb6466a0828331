//! `netsurgeon mirror parity`: compares what the nodes and Pods of both clusters can do in AWS.

use clap::Args;
use serde::Serialize;

use crate::aws::Account;
use crate::cli::api::{KubeArgs, MirrorKubeArgs};
use crate::cli::output::Tone;
use crate::cli::terminal_escape::neutral_line;
use crate::cli::{Context, Outcome};
use crate::kube_api::ReadOnly;
use crate::parity::ParityError;
use crate::parity::change::{Change, Verdict};
use crate::parity::cluster::ClusterView;
use crate::parity::comparison::{Comparison, ParityOptions};
use crate::session::Failure;
use crate::words::{counted, first_few};

/// List what the nodes and Pods of the mirror lack in AWS
///
/// Finds the instances of the nodes by `spec.providerID`, pairs their groups, and compares what they can do: the metadata service, the
/// rights of their roles, their security groups, which other security groups let them in (by group and by address), the roles of
/// ServiceAccounts and Pods, and the public addresses of their NAT gateways.
///
/// The output is a list of changes that give the mirror what the source has, each with its reason and with the command of the AWS CLI.
/// What only the mirror can do is no difference. What could not be read is listed as `not checked`. The command only reads; it needs the
/// rights that docs/parity.md lists.
///
/// Groups of nodes are paired by the labels of kOps, EKS, eksctl and Karpenter. Names of the source in policies and in names of security
/// groups become those of the mirror: the name of the cluster in the tags of instances, and names that `--rename` gives.
///
/// The credentials, the region and the endpoint are those of the AWS CLI. The exit status is 3 if the list is not empty.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon mirror parity --mirror-context green
  netsurgeon mirror parity --mirror-context green --pair nodes=workers \\
      --rename blue-team=green-team
  netsurgeon mirror parity --mirror-context green -o json \\
      | jq -r '.changes[] | select(.verdict == \"missing\") | .commands[]'")]
pub struct ParityArgs {
    /// A group of nodes of the source and its counterpart in the mirror; can be repeated
    #[arg(long, value_name = "SOURCE=MIRROR", value_parser = pair)]
    pair: Vec<(String, String)>,
    /// A name of the source in policies and in names of security groups, and the name that the mirror has instead; can be repeated
    #[arg(long, value_name = "SOURCE=MIRROR", value_parser = pair)]
    rename: Vec<(String, String)>,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => {
            Ok((left.to_string(), right.to_string()))
        }
        _ => Err("expected two names with `=` between them".to_string()),
    }
}

/// The document of `mirror parity -o json`.
#[derive(Serialize)]
struct ParityOutput<'p> {
    version: u8,
    account: Option<&'p str>,
    /// Numbers of instances that were compared.
    instances: InstanceCounts,
    /// Groups of nodes that were compared.
    groups: Vec<PairOutput<'p>>,
    /// Texts of the source that became those of the mirror before the comparison.
    renames: Vec<PairOutput<'p>>,
    changes: &'p [Change],
}

#[derive(Serialize)]
struct InstanceCounts {
    source: usize,
    mirror: usize,
}

#[derive(Serialize)]
struct PairOutput<'p> {
    source: &'p str,
    mirror: &'p str,
}

/// Runs the command.
pub async fn run(context: &Context, args: &ParityArgs) -> Result<Outcome, Failure> {
    let of_mirror = args.mirror.required(&args.kube)?;
    let (source, mirror) = tokio::join!(args.kube.connect(), of_mirror.connect());
    let (source, mirror) = (ReadOnly::new(source?), ReadOnly::new(mirror?));
    let (source, mirror) = tokio::join!(ClusterView::read(&source), ClusterView::read(&mirror));
    let (source, mirror) = (source?, mirror?);
    let account = Account::new().await.map_err(|error| failure(&ParityError::Aws(error)))?;
    let options = ParityOptions { pairs: args.pair.clone(), names: args.rename.clone() };
    let found =
        Comparison::read(&account, (source, mirror), &options).await.map_err(|error| failure(&error))?;
    let groups = found.pairs.iter().map(|pair| PairOutput { source: &pair.source, mirror: &pair.mirror });
    let (source, mirror) = found.instances;
    let shown = ParityOutput {
        version: 1,
        account: found.account.as_deref(),
        instances: InstanceCounts { source, mirror },
        groups: groups.collect(),
        renames: found.names.iter().map(|(source, mirror)| PairOutput { source, mirror }).collect(),
        changes: &found.changes,
    };
    context.output.data(&shown, |_| describe(context, &found.changes))?;
    summarize(context, &found);
    Ok(if found.changes.is_empty() { Outcome::Done } else { Outcome::Findings })
}

fn failure(error: &ParityError) -> Failure {
    let hint = match error {
        ParityError::Aws(error) => error.hint(),
        ParityError::NoInstances(_) => "parity compares only clusters whose nodes run in AWS",
        ParityError::UnknownGroup(_) => {
            "the command prints the groups of both clusters when it is run without `--pair`"
        }
        ParityError::OtherAccount { .. } => {
            "use credentials of the account with the nodes of both clusters: `aws sts get-caller-identity` shows the account"
        }
    };
    Failure::refused(error.to_string()).hint(hint)
}

/// Returns the changes as text, by area.
fn describe(context: &Context, changes: &[Change]) -> String {
    let mut lines = Vec::new();
    let mut area = None;
    for change in changes {
        if area.replace(change.area) != Some(change.area) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.push(context.output.paint(Tone::Strong, change.area.title()));
        }
        let line = |text: &str| neutral_line(text, false).into_owned();
        let what = line(&format!("{}: {}", change.subject, change.change));
        lines.push(match change.verdict {
            Verdict::Missing => format!("- {what}"),
            Verdict::NotChecked => format!("- {} {what}", context.output.paint(Tone::Bad, "not checked:")),
        });
        lines.push(format!("  why: {}", line(&change.reason)));
        lines.extend(change.commands.iter().map(|command| format!("  {command}")));
    }
    lines.join("\n")
}

/// Prints what was compared, and how many changes there are.
fn summarize(context: &Context, found: &Comparison) {
    let account = found.account.as_deref().map(|id| format!(" in account {id}")).unwrap_or_default();
    let groups: Vec<String> =
        found.pairs.iter().map(|pair| format!("`{}` with `{}`", pair.source, pair.mirror)).collect();
    let (source, mirror) = found.instances;
    let instances = counted(source, "instance", "instances");
    context.output.progress(&format!(
        "compared {instances} of the source with {mirror} of the mirror{account}; groups: {}",
        if groups.is_empty() { "none".to_string() } else { groups.join(", ") }
    ));
    let names = found.names.iter().filter(|(source, _)| !source.contains(':') && !source.starts_with("sg-"));
    let names: Vec<String> = names.map(|(source, mirror)| format!("`{source}` as `{mirror}`")).collect();
    if !names.is_empty() {
        context.output.progress(&format!("names in policies and of security groups: {}", first_few(&names)));
    }
    let missing = counted(found.count(Verdict::Missing), "change to make", "changes to make");
    let unchecked = found.count(Verdict::NotChecked);
    let unchecked = if unchecked == 0 { String::new() } else { format!("; {unchecked} not checked") };
    context.output.progress(&format!("{missing}{unchecked}"));
}
