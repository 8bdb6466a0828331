//! Two API servers on one etcd, each with an advertised address of its own.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;

#[tokio::test]
async fn two_api_servers_share_one_etcd() {
    let mut options = ClusterOptions::new(Era::Objects);
    options.api_servers = 2;
    let mut cluster = Cluster::start(options).await;
    wait_until("both API servers are in the EndpointSlice", Duration::from_secs(30), async || {
        let endpoints = cluster.api.get("/api/v1/namespaces/default/endpoints/kubernetes").await;
        let addresses = &endpoints["subsets"][0]["addresses"];
        let both = json!([{"ip": "192.0.2.10"}, {"ip": "192.0.2.11"}]);
        if *addresses == both { Ok(()) } else { Err(addresses.to_string()) }
    })
    .await;
    let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
    cluster.api.create_service("default", "web", spec).await;

    cluster.api_servers[0].kill();
    let other = cluster.api_of(1).await;
    let service = other.get("/api/v1/namespaces/default/services/web").await;
    assert_eq!(service["spec"]["clusterIP"], Value::from("10.96.0.5"));
    cluster.start_api_servers().await;
    cluster.api.get("/api/v1/namespaces/default/services/web").await;
}
