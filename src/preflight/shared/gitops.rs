//! `gitops`: whether a GitOps controller applies manifests.

use std::collections::BTreeSet;

use crate::inventory::{ClusterReader, unread};
use crate::kube_api::Collection;
use crate::preflight::{Check, Judged, Read, Source};

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check { name: "gitops", why, needs: &[Source::Api], judge: |input| Box::pin(read(input.as_ref())) }
}

async fn read(reading: &ClusterReader) -> Read<Judged> {
    let cluster = reading.cluster()?;
    let groups = cluster.groups().await.map_err(unread)?;
    let applications = Collection::new("argoproj.io/v1alpha1", "Application", None);
    let has_applications =
        groups.contains("argoproj.io") && cluster.serves(&applications).await.map_err(unread)?;
    Ok(judge(&groups, has_applications))
}

/// API groups that identify deploy tools, each with the name of the tool.
const TOOLS: [(&str, &str); 6] = [
    ("kustomize.toolkit.fluxcd.io", "Flux (kustomizations)"),
    ("helm.toolkit.fluxcd.io", "Flux (Helm releases)"),
    ("fleet.cattle.io", "Rancher Fleet"),
    ("configmanagement.gke.io", "Config Management"),
    ("configsync.gke.io", "Config Sync"),
    ("kapp.k14s.io", "Carvel kapp-controller"),
];

/// Checks which GitOps tools are installed, based on the served API groups. `has_applications`: whether `argoproj.io` has the
/// kind Application, because other Argo tools use the same group.
fn judge(groups: &BTreeSet<String>, has_applications: bool) -> Judged {
    let mut found: Vec<&str> = has_applications.then_some("Argo CD").into_iter().collect();
    found.extend(TOOLS.iter().filter(|(group, _)| groups.contains(*group)).map(|(_, tool)| *tool));
    if found.is_empty() {
        return Judged::pass("no API group of a known GitOps tool");
    }
    Judged::warn(
        format!("GitOps tools that apply manifests: {}", found.join(", ")),
        "suspend them during the change (Argo CD: no automated sync; Flux: `flux suspend`; Fleet: `paused: true`), or, for a \
         renumbering, set the deploy lock: `netsurgeon lock --reason TEXT`, docs/lock.md",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn deploy_tools_are_recognized_by_their_api_groups() {
        let groups = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        assert_eq!(judge(&groups(&["apps", "argoproj.io"]), false).verdict, Verdict::Pass, "Argo Workflows");
        let found = judge(&groups(&["helm.toolkit.fluxcd.io"]), true);
        assert_eq!(found.verdict, Verdict::Warn);
        assert_eq!(found.observed, "GitOps tools that apply manifests: Argo CD, Flux (Helm releases)");
    }
}
