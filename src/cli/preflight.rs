//! `netsurgeon preflight`: checks whether a cluster is ready for an operation.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::api::{KubeArgs, MirrorKubeArgs};
use super::file::{Readers, write_file};
use super::mirror::configuration;
use super::output::{Output, Tone, table};
use super::source::EtcdArgs;
use super::target::TargetArgs;
use super::tiers::TierArgs;
use super::zone::ZoneArgs;
use super::{Context, Outcome};
use crate::dns::reader::CutoverReader;
use crate::inventory::Connections;
use crate::inventory::network_plugins::NetworkPlugin;
use crate::ip::ServiceCidr;
use crate::kube_api::ReadOnly;
use crate::mirror::config::Config;
use crate::mirror::namespace_choice::chosen_namespaces;
use crate::preflight::cni::{self, Cni};
use crate::preflight::dns;
use crate::preflight::mirror::{self, Mirror};
use crate::preflight::renumber::{self, Renumber};
use crate::preflight::{self, Check, CheckResult, Selection, Source, Verdict, any, junit};
use crate::session::Failure;

#[derive(Debug, Subcommand)]
pub enum PreflightCommand {
    Renumber(Box<RenumberArgs>),
    Mirror(Box<MirrorArgs>),
    Dns(Box<DnsArgs>),
    Cni(Box<CniArgs>),
}

/// Check whether a live cluster is ready to be renumbered
///
/// Checks etcd, every API server, the stored objects and the admission of the API server. The checks run concurrently. The
/// command changes nothing. It only reads etcd, and it sends changes to the API server only as dry runs. The exit status is 3 if
/// a check fails or is unknown, and with `--strict` also if a check warns; otherwise it is 0. docs/preflight.md describes every
/// check.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a control-plane host
  netsurgeon preflight renumber --to 10.200.0.0/16
  # before the certificates are reissued
  netsurgeon preflight renumber --to 10.200.0.0/16 --skip certificates
  netsurgeon preflight renumber --to 10.200.0.0/16 --backup before.db --strict \\
      --junit preflight.xml
  netsurgeon preflight renumber --to 10.200.0.0/16 -o json \\
      | jq -r '.checks[] | select(.verdict == \"fail\").remedy'")]
pub struct RenumberArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    tiers: TierArgs,
    /// A snapshot of etcd from `etcdctl snapshot save`. The snapshot must be complete, recent, and from this cluster
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
    #[command(flatten)]
    asked: AskedArgs,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Check whether the DNS names of a cluster are ready to point to its mirror
///
/// Checks the zone, the permission to update the zone, the records and TTLs of the names, other owners of these records, and the
/// addresses of the names on the mirror. The command changes nothing. It tests the permission with a request that cannot succeed.
/// The exit status is 3 if a check fails or is unknown, and with `--strict` also if a check warns; otherwise it is 0.
/// docs/preflight.md describes every check.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon preflight dns --zone example.com --tsig-key-file mirror.key \\
      --mirror-context green
  netsurgeon preflight dns --zone example.com --server 192.0.2.53 \\
      --resolver 192.0.2.54 --mirror-kubeconfig green.conf
  # a day before the cutover
  netsurgeon preflight dns --zone example.com --name www.example.com \\
      --only names,ttls
  netsurgeon preflight dns --zone example.com -o json \\
      | jq -r '.checks[] | select(.verdict == \"fail\").remedy'")]
