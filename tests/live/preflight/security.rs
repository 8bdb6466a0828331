//! A cluster without the care that production traffic needs, one fault after the other: zones, Secrets, permissions, logins,
//! images.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread;

use serde_json::{Value, json};

use super::{fails, verdict, warns};
use crate::rig::process::wait_until;
use crate::rig::run::says;
use crate::serving_cluster::{DEADLINE, Serving};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const GROUP: &str = "rbac.authorization.k8s.io";
/// The rules of the role `edit`, which a controller aggregates that does not run here.
const EDITOR: &str = "system:aggregate-to-edit";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Creates one fault after the other, and repairs it.
pub async fn each_in_turn(serving: &Serving) {
    with_a_zone(serving).await;
    with_a_secret(serving).await;
    with_powers(serving).await;
    with_a_login(serving);
    without_an_image(serving).await;
}

/// The one member of etcd is on a Node with a zone label.
async fn with_a_zone(serving: &Serving) {
    let api = &serving.cluster.api;
    let labels = json!({"topology.kubernetes.io/zone": "west-1"});
    let metadata = json!({"name": "etcd-host", "labels": labels});
    api.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).await;
    assert_eq!(verdict(serving, "zones", "")["verdict"], "pass", "the Node has no address yet");
    let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    api.merge(&format!("{NODES}/etcd-host/status"), &json!({"status": {"addresses": addresses}})).await;
    warns(serving, "zones", &["1 voting member", "1 in `west-1`"]);
    api.delete(&format!("{NODES}/etcd-host")).await;
}

async fn with_a_secret(serving: &Serving) {
    let api = &serving.cluster.api;
    let before = verdict(serving, "secrets-at-rest", "");
    assert_eq!(before["verdict"], "pass", "{before}");
    assert!(!before["observed"].as_str().unwrap().contains('1'), "there is no Secret: {before}");
    let metadata = json!({"name": "token", "namespace": "default"});
    api.create(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b"}}),
    )
    .await;
    warns(serving, "secrets-at-rest", &["1 of 1"]);
    api.delete(&format!("{SECRETS}/token")).await;
}

/// Groups that contain every client get permissions.
async fn with_powers(serving: &Serving) {
    let api = &serving.cluster.api;
    let bind = async |name: &str, group: &str| {
        let subject = json!({"apiGroup": GROUP, "kind": "Group", "name": group});
        api.create(&json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "subjects": [subject], "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": EDITOR},
        }))
        .await;
    };
    assert_eq!(verdict(serving, "authorization", "")["verdict"], "pass");
    // Each API server notices a binding a moment after its creation.
    let becomes = async |expected: &str| {
        wait_until("the binding is in force", DEADLINE, async || {
            let found = verdict(serving, "authorization", "");
            if found["verdict"] == expected { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    };
    bind("authenticated", "system:authenticated").await;
    becomes("warn").await;
    warns(
        serving,
        "authorization",
        &[
            "`system:serviceaccounts`",
            "create pods, get secrets, list secrets, patch services, update services",
        ],
    );
    bind("anonymous", "system:unauthenticated").await;
    becomes("fail").await;
    fails(serving, "authorization", &["`system:anonymous`", "create pods"]);
    for name in ["authenticated", "anonymous"] {
        api.delete(&format!("{BINDINGS}/{name}")).await;
    }
}

/// A server on a node answers as SSH servers do.
fn with_a_login(serving: &Serving) {
    let before = verdict(serving, "ssh", "");
    assert_eq!(before["verdict"], "pass", "{before}");
    says(before["observed"].as_str().unwrap(), &["0 of 2 hosts"]);
    let node = &serving.cluster.nodes[0];
    let address = node.address();
    let listener = node.namespace().within(move || TcpListener::bind((address, 22)).expect("a port"));
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection arrives");
        let _ = stream.write_all(b"who enters is recorded\r\nSSH-2.0-test\r\n");
    });
    warns(serving, "ssh", &["1 of 2 hosts", &format!("`node-1` ({address})")]);
    server.join().expect("the server has answered");
}

/// A Pod with pull Secrets that do not exist, and one whose image cannot be pulled.
async fn without_an_image(serving: &Serving) {
    let api = &serving.cluster.api;
    assert_eq!(verdict(serving, "images", "")["verdict"], "pass");
    let container = json!({"name": "web", "image": "registry.test/web:1"});
    let spec =
        json!({"nodeName": "node-1", "containers": [container], "imagePullSecrets": [{"name": "registry"}]});
    let metadata = json!({"name": "web-x", "namespace": "default"});
    api.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await;
    warns(serving, "images", &["`default/registry`", "`web-x`"]);
    let data = json!({".dockerconfigjson": "{\"auths\": {}}"});
    api.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry", "namespace": "default"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": data,
    }))
    .await;
    assert_eq!(verdict(serving, "images", "")["verdict"], "pass");
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff"}});
    let status: Value = json!({
        "name": "web", "image": "registry.test/web:1", "imageID": "", "ready": false, "restartCount": 0, "state": waiting,
    });
    api.merge(&format!("{PODS}/web-x/status"), &json!({"status": {"containerStatuses": [status]}})).await;
    warns(serving, "images", &["`default/web-x`", "`registry.test/web:1`", "ImagePullBackOff"]);
    api.delete(&format!("{PODS}/web-x?gracePeriodSeconds=0")).await;
    api.delete(&format!("{SECRETS}/registry")).await;
}
