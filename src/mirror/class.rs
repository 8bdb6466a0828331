//! Classes that copied objects refer to, such as an IngressClass. They belong to the installation of a cluster and are not copied, so a
//! plan names those that the mirror does not have.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::reader::MirrorReader;
use super::refusal::is_of_object;
use super::rules::{Uses, pod_spec_place};
use crate::inventory::{list, text};
use crate::kube_api::Collection;
use crate::session::Failure;

/// The classes that objects refer to: kind and name, with the objects.
pub(super) type Classes = BTreeMap<(&'static str, String), BTreeSet<String>>;

const INGRESS: &str = "IngressClass";
const GATEWAY: &str = "GatewayClass";
const RUNTIME: &str = "RuntimeClass";
const STORAGE: &str = "StorageClass";

/// Kinds of classes, with their API versions.
const KINDS: [(&str, &str); 4] = [
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

impl MirrorReader {
    /// Notes the classes that copied objects refer to and that the mirror does not have.
    pub(super) async fn note_missing_classes(&self, classes: Classes, uses: &Uses) -> Result<(), Failure> {
        for (kind, version) in KINDS {
            let of_kind = classes.iter().filter(|((class, _), _)| *class == kind);
            let asked: Vec<_> = of_kind.map(|((_, name), objects)| (name, objects)).collect();
            if asked.is_empty() {
                continue;
            }
            let found = match self.mirror.list_metadata(&Collection::new(version, kind, None)).await {
                Ok(found) => found,
                Err(error) if is_of_object(&error) => {
                    let finding =
                        format!("the mirror was not asked for these objects of the kind {kind}: {error}");
                    for (name, _) in &asked {
                        uses.note(finding.clone(), (*name).clone());
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let has = |name: &String| found.iter().any(|one| one.name.as_ref() == Some(name));
            for (name, objects) in asked.into_iter().filter(|(name, _)| !has(name)) {
                let finding =
                    format!("the mirror has no {kind} `{name}`, so these objects do not work there");
                for object in objects {
                    uses.note(finding.clone(), object.clone());
                }
            }
        }
        Ok(())
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
