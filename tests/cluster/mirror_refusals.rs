//! What the mirror's API server refuses, one object of each kind of refusal: it is named with the reason and with what helps, and all
//! other objects are copied. Then an operator does what the message says, and a new plan copies the rest.

use serde_json::{Value, json};

use super::mirror::refuse;
use super::mirror_objects::{definition, serves_widgets, widget};
use super::mirror_pair::{NAMESPACE, PATIENCE, Pair, action, actions, config_map, object, stored};
use super::rig::api::{Api, object_path};
use super::rig::process::wait_until;
use super::rig::run::{Run, has_line, run, says};

/// A value that only the Secret of both clusters may contain.
const CANARY: &str = "canary-of-the-secret";

fn cron_job(name: &str) -> Value {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}});
    let spec = json!({"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": pod}}});
    object("batch/v1", "CronJob", name, &json!({"spec": spec}))
}

fn network_policy(name: &str) -> Value {
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
    object("networking.k8s.io/v1", "NetworkPolicy", name, &json!({"spec": spec}))
}

/// The definition of a kind whose versions a webhook converts.
fn converted_definition() -> Value {
    let mut found = definition();
    found["metadata"]["name"] = json!("gadgets.example.com");
    found["spec"]["names"] =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"});
    let client = json!({"url": "https://127.0.0.1:1/convert"});
    found["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
    found
}

/// A quota that counts CronJobs. Its controller does not run, so its status is written here.
async fn limit_cron_jobs(api: &Api, most: &str) {
    let quota =
        object("v1", "ResourceQuota", "few", &json!({"spec": {"hard": {"count/cronjobs.batch": most}}}));
    api.apply(&quota).await;
    let status =
        json!({"status": {"hard": {"count/cronjobs.batch": most}, "used": {"count/cronjobs.batch": "0"}}});
    api.merge(&format!("{}/status", object_path(&quota)), &status).await;
}

/// A webhook without a server, for NetworkPolicies and one Secret.
fn broken_webhook() -> Value {
    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]});
    let is_named = json!({"name": "named", "expression": "object.metadata.name == 'hooked'"});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "broken"},
        "webhooks": [{
            "name": "broken.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Fail",
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "matchConditions": [is_named],
            "rules": [rule("networking.k8s.io", "networkpolicies"), rule("", "secrets")],
        }],
    })
}

/// The objects that the mirror's API server refuses, each with words of the reason and of what helps.
const REFUSED: [(&str, &[&str]); 7] = [
    (
        "customresourcedefinitions.apiextensions.k8s.io/widgets.example.com",
        &[
            "ValidatingAdmissionPolicy 'refuse-customresourcedefinitions'",
            "no copies of this name",
            "exempt the user",
        ],
    ),
    ("configmaps/shop/denied", &["ValidatingAdmissionPolicy 'refuse-configmaps'", "exempt the user"]),
    ("configmaps/shop/grows", &["may not be more than 1048576 bytes", "change the copy with a rule"]),
    (
        "secrets/shop/hooked",
        &["the webhook `broken.example.com` does not answer", "start the server of this webhook"],
    ),
    (
        "networkpolicies.networking.k8s.io/shop/hooked",
        &[
            "failed calling webhook \"broken.example.com\"",
            "connection refused",
            "start the server of this webhook",
        ],
    ),
    ("cronjobs.batch/shop/", &["exceeded quota: few", "raise this quota"]),
    ("widgets.example.com/shop/one", &["does not exist", "install its CustomResourceDefinition"]),
];

