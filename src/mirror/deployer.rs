//! Who deploys an object to the source: Argo CD, Flux or Helm. They do not know about its copy.

use serde_json::Value;

use super::rules::Uses;
use crate::inventory::text;

/// The type of a Secret with the record of a Helm release (helm.sh/helm/v3 `pkg/storage/driver/secrets.go`).
const RELEASE: &str = "helm.sh/release.v1";

/// Notes in a plan who deploys an object. `kind`: `GROUP/PLURAL`. Argo CD marks its objects by a label or an annotation
/// (`docs/user-guide/resource_tracking.md`); Flux by labels (`kustomize-controller`, `helm-controller`).
pub(super) fn note_deployer(kind: &str, object: &Value, uses: &Uses) {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    if kind == "/secrets" && text(object, "/type") == RELEASE {
        let finding = "records of Helm releases are copied; `helm upgrade` in the mirror applies the manifests of the chart without the rules \
                       of the configuration";
        let release = text(object, "/metadata/labels/name");
        let release = if release.is_empty() { name } else { release };
        uses.note(finding.to_string(), format!("{namespace}/{release}"));
    }
    if let Some(deployer) = deployer(object) {
        let finding = format!(
            "{deployer} deploys these objects to the source; a later change in Git reaches the copies only by a new plan, unless {deployer} \
             deploys to the mirror itself"
        );
        uses.note(finding, format!("{} {namespace}/{name}", text(object, "/kind")));
    }
}

/// Returns who deploys an object.
pub(super) fn deployer(object: &Value) -> Option<&'static str> {
    const MARKS: [(&str, &str, &str); 4] = [
        ("annotations", "argocd.argoproj.io/tracking-id", "Argo CD"),
        ("labels", "argocd.argoproj.io/instance", "Argo CD"),
        ("labels", "kustomize.toolkit.fluxcd.io/name", "Flux"),
        ("labels", "helm.toolkit.fluxcd.io/name", "Flux"),
    ];
    let metadata = object.get("metadata")?;
    let has = |place: &str, key: &str| metadata.get(place).is_some_and(|map| map.get(key).is_some());
    MARKS.iter().find(|(place, key, _)| has(place, key)).map(|(.., deployer)| *deployer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deployers_are_named_with_their_objects() {
        let uses = Uses::default();
        let object = |name: &str, metadata: Value| {
            let mut metadata = metadata;
            metadata["namespace"] = json!("shop");
            metadata["name"] = json!(name);
            json!({"kind": "ConfigMap", "type": RELEASE, "metadata": metadata})
        };
        let tracked = json!({"annotations": {"argocd.argoproj.io/tracking-id": "x"}});
        let flux = json!({"labels": {"helm.toolkit.fluxcd.io/name": "x"}});
        let record = object("sh.helm.release.v1.web.v3", json!({"labels": {"name": "web", "owner": "helm"}}));
        for (kind, object) in [
            ("/configmaps", object("a", tracked.clone())),
            ("/configmaps", object("b", tracked)),
            ("/configmaps", object("c", flux)),
            ("/configmaps", object("d", json!({}))),
            ("/secrets", record),
        ] {
            note_deployer(kind, &object, &uses);
        }
        let ends: Vec<String> =
            uses.findings().iter().map(|text| text.rsplit_once(": ").unwrap().1.to_string()).collect();
        assert_eq!(ends, ["ConfigMap shop/a, ConfigMap shop/b", "ConfigMap shop/c", "shop/web"]);
        assert!(uses.findings()[2].starts_with("records of Helm releases"), "{:?}", uses.findings());
    }
}
