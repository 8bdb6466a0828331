//! `netsurgeon mirror` and objects of special kinds, on two real clusters: what has no namespace, what server-side apply refuses, what
//! the source has deleted, and what a finalizer keeps.

use serde_json::{Value, json};

use super::mirror_pair::{NAMESPACE, PATIENCE, Pair, action, actions, object, stored};
use super::rig::api::{Api, object_path};
use super::rig::process::wait_until;
use super::rig::run::says;

pub fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version],
                 "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}},
    })
}

pub fn widget(name: &str, finalizers: &[&str]) -> Value {
    let mut widget = object("example.com/v1", "Widget", name, &json!({"spec": {"size": 1}}));
    widget["metadata"]["finalizers"] = json!(finalizers);
    widget
}

pub fn of_cluster(api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut found = object(api_version, kind, name, rest);
    found["metadata"] = json!({"name": name});
    found
}

pub fn binding(kind: &str, name: &str, subjects: &Value) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"});
    let rest = json!({"roleRef": role, "subjects": subjects});
    let version = "rbac.authorization.k8s.io/v1";
    if kind == "ClusterRoleBinding" {
        return of_cluster(version, kind, name, &rest);
    }
    object(version, kind, name, &rest)
}

pub fn account(namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": "default"})
}

/// A Deployment whose container has two variables of one name.
pub fn with_duplicates(value: &str) -> Value {
    let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": value}]);
    let pod = json!({"containers": [{"name": "a", "image": "b", "env": env}], "priorityClassName": "urgent"});
    let template = json!({"metadata": {"labels": {"app": "twice"}}, "spec": pod});
    let spec = json!({"selector": {"matchLabels": {"app": "twice"}}, "template": template});
    object("apps/v1", "Deployment", "twice", &json!({"spec": spec}))
}

pub async fn serves_widgets(api: &Api) {
    wait_until("the kind is served", PATIENCE, async || {
        let path = format!("/apis/example.com/v1/namespaces/{NAMESPACE}/widgets");
        api.find(&path).await.map(drop).ok_or_else(|| "it is not served".to_owned())
    })
    .await;
}

/// What the objects of a namespace need is copied with them, and removed with them. What others share is not copied.
#[tokio::test]
async fn objects_without_namespace_are_copied_if_they_are_needed() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let needed = [
        definition(),
        of_cluster("scheduling.k8s.io/v1", "PriorityClass", "urgent", &json!({"value": 100})),
        of_cluster("rbac.authorization.k8s.io/v1", "ClusterRole", "reader", &json!({"rules": rules})),
        binding("ClusterRoleBinding", "own", &json!([account(NAMESPACE)])),
    ];
    let shared = binding("ClusterRoleBinding", "shared", &json!([account(NAMESPACE), account("other")]));
    let unneeded = [
        of_cluster("scheduling.k8s.io/v1", "PriorityClass", "unused", &json!({"value": 1})),
        binding("ClusterRoleBinding", "other", &json!([account("other")])),
    ];
    for object in needed.iter().chain(&unneeded).chain([&shared]) {
        pair.source.api.create(object).await;
    }
    serves_widgets(&pair.source.api).await;
    let service = object(
        "v1",
        "Service",
        "twice",
        &json!({"spec": {"selector": {"app": "twice"}, "ports": [{"port": 80}]}}),
    );
    let own = [
        binding("RoleBinding", "own", &json!([account(NAMESPACE)])),
        with_duplicates("2"),
        service,
        widget("one", &[]),
    ];
    pair.create(&own).await;
    let before = stored(&pair.mirror).await;

    let planned = pair.plan("");
    for object in needed.iter().chain(&own) {
        assert_eq!(action(&planned, object)["action"], "create", "{planned}");
    }
    assert_eq!(action(&planned, &widget("one", &[]))["dry_run"], "unchecked", "its kind does not exist yet");
    assert_eq!(action(&planned, &with_duplicates("2"))["reason"], "without-apply");
    assert_eq!(action(&planned, &shared)["reason"], "shared-binding");
    let names: Vec<&Value> = planned["objects"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(!names.contains(&&json!("unused")) && !names.contains(&&json!("other")), "{names:?}");
    assert_eq!(stored(&pair.mirror).await, before, "a plan writes nothing");

    pair.apply().expect(0);
    pair.run("verify --skip-readiness").expect(0);
    assert_eq!(actions(&pair.plan("")).keys().collect::<Vec<_>>(), ["left-out", "same"]);
    duplicates_are_changed_and_restored(&pair).await;

    // The definition stays as long as another client has an object of its kind.
    let theirs = pair.mirror.api.create(&widget("theirs", &[])).await;
    says(&pair.run("teardown --yes").expect(3).err, &["customresourcedefinitions", "Widget shop/theirs"]);
    pair.mirror.api.delete(&object_path(&theirs)).await;
    pair.run("teardown --yes").expect(0);
    let listed = pair.operation("list -o json").expect(0).json();
    let id = listed["operations"][0]["operation"].as_str().expect("an id").to_owned();
    pair.operation(&format!("forget {id} --yes")).expect(0);
    assert_eq!(stored(&pair.mirror).await, before);
}