/// Creates the objects of the source, and what refuses their copies in the mirror.
async fn prepare(pair: &Pair) {
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    for object in [definition(), converted_definition()] {
        pair.source.api.create(&object).await;
    }
    serves_widgets(&pair.source.api).await;
    let mut gadget = widget("two", &[]);
    gadget["kind"] = json!("Gadget");
    pair.create(&[
        config_map("fine", "1"),
        config_map("denied", "1"),
        config_map("taken", "source"),
        config_map("grows", &"x".repeat(600 << 10)),
        frozen("1"),
        bound("view"),
        object("v1", "Secret", "hooked", &json!({"stringData": {"a": CANARY}})),
        network_policy("hooked"),
        network_policy("fine"),
        cron_job("one"),
        cron_job("two"),
        widget("one", &[]),
        gadget,
    ])
    .await;
    pair.mirror.api.create(&config_map("taken", "theirs")).await;
    limit_cron_jobs(&pair.mirror.api, "1").await;
    pair.mirror.api.create(&broken_webhook()).await;
    refuse(&pair.mirror.api, "configmaps", "denied").await;
    refuse(&pair.mirror.api, "customresourcedefinitions", "widgets.example.com").await;
}

fn frozen(value: &str) -> Value {
    object("v1", "ConfigMap", "frozen", &json!({"immutable": true, "data": {"a": value}}))
}

fn bound(role: &str) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let rest = json!({"roleRef": role, "subjects": []});
    object("rbac.authorization.k8s.io/v1", "RoleBinding", "bound", &rest)
}

/// Returns the objects that an apply skipped.
fn skipped(run: &Run) -> Vec<String> {
    let shown = run.json();
    let skipped = shown["skipped"].as_array().expect("a list");
    let step =
        |one: &Value| one["step"].as_str().expect("a step").split_once('/').expect("a verb").1.to_owned();
    let mut found: Vec<String> = skipped.iter().map(step).collect();
    found.sort();
    found
}

/// Returns the command of a note, as an operator pastes it.
fn pasted(pair: &Pair, text: &str, start: &str) -> String {
    let line =
        text.lines().find(|line| line.contains(start)).unwrap_or_else(|| panic!("no `{start}`: {text}"));
    let command = line.split('`').find(|part| part.starts_with("netsurgeon ")).expect("a command");
    let mirror = format!("--mirror-kubeconfig {}", pair.mirror.kubeconfig().display());
    command
        .trim_start_matches("netsurgeon ")
        .replace("--mirror-context NAME", &mirror)
        .replace("plan.json", &pair.plan)
}

