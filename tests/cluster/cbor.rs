//! Custom resources that the API server stores as CBOR are read.

use std::time::Duration;

use serde_json::json;

use super::commands::{netsurgeon, ok};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;

const KEY: &str = "/registry/crd.projectcalico.org/bgpconfigurations/default";

#[tokio::test]
async fn cbor_custom_resource_is_shown_and_checked() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.api_server_flags = vec!["--feature-gates=CBORServingAndStorage=true".to_owned()];
    let cluster = Cluster::start(options).await;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    cluster.api.create_service("default", "web", spec).await;
    define(&cluster).await;
    let announced = json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/16"}], "asNumber": 64_512, "listenPort": null, "ratio": 1.5});
    let object = json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "BGPConfiguration", "metadata": {"name": "default"}, "spec": announced,
    });
    let path = "/apis/crd.projectcalico.org/v1/bgpconfigurations";
    wait_until("the resource is served", Duration::from_mins(1), async || {
        match cluster.api.find(path).await {
            Some(_) => Ok(()),
            None => Err("not found".to_string()),
        }
    })
    .await;
    cluster.api.create(&object).await;
    let stored = cluster.etcd.get(KEY).await.expect("it is stored");
    assert!(stored.starts_with(b"\xd9\xd9\xf7"), "{}", stored.escape_ascii());
    let shown = ok(&cluster, &["inspect", "get", KEY, "-o", "json"]).json();
    assert!(shown.to_string().contains(r#""cidr":"10.96.0.0/16""#), "{shown}");
    assert!(shown.to_string().contains(r#""ratio":1.5"#), "{shown}");
    let listed = ok(&cluster, &["inspect", "list", "/registry/crd.projectcalico.org/", "-o", "json"]).json();
    assert!(listed.to_string().contains("cbor"), "{listed}");
    let found = netsurgeon(&cluster, &["audit", "--old", "10.96.0.0/16", "-o", "json"]).json();
    let places = found["findings"].as_array().expect("findings");
    let router = places.iter().find(|found| found["key"] == KEY).unwrap_or_else(|| panic!("{found}"));
    assert_eq!(router["path"], "spec.serviceClusterIPs[0].cidr", "{router}");
    let plan = ok(&cluster, &["renumber", "plan", "--to", "10.200.0.0/16", "--accept-gap", "-o", "json"]);
    let overlap = plan.json().to_string();
    assert!(
        overlap.contains(r#""kind":"BGPConfiguration""#),
        "the routers must announce the new range too: {overlap}"
    );
}

async fn define(cluster: &Cluster) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    cluster
        .api
        .create(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "bgpconfigurations.crd.projectcalico.org"},
            "spec": {
                "group": "crd.projectcalico.org", "scope": "Cluster",
                "names": {"plural": "bgpconfigurations", "singular": "bgpconfiguration", "kind": "BGPConfiguration"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }))
        .await;
}
