//! The ResourceQuotas of a freeze, for API servers without admission policies. Pure.
//!
//! A quota of nought lets nothing more be made. That is all it does: it knows no users, so nobody is exempt, and
//! it neither sees changes nor deletions. What runs goes on.

use serde_json::{Value, json};

use super::{Freeze, NAME, What};

/// What workloads are counted as. Neither Pods nor what controllers make are among it: a node that fails must
/// not take them along.
const WORKLOADS: [&str; 4] =
    ["count/deployments.apps", "count/statefulsets.apps", "count/daemonsets.apps", "count/cronjobs.batch"];

/// Returns the quota of a namespace. Its name is all the message that a client reads.
pub fn quota(freeze: &Freeze, namespace: &str) -> Value {
    // What is not frozen is null, so that a quota that is there already loses it (RFC 7386).
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

/// Says what a freeze by quotas does not cover.
pub fn not_covered(what: What) -> Vec<String> {
    let mut list = vec![
        format!("changes and deletions: a ResourceQuota refuses only that {what} are made"),
        "namespaces that are made later".to_string(),
        "exemptions: nobody is exempt, netsurgeon itself included; a renumbering that holds addresses by \
         shadows, which are Services, stops at them"
            .to_string(),
        "the words: clients read `exceeded quota: netsurgeon-lock`, and neither why nor by whom".to_string(),
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
    fn a_quota_is_of_what_is_frozen() {
        let hard = |what| quota(&Freeze { what, ..freeze() }, "shop")["spec"]["hard"].clone();
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