#[tokio::test]
async fn each_refusal_is_named_with_what_helps() {
    let pair = Pair::start(false).await;
    prepare(&pair).await;
    let before = stored(&pair.mirror).await;
    let rule = format!("namespaces: [{NAMESPACE}]\ntext:\n- {{kinds: [ConfigMap], from: x, to: xx}}\n");
    let config = pair.workspace.write("mirror.yaml", rule);
    let planned =
        pair.run(&format!("plan --config {} --save {} -o json", config.display(), pair.plan)).expect(0);
    let plan = planned.json();
    assert_eq!(action(&plan, &config_map("taken", ""))["reason"], "exists");
    let gadgets = plan["objects"].as_array().expect("objects").iter().filter(|one| one["kind"] == "Gadget");
    assert_eq!(gadgets.map(|one| &one["reason"]).collect::<Vec<_>>(), ["not-served"]);
    let table = pair.run(&format!("plan --config {}", config.display())).expect(0);
    // A dry run cannot know the quota and the missing kind.
    for (_, words) in &REFUSED[..5] {
        says(&table.out, words);
    }

    let applied = pair.apply().expect(3);
    assert_eq!(skipped(&applied).len(), REFUSED.len(), "{}", applied.err);
    for (subject, words) in REFUSED {
        says(&applied.err, &[&[subject], words].concat());
    }
    for text in [&planned.out, &table.out, &applied.out, &applied.err] {
        assert!(!text.contains(CANARY), "{text}");
    }
    pasted(&pair, &applied.err, "to copy the skipped objects");
    for fine in [config_map("fine", ""), network_policy("fine"), frozen(""), bound("")] {
        assert!(pair.mirror.api.find(&object_path(&fine)).await.is_some(), "{fine}");
    }
    what_helps_is_done(&pair).await;
    fields_that_never_change_are_named(&pair).await;
    everything_is_removed(&pair);
    let after = stored(&pair.mirror).await;
    let left: Vec<_> = after.keys().filter(|key| !before.contains_key(*key)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The operator does what the messages say. The pasted command copies the rest.
async fn what_helps_is_done(pair: &Pair) {
    let api = &pair.mirror.api;
    for kind in [
        "validatingadmissionpolicybindings/refuse-configmaps",
        "validatingwebhookconfigurations/broken",
        "validatingadmissionpolicybindings/refuse-customresourcedefinitions",
    ] {
        api.delete(&format!("/apis/admissionregistration.k8s.io/v1/{kind}")).await;
    }
    limit_cron_jobs(api, "5").await;
    api.delete(&object_path(&config_map("taken", ""))).await;
    wait_until("nothing refuses the objects", PATIENCE, async || {
        let planned = pair.plan("");
        let refused =
            planned["objects"].as_array().expect("objects").iter().find(|one| one["dry_run"] == "refused");
        refused.map_or(Ok(()), |one| Err(one.to_string()))
    })
    .await;
    pair.apply().expect(0);
    let planned = pair.plan("");
    assert_eq!(actions(&planned).keys().collect::<Vec<_>>(), ["left-out", "same"], "{planned}");
}

/// The source replaces objects, and their copies have fields that never change. Without these copies, a new plan creates them.
async fn fields_that_never_change_are_named(pair: &Pair) {
    for object in [frozen("2"), bound("edit")] {
        pair.source.api.delete(&object_path(&object)).await;
        pair.source.api.create(&object).await;
    }
    pair.source.api.merge(&object_path(&config_map("fine", "")), &json!({"data": {"a": "2"}})).await;
    let planned = pair.plan("");
    for object in [frozen(""), bound("")] {
        let entry = action(&planned, &object);
        assert_eq!((&entry["action"], &entry["dry_run"]), (&json!("update"), &json!("refused")), "{entry}");
    }
    let applied = pair.apply().expect(3);
    let subjects = ["configmaps/shop/frozen", "rolebindings.rbac.authorization.k8s.io/shop/bound"];
    assert_eq!(skipped(&applied), subjects);
    says(&applied.err, &[subjects[0], "immutable", "delete the copy in the mirror"]);
    says(&applied.err, &[subjects[1], "roleRef", "field is immutable", "delete the copy in the mirror"]);
    assert_eq!(pair.mirror.api.get(&object_path(&config_map("fine", ""))).await["data"]["a"], "2");
    for object in [frozen(""), bound("")] {
        pair.mirror.api.delete(&object_path(&object)).await;
    }
    let words = pasted(pair, &applied.err, "to copy the skipped objects");
    run(&words, pair.command(&words)).expect(0);
    pair.apply().expect(0);
    assert_eq!(pair.mirror.api.get(&object_path(&frozen(""))).await["data"]["a"], "2");
}

/// Tears every operation down, the newest first, with the command that each run prints.
fn everything_is_removed(pair: &Pair) {
    let listed = pair.operation("list -o json").expect(0).json();
    let mut ids: Vec<String> = listed["operations"]
        .as_array()
        .expect("operations")
        .iter()
        .map(|one| one["operation"].as_str().expect("an id").to_owned())
        .collect();
    ids.sort_by_key(|id| {
        let one =
            listed["operations"].as_array().expect("operations").iter().find(|one| one["operation"] == **id);
        one.and_then(|one| one["started"].as_u64())
    });
    for id in ids.iter().rev() {
        pair.run(&format!("teardown {id} --yes")).expect(0);
    }
    for id in ids {
        pair.operation(&format!("forget {id} --yes")).expect(0);
    }
}

/// The namespace is deleted in the mirror after the plan.
#[tokio::test]
async fn namespace_that_is_being_deleted_gets_no_copies() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
        api.create_namespace("pay").await;
    }
    let mut other = config_map("other", "1");
    other["metadata"]["namespace"] = json!("pay");
    pair.create(&[config_map("a", "1"), network_policy("a"), other.clone()]).await;
    let words = format!("plan -n {NAMESPACE},pay --save {} -o json", pair.plan);
    pair.run(&words).expect(0);
    // No controller completes the deletion.
    pair.mirror.api.delete(&format!("/api/v1/namespaces/{NAMESPACE}")).await;
    let applied = pair.apply().expect(3);
    assert_eq!(skipped(&applied), ["configmaps/shop/a", "networkpolicies.networking.k8s.io/shop/a"]);
    for subject in skipped(&applied) {
        says(
            &applied.err,
            &[&subject, "because it is being terminated", "wait until the mirror has deleted"],
        );
    }
    assert!(pair.mirror.api.find(&object_path(&other)).await.is_some());
    let planned = pair.run(&words).expect(0).json();
    for object in [config_map("a", ""), network_policy("a")] {
        let entry = action(&planned, &object);
        let found = (&entry["action"], &entry["reason"]);
        assert_eq!(found, (&json!("conflict"), &json!("namespace-terminating")), "{entry}");
    }
    // The command that the message prints plans the rest, after the end of the deletion.
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    let mut namespace = pair.mirror.api.get(&path).await;
    namespace["spec"]["finalizers"] = json!([]);
    let request = (http::Method::PUT, format!("{path}/finalize"));
    pair.mirror
        .api
        .request(request.0, &request.1, "application/json", Some(&namespace))
        .await
        .expect("it is gone");
    let words = pasted(&pair, &applied.err, "to copy the skipped objects");
    run(&words, pair.command(&words)).expect(0);
    pair.apply().expect(0);
    assert!(pair.mirror.api.find(&object_path(&config_map("a", ""))).await.is_some());
}

