//! A namespace whose Secrets are copied to a mirror, with success and with refusals. Only the Secrets of the mirror may contain
//! their values.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::stage::{Stage, Variables};
use super::{everyway, search_etcd};
use crate::rig::api::object_path;
use crate::rig::cert_manager::{certificate, install_definitions, issuer, remove_definitions};
use crate::rig::cluster::{Cluster, ClusterOptions, Era};

/// The Secrets of the namespace `default`, which the stage planted.
const SECRETS: [&str; 2] = ["/registry/secrets/default/sealed", "/registry/secrets/default/clear"];

/// Plans, copies, compares and removes. One Secret is refused: the mirror has another one of its name.
pub async fn there_and_back(stage: &mut Stage, ran: &mut BTreeSet<String>) {
    let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
    let mirror = Cluster::start(options).await;
    let theirs =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "clear"}});
    mirror.api.create(&theirs).await;
    let to = format!("--mirror-kubeconfig {}", mirror.kubeconfig().display());
    let saved = "--plan mirror.json";
    everyway(stage, ran, &format!("mirror plan -n default {to} --save mirror.json"));
    everyway(stage, ran, &format!("mirror apply {saved} {to} --yes"));
    everyway(stage, ran, &format!("mirror verify {saved} {to} --skip-readiness"));
    let on_mirror = format!("--kubeconfig {}", mirror.kubeconfig().display());
    let (_, listed, _) = stage.run(&format!("operation list -o json {on_mirror}"), &Variables::new());
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let mut operations = listed["operations"].as_array().expect("operations").iter();
    let copying = operations.find(|one| one["kind"] == "mirror").expect("the mirror operation");
    let operation = copying["operation"].as_str().expect("an id");
    everyway(stage, ran, &format!("operation show {operation} {on_mirror} "));
    everyway(stage, ran, &format!("operation report {operation} {on_mirror} --html mirror.html"));
    let copied = mirror.api.get("/api/v1/namespaces/default/secrets/sealed").await;
    assert!(copied["data"]["password"].is_string(), "the Secret is copied");
    search_etcd(stage, mirror.etcd.client().await, &SECRETS).await;
    everyway(stage, ran, &format!("mirror activate --yes {to}"));
    everyway(stage, ran, &format!("mirror deactivate --yes {to}"));
    everyway(stage, ran, &format!("mirror teardown --yes {to}"));
    search_etcd(stage, mirror.etcd.client().await, &[]).await;
}

/// Adds names to a Certificate whose Secret has a secret instead of a certificate. Without cert-manager, it is not issued.
pub async fn names_of_certificates(stage: &mut Stage, ran: &mut BTreeSet<String>) {
    let secret = stage.canaries.plant("the value `tls.crt` of a Secret");
    let api = &stage.cluster.api;
    install_definitions(api).await;
    let data = json!({"stringData": {"tls.crt": secret}});
    api.merge("/api/v1/namespaces/default/secrets/sealed", &data).await;
    let mut certificate = certificate("default", "web", "ca", &["www.example.com"]);
    certificate["spec"]["secretName"] = "sealed".into();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    for object in [issuer("default", "ca", &json!({"ca": {"secretName": "sealed"}})), certificate] {
        api.create(&object).await;
        api.merge(&format!("{}/status", object_path(&object)), &ready).await;
    }
    let rules = "namespaces: [default]\nhosts: [{suffix: example.com, add: green.example.com}]\n";
    let config = format!("--config {}", stage.give("sans.yaml", rules));
    everyway(stage, ran, &format!("mirror sans plan {config}"));
    let apply = format!("mirror sans apply {config} --wait-issued 1 --yes");
    let (code, _, said) = stage.run(&format!("{apply} -vvv"), &Variables::new());
    assert_eq!(code, 3, "{said}");
    ran.insert(apply);
    let (_, listed, _) = stage.run("operation list -o json", &Variables::new());
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let mut operations = listed["operations"].as_array().expect("operations").iter();
    let found = operations.find(|one| one["kind"] == "mirror-sans").expect("the operation");
    let id = found["operation"].as_str().expect("an id");
    for words in [format!("operation report {id} --html sans.html"), format!("operation forget {id} --yes")] {
        let (code, _, said) = stage.run(&format!("{words} -vvv"), &Variables::new());
        assert_eq!(code, 0, "{said}");
    }
    // The next test copies the namespace to a mirror without these kinds.
    remove_definitions(&stage.cluster.api).await;
}
