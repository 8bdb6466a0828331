//! The steps of the change: before the first node, on each node, and after the last node.

use std::cmp::Reverse;
use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use super::Finding;
use super::drain::Drain;
use super::quorum::is_control_plane;
use super::rules::Input;
use super::strategy::Strategy;
use crate::inventory::pod::{is_alive, node_of};
use crate::kube_api::accessors::{controller, is_windows, name, subject};
use crate::words::{counted, first_few, list_or, pasted};

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Name of the step, for example `drain`.
    pub name: &'static str,
    /// What to do.
    pub action: String,
}

/// Plug-ins that clear the condition `NetworkUnavailable` of another one. The agent of Canal sets no condition when it stops.
const CLEAR_CONDITION: [&str; 3] = ["Cilium", "Flannel", "Canal"];

/// What a Pod of cluster DNS needs to run on a node that is not open yet.
const DNS_POD: &str = "for example a copy of its Deployment with a node selector, tolerations of the node's taints, and the labels that the \
                       Service of cluster DNS selects; delete the copy after the last node";

fn step(name: &'static str, action: impl Into<String>) -> Step {
    Step { name, action: action.into() }
}

/// What a node is in the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The first node. The change stops if it fails.
    Canary,
    /// A worker node.
    Worker,
    /// A control-plane node. It is never doubled.
    ControlPlane,
    /// A node that the plan leaves out.
    LeftOut,
}

/// The change of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodePlan {
    /// Name of the node.
    pub name: String,
    /// What it is in the change.
    pub role: Role,
    /// How it changes: a control-plane node always changes in place.
    pub strategy: Strategy,
    /// Pods that the drain evicts.
    pub evicted: Vec<String>,
    /// Pods of DaemonSets, and static Pods, on the Pod network, which the drain does not evict, and which must be recreated.
    pub recreated: Vec<String>,
    /// Budgets that allow none of these evictions.
    pub blocked_by: Vec<String>,
    /// Pods without room on the other nodes, or which no other node accepts.
    pub no_room: Vec<String>,
    /// What is left after the drain on the other nodes that are ready and have no taint.
    pub left_on_others: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Returns the nodes in the order of their change: the canary, the other workers, and the control plane last.
pub fn nodes(input: &Input<'_>) -> Vec<NodePlan> {
    let pairs = input.view.nodes.iter().zip(input.drains);
    let mut workers: Vec<(&Node, &Drain)> =
        pairs.clone().filter(|(node, _)| !is_control_plane(node) && !is_windows(node)).collect();
    workers.sort_by_key(|(node, drain)| {
        let is_hard = !drain.blocked_by.is_empty() || !drain.crowded.is_empty() || !drain.homeless.is_empty();
        (is_hard, drain.pods.len(), name(*node))
    });
    let canary = (!workers.is_empty()).then(|| workers.remove(0));
    workers.sort_by_key(|(node, _)| name(*node));
    let mut masters: Vec<(&Node, &Drain)> =
        pairs.clone().filter(|(node, _)| is_control_plane(node) && !is_windows(node)).collect();
    masters.sort_by_key(|(node, drain)| (Reverse(drain.crowded.is_empty()), name(*node)));
    let left_out = pairs.filter(|(node, _)| is_windows(node));
    let first = canary.or_else(|| masters.first().copied()).map(|(node, _)| name(node));
    let first = first.filter(|_| canary.is_none() || input.strategy == Strategy::InPlace);
    let plan = |(node, drain): (&Node, &Drain), role| plan(input, node, drain, (role, first));
    let mut plans = Vec::new();
    plans.extend(canary.map(|pair| plan(pair, Role::Canary)));
    plans.extend(workers.into_iter().map(|pair| plan(pair, Role::Worker)));
    plans.extend(masters.into_iter().map(|pair| plan(pair, Role::ControlPlane)));
    plans.extend(left_out.map(|pair| plan(pair, Role::LeftOut)));
    plans
}

/// A node that changes.
struct Change<'c> {
    input: &'c Input<'c>,
    node: &'c str,
    role: Role,
    drain: &'c Drain,
    recreated: &'c [String],
    /// The first node that changes; `None` if new nodes are the first ones.
    first: Option<&'c str>,
}