pub struct DnsArgs {
    #[command(flatten)]
    zone: ZoneArgs,
    #[command(flatten)]
    asked: AskedArgs,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// Check whether a live cluster is ready for another Pod network
///
/// Checks the requirements for a change to any CNI. You must be able to drain the nodes one by one, and controllers must recreate
/// the Pods. Network policies must stay in force, and the new addresses must be unused. The control plane must tolerate the loss
/// of a host. The command changes nothing. The exit status is 3 if a check fails or is unknown, and with `--strict` also if a
/// check warns; otherwise it is 0. docs/preflight.md describes every check.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # on a control-plane host
  netsurgeon preflight cni
  # the new network has its own range
  netsurgeon preflight cni --pod-cidr 10.100.0.0/16
  netsurgeon preflight cni --to cilium --pod-cidr 10.100.0.0/16 --strict
  # from another host: etcd is not reachable
  netsurgeon preflight cni --skip etcd-members,images
  netsurgeon preflight cni -o json \\
      | jq -r '.checks[] | select(.verdict == \"fail\").remedy'")]
pub struct CniArgs {
    /// A Pod range of the new network; repeat the option for the other address family
    #[arg(long, value_name = "CIDR")]
    pod_cidr: Vec<ServiceCidr>,
    /// The new CNI. The command then also checks whether the ports of its agents and tunnels are free
    #[arg(long, value_name = "CNI", value_parser = PossibleValuesParser::new(NetworkPlugin::options()))]
    to: Option<String>,
    #[command(flatten)]
    asked: AskedArgs,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    kube: KubeArgs,
}

/// Check whether a second cluster is ready to serve the same workloads as this cluster
///
/// The second cluster is the mirror. Run this command before you copy the objects of some namespaces from this cluster to the
/// mirror. Such a copy does not include the data of the workloads. The command checks that the mirror serves every kind, has the
/// classes and issuers that the objects name, and has nodes with capacity for the running Pods. The command changes nothing. It
/// only queries the two APIs, and the registries of the images. The exit status is 3 if a check fails or is unknown, and with `--strict` also if a check warns;
/// otherwise it is 0. docs/preflight.md describes every check.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  # all namespaces except the system namespaces
  netsurgeon preflight mirror --mirror-kubeconfig mirror.conf
  netsurgeon preflight mirror --mirror-kubeconfig mirror.conf -n shop,till
  netsurgeon preflight mirror --mirror-context green --config mirror.yaml
  # two contexts of one kubeconfig
  netsurgeon preflight mirror --context blue --mirror-context green --strict
  netsurgeon preflight mirror --mirror-context green -o json \\
      | jq -r '.checks[] | select(.verdict == \"fail\").remedy'")]
pub struct MirrorArgs {
    /// A namespace to mirror; can be repeated, or a list separated by commas [default: all but kube-system, kube-public and
    /// kube-node-lease]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    namespace: Vec<String>,
    /// The configuration of `netsurgeon mirror plan`: its namespaces, and the rules for the checks `planned-objects` and `images`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    asked: AskedArgs,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    mirror: MirrorKubeArgs,
}

/// Which checks to run, and how to report them.
#[derive(Debug, Args)]
struct AskedArgs {
    /// Run only these checks, separated by commas
    #[arg(long, value_name = "CHECK", value_delimiter = ',', conflicts_with = "skip")]
    only: Vec<String>,
    /// Do not run these checks, separated by commas. The output lists them as skipped
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    skip: Vec<String>,
    /// Exit with status 3 also if a check warns
    #[arg(long)]
    strict: bool,
    /// Maximum time for one check, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=600))]
    within: u64,
    /// Also write the result as JUnit XML, for CI
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// The output of `preflight -o json`.
#[derive(Serialize)]
struct PreflightOutput<'a> {
    version: u8,
    target: &'a str,
    checks: &'a [CheckResult],
}

/// Runs the command.
pub async fn run(context: &Context, command: &PreflightCommand) -> Result<Outcome, Failure> {
    let (target, asked, checks) = match command {
        PreflightCommand::Renumber(args) => ("renumber", &args.asked, Box::pin(check_renumber(args)).await?),
        PreflightCommand::Mirror(args) => ("mirror", &args.asked, Box::pin(check_mirror(args)).await?),
        PreflightCommand::Dns(args) => ("dns", &args.asked, Box::pin(check_dns(args)).await?),
        PreflightCommand::Cni(args) => ("cni", &args.asked, Box::pin(check_cni(args)).await?),
    };
    context
        .output
        .data(&PreflightOutput { version: 1, target, checks: &checks }, |output| text(output, &checks))?;
    if let Some(path) = &asked.junit {
        let suite = format!("netsurgeon preflight {target}");
        write_file(path, junit::file(&suite, &checks, asked.strict).as_bytes(), Readers::All)?;
    }
    context.output.progress(&summary(&checks));
    if let Some(next) = next(command, any(&checks, Verdict::Fail) || any(&checks, Verdict::Unknown)) {
        context.output.note(next);
    }
    let is_bad = any(&checks, Verdict::Fail)
        || any(&checks, Verdict::Unknown)
        || asked.strict && any(&checks, Verdict::Warn);
    Ok(if is_bad { Outcome::Findings } else { Outcome::Done })
}

/// Returns the next step after the checks, for an operation that netsurgeon does not run itself. `is_open`: whether a check failed
/// or is unknown.
fn next(command: &PreflightCommand, is_open: bool) -> Option<&'static str> {
    match (command, is_open) {
        (PreflightCommand::Renumber(_) | PreflightCommand::Dns(_), _) => None,
        (_, true) => Some("next: follow the remedies above, then run this command again"),
        (PreflightCommand::Mirror(_), false) => Some(
            "next: `netsurgeon mirror plan` with the same options; after the copy, check the names: `netsurgeon preflight dns --help`",
        ),
        (PreflightCommand::Cni(_), false) => Some(
            "next: change the network with the installer of the new CNI, node by node (netsurgeon does not change it): drain the node, change \
             the CNI, restart its Pods; docs/preflight.md describes each check",
        ),
    }
}

