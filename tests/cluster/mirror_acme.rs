//! `netsurgeon mirror sans` with certificates of an ACME issuer: cert-manager proves names by DNS-01 on a real name server, and Pebble issues.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::bind::{NameServer, key_file, zone_file};
use super::rig::cert_manager::{CertManager, certificate, install_definitions, issuer};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::namespace::Namespace;
use super::rig::pebble::Pebble;
use super::rig::process::wait_until;
use super::rig::run::{Run, run, says};
use super::rig::workspace::Workspace;

/// For each name, cert-manager waits a minute for DNS (`pkg/issuer/acme/dns/dns.go` of cert-manager).
const PATIENCE: Duration = Duration::from_mins(6);
const NAMESPACE: &str = "shop";
/// A key for changes of the zone: its name and its secret.
const KEY: (&str, &str) = ("acme", "dGhpcyBpcyBvbmx5IGEgdGVzdCBrZXk=");

/// Returns an issuer that proves names in the zone.
fn acme(directory: &str) -> Value {
    let solver = json!({"dns01": {"rfc2136": {
        "nameserver": "127.0.0.1:53", "tsigKeyName": KEY.0, "tsigAlgorithm": "HMACSHA256",
        "tsigSecretSecretRef": {"name": "tsig", "key": "secret"},
    }}});
    let spec = json!({"acme": {
        "server": directory, "skipTLSVerify": true, "privateKeySecretRef": {"name": "account"}, "solvers": [solver],
    }});
    issuer(NAMESPACE, "acme", &spec)
}

async fn is_ready(cluster: &Cluster, cert_manager: &CertManager, name: &str) {
    let path = format!("/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates/{name}");
    wait_until("the Certificate is ready", PATIENCE, async || {
        let found = cluster.api.get(&path).await;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
        if is_ready { Ok(()) } else { Err(format!("{found}\n{}", cert_manager.log_tail())) }
    })
    .await;
}

#[tokio::test]
#[ignore = "three minutes, in `make soak`: needs `make rig` and root"]
async fn acme_issuer_proves_the_new_names() {
    // Its own network, because cert-manager asks the name server at port 53.
    Namespace::create("acme").enter();
    let zone = zone_file(
        "example.com",
        "ns1",
        ["127.0.0.1", "127.0.0.1"],
        "www IN A 127.0.0.1\npay IN A 127.0.0.1\n",
    );
    let zones = format!(
        "{}zone \"example.com\" {{ type primary; file \"zone\"; update-policy {{ grant {} zonesub ANY; }}; }};",
        key_file(KEY),
        KEY.0
    );
    let at = "127.0.0.1".parse().expect("an address");
    let _names = NameServer::start(at, "recursion no;", &zones, &[("zone", &zone)]).await;
    let pebble = Pebble::start().await;
    let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
    let cluster = Cluster::start(options).await;
    let api = &cluster.api;
    api.create_namespace(NAMESPACE).await;
    install_definitions(api).await;
    let cert_manager = CertManager::start(cluster.kubeconfig());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE, "name": "tsig"},
        "stringData": {"secret": KEY.1}});
    api.create(&secret).await;
    api.create(&acme(&pebble.directory)).await;
    for name in ["www", "pay"] {
        api.create(&certificate(NAMESPACE, name, "acme", &[&format!("{name}.example.com")])).await;
    }
    for name in ["www", "pay"] {
        is_ready(&cluster, &cert_manager, name).await;
    }

    let workspace = Workspace::create("acme");
    let rules = "namespaces: [shop]\nhosts: [{suffix: example.com, add: green.example.com}]\n";
    let config = workspace.write("mirror.yaml", rules).display().to_string();
    let netsurgeon = |words: &str| -> Run {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        command.args(words.split_whitespace()).env("KUBECONFIG", cluster.kubeconfig());
        run(words, command)
    };
    let plan = netsurgeon(&format!("mirror sans plan --config {config} -o json")).expect(0).json();
    for entry in plan["certificates"].as_array().expect("certificates") {
        assert_eq!((&entry["action"], &entry["is_acme"]), (&json!("add"), &json!(true)), "{entry}");
    }
    let applied = netsurgeon(&format!("mirror sans apply --config {config} --yes"));
    says(&applied.expect(0).err, &["done"]);
    issued_one_after_the_other(&cluster).await;
    for name in ["www", "pay"] {
        let secret = api.get(&format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}-tls")).await;
        let text =
            secret["metadata"]["annotations"]["cert-manager.io/alt-names"].as_str().unwrap_or_default();
        assert_eq!(text, format!("{name}.example.com,{name}.green.example.com"), "{secret}");
    }
}

/// Asserts that the second order was made when the first certificate was issued.
async fn issued_one_after_the_other(cluster: &Cluster) {
    let path = format!("/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificaterequests");
    let issued = cluster.api.list(&path).await;
    let second = |name: &str| {
        let is_it = |one: &&Value| {
            let annotations = &one["metadata"]["annotations"];
            annotations["cert-manager.io/certificate-name"] == name
                && annotations["cert-manager.io/certificate-revision"] == "2"
        };
        let found =
            issued.iter().find(is_it).unwrap_or_else(|| panic!("no second request of {name}: {issued:?}"));
        let mut conditions = found["status"]["conditions"].as_array().expect("conditions").iter();
        let ready = conditions.find(|one| one["type"] == "Ready").expect("the condition");
        let time = |value: &Value| value.as_str().expect("a time").to_owned();
        (time(&found["metadata"]["creationTimestamp"]), time(&ready["lastTransitionTime"]))
    };
    let mut orders = [second("pay"), second("www")];
    orders.sort();
    let [(_, first_end), (second_start, _)] = &orders;
    assert!(first_end <= second_start, "an ACME issuer gets one order at a time: {orders:?}");
}