fn plan(input: &Input<'_>, node: &Node, drain: &Drain, (role, first): (Role, Option<&str>)) -> NodePlan {
    let recreated = input.view.pods.iter().filter(|pod| {
        let is_own = node_of(pod) == name(node) && is_alive(pod);
        let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        // The owner of a static Pod is its Node.
        let stays =
            controller(*pod).is_some_and(|owner| ["DaemonSet", "Node"].contains(&owner.kind.as_str()));
        is_own && !is_on_host && stays
    });
    let recreated: Vec<String> = recreated.map(subject).collect();
    let strategy = if role == Role::ControlPlane { Strategy::InPlace } else { input.strategy };
    let change = Change { input, node: name(node), role, drain, recreated: &recreated, first };
    let steps = match (role, strategy) {
        (Role::LeftOut, _) => Vec::new(),
        (_, Strategy::InPlace) => change.in_place(),
        (_, Strategy::Roll) => change.roll(),
    };
    NodePlan {
        name: name(node).to_string(),
        role,
        strategy,
        evicted: drain.pods.clone(),
        blocked_by: drain.blocked_by.clone(),
        no_room: drain.crowded.iter().chain(&drain.homeless).cloned().collect(),
        left_on_others: drain.left.clone(),
        steps,
        recreated,
    }
}

fn drain_step(node: &str, drain: &Drain) -> Step {
    let pods = match drain.pods.len() {
        0 => "no Pod is evicted".to_string(),
        count => format!("evict {}: {}", counted(count, "Pod", "Pods"), first_few(&drain.pods)),
    };
    let blocked = match drain.blocked_by.as_slice() {
        [] => String::new(),
        budgets => format!("; the drain waits for {}", first_few(budgets)),
    };
    step("drain", format!("{pods} (`kubectl drain {node} --ignore-daemonsets{}`){blocked}", drain.options))
}

