//! Finds objects of the cluster that plug-ins left behind, and what they left on Nodes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::context::{Context, NodeFacts};
use super::signature::{Found, ObjectMark, Signature, any, quoted};
use super::{Kind, Leftover, Plugin};

/// Custom resource definitions that several plug-ins share.
const SHARED: &str = ".policy.networking.k8s.io";

/// An object of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectFacts {
    /// Its kind.
    pub kind: String,
    /// API group of its kind; empty for the core group.
    pub group: String,
    /// Its namespace; empty for objects without namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// API groups of kinds whose names other APIs also use.
const GROUPS: [(&str, &str); 2] =
    [("Installation", "operator.tigera.io"), ("APIServer", "operator.tigera.io")];

/// Judges the objects and the Nodes of a cluster. A plug-in that runs has no leftovers.
pub fn judge_objects(
    objects: &[ObjectFacts],
    nodes: &[NodeFacts],
    in_place: &BTreeSet<Plugin>,
) -> Vec<Leftover> {
    let context = Context { in_place: in_place.clone(), ..Context::default() };
    let mut found: Vec<Leftover> = Vec::new();
    for plugin in Plugin::ALL.into_iter().filter(|plugin| !context.claims(*plugin)) {
        let signature = plugin.signature();
        let own = objects.iter().filter(|object| signature.objects.iter().any(|mark| matches(mark, object)));
        // Canal contains objects with the names of Flannel and Calico.
        found.extend(own.map(|object| object_item(signature, object).leftover));
        found.extend(nodes.iter().flat_map(|node| of_node(signature, node)).map(|found| found.leftover));
    }
    found.sort();
    found.dedup();
    found
}

fn matches(mark: &ObjectMark, object: &ObjectFacts) -> bool {
    let has_place = match mark.namespaces {
        [] => object.namespace.is_empty(),
        namespaces => namespaces.contains(&object.namespace.as_str()),
    };
    let has_group = GROUPS.iter().all(|(kind, group)| *kind != mark.kind || *group == object.group);
    let is_shared = object.name.ends_with(SHARED) || mark.except.contains(&object.name.as_str());
    object.kind == mark.kind && has_place && has_group && !is_shared && mark.name.matches(&object.name)
}

fn object_item(signature: &Signature, object: &ObjectFacts) -> Found {
    let kind = if object.group.is_empty() {
        object.kind.to_lowercase()
    } else {
        format!("{}.{}", object.kind.to_lowercase(), object.group)
    };
    let namespace = if object.namespace.is_empty() {
        String::new()
    } else {
        format!(" --namespace {}", quoted(&object.namespace))
    };
    let command = format!("kubectl get {} {}{namespace}", quoted(&kind), quoted(&object.name));
    Found::new(signature, Kind::Object, format!("{} {}", object.kind, object.name), command)
        .at(&object.namespace)
        .because(format!("the manifests or the operator of {} create it", signature.plugin))
}

fn of_node(signature: &Signature, node: &NodeFacts) -> Vec<Found> {
    let command = format!("kubectl get node {} --output yaml", quoted(&node.name));
    let item = |kind, name: &str| {
        Found::new(signature, kind, name, command.as_str()).at(format!("Node {}", node.name))
    };
    let own = |kind, keys: Vec<&String>| -> Vec<Found> {
        let own = keys.into_iter().filter(|key| any(signature.node_keys, key));
        own.map(|key| item(kind, key).because(format!("{} uses this key", signature.plugin))).collect()
    };
    let mut found = own(Kind::Annotation, node.annotations.keys().collect());
    found.extend(own(Kind::Label, node.labels.keys().collect()));
    found.extend(own(Kind::Taint, node.taints.iter().collect()));
    let conditions = node.conditions.iter().filter(|condition| {
        condition.kind == "NetworkUnavailable" && signature.conditions.contains(&condition.reason.as_str())
    });
    found.extend(conditions.map(|condition| {
        let name = format!("NetworkUnavailable={} ({})", condition.status, condition.reason);
        let effect = if condition.status == "True" {
            "; the Node has the taint `node.kubernetes.io/network-unavailable`, and no component removes it"
        } else {
            ""
        };
        item(Kind::Condition, &name).because(format!("{} set this condition{effect}", signature.plugin))
    }));
    found
}
