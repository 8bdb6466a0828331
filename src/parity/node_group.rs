//! Nodes of a cluster that are instances of AWS, in groups; and which group of the mirror stands for which of the source.

use std::collections::BTreeMap;

use serde_json::Value;

use super::change::{Area, Change};
use super::names::Names;
use crate::aws::Region;
use crate::inventory::text;
use crate::words::first_few;

/// Labels with the name of a group of nodes: of kOps, EKS, eksctl and Karpenter.
const GROUP_LABELS: [&str; 5] = [
    "kops.k8s.io/instancegroup",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/provisioner-name",
];

/// Labels of nodes with a control plane; the second one until Kubernetes 1.24.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// A node that is an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsNode {
    /// Name of the Node.
    pub name: String,
    /// Id of the instance.
    pub instance: String,
    /// Its region.
    pub region: Region,
    /// Name of its group; without a label, `control-plane` or `nodes`.
    pub group: String,
    /// Whether it runs a control plane.
    pub is_control_plane: bool,
}

impl AwsNode {
    /// Returns the instance of a Node; `None` if its `providerID` is not that of an instance (`aws:///ZONE/ID`, cloud-provider-aws,
    /// `pkg/providers/v1/instances.go`).
    pub fn of(node: &Value) -> Option<Self> {
        let path = text(node, "/spec/providerID").strip_prefix("aws://")?;
        let (zone, instance) = path.trim_start_matches('/').split_once('/')?;
        let is_digit = |letter: char| letter.is_ascii_hexdigit();
        let is_instance = instance
            .strip_prefix("i-")
            .is_some_and(|digits| (1..=17).contains(&digits.len()) && digits.chars().all(is_digit));
        let label = |name: &&str| node.pointer("/metadata/labels")?.get(*name);
        let is_control_plane = CONTROL_PLANE.iter().any(|name| label(name).is_some());
        let named = GROUP_LABELS.iter().find_map(|name| label(name)?.as_str());
        let group = named.unwrap_or(if is_control_plane { "control-plane" } else { "nodes" });
        is_instance.then_some(())?;
        Some(Self {
            name: text(node, "/metadata/name").to_string(),
            instance: instance.to_string(),
            region: Region::of_zone(zone)?,
            group: group.to_string(),
            is_control_plane,
        })
    }
}

/// A group of the source and its counterpart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPair {
    /// Name of the group of the source.
    pub source: String,
    /// Name of the group of the mirror.
    pub mirror: String,
}

/// The groups that are compared, and what has no counterpart.
pub type Pairing = (Vec<GroupPair>, Vec<Change>);

/// Pairs the groups of two clusters: first as asked for, then by equal names, then the only ones that are left of control planes or of
/// other nodes. Several groups of the source can be paired with one of the mirror. The error is a name that no group has.
pub fn pairs(
    (source, mirror): (&[AwsNode], &[AwsNode]),
    names: &Names,
    asked: &[(String, String)],
) -> Result<Pairing, String> {
    let (source, all) = (groups(source), groups(mirror));
    let (mut free, mut found, mut left) = (all.clone(), Vec::new(), Vec::new());
    for (name, other) in asked {
        let unknown =
            [(name, &source), (other, &all)].into_iter().find(|(name, known)| !known.contains_key(*name));
        if let Some((name, _)) = unknown {
            return Err(name.clone());
        }
        free.remove(other);
        found.push(GroupPair { source: name.clone(), mirror: other.clone() });
    }
    for (group, is_control_plane) in &source {
        if asked.iter().any(|(name, _)| name == group) {
            continue;
        }
        let same = [names.renamed(group), group.clone()].into_iter().find(|name| free.contains_key(name));
        match same {
            Some(mirror) => {
                free.remove(&mirror);
                found.push(GroupPair { source: group.clone(), mirror });
            }
            None => left.push((group.clone(), *is_control_plane)),
        }
    }
    for role in [true, false] {
        let of_source: Vec<usize> =
            (0..left.len()).filter(|at| left.get(*at).is_some_and(|one| one.1 == role)).collect();
        let of_mirror: Vec<&String> =
            free.iter().filter(|(_, is)| **is == role).map(|(name, _)| name).collect();
        if let ([at], [mirror]) = (of_source.as_slice(), of_mirror.as_slice()) {
            let mirror = (*mirror).clone();
            let (source, _) = left.remove(*at);
            free.remove(&mirror);
            found.push(GroupPair { source, mirror });
        }
    }
    let lonely = left.iter().map(|(group, _)| without_counterpart(group, "source", &all));
    let lonely = lonely.chain(free.keys().map(|group| without_counterpart(group, "mirror", &source)));
    let lonely = lonely.collect();
    found.sort_by(|one, other| one.source.cmp(&other.source));
    Ok((found, lonely))
}

