//! `netsurgeon cni show`: which network plug-in is in place, and what others left behind.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use rand::Rng as _;

use crate::cli::api::KubeArgs;
use crate::cli::network::{and_clean, roles, time, unless_stopped};
use crate::cli::output::{Output, Tone, table};
use crate::cli::{Context, Outcome};
use crate::cni::show::{ClusterFacts, NodeRead, NodeShown, Shown, node_states, shown};
use crate::leftovers::Leftover;
use crate::network::objects::{READER_NAMESPACE, reader_rbac};
use crate::network::{Deployment, Settings};
use crate::session::Failure;
use crate::words::counted;

/// Show which network plug-in is in place, and what others left behind
///
/// Shows the agents of network plug-ins and what installed them, the network configuration that wins on each node with its chained
/// plug-ins, and everything that eight network plug-ins leave behind, by exact names: links, routes, rules, chains of iptables
/// (legacy and nft) and nftables, IP sets, IPsec, pinned BPF objects, files, leases, objects, annotations, taints and conditions.
/// A privileged Pod on each node reads the kernel over netlink and the files of the node; its mounts are read-only, and it is
/// removed afterwards. Nothing else is changed. The exit status is 3 if something is left, does not fit together, or could not be
/// read. docs/cni.md lists what is looked for.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon cni show --image registry.example/netsurgeon:0.2.0
  # only what the API shows, without Pods on the nodes
  netsurgeon cni show --without-nodes
  netsurgeon cni show -o json | jq '.nodes[] | {node, leftovers}'
  netsurgeon cni show --print-rbac | kubectl apply -f -")]
pub struct ShowArgs {
    /// The image of netsurgeon that the nodes can pull
    #[arg(long, env = "NETSURGEON_IMAGE", value_name = "IMAGE", required_unless_present_any = ["print_rbac", "without_nodes"])]
    image: Option<String>,
    /// The namespace of the Pods. It is created if it does not exist, and removed then
    #[arg(short, long, value_name = "NAME", default_value = READER_NAMESPACE)]
    namespace: String,
    /// A Secret in the namespace with the credentials for the registry of the image
    #[arg(long, value_name = "NAME")]
    pull_secret: Option<String>,
    /// Nodes to read, separated by commas [default: all Linux nodes]
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    node: Vec<String>,
    /// Show only what the API shows; start no Pods
    #[arg(long)]
    without_nodes: bool,
    /// The time for the Pods to start
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "90s")]
    patience: Duration,
    /// Print the roles with the permissions that the command needs, and do nothing else
    #[arg(long)]
    print_rbac: bool,
    #[command(flatten)]
    kube: KubeArgs,
}

/// The time after the start of the Pods after which the kubelets end them, whatever happens, in seconds.
const AFTERWARDS: u64 = 900;
/// The number of leftovers of a node that are printed in full.
const IN_FULL: usize = 40;

/// Runs the command.
pub(super) async fn run(context: &Context, args: &ShowArgs) -> Result<Outcome, Failure> {
    if args.print_rbac {
        return roles(context, reader_rbac(&args.namespace));
    }
    let cluster = args.kube.connect().await?;
    let facts = ClusterFacts::read(&cluster).await?;
    let nodes: Vec<String> = facts.nodes.iter().map(|node| node.name.clone()).collect();
    if let Some(unknown) = args.node.iter().find(|node| !nodes.contains(node)) {
        return Err(Failure::usage(format!("there is no Linux node `{unknown}`")).hint("`kubectl get nodes`"));
    }
    let nodes: Vec<String> =
        nodes.into_iter().filter(|node| args.node.is_empty() || args.node.contains(node)).collect();
    let reads = if args.without_nodes { Vec::new() } else { args.read(context, &cluster, &nodes).await? };
    let shown = shown(facts, reads);
    context.output.data(&shown, |output| text(output, &shown))?;
    Ok(if shown.has_findings() { Outcome::Findings } else { Outcome::Done })
}

impl ShowArgs {
    /// Reads the nodes, and removes the Pods.
    async fn read(
        &self,
        context: &Context,
        cluster: &crate::kube_api::Cluster,
        nodes: &[String],
    ) -> Result<Vec<NodeRead>, Failure> {
        let settings = Settings {
            namespace: self.namespace.clone(),
            image: self.image.clone().unwrap_or_default(),
            pull_secret: self.pull_secret.clone(),
            run: format!("{:05x}", rand::rng().random::<u32>() & 0xf_ffff),
            token: String::new(),
            port: 0,
            host_port: 0,
            longest: self.patience.as_secs().saturating_add(AFTERWARDS),
        };
        let holder = format!("{}-{}", rustix::system::uname().nodename().to_string_lossy(), settings.run);
        let deployment = Deployment::new(cluster.clone(), settings, &holder);
        let say = |text: &str| context.output.progress(text);
        let work = Box::pin(node_states(cluster, &deployment, nodes, self.patience, &say));
        let (reads, cleaned) = and_clean(context, &deployment, unless_stopped(work)).await?;
        cleaned.map(|()| reads)
    }
}