impl Change<'_> {
    /// Returns the steps of a node that changes in place.
    fn in_place(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.role == Role::ControlPlane {
            steps.push(step(
                "quorum",
                "check that every member of etcd is healthy, and that the other API servers are ready",
            ));
        }
        steps.extend(self.without_old());
        steps.extend(self.with_new());
        steps
    }

    /// Returns the steps until nothing of the old plug-in is on the node.
    fn without_old(&self) -> Vec<Step> {
        let (node, old) = (self.node, self.input.old);
        let confs: Vec<String> = old.traits().map(|traits| format!("`{}`", traits.conf)).collect();
        let others = match self.recreated.len() {
            0 => "check that no sandbox on the Pod network is left".to_string(),
            count => format!(
                "stop {} on the Pod network ({}), until no sandbox on the Pod network is left",
                counted(count, "Pod that the drain leaves", "Pods that the drain leaves"),
                first_few(self.recreated)
            ),
        };
        vec![
            step("cordon", format!("`kubectl cordon {node}`")),
            drain_step(node, self.drain),
            step("sandboxes", others),
            step(
                "stop-conf",
                "put a configuration that sorts first and cannot run into `/etc/cni/net.d`, so that no Pod starts half way",
            ),
            step(
                "old-agent",
                if old.is_built_in {
                    "restart K3s on the node: `systemctl restart k3s-agent`, on a server `systemctl restart k3s`".to_string()
                } else {
                    format!("exclude the node from {} with a label", list_or(&old.subjects(), "the old CNI"))
                },
            ),
            step(
                "leftovers",
                format!(
                    "remove what {} left, by exact names: programs, rules, routes, chains, links, then {} and its leases",
                    old.name(),
                    list_or(&confs, "its configuration")
                ),
            ),
        ]
    }

    /// Returns the steps until the node runs Pods on the new network.
    fn with_new(&self) -> Vec<Step> {
        let (node, new) = (self.node, self.input.new);
        let conf = new.conf.as_deref().unwrap_or("its configuration");
        let mut steps = vec![step(
            "new-agent",
            format!("label the node for {}, and wait until its Pod is ready", new.subject()),
        )];
        let is_of_calico = self.input.old.plugins.contains("Calico");
        if is_of_calico && !CLEAR_CONDITION.contains(&new.plugin) {
            steps.push(step(
                "condition",
                format!(
                    "Calico sets `NetworkUnavailable` (`CalicoIsDown`) when it stops, and {} does not clear it: `kubectl patch node {node} \
                     --subresource=status --type=strategic -p '{{\"status\":{{\"conditions\":[{{\"type\":\"NetworkUnavailable\",\
                     \"status\":\"False\",\"reason\":\"Cleared\"}}]}}}}'`",
                    new.plugin
                ),
            ));
        }
        steps.push(step(
            "conf",
            format!(
                "remove the configuration that cannot run; `{conf}` must be the first in `/etc/cni/net.d`"
            ),
        ));
        steps.push(step(
            "recreate",
            format!(
                "delete every Pod of this node that is not on the host network and has an address of the old network (`kubectl get pods -A \
                 -o wide --field-selector spec.nodeName={node}`); for a static Pod, move its manifest out of the kubelet's folder and back"
            ),
        ));
        steps.extend(kube_proxy_step(self.input));
        if self.role == Role::Canary {
            steps.push(step(
                "dns",
                format!("start a Pod of cluster DNS on the node before other Pods: {DNS_POD}"),
            ));
        }
        steps.push(self.test());
        steps.push(step("uncordon", format!("`kubectl uncordon {node}`")));
        steps
    }

    /// Returns the test of the new network, which reaches only nodes that have changed.
    fn test(&self) -> Step {
        let (nodes, whose) = match self.first {
            Some(first) if first == self.node => (first.to_string(), ""),
            Some(first) => (format!("{first},{}", self.node), ""),
            None if self.role == Role::ControlPlane => {
                (format!("NEW,{}", self.node), ", with the name of a new node")
            }
            None => ("NEW".to_string(), ", with the names of the new nodes, separated by commas"),
        };
        step(
            "test",
            format!(
                "`netsurgeon network test --image IMAGE --node {nodes} --baseline before.json`{whose}: no failure that the baseline does not have"
            ),
        )
    }

    /// Returns the steps of a node that is replaced.
    fn roll(&self) -> Vec<Step> {
        let node = self.node;
        let mut steps = if self.role == Role::Canary { self.add() } else { Vec::new() };
        steps.extend([
            step(
                "load-balancers",
                format!("`kubectl label node {node} node.kubernetes.io/exclude-from-external-load-balancers=`, and wait until connections have ended"),
            ),
            step("cordon", format!("`kubectl cordon {node}`")),
            drain_step(node, self.drain),
            step("remove", format!("remove the machine of `{node}` by name; do not lower the size of its group, because the group chooses the machine")),
            self.test(),
        ]);
        steps
    }

    /// Returns the steps with the new nodes, before the first old one is removed.
    fn add(&self) -> Vec<Step> {
        let (old, new) = (self.input.old, self.input.new);
        let workers =
            self.input.view.nodes.iter().filter(|node| !is_control_plane(node) && !is_windows(node));
        let workers: Vec<&str> = workers.map(name).collect();
        vec![
            step(
                "add",
                format!(
                    "add one new node. It must register with the label that excludes {} (`--node-labels` of the kubelet, or the template of \
                     its group), because the old agent starts within seconds otherwise; and with a taint that keeps Pods away. Label it \
                     for {}, and wait until its Pod is ready",
                    list_or(&old.subjects(), "the old CNI"),
                    new.subject()
                ),
            ),
            step("dns", format!("start a Pod of cluster DNS on the new node before other Pods: {DNS_POD}")),
            self.test(),
            step("others", "remove the taint, and add the other new nodes in the same way"),
            step(
                "taint",
                format!(
                    "`kubectl taint node {} netsurgeon.io/replaced=:NoSchedule`: evicted Pods start only on new nodes; load balancers keep \
                     the old ones",
                    workers.join(" ")
                ),
            ),
        ]
    }
}

