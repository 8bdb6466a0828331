//! `netsurgeon mirror` on two real clusters of different versions: plan, apply, verify, a second plan, teardown; and obstacles.

use std::time::Duration;

use netsurgeon::kube_api::{ClusterError, FieldApply, Replaces};
use serde_json::{Value, json};

use super::ledger::connect;
use super::mirror_pair::{
    NAMESPACE, PATIENCE, Pair, account_exists, action, actions, config_map, object, stored,
};
use super::rig::api::{Api, collection_path, object_path};
use super::rig::process::wait_until;
use super::rig::run::{run, says};

/// A value that only the Secret of both clusters may contain.
const CANARY: &str = "canary-of-the-secret";
/// The same in base64.
const ENCODED: &str = "Y2FuYXJ5LW9mLXRoZS1zZWNyZXQ=";

fn template(app: &str) -> Value {
    let container =
        json!({"name": "main", "image": "registry.example.com/web:1", "env": [{"name": "A", "value": "1"}]});
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], "serviceAccountName": "web"}})
}

fn deployment(name: &str) -> Value {
    let mut found = object(
        "apps/v1",
        "Deployment",
        name,
        &json!({"spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template(name)}}),
    );
    found["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration": format!("{{\"x\": \"{CANARY}\"}}"), "team": "web",
    });
    found
}

/// The objects that are copied.
pub fn declared() -> Vec<Value> {
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}});
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let rule = json!({"host": "www.example.com", "http": {"paths": [path]}});
    vec![
        object("v1", "ServiceAccount", "web", &json!({"imagePullSecrets": [{"name": "keys"}]})),
        object(
            "rbac.authorization.k8s.io/v1",
            "Role",
            "reader",
            &json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}),
        ),
        object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "reader",
            &json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
                    "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": NAMESPACE}]}),
        ),
        // Characters that a YAML parser changes or refuses.
        config_map("settings", "x\u{85}y \u{2028} z\u{7f} é😀"),
        object("v1", "Secret", "keys", &json!({"type": "Opaque", "stringData": {"password": CANARY}})),
        object(
            "v1",
            "Service",
            "web",
            &json!({"spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        ),
        object(
            "v1",
            "Service",
            "headless",
            &json!({"spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        ),
        deployment("web"),
        object(
            "batch/v1",
            "CronJob",
            "nightly",
            &json!({"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}}}),
        ),
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "web",
            &json!({"spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": []}}),
        ),
        object("networking.k8s.io/v1", "Ingress", "web", &json!({"spec": {"rules": [rule]}})),
        object(
            "policy/v1",
            "PodDisruptionBudget",
            "web",
            &json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}),
        ),
    ]
}

/// The objects that are left out, each with the code of the reason.
fn left_out() -> Vec<(Value, &'static str)> {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let mut lock = config_map("leader", "x");
    lock["metadata"]["annotations"] = json!({"control-plane.alpha.kubernetes.io/leader": "{}"});
    vec![
        (deployment("worker"), "no-service"),
        (
            object("batch/v1", "Job", "once", &json!({"spec": {"template": {"spec": pod.clone()}}})),
            "unfinished-job",
        ),
        (object("v1", "PersistentVolumeClaim", "data", &json!({"spec": claim})), "kind-not-copied"),
        (object("v1", "Pod", "bare", &json!({"spec": pod})), "bare-pod"),
        (lock, "leader-lock"),
    ]
}

/// Fails if a text contains the value of the Secret.
#[track_caller]
fn is_clean(text: &str) {
    assert!(!text.contains(CANARY) && !text.contains(ENCODED), "the value of the Secret is in: {text}");
}

#[tokio::test]
async fn namespace_is_copied_verified_and_removed() {
    let pair = Pair::start(true).await;
    pair.source.api.create_namespace(NAMESPACE).await;
    account_exists(&pair.source.api, NAMESPACE).await;
    pair.create(&declared()).await;
    for (object, _) in left_out() {
        pair.source.api.create(&object).await;
    }
    let before = stored(&pair.mirror).await;

    let planned = pair.plan("-vv");
    for object in declared() {
        let entry = action(&planned, &object);
        assert_eq!((&entry["action"], &entry["dry_run"]), (&json!("create"), &json!("unchecked")), "{entry}");
    }
    for (object, code) in left_out() {
        let entry = action(&planned, &object);
        assert_eq!((&entry["action"], &entry["reason"]), (&json!("left-out"), &json!(code)), "{entry}");
    }
    assert_eq!(stored(&pair.mirror).await, before, "a plan writes nothing");

    let applied = pair.run(&format!("apply --plan {} --yes -o json -vv", pair.plan)).expect(0);
    let operation = applied.json()["operation"].as_str().expect("an id").to_owned();
    let verified = pair.run("verify --skip-readiness -o json -vv").expect(0);
    assert_eq!(verified.json()["equal"].as_u64(), Some(declared().len() as u64 + 1));
    copies_are_right(&pair).await;
    let shown = pair.operation(&format!("show {operation} -o json")).expect(0);
    let report = pair.workspace.join("report.html");
    pair.operation(&format!("report {operation} --html {}", report.display())).expect(0);

    // No Secret data is in the plan, in any output, in the records, or in the report.
    let records = pair.mirror.api.get("/api/v1/namespaces/netsurgeon/configmaps").await.to_string();
    let page = std::fs::read_to_string(&report).expect("a page");
    let file = std::fs::read_to_string(&pair.plan).expect("a plan");
    for text in [
        &planned.to_string(),
        &applied.out,
        &applied.err,
        &verified.out,
        &verified.err,
        &shown.out,
        &records,
        &page,
        &file,
    ] {
        is_clean(text);
    }
    let secret = pair.mirror.api.get("/api/v1/namespaces/shop/secrets/keys").await;
    assert_eq!(secret["data"]["password"], ENCODED, "the search for the value can find it");

    nothing_changed_and_changes_are_updated(&pair).await;
    pair.run(&format!("teardown {operation} --yes")).expect(0);
    pair.operation(&format!("forget {operation} --yes")).expect(0);
    pair.mirror_is(&before).await;
}

/// Checks the content of copies.
async fn copies_are_right(pair: &Pair) {
    let at = |path: &str| format!("/{path}");
    let nightly = pair.mirror.api.get(&at("apis/batch/v1/namespaces/shop/cronjobs/nightly")).await;
    assert_eq!(nightly["spec"]["suspend"], true);
    assert_eq!(nightly["metadata"]["annotations"]["mirror.netsurgeon.io/suspend"], "false");
    let settings = pair.mirror.api.get(&at("api/v1/namespaces/shop/configmaps/settings")).await;
    assert_eq!(settings["data"]["a"], "x\u{85}y \u{2028} z\u{7f} é😀");
    let web = pair.mirror.api.get(&at("apis/apps/v1/namespaces/shop/deployments/web")).await;
    assert_eq!(
        (&web["metadata"]["annotations"], &web["spec"]["replicas"]),
        (&json!({"team": "web"}), &json!(2))
    );
    let headless = pair.mirror.api.get(&at("api/v1/namespaces/shop/services/headless")).await;
    assert_eq!(headless["spec"]["clusterIP"], "None");
    for path in ["apis/apps/v1/namespaces/shop/deployments/worker", "apis/batch/v1/namespaces/shop/jobs/once"]
    {
        assert!(pair.mirror.api.find(&at(path)).await.is_none(), "{path}");
    }
    // A CronJob that is active in the mirror is found.
    let path = at("apis/batch/v1/namespaces/shop/cronjobs/nightly");
    pair.mirror.api.merge(&path, &json!({"spec": {"suspend": false}})).await;
    says(&pair.run("verify --skip-readiness").expect(3).out, &["CronJob shop/nightly", "active"]);
    pair.mirror.api.merge(&path, &json!({"spec": {"suspend": true}})).await;
    pair.run("verify --skip-readiness").expect(0);
}

/// Plans again without a change, then after changes of the source: a new value, and a field that is removed. The rollback of the
/// update restores the values.
async fn nothing_changed_and_changes_are_updated(pair: &Pair) {
    let again = pair.plan("");
    assert_eq!(actions(&again).keys().collect::<Vec<_>>(), ["left-out", "same"], "{again}");
    let revision = stored(&pair.mirror).await;
    assert_eq!(pair.apply().expect(0).json()["operation"], Value::Null);
    assert_eq!(stored(&pair.mirror).await, revision, "an apply without a change writes nothing");

    pair.source
        .api
        .merge("/api/v1/namespaces/shop/configmaps/settings", &json!({"data": {"a": null, "b": "new"}}))
        .await;
    let settings = config_map("settings", "");
    let changed = pair.plan("");
    let entry = action(&changed, &settings);
    assert_eq!(
        (&entry["action"], &entry["fields"]),
        (&json!("update"), &json!(["data.b", "data.a"])),
        "{entry}"
    );
    let applied = pair.apply().expect(0);
    let operation = applied.json()["operation"].as_str().expect("an id").to_owned();
    let path = object_path(&settings);
    assert_eq!(pair.mirror.api.get(&path).await["data"], json!({"b": "new"}));
    pair.operation(&format!("rollback {operation} --yes")).expect(0);
    assert_eq!(pair.mirror.api.get(&path).await["data"], json!({"a": "x\u{85}y \u{2028} z\u{7f} é😀"}));
    pair.operation(&format!("forget {operation} --yes")).expect(0);
}

/// The mirror has a namespace, another object of a planned name, and a policy that refuses one object.
#[tokio::test]
async fn obstacle_stops_only_its_object() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let names = ["fine", "refused", "taken", "late"];
    pair.create(&names.map(|name| config_map(name, "source"))).await;
    let taken = pair.mirror.api.create(&config_map("taken", "theirs")).await;
    refuse(&pair.mirror.api, "configmaps", "refused").await;

    creation_is_exclusive(&pair).await;
    let own = pair.run("plan -n kube-system").expect(1);
    says(&own.err, &["kube-system", "belongs to its cluster"]);
    let planned = pair.plan("");
    let of = |name: &str| action(&planned, &config_map(name, "")).clone();
    assert_eq!((&of("fine")["action"], &of("fine")["dry_run"]), (&json!("create"), &json!("accepted")));
    assert_eq!((&of("refused")["action"], &of("refused")["dry_run"]), (&json!("create"), &json!("refused")));
    assert!(of("refused")["detail"].as_str().expect("a reason").contains("no copies of this name"));
    assert_eq!((&of("taken")["action"], &of("taken")["reason"]), (&json!("conflict"), &json!("exists")));

    // Another client creates an object after the plan.
    let late = pair.mirror.api.create(&config_map("late", "theirs")).await;
    let applied = pair.apply().expect(3);
    let skipped = applied.json()["skipped"].clone();
    let steps: Vec<&str> =
        skipped.as_array().expect("a list").iter().map(|one| one["step"].as_str().expect("a step")).collect();
    assert_eq!(steps, ["copy/configmaps/shop/late", "copy/configmaps/shop/refused"], "{skipped}");
    says(&applied.err, &["refused", "no copies of this name"]);
    assert_eq!(
        pair.mirror.api.get(&object_path(&config_map("fine", ""))).await["data"],
        json!({"a": "source"})
    );
    let operation = applied.json()["operation"].as_str().expect("an id").to_owned();

    // Another client replaces a copy: the teardown does not delete it.
    pair.mirror.api.delete(&object_path(&config_map("fine", ""))).await;
    let fine = pair.mirror.api.create(&config_map("fine", "theirs")).await;
    let removed = pair.run(&format!("teardown {operation} --yes")).expect(3);
    says(&removed.err, &["configmaps/shop/fine", "another client"]);
    // The operation ends without the object only if the operator says so.
    says(&removed.err, &[&format!("mirror teardown {operation} --give-up configmaps/shop/fine")]);
    pair.operation(&format!("rollback {operation} --yes --give-up configmaps/shop/other")).expect(2);
    pair.operation(&format!("rollback {operation} --yes --give-up configmaps/shop/fine")).expect(0);
    pair.operation(&format!("forget {operation} --yes")).expect(0);
    for object in [taken, late, fine] {
        assert_eq!(pair.mirror.api.get(&object_path(&object)).await, object, "it is untouched");
    }
    let same = format!("plan -n {NAMESPACE} --mirror-kubeconfig {}", pair.source.kubeconfig().display());
    let words = format!("mirror {same}");
    says(&run(&words, pair.command(&words)).expect(1).err, &["same cluster"]);
}

/// An apply that creates changes no object that exists, whether its content is equal or not.
async fn creation_is_exclusive(pair: &Pair) {
    let text = std::fs::read_to_string(pair.mirror.kubeconfig()).expect("a kubeconfig");
    let api = connect(&pair.mirror, &text, "direct.conf", Duration::from_secs(10)).await;
    let options = FieldApply { manager: "test", replaces: Replaces::Nothing };
    let made = api.apply_fields(&config_map("race", "1"), options).await.expect("it does not exist yet");
    for value in ["1", "2"] {
        let refused = api.apply_fields(&config_map("race", value), options).await;
        assert!(matches!(refused, Err(ClusterError::Conflict { .. })), "{value}: {refused:?}");
    }
    let path = object_path(&made);
    assert_eq!(pair.mirror.api.get(&path).await, made);
    pair.mirror.api.delete(&path).await;
}

/// Creates a policy that refuses to create objects of a name, and waits until it is enforced.
pub async fn refuse(api: &Api, plural: &str, name: &str) {
    let rule =
        json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [plural]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": format!("refuse-{plural}")},
        "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
                 "validations": [{"expression": format!("!object.metadata.name.startsWith('{name}')"), "message": "no copies of this name"}]},
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("refuse-{plural}")},
        "spec": {"policyName": format!("refuse-{plural}"), "validationActions": ["Deny"]},
    });
    for object in [policy, binding] {
        api.create(&object).await;
    }
    wait_until("the policy is enforced", PATIENCE, async || {
        // Only the policy says this; the API server refuses this object for other reasons as well.
        let object = if plural == "configmaps" {
            config_map(name, "")
        } else {
            let mut definition = super::mirror_objects::definition();
            definition["metadata"]["name"] = json!(name);
            definition
        };
        let path = collection_path(&object);
        let path = format!("{path}?dryRun=All");
        match api.request(http::Method::POST, &path, "application/json", Some(&object)).await {
            Err(_) => Ok(()),
            Ok(_) => Err("it is not enforced".to_owned()),
        }
    })
    .await;
}