fn text(output: &Output, shown: &Shown) -> String {
    let mut parts = vec![agents(shown)];
    if !shown.nodes.is_empty() {
        parts.push(
            table(
                ["NODE", "FIRST CONFIGURATION", "PLUG-INS", "WITHOUT EFFECT", "LEFT BEHIND", "NOT CHECKED"],
                shown.nodes.iter().map(|node| row(output, node)),
            ) + "\n",
        );
    }
    for conflict in &shown.conflicts {
        let on = if conflict.nodes.is_empty() {
            String::new()
        } else {
            format!("{}: ", conflict.nodes.join(", "))
        };
        parts.push(format!(
            "{} {on}{}\n  {}\n",
            output.paint(Tone::Bad, "conflict:"),
            conflict.seen,
            conflict.why
        ));
    }
    if !shown.objects.is_empty() {
        parts.push(left(output, "in the cluster", &shown.objects));
    }
    for node in &shown.nodes {
        if !node.judgement.leftovers.is_empty() {
            parts.push(left(output, &format!("on {}", node.node), &node.judgement.leftovers));
        }
    }
    parts.push(open(shown));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn agents(shown: &Shown) -> String {
    if shown.agents.is_empty() {
        return "no agent of a network plug-in that netsurgeon knows runs in the cluster\n".to_string();
    }
    let rows = shown.agents.iter().map(|set| {
        let installer = set.installer.as_ref().map_or_else(|| "unknown".to_string(), ToString::to_string);
        let ready = format!("{} of {}", set.ready, set.wanted);
        [set.plugin.clone(), set.daemon_set.clone(), ready, installer, set.image.clone()]
    });
    table(["NETWORK PLUG-IN", "DAEMONSET", "READY", "INSTALLED BY", "IMAGE"], rows) + "\n"
}

fn row(output: &Output, node: &NodeShown) -> [String; 6] {
    let (file, plugins) = match (&node.unread, &node.configuration) {
        (Some(_), _) => ("could not be read".to_string(), String::new()),
        (None, None) => (output.paint(Tone::Bad, "none"), String::new()),
        (None, Some(first)) => {
            let file =
                if first.fault.is_some() { output.paint(Tone::Bad, &first.file) } else { first.file.clone() };
            (file, first.plugins.join(", "))
        }
    };
    let count = |number: usize, tone: Tone| {
        if number == 0 { "0".to_string() } else { output.paint(tone, &number.to_string()) }
    };
    [
        node.node.clone(),
        file,
        plugins,
        node.other_configurations.join(", "),
        count(node.judgement.leftovers.len(), Tone::Bad),
        count(node.judgement.unchecked.len(), Tone::Careful),
    ]
}

fn left(output: &Output, place: &str, leftovers: &[Leftover]) -> String {
    let title = format!("{} left behind {place}", counted(leftovers.len(), "item", "items"));
    let mut text = output.paint(Tone::Strong, &title) + "\n";
    for item in leftovers.iter().take(IN_FULL) {
        let at = if item.place.is_empty() { String::new() } else { format!(" ({})", item.place) };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}: {}{at}: {}\n    {}", item.plugin, item.name, item.reason, item.command);
    }
    if leftovers.len() > IN_FULL {
        let more = leftovers.len().saturating_sub(IN_FULL);
        let _ = writeln!(text, "  and {more} more: `-o json` has all of them");
    }
    text
}

/// What was not checked.
fn open(shown: &Shown) -> String {
    let mut text = String::new();
    let of_api = shown.unchecked.iter().map(|one| ("the API".to_string(), one));
    let of_nodes = shown
        .nodes
        .iter()
        .flat_map(|node| node.judgement.unchecked.iter().map(|one| (node.node.clone(), one)));
    for (place, one) in of_api.chain(of_nodes) {
        let _ = writeln!(text, "not checked: {place}: {}: {}", one.subject, one.reason);
    }
    for node in &shown.nodes {
        if let Some(reason) = &node.unread {
            let _ = writeln!(text, "not checked: {}: {reason}", node.node);
        }
    }
    let has_nothing = !shown.has_findings() && text.is_empty();
    if has_nothing && !shown.nodes.is_empty() {
        let nodes = counted(shown.nodes.len(), "node", "nodes");
        let _ = writeln!(text, "nothing is left behind on {nodes} and in the cluster");
    }
    text
}
