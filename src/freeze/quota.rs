//! The ResourceQuotas of a freeze, for API servers without admission policies. Pure.
//!
//! A quota of nought lets nothing more be made. That is all it does: it knows no users, so nobody is exempt, and
//! it neither sees changes nor deletions. What runs goes on.

use serde_json::{Value, json};

use super::{Freeze, What};

/// What a client reads of the quota's name is all the message there is.
pub fn quota(freeze: &Freeze, namespace: &str) -> Value {
    let mut hard = serde_json::Map::new();
    if freeze.what.services() {
        hard.insert("services".to_string(), "0".into());
    }
    if freeze.what.deploys() {
        // Neither Pods nor what controllers make of these: a node that fails must not take them along.
        for name in ["deployments.apps", "statefulsets.apps", "daemonsets.apps", "cronjobs.batch"] {
            hard.insert(format!("count/{name}"), "0".into());
        }
    }
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": freeze.metadata(Some(namespace)),
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
        assert_eq!(hard(What::Services), json!({"services": "0"}));
        assert_eq!(hard(What::Deploys).get("services"), None);
        assert_eq!(hard(What::All).as_object().map(serde_json::Map::len), Some(5));
        assert_eq!(quota(&freeze(), "shop")["metadata"]["namespace"], "shop");
    }
}
