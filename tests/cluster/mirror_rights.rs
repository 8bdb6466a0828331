//! `netsurgeon mirror` with exactly the roles of `deploy/rbac.yaml`, for a user without other permissions.

use serde_json::{Value, json};

use super::mirror::declared;
use super::mirror_pair::{NAMESPACE, PATIENCE, Pair, action, stored};
use super::rig::api::{Api, object_path};
use super::rig::cluster::Cluster;
use super::rig::process::wait_until;
use super::rig::run::{Run, run, says};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Creates the roles of `deploy/rbac.yaml`.
async fn with_roles(api: &Api) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac.yaml");
    let text = std::fs::read_to_string(file).expect("the roles");
    for part in text.split("\n---\n") {
        api.apply(&serde_saphyr::from_str::<Value>(part).expect("an object")).await;
    }
}

/// Returns a binding of a role to the user `ada`, in a namespace or in the cluster.
fn binding_of(kind: &str, role: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": format!("ada-{role}")});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let binding = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": binding, "metadata": metadata,
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "ada"}],
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
    })
}

/// Binds the roles as the comments of the file say.
async fn with_bindings(pair: &Pair) {
    pair.source.api.create(&binding_of("ClusterRole", "netsurgeon-mirror-source", None)).await;
    pair.source.api.create(&binding_of("ClusterRole", "netsurgeon-mirror-secrets", None)).await;
    pair.mirror.api.create(&binding_of("ClusterRole", "netsurgeon-mirror", None)).await;
    pair.mirror.api.create(&binding_of("ClusterRole", "netsurgeon-mirror-write", Some(NAMESPACE))).await;
    pair.mirror.api.create(&binding_of("Role", "netsurgeon-mirror", Some("netsurgeon"))).await;
    pair.mirror.api.create(&binding_of("Role", "netsurgeon-mirror", Some("kube-system"))).await;
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let roles = format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/roles");
    for (cluster, path) in [(&pair.source, &secrets), (&pair.source, &roles), (&pair.mirror, &secrets)] {
        is_allowed(cluster, path, true).await;
    }
}

/// Deletes such a binding. Returns it for another creation.
async fn unbind(api: &Api, kind: &str, role: &str, namespace: Option<&str>) -> Value {
    let binding = binding_of(kind, role, namespace);
    api.delete(&object_path(&binding)).await;
    binding
}

/// Waits until the user is allowed to read a path, or is no longer.
async fn is_allowed(cluster: &Cluster, path: &str, expected: bool) {
    let api = cluster.api_as(0, "ada", None).await;
    wait_until("the roles are in force", PATIENCE, async || {
        let answer = api.request(http::Method::GET, path, "application/json", None).await;
        if answer.is_ok() == expected { Ok(()) } else { Err(format!("{path}: {answer:?}")) }
    })
    .await;
}

/// Runs a command of `mirror` as this user.
fn by_ada(pair: &Pair, words: &str) -> Run {
    let of = |cluster: &Cluster| cluster.kubeconfig_as(0, "ada", None).display().to_string();
    let words =
        format!("mirror {words} --kubeconfig {} --mirror-kubeconfig {}", of(&pair.source), of(&pair.mirror));
    run(&words, pair.command(&words))
}

#[tokio::test]
async fn roles_of_the_file_are_enough_and_missing_permissions_are_named() {
    let pair = Pair::start(true).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
        with_roles(api).await;
    }
    pair.create(&declared()).await;
    with_bindings(&pair).await;
    let before = stored(&pair.mirror).await;
    let plan = format!("plan -n {NAMESPACE} --save {} -o json", pair.plan);
    let apply = format!("apply --plan {} --yes -o json", pair.plan);
    let planned = by_ada(&pair, &plan).expect(0);
    assert_eq!(planned.json()["kinds_left_out"], json!([]), "{}", planned.err);
    for object in declared() {
        let entry = action(&planned.json(), &object).clone();
        // The dry run of a binding needs its role.
        let expected = if object["kind"] == "RoleBinding" { "unchecked" } else { "accepted" };
        assert_eq!((&entry["action"], &entry["dry_run"]), (&json!("create"), &json!(expected)), "{entry}");
    }
    by_ada(&pair, &apply).expect(0);
    by_ada(&pair, "verify --skip-readiness").expect(0);
    by_ada(&pair, "teardown --yes").expect(0);
    pair.forget_all();
    pair.mirror_is(&before).await;
    missing_permissions_are_named(&pair, (&plan, &apply)).await;
}

/// Without one of the roles: each message has the verb, the resource and the role.
async fn missing_permissions_are_named(pair: &Pair, (plan, apply): (&str, &str)) {
    let (source, mirror) = (&pair.source, &pair.mirror);
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let without = async |cluster: &Cluster, path: &str, kind: &str, role: &str, namespace: Option<&str>| {
        let binding = unbind(&cluster.api, kind, role, namespace).await;
        is_allowed(cluster, path, false).await;
        binding
    };

    let name = "netsurgeon-mirror-secrets";
    let binding = without(source, &secrets, "ClusterRole", name, None).await;
    let planned = by_ada(pair, plan).expect(0);
    says(
        &planned.err,
        &["not in the plan: /secrets", "cannot list resource \"secrets\"", &format!("`{name}`")],
    );
    source.api.create(&binding).await;
    is_allowed(source, &secrets, true).await;

    // In the mirror, the user can still read.
    let name = "netsurgeon-mirror-write";
    let binding = without(mirror, &secrets, "ClusterRole", name, Some(NAMESPACE)).await;
    let refused = by_ada(pair, plan).expect(1);
    says(&refused.err, &["cannot list resource \"secrets\""]);
    says(&refused.err, &["bind the missing role", "deploy/rbac.yaml"]);
    mirror.api.create(&binding).await;
    is_allowed(mirror, &secrets, true).await;
    by_ada(pair, plan).expect(0);
    without(mirror, &secrets, "ClusterRole", name, Some(NAMESPACE)).await;
    let skipped = by_ada(pair, apply).expect(3);
    for resource in ["configmaps", "services", "deployments", "cronjobs", "rolebindings"] {
        let words = format!("cannot patch resource \"{resource}\"");
        says(&skipped.err, &["skipped", &words, &format!("`{name}`")]);
    }
}
