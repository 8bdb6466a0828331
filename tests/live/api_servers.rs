//! The API servers one by one, where they advertise themselves: what each is, whether it is ready, what it has
//! in its cache, and what it would take.

use std::time::Duration;

use netsurgeon::cluster::{ApiServer, Cluster as Api, ClusterOptions as ApiOptions, ObjectRef};
use serde_json::{Value, json};

use super::rig::apiserver::ApiServer as Running;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::process::wait_until;

const DEADLINE: Duration = Duration::from_mins(1);

/// Connects as the administrator.
pub async fn admin(cluster: &Cluster) -> Api {
    let kubeconfig = Some(cluster.kubeconfig().into());
    let options = ApiOptions { kubeconfig, context: None, timeout: Duration::from_secs(10) };
    Api::connect(&options).await.expect("the administrator may connect")
}

/// Starts a cluster with two API servers and waits until both have entered themselves.
async fn two_servers(era: Era) -> (Cluster, Api, Vec<ApiServer>) {
    let options = ClusterOptions { api_servers: 2, nodes: 1, ..ClusterOptions::new(era) };
    let cluster = Cluster::start(options).await;
    let api = admin(&cluster).await;
    let servers = wait_until("both API servers are endpoints", DEADLINE, async || {
        let servers = api.api_servers().await.map_err(|error| error.to_string())?;
        if servers.len() == 2 { Ok(servers) } else { Err(format!("{servers:?}")) }
    })
    .await;
    let urls: Vec<String> = servers.iter().map(|server| format!("https://{server}")).collect();
    assert_eq!(urls, cluster.api_servers.iter().map(Running::url).collect::<Vec<_>>());
    (cluster, api, servers)
}

/// The second server's certificate does not carry the name of the kubeconfig's server.
#[tokio::test]
async fn each_is_dialled_in_1_36() {
    let (_cluster, api, servers) = two_servers(Era::Objects).await;
    for server in servers {
        let client = api.dial(server).await.unwrap();
        client.ready().await.unwrap();
        let version = client.version().await.unwrap();
        assert_eq!((version.git.as_str(), version.emulated.as_deref()), ("v1.36.3", Some("1.36")));
        let gates = client.feature_gates().await.unwrap();
        assert_eq!(gates.get("DisableAllocatorDualWrite"), Some(&true), "{gates:?}");
        let gate = gates.get("MultiCIDRServiceAllocator").copied().unwrap_or(true);
        assert!(gate, "{gates:?}");
    }
}

#[tokio::test]
async fn each_is_dialled_in_1_32() {
    let (_cluster, api, servers) = two_servers(Era::Bitmap).await;
    for server in servers {
        let client = api.dial(server).await.unwrap();
        client.ready().await.unwrap();
        let version = client.version().await.unwrap();
        assert!(version.git == "v1.32.2", "{version:?}");
        let gates = client.feature_gates().await.unwrap();
        assert_eq!(gates.get("MultiCIDRServiceAllocator"), Some(&false), "{gates:?}");
    }
}

/// A ServiceCIDR is seen to become ready in the cache of each.
#[tokio::test]
async fn a_service_cidr_is_ready_on_each() {
    let (_cluster, api, servers) = two_servers(Era::Objects).await;
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"},
        "spec": {"cidrs": ["10.200.0.0/16"]},
    });
    api.create(&range).await.unwrap();
    let object = ObjectRef::new("networking.k8s.io/v1", "ServiceCIDR", None, "more");
    for server in &servers {
        let client = api.dial(*server).await.unwrap();
        wait_until(&format!("the range is ready on {server}"), DEADLINE, async || {
            let found = client.get_not_older(&object, 0).await.map_err(|error| error.to_string())?;
            let conditions = found.map(|found| found["status"]["conditions"].clone()).unwrap_or_default();
            let ready = conditions[0]["type"] == "Ready" && conditions[0]["status"] == "True";
            if ready { Ok(()) } else { Err(conditions.to_string()) }
        })
        .await;
    }
}

/// What one server has stored, the other's cache has as soon as it is asked for that revision.
#[tokio::test]
async fn a_cache_catches_up_with_a_revision() {
    let (mut cluster, api, servers) = two_servers(Era::Objects).await;
    let other = api.dial(servers[1]).await.unwrap();
    for number in 0..20 {
        let name = format!("web-{number}");
        let made = cluster.api.create_service("default", &name, json!({"ports": [{"port": 80}]})).await;
        let address = made["spec"]["clusterIP"].as_str().unwrap();
        let object = ObjectRef::new("networking.k8s.io/v1", "IPAddress", None, address);
        let stored = api.get(&object).await.unwrap().expect("an IPAddress");
        let revision: i64 = stored["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let cached = other.get_not_older(&object, revision).await.unwrap();
        assert_eq!(cached.unwrap()["metadata"]["uid"], stored["metadata"]["uid"]);
    }
    let none = ObjectRef::new("networking.k8s.io/v1", "IPAddress", None, "10.96.77.77");
    assert_eq!(other.get_not_older(&none, 0).await.unwrap(), None::<Value>);

    cluster.pause_api_server(1);
    let error = other.ready().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("192.0.2.11:6443"), "{error}");
    cluster.resume_api_server(1);
    other.ready().await.unwrap();
}
