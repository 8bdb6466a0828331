//! Users with only the roles of `deploy/rbac.yaml`, or less.

use serde_json::{Value, json};

use super::{DEFINITIONS, Pair, RBAC, checks};
use crate::rig::api::Api;
use crate::rig::process::wait_until;
use crate::rig::run::has_line;
use crate::serving_cluster::DEADLINE;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const SOURCE: &str = "netsurgeon-mirror-source";
const SECRETS: &str = "netsurgeon-mirror-secrets";
/// Secrets are not checked, because the user has no permission to list them.
const UNCHECKED: &[&str] = &["Secrets"];

/// Binds a role to a user, in the cluster or in one namespace.
async fn bind(api: &Api, user: &str, role: &str, namespace: Option<&str>) {
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    let mut metadata = json!({"name": format!("{user}-{role}").replace(':', "-")});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    api.create(&json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata,
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
    }))
    .await;
}

async fn create_role(api: &Api, name: &str, labels: Value, rules: Value) {
    let metadata = json!({"name": name, "labels": labels});
    api.create(&json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules}))
        .await;
}

/// Waits until the checks of a user have the expected results: each named check its verdict and text, and all others pass.
async fn comes_out(pair: &Pair, user: &str, words: &str, expected: &[(&str, &str, &[&str])]) {
    wait_until("the roles are in force", DEADLINE, async || {
        let found = checks(&pair.run(Some(user), &format!("-o json {words}")));
        // The plan needs the rights of the user who copies, which these users do not have.
        let is_judged = |check: &&Value| check["verdict"] != "skipped" && check["name"] != "planned-objects";
        for check in found.iter().filter(is_judged) {
            let (verdict, seen) = expected
                .iter()
                .find_map(|(name, verdict, seen)| (check["name"] == *name).then_some((*verdict, *seen)))
                .unwrap_or(("pass", &[]));
            let is_seen = has_line(check["observed"].as_str().unwrap_or_default(), seen);
            if check["verdict"] != verdict || !is_seen {
                return Err(format!("{check}, and {verdict} was expected: {seen:?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// Users with the roles get the permissions that they lack to change objects; without the optional role also that Secrets are not
/// checked; and with less, the missing permissions.
pub async fn with_rights(pair: &Pair) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac.yaml");
    let text = std::fs::read_to_string(file).expect("the roles");
    let roles: Vec<Value> =
        text.split("\n---\n").map(|part| serde_saphyr::from_str(part).expect("an object")).collect();
    let (source, mirror) = (&pair.source.api, &pair.mirror.api);
    for role in roles.iter().filter(|one| one["kind"] == "ClusterRole") {
        source.create(role).await;
        mirror.create(role).await;
    }
    it_is_aggregated(source).await;
    for (api, role) in [(source, SOURCE), (source, SECRETS), (mirror, "netsurgeon-mirror"), (mirror, SECRETS)]
    {
        bind(api, "mia", role, None).await;
    }
    for api in [source, mirror] {
        bind(api, "nobody", "system:aggregate-to-view", None).await;
    }
    let everywhere = json!([
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses"], "verbs": ["list"]},
    ]);
    let slices =
        json!([{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]}]);
    create_role(source, "everywhere", json!({}), everywhere).await;
    create_role(source, "slices", json!({}), slices).await;
    bind(source, "ned", "everywhere", None).await;
    bind(source, "ned", "slices", Some("default")).await;
    bind(source, "ned", SOURCE, Some("shop")).await;
    bind(mirror, "ned", "netsurgeon-mirror", None).await;

    let rights: (_, _, &[&str]) = ("mirror-rights", "warn", &["create secrets, patch secrets"]);
    let kinds: (_, _, &[&str]) = ("kinds", "unknown", &["cert-manager.io/v1alpha2 Order"]);
    comes_out(pair, "mia", "", &[rights, kinds]).await;
    with_custom_resources(source).await;
    comes_out(pair, "mia", "", &[rights]).await;
    comes_out(pair, "mia", "-n shop", &[rights]).await;
    let without = [
        rights,
        ("namespaces", "warn", UNCHECKED),
        ("mirror-webhooks", "warn", UNCHECKED),
        ("pull-secrets", "unknown", &["Secrets", "source"]),
        ("outside-owners", "unknown", &["not allowed to list Deployment objects"]),
        ("source-rights", "warn", &["`shop`: get secrets, list secrets"]),
    ];
    comes_out(pair, "ned", "-n shop", &without).await;
    let roles = "get roles, list roles, get rolebindings, list rolebindings";
    let of_source = format!("`shop`: {roles}, get secrets, list secrets");
    let of_mirror = format!("{roles}, create secrets, patch secrets");
    let (of_source, of_mirror) = ([of_source.as_str()], [of_mirror.as_str()]);
    let less: [(_, _, &[&str]); 2] =
        [("source-rights", "fail", &of_source), ("mirror-rights", "fail", &of_mirror)];
    comes_out(pair, "nobody", "-n shop --only source-rights,mirror-rights", &less).await;
}

/// The controller aggregates the rules of `view` and of netsurgeon's part into the role, without Secrets and without access to a
/// Pod.
async fn it_is_aggregated(source: &Api) {
    let rules = wait_until("the role is aggregated", DEADLINE, async || {
        let role = source.get(&format!("{ROLES}/{SOURCE}")).await;
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        let has = |resource: &str| rules.iter().any(|rule| rule["resources"].to_string().contains(resource));
        if has("\"deployments\"") && has("\"ingressclasses\"") {
            Ok(rules.clone())
        } else {
            Err(role.to_string())
        }
    })
    .await;
    for rule in &rules {
        let verbs: Vec<&str> =
            rule["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str).collect();
        assert!(verbs.iter().all(|verb| ["get", "list", "watch"].contains(verb)), "{rule}");
        let resources = rule["resources"].to_string();
        for never in ["*", "\"secrets\"", "exec", "attach", "portforward", "proxy"] {
            assert!(!resources.contains(never), "{rule}");
        }
    }
}

/// A role for custom resources that no operator has aggregated to `view`, with the label of `deploy/rbac.yaml`.
async fn with_custom_resources(source: &Api) {
    let definitions = source.list(DEFINITIONS).await;
    let rule = |one: &Value| {
        let (group, plural) = (&one["spec"]["group"], &one["spec"]["names"]["plural"]);
        json!({"apiGroups": [group], "resources": [plural], "verbs": ["get", "list"]})
    };
    let rules: Vec<Value> = definitions.iter().map(rule).collect();
    let label = json!({"netsurgeon.io/aggregate-to-mirror-source": "true"});
    create_role(source, "custom-resources", label, json!(rules)).await;
}
