//! The objects of the test: a namespace, a Pod for each agent, two Services, and NetworkPolicies.

use serde_json::{Value, json};

use super::member::Role;
use crate::kube_api::MANAGED_BY;

/// The default namespace of the test.
pub const NAMESPACE: &str = "netsurgeon-network-test";
/// The default namespace of the Pods that read nodes.
pub const READER_NAMESPACE: &str = "netsurgeon-cni-show";
/// Name and value of the label of every object of any network test.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "network-test");
/// The annotation of a namespace that netsurgeon created, and therefore removes.
pub const CREATED: &str = "netsurgeon/created";
/// The label with the run that created an object.
pub const RUN: &str = "netsurgeon/run";
/// The label with the role of an agent.
pub const ROLE: &str = "netsurgeon/role";
/// Name of the Lease that permits only one test at a time in a namespace.
pub const LEASE: &str = "netsurgeon-network-test";
/// The path of the program in netsurgeon's image.
pub const PROGRAM: &str = "/netsurgeon";
/// Where the Pod of the role `reader` sees the root file system of its node.
pub const NODE_ROOT: &str = "/host";
/// The user of netsurgeon's image.
const USER: u32 = 65532;

/// How the Pods of the test look.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace.
    pub namespace: String,
    /// The image of netsurgeon.
    pub image: String,
    /// A Secret of the namespace with the credentials for the image's registry.
    pub pull_secret: Option<String>,
    /// What tells the objects of this run from those of other runs: a few lower-case letters and digits.
    pub run: String,
    /// The token of the agents, 32 hexadecimal digits.
    pub token: String,
    /// The port of all agents.
    pub port: u16,
    /// The host port of the peers.
    pub host_port: u16,
    /// The time after which the kubelets end the Pods, whatever happens, in seconds.
    pub longest: u64,
}

impl Settings {
    /// Returns the name of the Pod of an agent.
    pub fn pod_name(&self, node: usize, role: Role) -> String {
        format!("nt-{}-{}-{node}", self.run, role.name())
    }

    /// Returns the name of a Service: `all` for that of all nodes, `local` for that of each node's own endpoint.
    pub fn service_name(&self, which: &str) -> String {
        format!("nt-{}-{which}", self.run)
    }

    fn labels(&self) -> Value {
        json!({MANAGED_BY.0: MANAGED_BY.1, COMPONENT.0: COMPONENT.1, RUN: self.run})
    }

    fn metadata(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "labels": self.labels()})
    }

    /// Returns the Namespace. Host networks and host ports need the level `privileged`.
    pub fn namespace(&self) -> Value {
        let labels = json!({
            MANAGED_BY.0: MANAGED_BY.1,
            COMPONENT.0: COMPONENT.1,
            "pod-security.kubernetes.io/enforce": "privileged",
        });
        let metadata = json!({"name": self.namespace, "labels": labels, "annotations": {CREATED: "true"}});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    }

    /// Returns the Pod of an agent on a node. The Pod names its node, so that no scheduler and no taint delays it.
    pub fn pod(&self, node: usize, node_name: &str, role: Role) -> Value {
        let name = self.pod_name(node, role);
        let mut metadata = self.metadata(&name);
        if let Some(labels) = metadata.pointer_mut("/labels").and_then(Value::as_object_mut) {
            labels.insert(ROLE.to_string(), role.name().into());
        }
        let is_on_host = matches!(role, Role::Host | Role::Reader);
        let secrets: Vec<Value> = self.pull_secret.iter().map(|name| json!({"name": name})).collect();
        let mut spec = json!({
            "nodeName": node_name,
            "hostNetwork": is_on_host,
            "dnsPolicy": if is_on_host { "ClusterFirstWithHostNet" } else { "ClusterFirst" },
            "restartPolicy": "Always",
            "activeDeadlineSeconds": self.longest,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "imagePullSecrets": secrets,
            "tolerations": [{"operator": "Exists"}],
            "containers": [if role == Role::Reader { self.reader() } else { self.agent(&name, role) }],
        });
        if let Some(fields) = spec.as_object_mut() {
            if role == Role::Reader {
                let root = json!({"name": "root", "hostPath": {"path": "/", "type": "Directory"}});
                fields.insert("volumes".to_string(), json!([root]));
            } else {
                let user = json!({
                    "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                });
                fields.insert("securityContext".to_string(), user);
            }
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }

    /// Returns the container of an agent of the network test. It has no privileges.
    fn agent(&self, name: &str, role: Role) -> Value {
        let host_port = |protocol: &str| json!({"containerPort": self.port, "hostPort": self.host_port, "protocol": protocol});
        let ports = if role == Role::Peer { json!([host_port("TCP"), host_port("UDP")]) } else { json!([]) };
        let port = self.port.to_string();
        json!({
            "name": "agent",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": [PROGRAM, "agent", "serve", "--name", name, "--port", port],
            "env": [{"name": "NETSURGEON_AGENT_TOKEN", "value": self.token}],
            "ports": ports,
            "resources": {"requests": {"cpu": "10m", "memory": "24Mi"}, "limits": {"memory": "96Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        })
    }

    /// Returns the container that reads the state of the node. The kernel shows packet filters only to a privileged process, and the
    /// files of plug-ins belong to root. Everything is mounted read-only.
    fn reader(&self) -> Value {
        json!({
            "name": "agent",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": [PROGRAM, "agent", "wait"],
            "resources": {"requests": {"cpu": "10m", "memory": "24Mi"}, "limits": {"memory": "512Mi"}},
            "securityContext": {"privileged": true, "runAsUser": 0, "readOnlyRootFilesystem": true},
            "volumeMounts": [{
                "name": "root", "mountPath": NODE_ROOT, "readOnly": true, "mountPropagation": "HostToContainer",
            }],
        })
    }

    /// Returns the Services.
    pub fn services(&self) -> [Value; 2] {
        let ports = json!([
            {"name": "tcp", "port": self.port, "targetPort": self.port, "protocol": "TCP"},
            {"name": "udp", "port": self.port, "targetPort": self.port, "protocol": "UDP"},
        ]);
        let selector = json!({RUN: self.run, ROLE: Role::Pod.name()});
        ["all", "local"].map(|which| {
            let policy = if which == "local" { "Local" } else { "Cluster" };
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": self.metadata(&self.service_name(which)),
                "spec": {
                    "type": "NodePort",
                    "ipFamilyPolicy": "PreferDualStack",
                    "internalTrafficPolicy": policy,
                    "externalTrafficPolicy": policy,
                    "selector": selector,
                    "ports": ports,
                },
            })
        })
    }

    /// Returns a NetworkPolicy for the peers of the run.
    pub fn policy(&self, name: &str, spec: &Value) -> Value {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            let selected = json!({"matchLabels": {RUN: self.run, ROLE: Role::Peer.name()}});
            fields.insert("podSelector".to_string(), selected);
        }
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self.metadata(&format!("nt-{}-{name}", self.run)),
            "spec": spec,
        })
    }
}

/// Returns the selector of all objects of network tests.
pub fn selector() -> String {
    format!("{}={},{}={}", MANAGED_BY.0, MANAGED_BY.1, COMPONENT.0, COMPONENT.1)
}

/// The kinds of objects that a test creates in its namespace beside the Lease, in the order in which they are removed.
pub const KINDS: [(&str, &str); 3] =
    [("networking.k8s.io/v1", "NetworkPolicy"), ("v1", "Service"), ("v1", "Pod")];

/// Returns the metadata of a role.
fn role_metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "labels": {MANAGED_BY.0: MANAGED_BY.1}});
    if let (Some(namespace), Some(fields)) = (namespace, metadata.as_object_mut()) {
        fields.insert("namespace".to_string(), namespace.into());
    }
    metadata
}

