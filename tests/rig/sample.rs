//! Objects of a realistic cluster, of more than 40 kinds and of any number: applications with everything that belongs to them, and
//! custom resources of several operators. Each application has the same objects at every run.

use serde_json::{Value, json};

/// The label that every object of an application has, and its value.
pub const LABEL: (&str, &str) = ("example.com/team", "web");

/// A kind of custom resources: API version, kind, plural, and whether its schema names the fields and has defaults.
type CustomKind = (&'static str, &'static str, &'static str, bool);

const CUSTOM_KINDS: [CustomKind; 20] = [
    ("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes", true),
    ("gateway.networking.k8s.io/v1", "GRPCRoute", "grpcroutes", true),
    ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", "referencegrants", false),
    ("cert-manager.io/v1", "Certificate", "certificates", true),
    ("cert-manager.io/v1", "Issuer", "issuers", false),
    ("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors", true),
    ("monitoring.coreos.com/v1", "PodMonitor", "podmonitors", true),
    ("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules", false),
    ("networking.istio.io/v1", "VirtualService", "virtualservices", true),
    ("networking.istio.io/v1", "DestinationRule", "destinationrules", true),
    ("networking.istio.io/v1", "Sidecar", "sidecars", false),
    ("security.istio.io/v1", "PeerAuthentication", "peerauthentications", false),
    ("argoproj.io/v1alpha1", "AnalysisTemplate", "analysistemplates", false),
    ("argoproj.io/v1alpha1", "WorkflowTemplate", "workflowtemplates", true),
    ("external-secrets.io/v1", "ExternalSecret", "externalsecrets", true),
    ("external-secrets.io/v1", "SecretStore", "secretstores", false),
    ("keda.sh/v1alpha1", "TriggerAuthentication", "triggerauthentications", false),
    ("traefik.io/v1alpha1", "Middleware", "middlewares", true),
    ("traefik.io/v1alpha1", "IngressRoute", "ingressroutes", false),
    ("example.com/v1", "Widget", "widgets", true),
];

/// Number of custom resources of an application.
const CUSTOM_EACH: usize = 3;

/// The definitions of all custom resources.
pub fn definitions() -> Vec<Value> {
    CUSTOM_KINDS.iter().map(definition).collect()
}

fn definition(&(api_version, kind, plural, has_schema): &CustomKind) -> Value {
    let (group, version) = api_version.split_once('/').expect("a group and a version");
    let spec = if has_schema {
        let item = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "weight": {"type": "integer"},
        }});
        json!({"type": "object", "properties": {
            "size": {"type": "integer"},
            "interval": {"type": "string", "default": "30s"},
            "hosts": {"type": "array", "items": {"type": "string"}},
            "selector": {"type": "object", "additionalProperties": {"type": "string"}},
            "backends": {"type": "array", "items": item, "x-kubernetes-list-type": "map",
                         "x-kubernetes-list-map-keys": ["name"]},
        }})
    } else {
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    };
    let schema = json!({"type": "object", "properties": {
        "spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    let version = json!({"name": version, "served": true, "storage": true, "subresources": {"status": {}},
                         "schema": {"openAPIV3Schema": schema}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            // Needed for a group of Kubernetes itself.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": group, "scope": "Namespaced", "versions": [version],
                 "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")}},
    })
}

/// The paths of the custom resources of a namespace, which answer once the definitions are established.
pub fn custom_paths(namespace: &str) -> Vec<String> {
    let path = |&(api_version, _, plural, _): &CustomKind| {
        format!("/apis/{api_version}/namespaces/{namespace}/{plural}")
    };
    CUSTOM_KINDS.iter().map(path).collect()
}

/// An object of a namespace. `rest`: its other fields.
fn object(namespace: &str, api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["labels"][LABEL.0] = json!(LABEL.1);
    object
}

/// What objects of namespaces need: a PriorityClass, a ClusterRole, and a binding of it in this namespace.
pub fn of_cluster(namespace: &str) -> Vec<Value> {
    let rules = json!([{"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list"]}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("reader-{namespace}")});
    let subject = json!({"kind": "ServiceAccount", "namespace": namespace, "name": "app-00000"});
    vec![
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
               "metadata": {"name": format!("urgent-{namespace}")}, "value": 100}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
               "metadata": {"name": format!("reader-{namespace}")}, "rules": rules}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
               "metadata": {"name": format!("reader-{namespace}")}, "roleRef": role, "subjects": [subject]}),
    ]
}

