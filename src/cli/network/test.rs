//! `netsurgeon network test`: tests the network of a cluster, pair by pair and path by path.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use rand::Rng as _;

use super::test_output::{TestOutput, text};
use super::{and_clean, roles, time, until_signal};
use crate::cli::api::KubeArgs;
use crate::cli::file::{self, Readers, write_file};
use crate::cli::{Context, Outcome};
use crate::network::baseline::Baseline;
use crate::network::cause::causes;
use crate::network::objects::{NAMESPACE, rbac};
use crate::network::{Deployment, Path, Settings, Test, TestResult, junit_file, metrics_text, svg};
use crate::report::network_test;
use crate::session::{ExitKind, Failure};

/// Test the network of a cluster, pair by pair and path by path
///
/// Starts three small Pods on every node, asks each of them to reach all others in every way that workloads use, and removes them
/// again: Pod to Pod on the same and on other nodes with the source address that the receiver saw, node to Pod and back, Services,
/// host ports, node ports, DNS over UDP and TCP, packets of full size, 1 MiB over TCP, loss, NetworkPolicies, connections that stay
/// open. The agents report through the API server and the kubelets, so a broken Pod network hides nothing. Every failed path says
/// what was tried and seen; the output ends with the likely causes and their remedies. The exit status is 3 if a path failed that
/// the baseline does not have. A signal ends the test with the result of the complete rounds, and with exit status 6 if these have
/// no finding. docs/network-test.md describes every path.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon network test --image registry.example/netsurgeon:0.2.0
  # before a change, and after it
  netsurgeon network test --save before.json
  netsurgeon network test --baseline before.json --html network.html
  # during a change: rounds for ten minutes, until something new fails
  netsurgeon network test --for 10m --baseline before.json
  # only some nodes, only some paths
  netsurgeon network test --node a,b --only pod-to-pod,loss,full-size
  # the permissions that it needs
  netsurgeon network test --print-rbac | kubectl apply -f -")]
pub struct TestArgs {
    /// The image of netsurgeon that the nodes can pull
    #[arg(long, env = "NETSURGEON_IMAGE", value_name = "IMAGE", required_unless_present = "print_rbac")]
    image: Option<String>,
    /// The namespace of the test. The test creates it if it does not exist, and removes it then
    #[arg(short, long, value_name = "NAME", default_value = NAMESPACE)]
    namespace: String,
    /// A Secret in the namespace with the credentials for the registry of the image
    #[arg(long, value_name = "NAME")]
    pull_secret: Option<String>,
    /// Nodes to test, separated by commas [default: all Linux nodes]
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    node: Vec<String>,
    /// Test only these paths, separated by commas
    #[arg(long, value_name = "PATH", value_delimiter = ',', conflicts_with = "skip",
          value_parser = PossibleValuesParser::new(Path::ALL.map(Path::name)))]
    only: Vec<String>,
    /// Leave out these paths, separated by commas
    #[arg(long, value_name = "PATH", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Path::ALL.map(Path::name)))]
    skip: Vec<String>,
    /// The number of rounds
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Repeat rounds for this time, for example `10m`, `90s` or `2h`
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "rounds")]
    duration: Option<Duration>,
    /// The time between the starts of two rounds
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    interval: Duration,
    /// Do not stop after a round with a new failure
    #[arg(long)]
    keep_going: bool,
    /// An earlier result (`--save`). Failures that it has are shown, but do not count
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the result to a file, as a baseline for later tests
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write a picture of the matrix, nodes by nodes, to a file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write an HTML page with the matrix, all failures and their likely causes to a file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the result as JUnit XML, for CI
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also write the result as Prometheus metrics
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// A further name to resolve, for example one outside the cluster; can be repeated
    #[arg(long, value_name = "NAME")]
    resolve: Vec<String>,
    /// A further name server for the Pods to ask, for example a node-local one; can be repeated
    #[arg(long, value_name = "ADDRESS")]
    name_server: Vec<IpAddr>,
    /// TCP and UDP port of the agents. It must be free on the nodes, and allowed between nodes
    #[arg(long, value_name = "PORT", default_value = "17250")]
    port: u16,
    /// Host port of a Pod on each node. It must be free on the nodes
    #[arg(long, value_name = "PORT", default_value = "17251")]
    host_port: u16,
    /// In a cluster with more than 50 nodes: how many other nodes each node asks in a round, besides the next one
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    peers: usize,
    /// The time for the Pods to start
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "90s")]
    patience: Duration,
    /// Print the roles with the permissions that the test needs, and do nothing else
    #[arg(long)]
    print_rbac: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

/// The time after the end of the test after which the kubelets end the Pods, in seconds.
const AFTERWARDS: u64 = 3600;

/// The time that a round may take, in a cluster with many nodes.
const LONG_ROUND: Duration = Duration::from_mins(1);