fn kube_proxy_step(input: &Input<'_>) -> Option<Step> {
    input.view.detector.as_ref()?;
    let action = if input.new.replaces_kube_proxy {
        "exclude the node from kube-proxy with a label, wait until its Pod is gone, and run `kube-proxy --cleanup` on the node"
    } else if input.view.settings.service_proxies.is_empty() {
        "restart kube-proxy of the node, if its configuration changed"
    } else {
        "label the node for kube-proxy, and wait until its Pod is ready: the old CNI routes no Services here any more"
    };
    Some(step("kube-proxy", action))
}

/// Returns the steps before the first node.
pub fn before(input: &Input<'_>, findings: &[Finding], manifests: &Path) -> Vec<Step> {
    let (old, new) = (input.old, input.new);
    let sets = list_or(&old.subjects(), "the old CNI");
    let mut steps = vec![
        step(
            "save",
            format!(
                "save the objects of {} and the digests of its images, and check that the images can be pulled",
                old.name()
            ),
        ),
        step("baseline", "`netsurgeon network test --image IMAGE --save before.json`"),
    ];
    let has = |name: &str| findings.iter().any(|one| one.name == name);
    if has("autoscalers") {
        steps.push(step("autoscalers", "pause the autoscalers, and record their settings"));
    }
    if has("installer") && old.installers.iter().any(|one| one.restores) {
        steps.push(step("installer", "suspend the installer of the old CNI"));
    }
    if has("pod-webhooks") {
        steps.push(step("webhooks", "narrow the webhooks on the Pod network, and record their selectors"));
    }
    if has("kube-proxy-replaced") {
        steps.push(step(
            "kube-proxy",
            "set `updateStrategy: OnDelete` of the DaemonSet of kube-proxy, then let it leave out nodes with a label, by required node \
             affinity (a static Pod needs neither: remove its manifest on each node in its turn)",
        ));
    }
    if has("kube-proxy-range") && input.view.detector.is_some() {
        steps
            .push(step("kube-proxy", "change the local detector of kube-proxy (finding `kube-proxy-range`)"));
    }
    if !old.daemon_sets.is_empty() {
        steps.push(step("update-strategy", format!("set `updateStrategy: OnDelete` of {sets}: otherwise the next step restarts the agent on every node")));
        steps.push(step(
            "exclusion",
            format!("let {sets} leave out nodes with a label, by required node affinity"),
        ));
    }
    let selector = if input.selected.is_empty() { "" } else { ", after you have added the node selector" };
    steps.push(step(
        "apply",
        format!(
            "`kubectl apply -f {}`{selector}: no Pod of {} starts on a node of the old network",
            pasted(manifests),
            new.subject()
        ),
    ));
    steps
}

/// Returns the steps after the last node.
pub fn after(input: &Input<'_>, findings: &[Finding]) -> Vec<Step> {
    let old = input.old.name();
    let has = |name: &str| findings.iter().any(|one| one.name == name);
    let mut steps = vec![
        step("test", "`netsurgeon network test --image IMAGE --baseline before.json --for 10m`"),
        step(
            "traces",
            "check that no Node is cordoned or has a taint or label of the change, or the condition `NetworkUnavailable`",
        ),
    ];
    if has("kube-proxy-range") && input.view.detector.is_some() {
        steps.push(step(
            "kube-proxy",
            "set the local detector of kube-proxy to the new range, and restart it node by node",
        ));
    }
    if has("chained-plug-ins") {
        steps.push(step("chained-plug-ins", "check that a new Pod of the mesh is redirected"));
    }
    steps.push(step("soak", format!("keep the DaemonSets of {old} with a node selector that selects no node, until you need no rollback")));
    steps.push(step("restore", "restore autoscalers and webhooks"));
    let restores = input.old.installers.iter().any(|one| one.restores);
    if restores {
        steps.push(step(
            "installer",
            format!("remove {old} from the configuration of its installer, which stays suspended, and make sure that it prunes nothing"),
        ));
    }
    steps.push(step("remove", format!("delete the objects of {old}: custom resources first, then APIServices, operator and CRDs; keep CRDs that the new CNI uses")));
    if restores {
        steps.push(step(
            "resume",
            format!("resume the installer, and check that it does not create the objects of {old} again"),
        ));
    }
    steps
}