/// The objects that a namespace has once, apart from its applications. The first application must exist.
pub fn of_namespace(namespace: &str) -> Vec<Value> {
    let of = |api_version: &str, kind: &str, name: &str, rest: Value| {
        object(namespace, api_version, kind, name, rest)
    };
    let limit = json!({"type": "Container", "default": {"cpu": "500m", "memory": "512Mi"},
                       "defaultRequest": {"cpu": "0.1", "memory": "128Mi"}});
    let agent = json!({"metadata": {"labels": {"app": "agent"}},
                       "spec": {"containers": [{"name": "agent", "image": "registry.example.com/agent:3"}]}});
    let selected = |app: &str| json!({"matchLabels": {"app": app}});
    let port = json!([{"name": "metrics", "port": 9100}]);
    let storage = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let mut stateful = agent.clone();
    stateful["metadata"]["labels"] = json!({"app": "store"});
    let job = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "registry.example.com/job:1"}]});
    // The account of the first application: without a controller, the namespace has no default account.
    let mut pod = job.clone();
    pod["serviceAccountName"] = json!("app-00000");
    vec![
        of("v1", "LimitRange", "limits", json!({"spec": {"limits": [limit]}})),
        of(
            "v1",
            "ResourceQuota",
            "quota",
            json!({"spec": {"hard": {"count/jobs.batch": "50", "requests.storage": "1Ti"}}}),
        ),
        of("v1", "PodTemplate", "debug", json!({"template": agent.clone()})),
        of("v1", "Service", "agent", json!({"spec": {"selector": {"app": "agent"}, "ports": port}})),
        of(
            "apps/v1",
            "DaemonSet",
            "agent",
            json!({"spec": {"selector": selected("agent"), "template": agent.clone()}}),
        ),
        of(
            "v1",
            "ReplicationController",
            "agent",
            json!({"spec": {"replicas": 1, "selector": {"app": "agent"}, "template": agent}}),
        ),
        // These are not copied.
        of(
            "apps/v1",
            "StatefulSet",
            "store",
            json!({"spec": {"serviceName": "store", "selector": selected("store"), "template": stateful}}),
        ),
        of("v1", "PersistentVolumeClaim", "data", json!({"spec": storage})),
        of("v1", "Pod", "bare", json!({"spec": pod})),
        of("batch/v1", "Job", "once", json!({"spec": {"template": {"spec": job}}})),
        of(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "outside",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.7"]}], "ports": [{"port": 80}]}),
        ),
    ]
}

/// The objects of an application, by its number in the namespace. All of them are copied to a mirror.
pub fn application(namespace: &str, number: usize) -> Vec<Value> {
    let name = format!("app-{number:05}");
    let mut objects = configuration(namespace, &name, number);
    objects.extend(workloads(namespace, &name, number));
    objects.extend((0..CUSTOM_EACH).map(|which| {
        let kind = CUSTOM_KINDS[(number * CUSTOM_EACH + which) % CUSTOM_KINDS.len()];
        custom(namespace, &name, number, &kind)
    }));
    objects
}

fn configuration(namespace: &str, name: &str, number: usize) -> Vec<Value> {
    let of = |api_version: &str, kind: &str, name: &str, rest: Value| {
        object(namespace, api_version, kind, name, rest)
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "watch"], "resourceNames": [name]}]);
    let role = if number == 0 {
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("reader-{namespace}")})
    } else {
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name})
    };
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    let text =
        format!("server:\n  port: {}\n  name: {name}\n# caf\u{e9}, \u{85}\u{2028}\n", 8000 + number % 1000);
    let lines: Vec<String> = (0..30).map(|line| format!("key.{line}=value {line} of {name}\n")).collect();
    let lines = lines.concat();
    vec![
        of("v1", "ServiceAccount", name, json!({"automountServiceAccountToken": false})),
        of(rbac, "Role", name, json!({"rules": rules})),
        of(rbac, "RoleBinding", name, json!({"roleRef": role, "subjects": [subject]})),
        of("v1", "ConfigMap", name, json!({"data": {"app.yaml": text, "LOG_LEVEL": "info"}})),
        of(
            "v1",
            "ConfigMap",
            &format!("{name}-files"),
            json!({"data": {"app.properties": lines}, "binaryData": {"logo": "iVBORw0KGgo="}}),
        ),
        of(
            "v1",
            "Secret",
            name,
            json!({"type": "Opaque", "stringData": {"password": format!("secret of {name}"), "user": "app"}}),
        ),
        of(
            "v1",
            "Secret",
            &format!("{name}-basic"),
            json!({"type": "kubernetes.io/basic-auth", "immutable": true, "stringData": {"username": "a", "password": "b"}}),
        ),
    ]
}