/// Many copies are counted by one quota at the same time. The API server answers some requests with a conflict, which is no refusal.
#[tokio::test(flavor = "multi_thread")]
async fn copies_that_compete_for_a_quota_arrive() {
    let pair = Pair::start(false).await;
    for api in [&pair.source.api, &pair.mirror.api] {
        api.create_namespace(NAMESPACE).await;
    }
    let maps: Vec<Value> = (0..150).map(|number| config_map(&format!("map-{number:03}"), "1")).collect();
    pair.create(&maps).await;
    let quota = object("v1", "ResourceQuota", "many", &json!({"spec": {"hard": {"configmaps": "500"}}}));
    pair.mirror.api.create(&quota).await;
    let status = json!({"status": {"hard": {"configmaps": "500"}, "used": {"configmaps": "0"}}});
    pair.mirror.api.merge(&format!("{}/status", object_path(&quota)), &status).await;
    pair.plan("");
    // Other clients of the quota, for as long as some retries last.
    let touches = (0..4).map(|number| {
        let (api, path) = (pair.mirror.api.clone(), object_path(&quota));
        tokio::spawn(async move {
            for round in 0..100 {
                api.merge(
                    &path,
                    &json!({"metadata": {"labels": {format!("client-{number}"): format!("{round}")}}}),
                )
                .await;
            }
        })
    });
    let touches: Vec<_> = touches.collect();
    let words = format!("apply --plan {} --yes --parallel 64 -vv", pair.plan);
    let applied = tokio::task::block_in_place(|| pair.run(&words)).expect(0);
    for touch in touches {
        touch.await.expect("the quota is changed");
    }
    assert!(has_line(&applied.err, &["retrying", "resourcequotas"]), "no request competed");
    let used = pair.mirror.api.get(&object_path(&quota)).await["status"]["used"]["configmaps"].clone();
    assert_eq!(used, "150");
}
