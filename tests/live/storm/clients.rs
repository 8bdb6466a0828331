//! Clients that change their Services in every way that the API permits, and a tenant that requests every address that may be
//! free.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::sync::RwLock;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::rig::api::{Api, object_path};
use super::witness::Witness;

/// How many Services the clients have, at most.
const NAMES: usize = 16;
/// The namespace that is deleted and created again.
const PASSING: &str = "passing";
/// How long an API server may take to answer: a frozen one does not.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time between two changes.
const PACE: Duration = Duration::from_millis(400);
/// How many Services the tenant keeps.
const GRABS: usize = 6;

/// Clients whose work can be interrupted.
pub struct Clients {
    quiet: Arc<RwLock<()>>,
    tasks: Vec<JoinHandle<()>>,
}

/// The connections of one client.
struct Client {
    servers: Vec<Api>,
    random: StdRng,
    /// The first three numbers of addresses in both ranges.
    blocks: [String; 2],
}

impl Clients {
    pub fn start(servers: &[Api], witness: &Arc<Witness>, ranges: [&str; 2], seed: u64) -> Self {
        let blocks = ranges.map(|range| range.split(".0.0/").next().expect("a range").to_owned() + ".1");
        let quiet = Arc::new(RwLock::new(()));
        let client = |number: u64| Client {
            servers: servers.to_vec(),
            random: StdRng::seed_from_u64(seed + number),
            blocks: blocks.clone(),
        };
        let mut tasks = Vec::new();
        for number in 1..=2 {
            let (mut client, quiet) = (client(number), quiet.clone());
            tasks.push(tokio::spawn(async move {
                loop {
                    let working = quiet.read().await;
                    client.act().await;
                    drop(working);
                    let pause = PACE.mul_f64(client.random.random());
                    sleep(pause).await;
                }
            }));
        }
        let (mut tenant, quiet_too, witness) = (client(3), quiet.clone(), witness.clone());
        tasks.push(tokio::spawn(async move {
            for number in 0.. {
                let working = quiet_too.read().await;
                tenant.grab(number, &witness).await;
                drop(working);
                let pause = PACE.mul_f64(tenant.random.random());
                sleep(pause).await;
            }
        }));
        Self { quiet, tasks }
    }

    /// Waits until all started changes are done; clients start no change while this is kept.
    pub async fn quiet(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.quiet.write().await
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Client {
    /// Sends a request to one of the API servers; `None` if it rejects the request, or does not answer.
    async fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Option<Value> {
        let server = self.servers.choose(&mut self.random).expect("there is one").clone();
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        timeout(PATIENCE, server.request(method, path, kind, body)).await.ok()?.ok()
    }

    /// Makes one change to one Service.
    async fn act(&mut self) {
        let name = format!("churn-{}", self.random.random_range(0..NAMES));
        let namespace = if self.random.random_bool(0.2) { PASSING } else { "default" };
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        match self.random.random_range(0..100) {
            0..20 => {
                let service = self.service(namespace, &name);
                let all = path.rsplit_once('/').expect("a path").0.to_owned();
                self.ask(Method::POST, &all, Some(&service)).await;
            }
            20..28 => drop(self.ask(Method::DELETE, &path, None).await),
            28..40 => self.replace(&path).await,
            40..41 => {
                self.ask(Method::DELETE, &format!("/api/v1/namespaces/{PASSING}"), None).await;
            }
            41..44 => {
                let namespace =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PASSING}});
                self.ask(Method::POST, "/api/v1/namespaces", Some(&namespace)).await;
            }
            _ => {
                let change = self.change();
                self.ask(Method::PATCH, &path, Some(&change)).await;
            }
        }
    }

    /// A new Service, of any kind.
    fn service(&mut self, namespace: &str, name: &str) -> Value {
        let kinds = [
            json!({"type": "ClusterIP"}),
            json!({"type": "ClusterIP", "internalTrafficPolicy": "Local"}),
            json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"}),
            json!({"type": "NodePort"}),
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
            json!({"type": "ClusterIP", "clusterIP": "None"}),
            json!({"type": "ExternalName", "externalName": "else.where"}),
            json!({"type": "ClusterIP", "externalIPs": ["203.0.113.9"]}),
        ];
        let mut spec = kinds.choose(&mut self.random).expect("there are some").clone();
        spec["ports"] = json!([{"name": "a", "port": 80}]);
        if self.random.random_bool(0.8) {
            spec["selector"] = json!({"app": "web"});
        }
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        })
    }

    /// A change that some Services permit.
    fn change(&mut self) -> Value {
        let port = self.random.random_range(1000..2000);
        let changes = [
            json!({"metadata": {"labels": {"round": port.to_string()}}}),
            json!({"spec": {"type": "NodePort"}}),
            json!({"spec": {"type": "LoadBalancer"}}),
            json!({"spec": {"type": "ClusterIP"}}),
            json!({"spec": {"type": "ClusterIP", "externalName": null, "selector": {"app": "web"}}}),
            json!({"spec": {"type": "ExternalName", "externalName": "else.where", "clusterIP": null, "clusterIPs": null,
                "externalIPs": null, "externalTrafficPolicy": null, "internalTrafficPolicy": null,
                "ipFamilies": null, "ipFamilyPolicy": null, "healthCheckNodePort": null}}),
            json!({"spec": {"selector": {"app": "green"}}}),
            json!({"spec": {"selector": {"app": "web"}}}),
            json!({"spec": {"selector": null}}),
            json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": port}]}}),
            json!({"spec": {"externalIPs": ["203.0.113.7"]}}),
            json!({"spec": {"externalIPs": null, "externalTrafficPolicy": null}}),
            json!({"spec": {"externalTrafficPolicy": "Local"}}),
            json!({"spec": {"externalTrafficPolicy": "Cluster"}}),
            json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}}),
            json!({"spec": {"ipFamilyPolicy": "SingleStack"}}),
            json!({"spec": {"internalTrafficPolicy": "Local"}}),
            json!({"spec": {"sessionAffinity": "ClientIP"}}),
        ];
        changes.choose(&mut self.random).expect("there are some").clone()
    }

    /// Replaces a Service by the client's own version, which has no address.
    async fn replace(&mut self, path: &str) {
        let Some(mut service) = self.ask(Method::GET, path, None).await else { return };
        let Some(spec) = service["spec"].as_object_mut() else { return };
        for field in ["externalIPs", "externalTrafficPolicy", "clusterIP", "clusterIPs"] {
            spec.shift_remove(field);
        }
        self.ask(Method::PUT, path, Some(&service)).await;
    }

    /// Requests an address that has no owner now, or one of a Service that moves.
    async fn grab(&mut self, number: usize, witness: &Witness) {
        let free: Vec<IpAddr> = witness.with(|seen| seen.freed.iter().rev().take(8).copied().collect());
        let steady = self.random.random_range(1..=24);
        let block = self.blocks[self.random.random_range(0..2)].clone();
        let address = match free.choose(&mut self.random) {
            Some(address) if self.random.random_bool(0.7) => address.to_string(),
            _ => format!("{block}.{steady}"),
        };
        let name = format!("grab-{}", number % GRABS);
        let spec = json!({"clusterIP": address, "ports": [{"port": 80}]});
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        });
        let path = object_path(&service);
        self.ask(Method::DELETE, &path, None).await;
        self.ask(Method::POST, "/api/v1/namespaces/default/services", Some(&service)).await;
    }
}
