//! What installed an object: a component that restores it after a change, or a person.

use std::fmt;

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::kube_api::accessors::{annotation, controller, label, labels};

/// What installed an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Installer {
    /// Name of the installer, for example `kOps addon networking.weave`.
    pub name: String,
    /// Whether the installer restores the object by itself after a change.
    pub restores: bool,
}

impl Installer {
    fn new(name: impl Into<String>, restores: bool) -> Self {
        Self { name: name.into(), restores }
    }

    /// Returns what installed an object, by its labels, annotations and owners; `None` if they do not show it.
    pub fn of(object: &impl Metadata<Ty = ObjectMeta>) -> Option<Self> {
        if let Some(owner) = controller(object) {
            return Some(Self::new(format!("{} `{}`", owner.kind, owner.name), true));
        }
        // kOps sets the first label, and older versions set the second one.
        for key in ["addon.kops.k8s.io/name", "k8s-addon"] {
            if let Some(name) = label(object, key) {
                return Some(Self::new(format!("kOps addon `{name}`"), true));
            }
        }
        if labels(object).contains_key("addonmanager.kubernetes.io/mode") {
            return Some(Self::new("Kubernetes addon manager", true));
        }
        // K3s and RKE2 apply manifests on their servers, and HelmCharts.
        if labels(object).contains_key("objectset.rio.cattle.io/hash") {
            return Some(Self::new("the deploy controller of K3s or RKE2 (a manifest or HelmChart)", true));
        }
        let argo = annotation(object, "argocd.argoproj.io/tracking-id");
        if !argo.is_empty() || label(object, "argocd.argoproj.io/instance").is_some() {
            return Some(Self::new("Argo CD", true));
        }
        if label(object, "kustomize.toolkit.fluxcd.io/name").is_some()
            || label(object, "helm.toolkit.fluxcd.io/name").is_some()
        {
            return Some(Self::new("Flux", true));
        }
        let release = annotation(object, "meta.helm.sh/release-name");
        if !release.is_empty() {
            return Some(Self::new(format!("Helm release `{release}`"), false));
        }
        let applied = annotation(object, "kubectl.kubernetes.io/last-applied-configuration");
        (!applied.is_empty()).then(|| Self::new("kubectl apply", false))
    }
}

impl fmt::Display for Installer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSet;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn installer_is_recognized_by_labels_annotations_and_owners() {
        let of = |metadata: Value| {
            let object: DaemonSet = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            Installer::of(&object).map(|one| (one.name, one.restores))
        };
        let told = |name: &str, restores: bool| Some((name.to_string(), restores));
        assert_eq!(of(json!({"name": "a"})), None);
        let owner = json!([{"apiVersion": "x/v1", "kind": "Installation", "name": "default", "uid": "u", "controller": true}]);
        assert_eq!(of(json!({"ownerReferences": owner})), told("Installation `default`", true));
        let kops =
            json!({"addon.kops.k8s.io/name": "networking.weave", "app.kubernetes.io/managed-by": "kops"});
        assert_eq!(of(json!({"labels": kops})), told("kOps addon `networking.weave`", true));
        assert_eq!(of(json!({"labels": {"argocd.argoproj.io/instance": "cni"}})), told("Argo CD", true));
        let helm = json!({"meta.helm.sh/release-name": "cilium"});
        assert_eq!(of(json!({"annotations": helm})), told("Helm release `cilium`", false));
        let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
        assert_eq!(of(json!({"annotations": applied})), told("kubectl apply", false));
    }
}