/// PodSecurity accepts a workload and refuses its Pods, so only a warning shows it before an apply.
#[tokio::test]
async fn warnings_of_the_mirror_are_in_the_plan() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    pair.mirror.api.merge(&path, &labels).await;
    let service = object(
        "v1",
        "Service",
        "twice",
        &json!({"spec": {"selector": {"app": "twice"}, "ports": [{"port": 80}]}}),
    );
    let mut plain = with_duplicates("2");
    plain["spec"]["template"]["spec"] = json!({"containers": [{"name": "a", "image": "b"}]});
    pair.create(&[service, plain.clone()]).await;
    let planned = pair.run(&format!("plan -n {NAMESPACE} -o json")).expect(0);
    says(&planned.err, &["Deployment shop/twice", "would violate PodSecurity"]);
    let entry = action(&planned.json(), &plain).clone();
    assert_eq!((&entry["action"], &entry["dry_run"]), (&json!("create"), &json!("accepted")));
    assert!(entry["warnings"][0].as_str().is_some_and(|text| text.contains("PodSecurity")), "{entry}");
}

/// Server-side apply refuses the Deployment, so a change is a merge patch.
async fn duplicates_are_changed_and_restored(pair: &Pair) {
    let env =
        |value: &str| with_duplicates(value)["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let path = object_path(&with_duplicates("2"));
    let live =
        async || pair.mirror.api.get(&path).await["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let change = json!({"spec": {"template": {"spec": {"containers": [with_duplicates("3")["spec"]["template"]["spec"]["containers"][0]]}}}});
    assert_eq!(live().await, env("2"));
    pair.source.api.merge(&path, &change).await;
    let planned = pair.plan("");
    let entry = action(&planned, &with_duplicates("3"));
    assert_eq!(
        (&entry["action"], &entry["dry_run"], &entry["reason"]),
        (&json!("update"), &json!("accepted"), &json!("without-apply"))
    );
    let applied = pair.apply().expect(0).json();
    assert_eq!(live().await, env("3"));
    assert_eq!(actions(&pair.plan("")).keys().collect::<Vec<_>>(), ["left-out", "same"]);
    let id = applied["operation"].as_str().expect("an id");
    pair.operation(&format!("rollback {id} --yes")).expect(0);
    assert_eq!(live().await, env("2"));
    pair.operation(&format!("forget {id} --yes")).expect(0);
}

/// An object that the source deletes is deleted in the mirror; a rollback creates it again, and it still belongs to netsurgeon.
#[tokio::test]
async fn object_that_the_source_deletes_is_deleted() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let map = |name: &str| object("v1", "ConfigMap", name, &json!({"data": {"a": name}}));
    let secret = object("v1", "Secret", "keys", &json!({"stringData": {"a": "b"}}));
    // Too many keys for server-side apply.
    let keys: serde_json::Map<String, Value> =
        (0..40_000).map(|key| (format!("key-{key:05}"), json!("0123456789ab"))).collect();
    let large = object("v1", "ConfigMap", "large", &json!({"data": keys}));
    pair.create(&[map("stays"), map("goes"), secret.clone(), large.clone()]).await;
    let theirs = pair.mirror.api.create(&map("theirs")).await;
    let before = stored(&pair.mirror).await;
    pair.plan("");
    pair.apply().expect(0);
    let copy = pair.mirror.api.get(&object_path(&large)).await;
    assert_eq!(
        (&copy["data"], &copy["metadata"]["managedFields"]),
        (&large["data"], &Value::Null),
        "created without apply"
    );
    pair.run("verify --skip-readiness").expect(0);

    for object in [&map("goes"), &secret] {
        pair.source.api.delete(&object_path(object)).await;
    }
    says(
        &pair.run("verify --skip-readiness").expect(3).out,
        &["ConfigMap shop/goes", "missing in the source"],
    );
    let planned = pair.plan("");
    assert_eq!(actions(&planned)["delete"], 2, "{planned}");
    for object in [&map("goes"), &secret] {
        let entry = action(&planned, object);
        assert_eq!((&entry["action"], &entry["dry_run"]), (&json!("delete"), &json!("accepted")));
    }
    let second = pair.apply().expect(0).json()["operation"].as_str().expect("an id").to_owned();
    assert!(pair.mirror.api.find(&object_path(&map("goes"))).await.is_none());
    assert!(pair.mirror.api.find(&object_path(&secret)).await.is_none());
    pair.run(&format!("verify --skip-readiness {second}")).expect(0);

    let undone = pair.operation(&format!("rollback {second} --yes")).expect(3);
    says(&undone.err, &["secrets/shop/keys", "its content is not recorded"]);
    pair.operation(&format!("rollback {second} --yes --give-up secrets/shop/keys")).expect(0);
    let again = pair.mirror.api.get(&object_path(&map("goes"))).await;
    assert_eq!(again["data"], map("goes")["data"]);
    assert_eq!(
        action(&pair.plan(""), &map("goes"))["action"],
        "delete",
        "the new object belongs to netsurgeon"
    );

    let listed = pair.operation("list -o json").expect(0).json();
    let operations = listed["operations"].as_array().expect("operations");
    let ids: Vec<&str> = operations.iter().map(|one| one["operation"].as_str().expect("an id")).collect();
    let first = ids.iter().find(|id| **id != second).expect("the first operation");
    pair.run(&format!("teardown {first} --yes")).expect(0);
    for id in ids {
        pair.operation(&format!("forget {id} --yes")).expect(0);
    }
    assert_eq!(pair.mirror.api.get(&object_path(&theirs)).await, theirs);
    assert_eq!(stored(&pair.mirror).await, before);
}

/// A teardown waits until an object is gone. It names a finalizer that no controller removes, and can be repeated afterwards.
#[tokio::test]
async fn finalizer_that_keeps_an_object_is_named() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
        api.create(&definition()).await;
        serves_widgets(api).await;
    }
    let of_source = pair.source.api.create(&widget("one", &["example.com/source"])).await;
    pair.plan("");
    pair.apply().expect(0);
    let path = object_path(&of_source);
    let copy = pair.mirror.api.get(&path).await;
    assert!(copy["metadata"]["finalizers"].is_null(), "a finalizer is not copied: {copy}");
    pair.mirror.api.merge(&path, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    says(&pair.run("teardown --yes").expect(3).err, &["widgets.example.com/shop/one", "example.com/hold"]);
    pair.mirror.api.merge(&path, &json!({"metadata": {"finalizers": null}})).await;
    pair.run("teardown --yes").expect(0);
    assert!(pair.mirror.api.find(&path).await.is_none());
    assert!(
        pair.mirror
            .api
            .find("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
            .await
            .is_some()
    );
}
