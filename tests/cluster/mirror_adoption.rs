//! Objects that other clients created in the mirror: `--existing adopt` changes the fields that differ, and a teardown restores the
//! values and their managers. Namespaces and the ServiceAccount `default` are always adopted.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::mirror_pair::{PATIENCE, Pair, account_exists, object_in};
use super::rig::process::wait_until;
use super::rig::run::says;

fn object(namespace: &str, kind: &str, name: &str, rest: &Value) -> Value {
    object_in(namespace, "v1", kind, name, rest)
}

const SETTINGS: &str = "/api/v1/namespaces/shop/configmaps/settings";

fn account(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts/default")
}

/// What a teardown must restore of an object.
async fn content(pair: &Pair, path: &str) -> Value {
    let mut object = pair.mirror.api.get(path).await;
    object["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    object
}

async fn prepare(pair: &Pair) {
    let api = &pair.source.api;
    for namespace in ["shop", "pay"] {
        api.create_namespace(namespace).await;
        let change =
            json!({"imagePullSecrets": [{"name": "regcred"}], "metadata": {"annotations": {"role": "web"}}});
        api.merge(&account_exists(api, namespace).await, &change).await;
    }
    api.merge("/api/v1/namespaces/shop", &json!({"metadata": {"labels": {"team": "shop", "tier": "front"}}}))
        .await;
    let token = json!({"type": "kubernetes.io/service-account-token",
        "metadata": {"namespace": "shop", "name": "pipeline", "annotations": {"kubernetes.io/service-account.name": "default"}}});
    let metadata =
        json!({"namespace": "shop", "name": "by-hand", "labels": {"kubernetes.io/service-name": "database"}});
    let fields =
        json!({"metadata": metadata, "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.9"]}]});
    let slice = object_in("shop", "discovery.k8s.io/v1", "EndpointSlice", "by-hand", &fields);
    pair.create(&[
        object("shop", "Service", "database", &json!({"spec": {"ports": [{"port": 5432}]}})),
        slice,
        object(
            "shop",
            "ConfigMap",
            "settings",
            &json!({"data": {"a": "source", "b": "same", "new": "source"}}),
        ),
        object("shop", "Secret", "keys", &json!({"stringData": {"a": "source"}})),
        object("shop", "Secret", "pipeline", &token),
    ])
    .await;
    let api = &pair.mirror.api;
    api.create_namespace("shop").await;
    account_exists(api, "shop").await;
    api.merge("/api/v1/namespaces/shop", &json!({"metadata": {"labels": {"team": "other"}}})).await;
    let theirs = json!({"data": {"a": "mirror", "b": "same", "own": "mirror"}});
    api.create(&object("shop", "ConfigMap", "settings", &theirs)).await;
    api.create(&object("shop", "Secret", "keys", &json!({"stringData": {"a": "mirror"}}))).await;
}

/// The action and the code of the reason of each object.
fn actions(plan: &Value) -> BTreeMap<String, (String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |entry: &Value| {
        let namespace =
            entry["namespace"].as_str().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let object = format!("{} {namespace}{}", text(&entry["kind"]), text(&entry["name"]));
        (object, (text(&entry["action"]), text(&entry["reason"])))
    };
    plan["objects"].as_array().expect("objects").iter().map(of).collect()
}

fn plan(pair: &Pair, words: &str) -> Value {
    pair.run(&format!("plan -n shop,pay --save {} -o json {words}", pair.plan)).expect(0).json()
}

#[tokio::test]
async fn adopted_objects_are_restored_with_their_managers() {
    let pair = Pair::start(true).await;
    prepare(&pair).await;
    let paths = ["/api/v1/namespaces/shop".to_string(), account("shop"), SETTINGS.to_string()];
    let mut before = Vec::new();
    for path in &paths {
        before.push(content(&pair, path).await);
    }
    let planned = actions(&plan(&pair, ""));
    assert_eq!(planned["ConfigMap shop/settings"], ("conflict".to_string(), "exists".to_string()));
    assert_eq!(planned["Namespace shop"].0, "adopt");

    let planned = plan(&pair, "--existing adopt");
    let found = actions(&planned);
    for (object, action, reason) in [
        ("Namespace shop", "adopt", ""),
        ("Namespace pay", "create", ""),
        ("ServiceAccount shop/default", "adopt", ""),
        ("ServiceAccount pay/default", "adopt", ""),
        ("ConfigMap shop/settings", "adopt", ""),
        ("Secret shop/keys", "conflict", "foreign-secret"),
        ("Secret shop/pipeline", "create", ""),
        ("EndpointSlice shop/by-hand", "create", ""),
    ] {
        assert_eq!(found[object], (action.to_string(), reason.to_string()), "{object}: {planned}");
    }
    pair.apply().expect(0);
    let settings = content(&pair, SETTINGS).await;
    assert_eq!(settings["data"], json!({"a": "source", "b": "same", "own": "mirror", "new": "source"}));
    let labels = content(&pair, "/api/v1/namespaces/shop").await["metadata"]["labels"].clone();
    assert_eq!((&labels["team"], &labels["tier"]), (&json!("shop"), &json!("front")));
    for namespace in ["shop", "pay"] {
        let found = content(&pair, &account(namespace)).await;
        assert_eq!(found["imagePullSecrets"], json!([{"name": "regcred"}]), "{namespace}");
    }
    let of_token = "/api/v1/namespaces/shop/secrets/pipeline";
    wait_until("the mirror makes a token of its own", PATIENCE, async || {
        let found = pair.mirror.api.get(of_token).await["data"]["token"].clone();
        if found.is_string() { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    assert_ne!(pair.mirror.api.get(of_token).await["data"], pair.source.api.get(of_token).await["data"]);
    let again = plan(&pair, "--existing adopt");
    let changes =
        actions(&again).into_iter().filter(|(_, (action, _))| action != "same" && action != "conflict");
    let changes: Vec<_> = changes.filter(|(_, (action, _))| action != "left-out").collect();
    assert!(changes.is_empty(), "nothing changes again: {changes:?}");
    pair.run("verify").expect(0);

    pair.run("teardown --yes").expect(0);
    for (path, before) in paths.iter().zip(&before) {
        assert_eq!(content(&pair, path).await, *before, "{path}");
    }
    assert_eq!(pair.mirror.api.find("/api/v1/namespaces/pay").await, None);
    value_of_another_client_stays(&pair).await;
}

async fn value_of_another_client_stays(pair: &Pair) {
    plan(pair, "--existing adopt");
    pair.apply().expect(0);
    pair.mirror.api.merge(SETTINGS, &json!({"data": {"a": "edited"}})).await;
    let teardown = pair.run("teardown --yes").expect(3);
    says(&teardown.err, &["configmaps/shop/settings", "another client has changed these fields: data.a"]);
    let found = content(pair, SETTINGS).await;
    assert_eq!(found["data"], json!({"a": "edited", "b": "same", "own": "mirror"}));
}