/// Connects to etcd and to the API, if a selected check needs them.
async fn reach<C>(
    (etcd, kube): (&EtcdArgs, &KubeArgs),
    checks: &[Check<C>],
    selection: &Selection,
) -> Connections {
    let needs = |source| selection.needs(checks, source);
    let (store, cluster) = tokio::join!(
        only_if(needs(Source::Etcd), etcd.connect()),
        only_if(needs(Source::Api), kube.connect())
    );
    // The Nodes can show why etcd is not reachable.
    let cluster = match (&store, cluster) {
        (Some(Err(_)), None) => Some(kube.connect().await),
        (_, cluster) => cluster,
    };
    Connections { store, cluster, layout: etcd.layout() }
}

async fn only_if<T>(is_needed: bool, connection: impl Future<Output = T>) -> Option<T> {
    if is_needed { Some(connection.await) } else { None }
}

async fn check_renumber(args: &RenumberArgs) -> Result<Vec<CheckResult>, Failure> {
    let selection = args.asked.selection(renumber::CHECKS)?;
    let (options, backup) = (args.target.resolve(&args.tiers)?, args.backup.clone());
    let connections = Box::pin(reach((&args.etcd, &args.kube), renumber::CHECKS, &selection)).await;
    let input = Renumber::new(connections, options, backup).await;
    Ok(preflight::run(renumber::CHECKS, &input, &selection).await)
}

async fn check_mirror(args: &MirrorArgs) -> Result<Vec<CheckResult>, Failure> {
    let selection = args.asked.selection(mirror::CHECKS)?;
    let of_mirror = args.mirror.required(&args.kube)?;
    let needs = |source| selection.needs(mirror::CHECKS, source);
    let both = tokio::join!(
        only_if(needs(Source::Api), args.kube.connect()),
        only_if(needs(Source::Mirror), of_mirror.connect())
    );
    let (mut named, mut config) = (args.namespace.clone(), Config::default());
    if let Some(path) = &args.config {
        config = configuration(path)?;
        if let Some(Ok(source)) = &both.0 {
            named = chosen_namespaces(&ReadOnly::new(source.clone()), &config, &named).await?;
        }
    }
    let input = Mirror::new(both, named, config);
    Ok(preflight::run(mirror::CHECKS, &input, &selection).await)
}