/// Runs the command.
pub(super) async fn run(context: &Context, args: &TestArgs) -> Result<Outcome, Failure> {
    if args.print_rbac {
        return roles(context, rbac(&args.namespace));
    }
    let baseline = args.baseline.as_deref().map(read_baseline).transpose()?;
    let test = args.test(baseline.clone());
    let cluster = args.kube.connect().await?;
    let settings = args.settings();
    let holder = format!("{}-{}", rustix::system::uname().nodename().to_string_lossy(), settings.run);
    let deployment = Deployment::new(cluster.clone(), settings, &holder);
    let say = |text: &str| context.output.progress(text);
    let work = Box::pin(test.run(&cluster, &deployment, until_signal(), &say));
    let (result, cleaned) = and_clean(context, &deployment, work).await?;
    let outcome = report(context, args, &result, baseline.as_ref())?;
    match (outcome, cleaned) {
        // The findings are why the user runs the test.
        (Outcome::Findings, Err(failure)) => {
            context.output.warn(&failure.to_string());
            failure.hints.iter().for_each(|hint| context.output.note(hint));
            Ok(outcome)
        }
        (outcome, cleaned) => cleaned.map(|()| outcome),
    }
}

fn report(
    context: &Context,
    args: &TestArgs,
    result: &TestResult,
    baseline: Option<&Baseline>,
) -> Result<Outcome, Failure> {
    let is_known = |key: &_, cell: &_| baseline.is_some_and(|baseline| baseline.has_failed(key, cell));
    let skip = args.test(None).skip;
    let vanished = baseline.map(|baseline| baseline.vanished(result, |path| skip.contains(&path)));
    let output = TestOutput::new(result, causes(result), &is_known, vanished.unwrap_or_default());
    context.output.data(&output, |output_of| text(output_of, &output))?;
    for (path, write) in [(&args.svg, svg as fn(&TestResult) -> String), (&args.metrics, metrics_text)] {
        if let Some(path) = path {
            write_file(path, write(result).as_bytes(), Readers::All)?;
        }
    }
    if let Some(path) = &args.html {
        write_file(path, network_test::page(result, &causes(result)).as_bytes(), Readers::All)?;
    }
    if let Some(path) = &args.junit {
        write_file(path, junit_file(result, is_known).as_bytes(), Readers::All)?;
    }
    if let Some(path) = &args.save {
        let saved = serde_json::to_vec(result).map_err(|error| Failure::new(ExitKind::Bug, error))?;
        write_file(path, &saved, Readers::All)?;
    }
    Ok(match (output.has_findings(), result.ended_early) {
        (true, _) => Outcome::Findings,
        (false, true) => Outcome::Paused,
        (false, false) => Outcome::Done,
    })
}

fn read_baseline(path: &std::path::Path) -> Result<Baseline, Failure> {
    let text = file::read(path)?;
    let result: TestResult = serde_json::from_str(&text).map_err(file::at(path))?;
    Ok(Baseline::of(&result))
}

impl TestArgs {
    fn settings(&self) -> Settings {
        let mut random = rand::rng();
        let token: [u8; 16] = random.random();
        let duration =
            self.duration.unwrap_or_else(|| self.interval.max(LONG_ROUND).saturating_mul(self.rounds));
        Settings {
            namespace: self.namespace.clone(),
            image: self.image.clone().unwrap_or_default(),
            pull_secret: self.pull_secret.clone(),
            run: format!("{:05x}", random.random::<u32>() & 0xf_ffff),
            token: data_encoding::HEXLOWER.encode(&token),
            port: self.port,
            host_port: self.host_port,
            longest: duration.as_secs().saturating_add(AFTERWARDS),
        }
    }

    fn test(&self, baseline: Option<Baseline>) -> Test {
        let named =
            |names: &[String]| names.iter().filter_map(|name| Path::named(name)).collect::<BTreeSet<_>>();
        let mut skip = named(&self.skip);
        if !self.only.is_empty() {
            let only = named(&self.only);
            skip = Path::ALL.into_iter().filter(|path| !only.contains(path)).collect();
        }
        // An agent that does not start is always a finding, because its paths are not tested.
        skip.remove(&Path::Agent);
        let need_peer = [Path::PodToPodSameNode, Path::HostPort, Path::PolicyDeny, Path::PolicyAllow];
        if need_peer.iter().any(|path| !skip.contains(path)) {
            skip.remove(&Path::NewPod);
        }
        Test {
            nodes: self.node.clone(),
            skip,
            rounds: self.rounds,
            duration: self.duration,
            interval: self.interval,
            keep_going: self.keep_going,
            peers: self.peers,
            patience: self.patience,
            names: self.resolve.clone(),
            name_servers: self.name_server.clone(),
            baseline,
        }
    }
}
