//! Where the specification of a Pod is, and what it contains.

use serde_json::Value;

use super::places::each;
use crate::inventory::list;

/// Kinds with a Pod specification, each with its place: the types of k8s.io/api that contain a `PodSpec` (`core/v1/types.go`,
/// `apps/v1/types.go`, `batch/v1/types.go`).
pub const POD_SPECS: [(&str, &str); 9] = [
    ("/pods", "/spec"),
    ("/podtemplates", "/template/spec"),
    ("/replicationcontrollers", "/spec/template/spec"),
    ("apps/deployments", "/spec/template/spec"),
    ("apps/replicasets", "/spec/template/spec"),
    ("apps/statefulsets", "/spec/template/spec"),
    ("apps/daemonsets", "/spec/template/spec"),
    ("batch/jobs", "/spec/template/spec"),
    ("batch/cronjobs", "/spec/jobTemplate/spec/template/spec"),
];

/// Places of images in a Pod specification (`PodSpec`, `Container`, `EphemeralContainer` and `ImageVolumeSource` in
/// `core/v1/types.go`). A sidecar container is an init container.
pub const IMAGES: [&str; 4] = [
    "/containers/*/image",
    "/initContainers/*/image",
    "/ephemeralContainers/*/image",
    "/volumes/*/image/reference",
];

/// Returns the place of the Pod specification in objects of a kind (`GROUP/PLURAL`).
pub fn pod_spec_place(kind: &str) -> Option<&'static str> {
    POD_SPECS.iter().find(|(known, _)| *known == kind).map(|(_, place)| *place)
}

/// Returns the images of a Pod specification that a node pulls. With the policy `Never`, it pulls none.
pub(in crate::mirror) fn image_pulls(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for place in IMAGES {
        let Some((lists, image)) = place.split_once("/*/") else { continue };
        let (parent, name) = image.rsplit_once('/').map_or(("", image), |(parent, name)| (parent, name));
        for item in list(spec, lists) {
            let parent = if parent.is_empty() { Some(item) } else { item.get(parent) };
            let Some(parent) = parent else { continue };
            let policy =
                ["imagePullPolicy", "pullPolicy"].map(|field| parent.get(field).and_then(Value::as_str));
            let image = parent.get(name).and_then(Value::as_str).unwrap_or_default();
            if !image.is_empty() && !policy.contains(&Some("Never")) {
                found.push(image.to_string());
            }
        }
    }
    found
}

/// Calls a function with the Pod specification of an object, if it has one.
pub(super) fn with_pod_spec(kind: &str, object: &mut Value, change: &mut dyn FnMut(&mut Value)) {
    if let Some(place) = pod_spec_place(kind) {
        each(object, place, change);
    }
}