/// Returns the namespace that the roles belong to, as a user creates it: netsurgeon does not remove it.
fn own_namespace(namespace: &str) -> Value {
    let labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Returns the rules for Pods of netsurgeon in their namespace.
fn pod_rules() -> Vec<Value> {
    vec![
        json!({"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["create", "get", "list", "delete"]}),
        json!({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}),
        json!({"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}),
        json!({"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["create", "get", "list", "delete"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "patch", "delete"]}),
    ]
}

/// Returns the roles with the permissions of a network test, without bindings, after their namespace.
pub fn rbac(namespace: &str) -> Vec<Value> {
    let name = "netsurgeon-network-test";
    let names = json!(["kube-system", namespace]);
    vec![
        own_namespace(namespace),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole", "metadata": role_metadata(name, None),
            "rules": [
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]},
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"], "resourceNames": names},
                // Only to explain failures: policies that may block the test.
                {
                    "apiGroups": [
                        "policy.networking.k8s.io", "crd.projectcalico.org", "projectcalico.org", "cilium.io", "crd.antrea.io",
                    ],
                    "resources": [
                        "adminnetworkpolicies", "baselineadminnetworkpolicies", "clusternetworkpolicies", "globalnetworkpolicies",
                        "networkpolicies", "ciliumclusterwidenetworkpolicies", "ciliumnetworkpolicies",
                    ],
                    "verbs": ["list"],
                },
            ],
        }),
        json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": role_metadata(name, Some("default")),
            "rules": [
                {"apiGroups": [""], "resources": ["services"], "verbs": ["get"], "resourceNames": ["kubernetes"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]},
            ],
        }),
        json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": role_metadata(name, Some(namespace)), "rules": pod_rules(),
        }),
    ]
}

/// Returns the roles with the permissions to read the nodes and the objects of network plug-ins, without bindings. Without the
/// permission to list Secrets, which would also permit to read them: Secrets of plug-ins are then reported as not checked.
pub fn reader_rbac(namespace: &str) -> Vec<Value> {
    let name = "netsurgeon-cni-show";
    let list = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["list"]});
    let names = json!(["kube-system", namespace]);
    vec![
        own_namespace(namespace),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole", "metadata": role_metadata(name, None),
            "rules": [
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"], "resourceNames": names},
                list("", &["nodes", "pods", "configmaps", "serviceaccounts", "namespaces"]),
                list("apps", &["daemonsets", "deployments"]),
                list("policy", &["poddisruptionbudgets"]),
                list("rbac.authorization.k8s.io", &["clusterroles", "clusterrolebindings", "roles", "rolebindings"]),
                list("apiextensions.k8s.io", &["customresourcedefinitions"]),
                list("apiregistration.k8s.io", &["apiservices"]),
                list("operator.tigera.io", &["installations", "apiservers"]),
            ],
        }),
        json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": role_metadata(name, Some(namespace)), "rules": pod_rules(),
        }),
    ]
}
