//! Checks before the first change that the user has every permission that a hand-over needs. If one were missing in the middle of a
//! hand-over, the object could be suspended in both clusters.

use std::collections::BTreeSet;

use super::work::Activation;
use crate::kube_api::Cluster;
use crate::session::Failure;

/// A verb, an API group, and a resource.
type Need = (&'static str, &'static str, &'static str);

/// The permissions for a `CronJob`.
const OF_CRON_JOBS: [Need; 5] = [
    ("get", "batch", "cronjobs"),
    ("patch", "batch", "cronjobs"),
    ("patch", "batch", "cronjobs/status"),
    ("list", "batch", "jobs"),
    ("watch", "batch", "jobs"),
];
/// The permissions for each kind of workload.
const OF_WORKLOADS: [(&str, [Need; 4]); 2] = [
    (
        "apps/deployments",
        [
            ("get", "apps", "deployments"),
            ("patch", "apps", "deployments"),
            ("patch", "apps", "deployments/scale"),
            ("list", "", "pods"),
        ],
    ),
    (
        "apps/statefulsets",
        [
            ("get", "apps", "statefulsets"),
            ("patch", "apps", "statefulsets"),
            ("patch", "apps", "statefulsets/scale"),
            ("list", "", "pods"),
        ],
    ),
];

/// Returns the permissions that a plan needs in the source, or in the mirror, each with its namespace.
fn needs(work: &Activation, is_of_mirror: bool) -> BTreeSet<(String, Need)> {
    let mut found = BTreeSet::new();
    for entry in work.moves() {
        let renamed = entry.mirror_namespace.clone().filter(|_| is_of_mirror);
        let namespace = renamed.or_else(|| entry.object.namespace.clone()).unwrap_or_default();
        let of_kind = OF_WORKLOADS.iter().find(|(kind, _)| *kind == entry.object.resource);
        let needs: &[Need] = of_kind.map_or(&OF_CRON_JOBS, |(_, needs)| needs);
        found.extend(needs.iter().map(|need| (namespace.clone(), *need)));
    }
    found
}

/// Fails if the user lacks a permission in a cluster.
pub(super) async fn refuse_lacking(
    source: &Cluster,
    mirror: &Cluster,
    work: &Activation,
) -> Result<(), Failure> {
    for (cluster, api, is_of_mirror) in [("source", source, false), ("mirror", mirror, true)] {
        let mut lacking = Vec::new();
        for (namespace, (verb, group, resource)) in &needs(work, is_of_mirror) {
            if !api.may(verb, (group, resource), Some(namespace)).await? {
                lacking.push(format!("{verb} {resource} in `{namespace}`"));
            }
        }
        if !lacking.is_empty() {
            let text = format!("the user lacks permissions in the {cluster}: {}", lacking.join(", "));
            return Err(Failure::refused(text).hint(
                "bind the ClusterRole `netsurgeon-mirror-activate` of deploy/rbac.yaml to this user, in these namespaces of both clusters",
            ));
        }
    }
    Ok(())
}
