//! Classes that copied objects refer to, such as an IngressClass. They belong to the installation of a cluster and are not copied, so a
//! plan names those that the mirror does not have.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::rules::pod_spec_place;
use crate::inventory::{list, text};

/// The classes that objects refer to: kind and name, with the objects.
pub(super) type Classes = BTreeMap<(&'static str, String), BTreeSet<String>>;

const INGRESS: &str = "IngressClass";
const GATEWAY: &str = "GatewayClass";
const RUNTIME: &str = "RuntimeClass";
const STORAGE: &str = "StorageClass";

/// Kinds of classes, with their API versions.
pub(super) const KINDS: [(&str, &str); 4] = [
    (INGRESS, "networking.k8s.io/v1"),
    (GATEWAY, "gateway.networking.k8s.io/v1"),
    (RUNTIME, "node.k8s.io/v1"),
    (STORAGE, "storage.k8s.io/v1"),
];

/// Adds the classes that an object refers to. `kind`: `GROUP/PLURAL`.
pub(super) fn add_classes(classes: &mut Classes, kind: &str, object: &Value) {
    let mut note = |class: &'static str, name: &str| {
        if !name.is_empty() {
            let subject = format!(
                "{} {}/{}",
                text(object, "/kind"),
                text(object, "/metadata/namespace"),
                text(object, "/metadata/name")
            );
            classes.entry((class, name.to_string())).or_default().insert(subject);
        }
    };
    match kind {
        "networking.k8s.io/ingresses" => note(INGRESS, text(object, "/spec/ingressClassName")),
        "gateway.networking.k8s.io/gateways" => note(GATEWAY, text(object, "/spec/gatewayClassName")),
        _ => {}
    }
    if let Some(spec) = pod_spec_place(kind).and_then(|place| object.pointer(place)) {
        note(RUNTIME, text(spec, "/runtimeClassName"));
        for volume in list(spec, "/volumes") {
            note(STORAGE, text(volume, "/ephemeral/volumeClaimTemplate/spec/storageClassName"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_are_collected() {
        let object = |kind: &str, spec: Value| json!({"kind": kind, "metadata": {"namespace": "shop", "name": "a"}, "spec": spec});
        let volume = json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}});
        let pod = json!({"runtimeClassName": "gvisor", "volumes": [volume, {"emptyDir": {}}]});
        let job = json!({"jobTemplate": {"spec": {"template": {"spec": pod}}}});
        let mut found = Classes::new();
        for (kind, object) in [
            ("networking.k8s.io/ingresses", object("Ingress", json!({"ingressClassName": "nginx"}))),
            ("networking.k8s.io/ingresses", object("Ingress", json!({}))),
            ("gateway.networking.k8s.io/gateways", object("Gateway", json!({"gatewayClassName": "envoy"}))),
            ("batch/cronjobs", object("CronJob", job)),
            ("example.com/widgets", object("Widget", json!({"ingressClassName": "other"}))),
        ] {
            add_classes(&mut found, kind, &object);
        }
        let found: Vec<_> = found
            .into_iter()
            .map(|((kind, name), objects)| format!("{kind} {name}: {}", Vec::from_iter(objects).join(" ")))
            .collect();
        let expected = [
            "GatewayClass envoy: Gateway shop/a",
            "IngressClass nginx: Ingress shop/a",
            "RuntimeClass gvisor: CronJob shop/a",
            "StorageClass fast: CronJob shop/a",
        ];
        assert_eq!(found, expected);
    }
}