/// Returns the groups, and whether their nodes have control planes.
fn groups(nodes: &[AwsNode]) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for node in nodes {
        *found.entry(node.group.clone()).or_insert(node.is_control_plane) |= node.is_control_plane;
    }
    found
}

/// Returns that a group was not compared. `others`: groups that it can be paired with.
fn without_counterpart(group: &str, word: &str, others: &BTreeMap<String, bool>) -> Change {
    let others: Vec<String> = others.keys().map(|name| format!("`{name}`")).collect();
    Change::not_checked(
        Area::Nodes,
        format!("group `{group}` of the {word}"),
        "it has no counterpart, so it was not compared".to_string(),
        format!("pair it with {}: `--pair SOURCE=MIRROR`", first_few(&others)),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(group: &str, is_control_plane: bool) -> AwsNode {
        let (name, instance, region) = ("n".to_string(), "i-1".to_string(), Region::new("eu-west-1"));
        AwsNode { name, instance, region, group: group.to_string(), is_control_plane }
    }

    #[test]
    fn instances_have_a_provider_id() {
        let of = |id: &str, labels: Value| {
            AwsNode::of(
                &json!({ "metadata": { "name": "a", "labels": labels }, "spec": { "providerID": id } }),
            )
        };
        let found = of("aws:///eu-west-1b/i-0a", json!({ "kops.k8s.io/instancegroup": "gpu" })).unwrap();
        assert_eq!(
            (found.instance.as_str(), found.group.as_str(), found.region.as_str()),
            ("i-0a", "gpu", "eu-west-1")
        );
        let found = of("aws:///eu-west-1b/i-0a", json!({ "node-role.kubernetes.io/master": "" })).unwrap();
        assert_eq!((found.group.as_str(), found.is_control_plane), ("control-plane", true));
        assert_eq!(
            of("aws:///eu-west-1b/0a/fargate-ip-10-0-0-1.eu-west-1.compute.internal", json!({})),
            None
        );
        assert_eq!(of("gce://project/zone/name", json!({})), None);
        assert_eq!(of("aws:///eu-west-1b/i-*", json!({})), None);
        assert_eq!(of("", json!({})), None);
    }

    #[test]
    fn groups_are_paired() {
        let mut names = Names::default();
        names.add("blue", "green");
        let source = [
            node("cp", true),
            node("nodes-blue", false),
            node("gpu", false),
            node("old", false),
            node("x", false),
        ];
        let mirror =
            [node("control", true), node("nodes-green", false), node("gpu", false), node("new", false)];
        let of = |asked: &[(&str, &str)]| {
            let asked: Vec<(String, String)> =
                asked.iter().map(|(one, other)| ((*one).to_string(), (*other).to_string())).collect();
            pairs((&source, &mirror), &names, &asked)
        };
        let words = |found: &[GroupPair]| {
            found.iter().map(|pair| format!("{}={}", pair.source, pair.mirror)).collect::<Vec<_>>().join(" ")
        };
        let (found, left) = of(&[("old", "new")]).unwrap();
        assert_eq!(words(&found), "cp=control gpu=gpu nodes-blue=nodes-green old=new");
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].subject, "group `x` of the source");
        let (found, left) = of(&[("old", "gpu"), ("gpu", "gpu"), ("x", "gpu")]).unwrap();
        assert_eq!(words(&found), "cp=control gpu=gpu nodes-blue=nodes-green old=gpu x=gpu");
        assert_eq!(left[0].subject, "group `new` of the mirror");
        assert_eq!(of(&[("old", "none")]).unwrap_err(), "none");
    }
}
