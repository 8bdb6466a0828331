//! Whether nodes change in place, or are replaced.

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use super::quorum::is_control_plane;
use crate::kube_api::accessors::labels;

/// How the nodes change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Each node is drained and changes its network plug-in.
    InPlace,
    /// New nodes with the new plug-in are added; each old node is drained and removed. Control-plane nodes change in place.
    Roll,
}

impl Strategy {
    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::Roll => "roll",
        }
    }

    /// Returns the other strategy.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::InPlace => Self::Roll,
            Self::Roll => Self::InPlace,
        }
    }
}

/// A strategy, and why it is proposed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The strategy.
    pub name: Strategy,
    /// Why, or when it is the better one.
    pub reason: String,
}

/// Proposes a strategy. `has_overlap`: whether the ranges of both plug-ins overlap.
pub fn propose(nodes: &[Node], has_overlap: bool) -> Choice {
    let workers = nodes.iter().filter(|node| !is_control_plane(node));
    let workers: Vec<&Node> = workers.collect();
    if workers.is_empty() {
        let reason = "there are no worker nodes, and control-plane nodes always change in place".to_string();
        return Choice { name: Strategy::InPlace, reason };
    }
    if has_overlap {
        let reason = "the ranges of both networks overlap: on new nodes, no Pod of the old network remains beside Pods of the new one";
        return Choice { name: Strategy::Roll, reason: reason.to_string() };
    }
    let makers: Vec<&str> = workers.iter().filter_map(|node| maker(node)).collect();
    match makers.first() {
        Some(maker) if makers.len() == workers.len() => Choice {
            name: Strategy::Roll,
            reason: format!(
                "{maker} can replace every worker node: a new node has nothing left behind by the old network"
            ),
        },
        _ => Choice {
            name: Strategy::InPlace,
            reason: format!(
                "{} of {} worker nodes show no component that can replace them",
                workers.len().saturating_sub(makers.len()),
                workers.len()
            ),
        },
    }
}

/// Returns when a strategy that was not proposed is the better one.
pub fn otherwise(strategy: Strategy) -> Choice {
    let reason = match strategy {
        Strategy::InPlace => "if nodes cannot be added, or have data that must stay on them",
        Strategy::Roll => {
            "if nodes can be added and removed by name: a new node has nothing left behind by the old network"
        }
    };
    Choice { name: strategy, reason: reason.to_string() }
}

/// Returns the component that can replace a node, by the node's labels, annotations and provider.
fn maker(node: &Node) -> Option<&'static str> {
    let has_label = |key: &str| labels(node).contains_key(key);
    let annotations = node.metadata.annotations.as_ref();
    if has_label("kops.k8s.io/instancegroup") {
        return Some("kOps");
    }
    if has_label("karpenter.sh/nodepool") || has_label("karpenter.sh/provisioner-name") {
        return Some("Karpenter");
    }
    if annotations.is_some_and(|all| all.contains_key("cluster.x-k8s.io/machine")) {
        return Some("Cluster API");
    }
    let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let clouds = [
        ("aws://", "AWS"),
        ("gce://", "Google Cloud"),
        ("azure://", "Azure"),
        ("openstack://", "OpenStack"),
        ("hcloud://", "Hetzner Cloud"),
        ("digitalocean://", "DigitalOcean"),
        ("vsphere://", "vSphere"),
    ];
    clouds.iter().find(|(scheme, _)| provider.starts_with(scheme)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn replaceable_nodes_and_equal_ranges_are_rolled() {
        let node = |object: Value| serde_json::from_value::<Node>(object).unwrap();
        let metal = || node(json!({"metadata": {"name": "a"}}));
        let master =
            || node(json!({"metadata": {"name": "c", "labels": {"node-role.kubernetes.io/master": ""}}}));
        let cloud =
            || node(json!({"metadata": {"name": "b"}, "spec": {"providerID": "aws:///eu-west-1a/i-1"}}));
        let name = |nodes: &[Node], has_overlap| propose(nodes, has_overlap).name;
        assert_eq!(name(&[metal(), cloud()], false), Strategy::InPlace);
        assert_eq!(name(&[cloud(), master()], false), Strategy::Roll);
        assert_eq!(name(&[metal()], true), Strategy::Roll);
        assert_eq!(name(&[master()], true), Strategy::InPlace, "never doubled");
        let kops = node(json!({"metadata": {"labels": {"kops.k8s.io/instancegroup": "nodes"}}}));
        assert!(propose(&[kops], false).reason.starts_with("kOps"));
    }
}
