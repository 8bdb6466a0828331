//! The plan of a change of the CNI as text.

use crate::cli::output::{Output, Tone, table};
use crate::cli::terminal_escape::neutral_line;
use crate::cni::plan::{
    Effect, Finding, NewcomerOutput, NodePlan, Plan, PresentOutput, RangeOutput, Role, Step,
};
use crate::words::{first_few, list_or};

/// Number of nodes whose steps are all printed. In larger clusters, only those of the first node of each role.
const MOST_NODES: usize = 20;

/// Returns the plan as text.
pub fn describe(output: &Output, plan: &Plan) -> String {
    let title = |text: &str| output.paint(Tone::Strong, text);
    let mut parts = vec![plugins(plan), strategies(plan)];
    if !plan.findings.is_empty() {
        let findings: Vec<String> = plan.findings.iter().map(|one| finding(output, one)).collect();
        parts.push(format!("{}\n{}", title("findings"), findings.join("\n")));
    }
    parts.push(format!("{}\n{}", title("before the first node"), steps(&plan.before)));
    parts.push(format!("{}\n{}", title("nodes, in this order"), nodes(plan)));
    let (shown, is_all) = shown(plan);
    for node in shown {
        parts.push(format!("{}\n{}", title(&line(&format!("node {}", node.name))), steps(&node.steps)));
    }
    if !is_all {
        parts.push("the other nodes have the same steps; `-o json` has the steps of every node".to_string());
    }
    parts.push(format!("{}\n{}", title("after the last node"), steps(&plan.after)));
    parts.join("\n\n")
}

/// Text of a cluster or a manifest as one line.
fn line(text: &str) -> String {
    neutral_line(text, false).into_owned()
}

fn plugins(plan: &Plan) -> String {
    let (from, to) = (&plan.from, &plan.to);
    let rows = [
        ["CNI".to_string(), list_or(&from.plugins, "unknown"), to.plugin.to_string()],
        ["DaemonSet".to_string(), list_or(&from.daemon_sets, "none"), to.daemon_set.clone()],
        ["image".to_string(), list_or(&from.images, "unknown"), to.image.clone()],
        ["ranges".to_string(), ranges(&from.ranges), ranges_of(to)],
        ["tunnel ports".to_string(), numbers(&from.tunnel_ports), numbers(&to.tunnel_ports)],
        ["MTU".to_string(), mtus(&from.mtus), mtus(&to.mtus)],
        ["configuration".to_string(), list_or(&from.confs, "unknown"), conf(to)],
        ["nodes".to_string(), format!("{}", from.nodes), starts(to)],
        ["installed by".to_string(), installers(from), format!("{} objects in the manifests", to.objects)],
    ];
    table(["", "IN PLACE", "NEW"], rows)
}

fn ranges(list: &[RangeOutput]) -> String {
    let texts: Vec<String> = list.iter().map(|one| one.range.to_string()).collect();
    let mut texts: Vec<String> = texts;
    texts.dedup();
    if texts.is_empty() { "ranges of Nodes".to_string() } else { first_few(&texts) }
}

fn ranges_of(to: &NewcomerOutput) -> String {
    if to.ranges.is_empty() && !to.uses_node_ranges { "unknown".to_string() } else { ranges(&to.ranges) }
}

fn numbers<'n>(ports: impl IntoIterator<Item = &'n u16>) -> String {
    let ports: Vec<String> = ports.into_iter().map(|port| format!("{port}/UDP")).collect();
    list_or(&ports, "none known")
}

fn mtus(mtus: &[u64]) -> String {
    list_or(mtus, "not set by hand")
}

fn conf(to: &NewcomerOutput) -> String {
    let name = to.conf.clone().unwrap_or_else(|| "unknown".to_string());
    match &to.chain {
        Some(chain) => format!("{name} ({})", chain.iter().cloned().collect::<Vec<_>>().join(", ")),
        None => name,
    }
}

fn starts(to: &NewcomerOutput) -> String {
    format!("starts at once on {} ({})", to.starts_on.len(), to.update_strategy)
}

fn installers(from: &PresentOutput) -> String {
    list_or(&from.installers, "unknown")
}

fn strategies(plan: &Plan) -> String {
    let quorum = &plan.quorum;
    format!(
        "strategy: {} ({})\nalso possible: --strategy {} ({})\ncontrol plane: {} of {} members ready, {} needed for a quorum, {} can fail",
        plan.strategy.name.name(),
        line(&plan.strategy.reason),
        plan.other_strategy.name.name(),
        line(&plan.other_strategy.reason),
        quorum.ready,
        quorum.members,
        quorum.required,
        quorum.margin
    )
}

fn finding(output: &Output, finding: &Finding) -> String {
    let (tone, word) = match (finding.effect, finding.accepted) {
        (Effect::Blocks, _) => (Tone::Bad, "blocks"),
        (Effect::Accept, false) => (Tone::Careful, "to accept"),
        (Effect::Accept, true) => (Tone::Good, "accepted"),
        (Effect::Note, _) => (Tone::Faint, "note"),
    };
    format!(
        "- {} {}: {}\n  why: {}\n  {}",
        output.paint(tone, &format!("{word}:")),
        finding.name,
        line(&finding.observed),
        finding.why,
        line(&finding.remedy)
    )
}

fn steps(steps: &[Step]) -> String {
    let numbered = steps.iter().enumerate();
    let lines = numbered
        .map(|(index, step)| format!("  {}. {}: {}", index.saturating_add(1), step.name, line(&step.action)));
    lines.collect::<Vec<_>>().join("\n")
}

fn nodes(plan: &Plan) -> String {
    let rows = plan.nodes.iter().map(|node| {
        [
            node.name.clone(),
            role(node.role).to_string(),
            if node.role == Role::LeftOut { "none".to_string() } else { node.strategy.name().to_string() },
            node.evicted.len().to_string(),
            if node.blocked_by.is_empty() { "none".to_string() } else { first_few(&node.blocked_by) },
            node.no_room.len().to_string(),
            node.left_on_others.clone(),
        ]
    });
    table(["NODE", "ROLE", "STRATEGY", "EVICTED", "BLOCKED BY", "WITHOUT ROOM", "LEFT ON THE OTHERS"], rows)
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Canary => "canary",
        Role::Worker => "worker",
        Role::ControlPlane => "control plane",
        Role::LeftOut => "left out",
    }
}

/// Returns the nodes whose steps are printed, and whether these are all.
fn shown(plan: &Plan) -> (Vec<&NodePlan>, bool) {
    let with_steps = plan.nodes.iter().filter(|node| !node.steps.is_empty());
    if plan.nodes.len() <= MOST_NODES {
        return (with_steps.collect(), true);
    }
    let mut first = Vec::new();
    for node in with_steps {
        if !first.iter().any(|other: &&NodePlan| other.role == node.role) {
            first.push(node);
        }
    }
    (first, false)
}