async fn check_dns(args: &DnsArgs) -> Result<Vec<CheckResult>, Failure> {
    let selection = args.asked.selection(dns::CHECKS)?;
    let (names, _) = args.zone.names()?;
    names.check()?;
    let needs = |source| selection.needs(dns::CHECKS, source);
    let of_mirror = async || match args.mirror.named(&args.kube) {
        Some(kube) => only_if(needs(Source::Mirror), kube.connect()).await,
        None => None,
    };
    let (cluster, mirror) = tokio::join!(only_if(needs(Source::Api), args.kube.connect()), of_mirror());
    let input = CutoverReader::new(cluster, mirror, names).await;
    Ok(preflight::run(dns::CHECKS, &input, &selection).await)
}

async fn check_cni(args: &CniArgs) -> Result<Vec<CheckResult>, Failure> {
    let selection = args.asked.selection(cni::CHECKS)?;
    let connections = Box::pin(reach((&args.etcd, &args.kube), cni::CHECKS, &selection)).await;
    let input = Cni::new(connections, args.pod_cidr.clone(), args.to.clone()).await;
    Ok(preflight::run(cni::CHECKS, &input, &selection).await)
}

impl AskedArgs {
    /// Returns the checks to run. Fails if the name of a check is unknown.
    fn selection<C>(&self, all: &[Check<C>]) -> Result<Selection, Failure> {
        let is_known = |name: &&String| all.iter().any(|check| check.name == name.as_str());
        if let Some(name) = self.only.iter().chain(&self.skip).find(|name| !is_known(name)) {
            let names: Vec<&str> = all.iter().map(|check| check.name).collect();
            return Err(Failure::usage(format!("there is no check `{name}`"))
                .hint(format!("the checks are {}", names.join(", "))));
        }
        let (only, skip) = (self.only.clone(), self.skip.clone());
        Ok(Selection { only, skip, within: Duration::from_secs(self.within) })
    }
}

/// Returns a table with a row for each check, followed by the remedies of the checks that did not pass.
fn text(output: &Output, checks: &[CheckResult]) -> String {
    let verdict = |check: &CheckResult| {
        let tone = match check.verdict {
            Verdict::Pass => Tone::Good,
            Verdict::Warn => Tone::Careful,
            Verdict::Fail | Verdict::Unknown => Tone::Bad,
            Verdict::Skipped => Tone::Faint,
        };
        output.paint(tone, &check.verdict.to_string())
    };
    let rows = checks.iter().filter(|check| check.depends_on.is_none());
    let rows = rows.map(|check| [check.name.to_string(), verdict(check), check.observed.clone()]);
    let mut parts = vec![table(["CHECK", "VERDICT", "OBSERVED"], rows)];
    parts.extend(not_run(checks));
    let is_open = |check: &&CheckResult| {
        !matches!(check.verdict, Verdict::Pass | Verdict::Skipped) && check.depends_on.is_none()
    };
    parts.extend(checks.iter().filter(is_open).map(|check| {
        let remedy = if check.remedy.is_empty() { "inspect it" } else { &check.remedy };
        format!("{} {}: {remedy}\n  why: {}\n  {}", verdict(check), check.name, check.why, check.link)
    }));
    parts.join("\n\n")
}

/// Lists the checks that were not run, grouped by the check that they depend on.
fn not_run(checks: &[CheckResult]) -> Option<String> {
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for check in checks {
        if let Some(on) = check.depends_on {
            lines.entry(on).or_default().push(check.name);
        }
    }
    let line = |(on, names): (&str, Vec<&str>)| {
        format!("checks that depend on `{on}` were not run: {}", names.join(", "))
    };
    (!lines.is_empty()).then(|| lines.into_iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn summary(checks: &[CheckResult]) -> String {
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let all = [Verdict::Pass, Verdict::Warn, Verdict::Fail, Verdict::Unknown, Verdict::Skipped];
    let counts = all.into_iter().map(|verdict| (verdict, count(verdict))).filter(|(_, count)| *count > 0);
    counts.map(|(verdict, count)| format!("{count} {verdict}")).collect::<Vec<_>>().join(", ")
}
