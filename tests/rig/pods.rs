//! Nodes and Pods as their kubelets would report them: there are no kubelets, so the rig writes the objects itself, and the real
//! controllers create real EndpointSlices for them.

use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::echo::serve;
use super::namespace::{Namespace, Worker};
use super::network::Node;
use super::probe::{Answer, Probe, ask_once};
use super::process::wait_until;
use super::report::Target;

/// How long a new Kubernetes namespace may take to get its service account.
const ACCOUNT: Duration = Duration::from_mins(1);

/// A Pod: a network namespace with an echo server, and a Pod object that is ready. On drop the namespace is removed; the object
/// stays until [`Cluster::delete_pod`].
pub struct Pod {
    /// The path of the object.
    pub path: String,
    addresses: [IpAddr; 2],
    server: Worker,
    namespace: Namespace,
}

impl Pod {
    /// Returns the IPv4 address.
    pub fn address(&self) -> IpAddr {
        self.addresses[0]
    }

    /// Returns the addresses, by family.
    pub fn addresses(&self) -> [IpAddr; 2] {
        self.addresses
    }

    /// Returns the network namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Probes targets from the Pod.
    pub fn probe(&self, targets: &[Target]) -> Probe {
        Probe::start(&self.namespace, targets)
    }

    /// Makes one attempt from the Pod.
    pub fn ask(&self, target: Target) -> Result<Answer, String> {
        ask_once(&self.namespace, target)
    }
}

impl Node {
    /// Probes targets from the node, as a process of the host does.
    pub fn probe(&self, targets: &[Target]) -> Probe {
        Probe::start(self.namespace(), targets)
    }
}

impl Cluster {
    /// Starts a Pod in the Kubernetes namespace `default`; see [`Cluster::create_pod_in`].
    pub async fn create_pod(&self, node: usize, name: &str, labels: &Value) -> Pod {
        self.create_pod_in("default", node, name, labels).await
    }

    /// Starts a Pod on a node, by its index in [`Cluster::nodes`], and sets it ready. It answers at [`super::echo::PORT`] with
    /// its name.
    pub async fn create_pod_in(&self, namespace: &str, node: usize, name: &str, labels: &Value) -> Pod {
        let node = &self.nodes[node];
        let (network, addresses) = node.attach(name);
        let server = serve(&network, name);
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": {
                "nodeName": node.name,
                "containers": [{"name": "echo", "image": "echo"}],
                "automountServiceAccountToken": false,
            },
        });
        wait_until(&format!("the pod {namespace}/{name} is accepted"), ACCOUNT, async || {
            self.api.try_create(&object).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
        let path = super::api::object_path(&object);
        let pod = Pod { path, addresses, server, namespace: network };
        self.set_ready(&pod, true).await;
        pod
    }

    /// Sets a Pod ready, or not ready.
    pub async fn set_ready(&self, pod: &Pod, is_ready: bool) {
        let of_family: Vec<_> = self.families().iter().map(|family| pod.addresses[*family]).collect();
        let ready = if is_ready { "True" } else { "False" };
        let status = json!({
            "phase": "Running",
            "podIP": of_family[0],
            "podIPs": of_family.iter().map(|address| json!({"ip": address})).collect::<Vec<_>>(),
            "conditions": [{"type": "Ready", "status": ready}],
        });
        self.api.merge(&format!("{}/status", pod.path), &json!({"status": status})).await;
    }

    /// Deletes the Pod object, and then the Pod.
    pub async fn delete_pod(&self, pod: Pod) {
        let path = format!("{}?gracePeriodSeconds=0", pod.path);
        let deleted = self.api.request(Method::DELETE, &path, "application/json", None).await;
        deleted.unwrap_or_else(|error| panic!("DELETE {path}: {error}"));
        drop(pod);
    }

    /// Creates a Service for Pods with these labels whose port 80 routes to their echo servers, TCP and UDP, with more fields of
    /// a `spec`; returns it.
    pub async fn create_echo_service(&self, name: &str, selector: &Value, more: &Value) -> Value {
        let port = super::echo::PORT;
        let ports = json!([
            {"name": "tcp", "protocol": "TCP", "port": 80, "targetPort": port},
            {"name": "udp", "protocol": "UDP", "port": 80, "targetPort": port},
        ]);
        let mut spec = json!({"selector": selector, "ports": ports});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.api.create_service("default", name, spec).await
    }

    /// Creates the Node object of a node, with the ranges of its Pods; its kubelet adds the status.
    pub(super) async fn create_node_without_status(&self, node: &Node) -> String {
        let ranges = self.of_families(&node.pod_cidrs());
        let object = json!({
            "apiVersion": "v1",
            "kind": "Node",
            // Labels as a kubelet sets them (`initialNode`, pkg/kubelet/kubelet_node_status.go, v1.36.3).
            "metadata": {"name": node.name, "labels": {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"}},
            "spec": {"podCIDR": ranges[0], "podCIDRs": ranges},
        });
        self.api.create(&object).await;
        super::api::object_path(&object)
    }

    /// Returns those of two values, IPv4 and IPv6, that the cluster's Services have, in their order.
    pub(super) fn of_families(&self, both: &[String; 2]) -> Vec<String> {
        self.families().iter().map(|family| both[*family].clone()).collect()
    }

    /// Creates the Node object of a node, and sets it ready.
    pub(super) async fn create_node_object(&self, node: &Node) {
        let path = self.create_node_without_status(node).await;
        let addresses = self.of_families(&node.addresses().map(|address| address.to_string()));
        let addresses: Vec<_> =
            addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let info = json!({
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeProxyVersion": "", "kubeletVersion": self.version().text(),
            "operatingSystem": "linux", "architecture": "amd64",
        });
        let status = json!({"addresses": addresses, "conditions": conditions, "nodeInfo": info});
        self.api.merge(&format!("{path}/status"), &json!({"status": status})).await;
    }
}
