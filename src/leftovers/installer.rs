//! Which installer owns an object of a network plug-in. An installer creates the object again after it is deleted, so a change of
//! the plug-in starts there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The owner of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Installer {
    /// An addon of kOps, with its name. kOps applies it again.
    Kops(String),
    /// A release of Helm, as `NAMESPACE/NAME`.
    Helm(String),
    /// An object `HelmChart` of k3s or RKE2, as `NAMESPACE/NAME`. Its controller applies it again.
    HelmChart(String),
    /// A manifest in the folder of a k3s or RKE2 server. The server applies it again.
    ServerManifest,
    /// An operator: the object that it serves, as `KIND/NAME`.
    Operator(String),
    /// Argo CD or Flux, with the name of the application.
    GitOps(String),
    /// The addon manager of Kubernetes.
    AddonManager,
    /// `kubectl apply`.
    Kubectl,
    /// Nothing shows an owner.
    Unknown,
}

/// What an object shows about its owner.
#[derive(Debug, Clone, Default)]
pub struct OwnerFacts<'o> {
    /// Its labels.
    pub labels: BTreeMap<&'o str, &'o str>,
    /// Its annotations.
    pub annotations: BTreeMap<&'o str, &'o str>,
    /// Kind and name of the object that controls it.
    pub controller: Option<(&'o str, &'o str)>,
}

/// Labels and annotations of Argo CD and Flux.
const GIT_OPS: [&str; 4] = [
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
];

/// Returns the owner of an object. `charts` are the objects `HelmChart` of the cluster, as `NAMESPACE/NAME`.
pub fn installer(facts: &OwnerFacts<'_>, charts: &[String]) -> Installer {
    let of_both = |key: &str| facts.annotations.get(key).or_else(|| facts.labels.get(key)).copied();
    if let Some(addon) = of_both("addon.kops.k8s.io/name") {
        return Installer::Kops(addon.to_string());
    }
    if let Some((kind, name)) = facts.controller {
        return Installer::Operator(format!("{kind}/{name}"));
    }
    // An application of Argo CD or Flux can contain a release of Helm.
    if let Some(application) = GIT_OPS.iter().find_map(|key| of_both(key)) {
        return Installer::GitOps(application.split(':').next().unwrap_or_default().to_string());
    }
    if let Some(release) = of_both("meta.helm.sh/release-name") {
        let namespace = of_both("meta.helm.sh/release-namespace").unwrap_or_default();
        let of_chart = |chart: &&String| chart.rsplit('/').next() == Some(release);
        return match charts.iter().find(of_chart) {
            Some(chart) => Installer::HelmChart(chart.clone()),
            None => Installer::Helm(format!("{namespace}/{release}")),
        };
    }
    if of_both("objectset.rio.cattle.io/hash").is_some() {
        return Installer::ServerManifest;
    }
    if of_both("addonmanager.kubernetes.io/mode").is_some() {
        return Installer::AddonManager;
    }
    if of_both("kubectl.kubernetes.io/last-applied-configuration").is_some() {
        return Installer::Kubectl;
    }
    Installer::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_the_program_that_applies_again() {
        let of = |labels: &[(&'static str, &'static str)], annotations: &[(&'static str, &'static str)]| {
            let facts = OwnerFacts {
                labels: labels.iter().copied().collect(),
                annotations: annotations.iter().copied().collect(),
                controller: None,
            };
            installer(&facts, &["kube-system/rke2-canal".to_string()])
        };
        let applied = ("kubectl.kubernetes.io/last-applied-configuration", "{}");
        let helm =
            |name| [("meta.helm.sh/release-name", name), ("meta.helm.sh/release-namespace", "kube-system")];
        assert_eq!(
            of(&[("addon.kops.k8s.io/name", "networking.weave")], &[applied]),
            Installer::Kops("networking.weave".to_string())
        );
        assert_eq!(of(&[], &helm("cilium")), Installer::Helm("kube-system/cilium".to_string()));
        assert_eq!(of(&[], &helm("rke2-canal")), Installer::HelmChart("kube-system/rke2-canal".to_string()));
        assert_eq!(of(&[("objectset.rio.cattle.io/hash", "1")], &[applied]), Installer::ServerManifest);
        let tracked = ("argocd.argoproj.io/tracking-id", "network:apps/DaemonSet:kube-system/cilium");
        assert_eq!(of(&[], &[tracked, helm("cilium")[0]]), Installer::GitOps("network".to_string()));
        assert_eq!((of(&[], &[applied]), of(&[], &[])), (Installer::Kubectl, Installer::Unknown));
        let facts = OwnerFacts { controller: Some(("Installation", "default")), ..OwnerFacts::default() };
        assert_eq!(installer(&facts, &[]), Installer::Operator("Installation/default".to_string()));
    }
}