fn template(name: &str, namespace: &str) -> Value {
    let probe = json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10});
    let container = json!({
        "name": "main", "image": format!("registry.example.com/shop/{name}:1.4.2"),
        "args": ["--config=/etc/app/app.yaml"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "LOG_LEVEL", "valueFrom": {"configMapKeyRef": {"name": name, "key": "LOG_LEVEL"}}},
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": name, "key": "password"}}}],
        "resources": {"requests": {"cpu": "0.1", "memory": "1024Mi"}, "limits": {"memory": "1Gi"}},
        "readinessProbe": probe.clone(), "livenessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}, {"name": "scratch", "mountPath": "/tmp"}],
        "securityContext": {"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
    });
    json!({
        "metadata": {"labels": {"app": name}, "annotations": {"prometheus.io/scrape": "true"}},
        "spec": {
            "serviceAccountName": name, "priorityClassName": format!("urgent-{namespace}"), "containers": [container],
            "initContainers": [{"name": "init", "image": "registry.example.com/shop/migrate:1", "command": ["true"]}],
            "volumes": [{"name": "config", "configMap": {"name": name}}, {"name": "scratch", "emptyDir": {}}],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}}]}},
        },
    })
}

fn workloads(namespace: &str, name: &str, number: usize) -> Vec<Value> {
    let of = |api_version: &str, kind: &str, name: &str, rest: Value| {
        object(namespace, api_version, kind, name, rest)
    };
    let selector = json!({"matchLabels": {"app": name}});
    let job = json!({"restartPolicy": "OnFailure", "containers": [{"name": "a", "image": "registry.example.com/job:1"}]});
    let backend = json!({"service": {"name": name, "port": {"name": "http"}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    let host = format!("{name}.{namespace}.example.com");
    let ports = json!([{"name": "http", "port": 80, "targetPort": "http"}, {"name": "grpc", "port": 9090, "protocol": "TCP"}]);
    let peer = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}, "podSelector": {}});
    let mut found = vec![
        of("v1", "Service", name, json!({"spec": {"selector": {"app": name}, "ports": ports}})),
        of(
            "v1",
            "Service",
            &format!("{name}-pods"),
            json!({"spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": 8080}]}}),
        ),
        of(
            "apps/v1",
            "Deployment",
            name,
            json!({"spec": {"replicas": 2, "selector": selector, "template": template(name, namespace)},
                  "metadata": {"annotations": {"deployment.kubernetes.io/revision": "4"}}}),
        ),
        of(
            "networking.k8s.io/v1",
            "Ingress",
            name,
            json!({"spec": {"ingressClassName": "nginx", "rules": [{"host": host, "http": {"paths": [path]}}],
                           "tls": [{"hosts": [host], "secretName": format!("{name}-tls")}]}}),
        ),
        of(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            name,
            json!({"spec": {"podSelector": selector, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": [peer]}], "egress": [{}]}}),
        ),
        of(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            json!({"spec": {"minAvailable": 1, "selector": selector}}),
        ),
    ];
    if number.is_multiple_of(3) {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}});
        found.push(of("autoscaling/v2", "HorizontalPodAutoscaler", name,
            json!({"spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 10, "metrics": [metric]}})));
    } else {
        found.push(of("batch/v1", "CronJob", name,
            json!({"spec": {"schedule": format!("{} 3 * * *", number % 60), "jobTemplate": {"spec": {"template": {"spec": job}}}}})));
    }
    found
}

fn custom(namespace: &str, name: &str, number: usize, &(api_version, kind, ..): &CustomKind) -> Value {
    let spec = json!({
        "size": number % 100, "hosts": [format!("{name}.example.com"), format!("{name}.example.org")],
        "selector": {"app": name}, "backends": [{"name": name, "weight": 1}, {"name": "other", "port": 8080}],
    });
    object(namespace, api_version, kind, name, json!({"spec": spec}))
}
