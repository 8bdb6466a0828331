//! The API servers one by one, at the addresses that they advertise: version, feature gates, readiness, the content of the cache,
//! and the rejection of an impostor.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use netsurgeon::kube_api::{
    ApiServer, Cluster as Api, ClusterError, ClusterOptions as ApiOptions, ObjectRef,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::rig::apiserver::ApiServer as Running;
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::network::gateway;
use super::rig::pki::Pair;
use super::rig::process::wait_until;

const DEADLINE: Duration = Duration::from_mins(1);

/// Connects as the administrator.
pub async fn admin(cluster: &Cluster) -> Api {
    connected(cluster.kubeconfig()).await
}

pub async fn connected(kubeconfig: &Path) -> Api {
    let kubeconfig = Some(kubeconfig.into());
    let options = ApiOptions { kubeconfig, context: None, timeout: Duration::from_secs(10) };
    Api::connect(&options).await.expect("the administrator connects")
}

/// Starts a cluster with two API servers and waits until both have registered their endpoints.
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

/// The second server's certificate does not cover the name of the kubeconfig's server.
#[tokio::test]
async fn each_server_is_asked_in_the_objects_era() {
    let (_cluster, api, servers) = two_servers(Era::Objects).await;
    for server in servers {
        let client = api.dial(server).await.unwrap();
        client.ready().await.unwrap();
        let version = client.version().await.unwrap();
        assert_eq!((version.git.as_str(), version.emulated.as_deref()), ("v1.37.2", Some("1.37")));
        let gates = client.feature_gates().await.unwrap();
        assert_eq!(gates.get("DisableAllocatorDualWrite"), Some(&true), "{gates:?}");
        let gate = gates.get("MultiCIDRServiceAllocator").copied().unwrap_or(true);
        assert!(gate, "{gates:?}");
    }
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn each_server_is_asked_in_the_bitmap_era() {
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

/// A ServiceCIDR becomes ready in the cache of each server.
#[tokio::test]
async fn service_cidr_becomes_ready_on_each_server() {
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

/// The cache of the other server has an object as soon as it is asked for the object's revision.
#[tokio::test]
async fn cache_catches_up_with_a_revision() {
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

/// A TLS server with a certificate, which records what clients send.
struct Impostor {
    server: ApiServer,
    heard: Arc<Mutex<String>>,
}

impl Impostor {
    async fn start(pair: &Pair) -> Self {
        let chain = vec![CertificateDer::from_pem_file(&pair.certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind((gateway(), 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(String::new()));
        let notes = heard.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                    notes.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
                }
            }
        });
        Self { server: ApiServer { address: gateway().into(), port }, heard }
    }

    fn endpoint_slice(&self, name: &str) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "endpoints": [{"addresses": [self.server.address.to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": self.server.port, "protocol": "TCP"}],
        })
    }
}

/// A client with permission to write EndpointSlices cannot steal a token. An EndpointSlice of its own is not trusted. At the
/// address of an API server, a certificate for the attacker's own address is rejected, although the cluster's authority signs
/// such certificates for kubelets.
#[tokio::test]
async fn no_token_is_given_to_an_impostor() {
    let (cluster, _, servers) = two_servers(Era::Objects).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sre", "namespace": "default"}});
    cluster.api.create(&account).await;
    cluster
        .api
        .create(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "sre"},
            "subjects": [{"kind": "ServiceAccount", "name": "sre", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        }))
        .await;
    let api = connected(&cluster.kubeconfig_of_service_account("default", "sre").await).await;
    let pair = cluster.issue("kubelet", "system:node:node-1", &[gateway().to_string(), "node-1".to_string()]);
    let impostor = Impostor::start(&pair).await;
    cluster.api.create(&impostor.endpoint_slice("kubernetes-x")).await;
    assert_eq!(api.api_servers().await.unwrap(), servers);
    let refused = api.dial(impostor.server).await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, ClusterError::Untrusted { .. }), "{refused}");
    assert_eq!(*impostor.heard.lock().unwrap(), "", "the impostor received nothing");
}
