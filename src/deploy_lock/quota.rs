//! Builds the ResourceQuotas of a deploy lock, for API servers without admission policies. Does no I/O.
//!
//! A quota of zero only prevents the creation of more objects. It applies to all users, so no user is exempt. Changes and
//! deletions are still allowed. Running Pods are not affected.

use serde_json::{Value, json};

use super::{DeployLock, NAME, What};

/// Locked workload kinds. Pods and other objects that controllers create are not limited, so that controllers can replace Pods
/// after a node failure.
const WORKLOADS: [&str; 4] =
    ["count/deployments.apps", "count/statefulsets.apps", "count/daemonsets.apps", "count/cronjobs.batch"];

/// Returns the ResourceQuota for a namespace. The error that clients receive contains only the name of the quota.
pub fn quota(freeze: &DeployLock, namespace: &str) -> Value {
    // Kinds that are not locked are null, so that the merge patch removes them from an existing quota (RFC 7386).
    let limit = |frozen: bool| if frozen { Value::from("0") } else { Value::Null };
    let mut hard = serde_json::Map::new();
    hard.insert("services".to_string(), limit(freeze.what.services()));
    hard.extend(WORKLOADS.iter().map(|name| ((*name).to_string(), limit(freeze.what.deploys()))));
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": freeze.metadata(NAME, Some(namespace)),
        "spec": {"hard": hard},
    })
}

/// Returns the changes that a deploy lock with quotas does not prevent.
pub fn not_covered(what: What) -> Vec<String> {
    let mut list = vec![
        format!("changes and deletions: a ResourceQuota refuses only the creation of {what}"),
        "namespaces created later".to_string(),
        "exemptions: no user is exempt, not even netsurgeon; a renumbering that needs shadow Services to hold addresses stops"
            .to_string(),
        "the message: clients see `exceeded quota: netsurgeon-lock`, without the reason and the holder".to_string(),
    ];
    if what.deploys() {
        list.push("Pods, Jobs and ReplicaSets".to_string());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::tests::freeze;
    use super::*;

    #[test]
    fn quota_counts_the_locked_kinds() {
        let hard = |what| quota(&DeployLock { what, ..freeze() }, "shop")["spec"]["hard"].clone();
        let frozen = |what| {
            let hard = hard(what);
            hard.as_object().unwrap().values().filter(|limit| **limit == json!("0")).count()
        };
        assert_eq!((frozen(What::Services), frozen(What::Deploys), frozen(What::All)), (1, 4, 5));
        assert_eq!(
            (&hard(What::All)["services"], &hard(What::Deploys)["services"]),
            (&json!("0"), &Value::Null)
        );
        assert_eq!(quota(&freeze(), "shop")["metadata"]["namespace"], "shop");
    }
}
