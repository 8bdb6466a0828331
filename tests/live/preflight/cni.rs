//! `netsurgeon preflight cni` on a cluster whose network can be changed, and on the same cluster with one obstacle after the
//! other.

use std::time::Duration;

use serde_json::{Value, json};

use super::objects::define;
use crate::rig::api::object_path;
use crate::rig::cluster::{Cluster, ClusterOptions, Era};
use crate::rig::process::wait_until;
use crate::rig::run::{has_line, says};
use crate::serving_cluster::{DEADLINE, command, run};

const NODE: &str = "/api/v1/nodes/node-2";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// How long controllers may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// All fields that a Pod's controllers and this test need.
const CONTAINER: &str = r#"{"name": "web", "image": "registry.test/web:1"}"#;

/// Runs checks; returns the exit status, and each check.
fn look(cluster: &Cluster, words: &str) -> (i32, Vec<Value>) {
    let words = format!("preflight cni -o json {words}");
    let ran = run(&words, command(cluster, &words));
    let shown: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.err));
    assert_eq!(shown["target"], "cni");
    (ran.code, shown["checks"].as_array().expect("checks").clone())
}

/// Runs one check.
fn only(cluster: &Cluster, name: &str, words: &str) -> Value {
    let (_, checks) = look(cluster, &format!("--only {name} {words}"));
    checks.iter().find(|check| check["name"] == name).expect("the check is listed").clone()
}

/// Waits until a check has this verdict, for a reason: controllers affect what is observed.
async fn comes_out(cluster: &Cluster, name: &str, verdict: &str, reason: &[&str]) {
    wait_until("the check has the verdict", PATIENCE, async || {
        let found = only(cluster, name, "");
        let is_said = has_line(found["observed"].as_str().unwrap_or_default(), reason);
        let has_remedy = verdict == "pass" || !found["remedy"].as_str().unwrap_or_default().is_empty();
        if found["verdict"] == verdict && is_said && has_remedy { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn cni_checks_pass_or_name_the_fault() {
    let options =
        ClusterOptions { nodes: 2, controllers_as_themselves: true, ..ClusterOptions::new(Era::Objects) };
    let cluster = Cluster::start(options).await;
    with_an_agent(&cluster).await;
    let (code, checks) = look(&cluster, "--strict --to calico --pod-cidr 10.100.0.0/16");
    let bad: Vec<&Value> = checks.iter().filter(|check| check["verdict"] != "pass").collect();
    assert!(code == 0 && bad.is_empty(), "{bad:?}");
    // Controllers write their own objects meanwhile.
    let ours: Vec<String> =
        cluster.etcd.keys("/").await.into_iter().filter(|key| key.contains("netsurgeon")).collect();
    assert_eq!(ours, Vec::<String>::new(), "nothing was written");
    let shown = run("", command(&cluster, "preflight cni --to calico")).expect(0);
    says(&shown.err, &["next: ", "CNI"]);
    println!("{}{}", shown.out, shown.err);

    with_ill_nodes(&cluster).await;
    with_a_request(&cluster).await;
    with_other_ranges(&cluster);
    with_settings(&cluster).await;
    with_ports(&cluster).await;
    with_little_room(&cluster).await;
    with_policies(&cluster).await;
    with_workloads(&cluster).await;
    with_webhooks(&cluster).await;
    without_rights(&cluster).await;
}

/// A DaemonSet with a CNI's agent.
fn agent(name: &str, container: &str) -> Value {
    let container = json!({"name": container, "image": "registry.test/agent:v0.27"});
    let labels = json!({"app": name});
    let spec =
        json!({"hostNetwork": true, "tolerations": [{"operator": "Exists"}], "containers": [container]});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    })
}

/// A DaemonSet of Flannel. No kubelet runs its Pods: the test writes their status.
async fn with_an_agent(cluster: &Cluster) {
    comes_out(cluster, "network", "warn", &["CNI"]).await;
    cluster.api.create(&agent("kube-flannel-ds", "kube-flannel")).await;
    comes_out(cluster, "network", "fail", &["Flannel", "0 of 2 nodes", "`kube-system/kube-flannel-ds`"])
        .await;
    let pods = "/api/v1/namespaces/kube-system/pods";
    let made = async || -> Vec<Value> {
        cluster.api.list(&format!("{pods}?labelSelector=app%3Dkube-flannel-ds")).await
    };
    wait_until("each node has a Pod", DEADLINE, async || {
        let count = made().await.len();
        if count == 2 { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    for pod in made().await {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        be_ready(cluster, &format!("{pods}/{name}")).await;
    }
    comes_out(cluster, "network", "pass", &["Flannel", "`registry.test/agent:v0.27`", "2 nodes"]).await;
}

async fn be_ready(cluster: &Cluster, path: &str) {
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    cluster.api.merge(&format!("{path}/status"), &json!({"status": status})).await;
}

async fn with_ill_nodes(cluster: &Cluster) {
    let api = &cluster.api;
    api.merge(NODE, &json!({"spec": {"unschedulable": true}})).await;
    comes_out(cluster, "nodes", "warn", &["`node-2` (cordoned)"]).await;
    api.merge(NODE, &json!({"spec": {"unschedulable": null}})).await;
    let ready = |value: &str| json!({"status": {"conditions": [{"type": "Ready", "status": value}]}});
    api.merge(&format!("{NODE}/status"), &ready("Unknown")).await;
    comes_out(cluster, "nodes", "fail", &["1 of 2 ", "`node-2`"]).await;
    api.merge(&format!("{NODE}/status"), &ready("True")).await;
    comes_out(cluster, "nodes", "pass", &["2"]).await;
}

/// A node requests a certificate, and no client approves the request.
async fn with_a_request(cluster: &Cluster) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut asked = rcgen::CertificateParams::default();
    asked.distinguished_name.push(rcgen::DnType::CommonName, "system:node:node-3");
    asked.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    let pem = asked.serialize_request(&key).expect("a request").pem().expect("PEM");
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "node-3"},
        "spec": {
            "request": data_encoding::BASE64.encode(pem.as_bytes()), "usages": ["client auth", "digital signature"],
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        },
    });
    cluster.api.create(&request).await;
    comes_out(cluster, "csrs", "fail", &["`node-3` (kubernetes.io/kube-apiserver-client-kubelet)"]).await;
    cluster.api.delete(&object_path(&request)).await;
    comes_out(cluster, "csrs", "pass", &[]).await;
}

fn with_other_ranges(cluster: &Cluster) {
    let taken = |range: &str, whose: &[&str]| {
        let found = only(cluster, "pod-ranges", &format!("--pod-cidr {range}"));
        assert_eq!(found["verdict"], "fail", "{found}");
        says(found["observed"].as_str().unwrap(), whose);
    };
    let own = cluster.nodes[0].pod_cidrs()[0].clone();
    taken(&own, &["Pods", "`node-1`"]);
    taken("10.96.0.1/32", &["Service `default/kubernetes`"]);
    taken("10.96.128.0/17", &["`10.96.128.0/17`", "`10.96.0.0/16` (Services)"]);
    taken(&format!("{}/32", cluster.nodes[1].address()), &["(node `node-2`)"]);
    let stays = only(cluster, "pod-ranges", "");
    assert!(stays["verdict"] == "pass" && stays["observed"].as_str().unwrap().contains(&own), "{stays}");
}

/// Settings of Flannel and Calico in their own objects: pools that no Node has, an MTU, and the port of a tunnel.
async fn with_settings(cluster: &Cluster) {
    let api = &cluster.api;
    let conf = json!({"Network": "10.32.0.0/12", "Backend": {"Type": "vxlan"}});
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-system"},
        "data": {"net-conf.json": conf.to_string()},
    });
    api.create(&config_map).await;
    let seen = |check: &str, words: &str, verdict: &str, reason: &[&str]| {
        let found = only(cluster, check, words);
        assert_eq!(found["verdict"], verdict, "{found}");
        says(found["observed"].as_str().unwrap_or_default(), reason);
    };
    let whose = ["`10.40.0.0/16`", "`10.32.0.0/12` (Pods: ConfigMap `kube-flannel-cfg`)"];
    seen("pod-ranges", "--pod-cidr 10.40.0.0/16", "fail", &whose);
    seen("agent-ports", "", "skipped", &["`--to`"]);
    seen("agent-ports", "--to cilium", "fail", &["8472/UDP", "Flannel"]);
    seen("agent-ports", "--to calico", "pass", &["5473/TCP (Typha)"]);
    seen("mtu", "", "pass", &[]);
    let conf = json!({"Network": "10.32.0.0/12", "Backend": {"Type": "vxlan", "Port": 4789, "MTU": 1400}});
    api.merge(&object_path(&config_map), &json!({"data": {"net-conf.json": conf.to_string()}})).await;
    seen("mtu", "", "warn", &["1400 (`Backend.MTU` of ConfigMap `kube-flannel-cfg`)"]);
    seen("agent-ports", "--to cilium", "pass", &["4240/TCP and ICMP"]);
    seen("agent-ports", "--to calico", "fail", &["4789/UDP", "Flannel"]);
    define(api, "crd.projectcalico.org", "v1", ("IPPool", "ippools"), "Cluster").await;
    api.create(&json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "blue"},
        "spec": {"cidr": "10.48.0.0/16", "vxlanMode": "Never"},
    }))
    .await;
    seen("pod-ranges", "--pod-cidr 10.48.3.0/24", "pass", &["`10.48.3.0/24`"]);
    let calico = agent("calico-node", "calico-node");
    api.create(&calico).await;
    wait_until("Calico's DaemonSet has a node", DEADLINE, async || {
        let found = only(cluster, "pod-ranges", "--pod-cidr 10.48.3.0/24");
        let is_said = has_line(found["observed"].as_str().unwrap_or_default(), &["Calico", "IPPool `blue`"]);
        if found["verdict"] == "fail" && is_said { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    let own = ["Calico", "5473/TCP (Typha)"];
    seen("pod-ranges", "--pod-cidr 10.48.3.0/24 --to calico", "pass", &["`10.48.3.0/24`"]);
    seen("agent-ports", "--to cilium", "pass", &["4240/TCP and ICMP"]);
    api.delete(&object_path(&calico)).await;
    let conf = json!({"Network": "10.32.0.0/12", "Backend": {"Type": "host-gw"}});
    api.merge(&object_path(&config_map), &json!({"data": {"net-conf.json": conf.to_string()}})).await;
    seen("agent-ports", "--to calico", "pass", &own);
    let nobodys = run("", command(cluster, "preflight cni --to weave")).expect(2);
    assert!(nobodys.err.contains("[possible values: cilium, calico, flannel, antrea]"), "{}", nobodys.err);
}

/// A Pod without a grace period, since no kubelet reports its end.
fn pod(name: &str, more: &Value) -> Value {
    let mut spec: Value = json!({"terminationGracePeriodSeconds": 0});
    spec["containers"] = json!([serde_json::from_str::<Value>(CONTAINER).expect("JSON")]);
    for (key, value) in more.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// A Pod with a port of its node, and one in its node's network.
async fn with_ports(cluster: &Cluster) {
    let with = |port: u16, more: &Value| {
        let mut made = pod("server", more);
        made["spec"]["containers"][0]["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        made
    };
    comes_out(cluster, "host-ports", "pass", &["`hostPort`"]).await;
    let mapped = with(8080, &json!({}));
    cluster.api.create(&mapped).await;
    comes_out(cluster, "host-ports", "warn", &["`default/server` (8080/TCP)"]).await;
    cluster.api.delete(&object_path(&mapped)).await;
    comes_out(cluster, "host-ports", "pass", &["`hostPort`"]).await;
    let on_the_host = with(4244, &json!({"hostNetwork": true}));
    cluster.api.create(&on_the_host).await;
    let found = only(cluster, "agent-ports", "--to cilium");
    assert_eq!(found["verdict"], "fail", "{found}");
    says(found["observed"].as_str().unwrap(), &["4244/TCP", "`default/server`"]);
    assert_eq!(only(cluster, "host-ports", "")["verdict"], "pass", "nothing is mapped");
    cluster.api.delete(&object_path(&on_the_host)).await;
}

/// Two nodes of four cores, and Pods that fill them more or less.
async fn with_little_room(cluster: &Cluster) {
    let api = &cluster.api;
    for node in ["node-1", "node-2"] {
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
        let status = json!({"status": {"capacity": room, "allocatable": room}});
        api.merge(&format!("/api/v1/nodes/{node}/status"), &status).await;
        // Admission taints a new Node, until a controller finds it ready (`TaintNodesByCondition`).
        api.merge(&format!("/api/v1/nodes/{node}"), &json!({"spec": {"taints": null}})).await;
    }
    let deployment = |name: &str, node: &str, cpu: &str, selector: &Value| {
        let mut spec = pod(name, &json!({"nodeName": node, "nodeSelector": selector}))["spec"].take();
        spec["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        let labels = json!({"app": name});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
        })
    };
    let goes = async |made: &Value| {
        api.delete(&object_path(made)).await;
        wait_until("its Pods are deleted", DEADLINE, async || {
            let left = api
                .list(&format!("{PODS}?labelSelector=app%3D{}", made["metadata"]["name"].as_str().unwrap()))
                .await;
            if left.is_empty() { Ok(()) } else { Err(left.len().to_string()) }
        })
        .await;
    };
    let (large, other) =
        (deployment("large", "node-1", "3", &json!({})), deployment("other", "node-2", "2", &json!({})));
    api.create(&large).await;
    comes_out(cluster, "drain-room", "pass", &["2 nodes"]).await;
    api.create(&other).await;
    comes_out(cluster, "drain-room", "fail", &["`node-1` (`default/large-"]).await;
    goes(&other).await;
    comes_out(cluster, "drain-room", "pass", &["2 nodes"]).await;
    goes(&large).await;
    api.merge("/api/v1/nodes/node-1", &json!({"metadata": {"labels": {"role": "edge"}}})).await;
    let choosy = deployment("edge", "node-1", "1", &json!({"role": "edge"}));
    api.create(&choosy).await;
    comes_out(cluster, "drain-room", "warn", &["accepts `default/edge-"]).await;
    goes(&choosy).await;
    comes_out(cluster, "drain-room", "pass", &["2 nodes"]).await;
}

async fn with_policies(cluster: &Cluster) {
    let metadata = json!({"name": "closed", "namespace": "default"});
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": {"podSelector": {}},
    });
    cluster.api.create(&policy).await;
    comes_out(cluster, "network-policies", "pass", &["1 NetworkPolicy"]).await;
    define(&cluster.api, "cilium.io", "v2", ("CiliumNetworkPolicy", "ciliumnetworkpolicies"), "Namespaced")
        .await;
    cluster
        .api
        .create(&json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": metadata}))
        .await;
    comes_out(cluster, "network-policies", "warn", &["1 NetworkPolicy", "1 CiliumNetworkPolicy"]).await;
}

/// A Deployment of one Pod that must not be evicted, a Pod without a controller, and an autoscaler that adds nodes.
async fn with_workloads(cluster: &Cluster) {
    let api = &cluster.api;
    let (container, labels): (Value, Value) =
        (serde_json::from_str(CONTAINER).expect("JSON"), json!({"app": "web"}));
    let spec = json!({"containers": [container], "volumes": [{"name": "scratch", "emptyDir": {}}]});
    let deployment = |name: &str, replicas: u8| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        })
    };
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    });
    api.create(&deployment("web", 1)).await;
    api.create(&budget).await;
    comes_out(cluster, "single-pods", "warn", &["(1 of 1): ", "`default/web`"]).await;
    comes_out(cluster, "budgets", "pass", &["no PodDisruptionBudget"]).await;
    let made = async || cluster.api.list(&format!("{PODS}?labelSelector=app%3Dweb")).await;
    let all_are_ready = async |expected: usize| {
        wait_until("the expected number of Pods exists", DEADLINE, async || {
            let count = made().await.len();
            if count == expected { Ok(()) } else { Err(count.to_string()) }
        })
        .await;
        for pod in made().await {
            be_ready(cluster, &format!("{PODS}/{}", pod["metadata"]["name"].as_str().expect("a name"))).await;
        }
    };
    all_are_ready(1).await;
    comes_out(cluster, "budgets", "fail", &["`default/web` (1 healthy, 1 "]).await;
    comes_out(cluster, "local-storage", "warn", &["1 Pod ", "`emptyDir`", "`default/web-"]).await;
    api.merge(&object_path(&deployment("web", 1)), &json!({"spec": {"replicas": 2}})).await;
    comes_out(cluster, "single-pods", "pass", &["(checked: 1)"]).await;
    all_are_ready(2).await;
    comes_out(cluster, "budgets", "pass", &["1 "]).await;

    api.create(&deployment("cluster-autoscaler", 0)).await;
    comes_out(cluster, "autoscalers", "pass", &[]).await;
    api.merge(&object_path(&deployment("cluster-autoscaler", 0)), &json!({"spec": {"replicas": 1}})).await;
    comes_out(cluster, "autoscalers", "warn", &["`default/cluster-autoscaler`"]).await;
    let container: Value = serde_json::from_str(CONTAINER).expect("JSON");
    let bare = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone", "namespace": "default"},
        "spec": {"containers": [container]},
    });
    api.create(&bare).await;
    comes_out(cluster, "bare-pods", "warn", &["1 Pod ", "`default/alone`"]).await;
}

/// A webhook that is called for Pods: for all, for all except those of the CNI, and from the nodes' network.
async fn with_webhooks(cluster: &Cluster) {
    let api = &cluster.api;
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let service = json!({"namespace": "default", "name": "policy"});
    let configuration = |selector: Value, conditions: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "policies"},
            "webhooks": [{
                "name": "check.example.com", "rules": [rule], "clientConfig": {"service": service}, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "namespaceSelector": selector, "matchConditions": conditions,
            }],
        })
    };
    api.create_service("default", "policy", json!({"ports": [{"port": 443}]})).await;
    let slice = |address: String| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "policy", "namespace": "default", "labels": {"kubernetes.io/service-name": "policy"}},
            "endpoints": [{"addresses": [address]}], "ports": [{"port": 8443}],
        })
    };
    let on_the_pods_network = slice("10.244.1.9".to_owned());
    api.create(&on_the_pods_network).await;
    // No Pod is created meanwhile, and no webhook server runs.
    let everywhere = configuration(json!({}), json!([]));
    api.create(&everywhere).await;
    comes_out(cluster, "pod-webhooks", "fail", &["`check.example.com`"]).await;
    api.delete(&object_path(&everywhere)).await;
    let all_but = |namespaces: &[&str]| {
        let expression =
            json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces});
        configuration(json!({"matchExpressions": [expression]}), json!([]))
    };
    api.create(&all_but(&["kube-system"])).await;
    comes_out(cluster, "pod-webhooks", "fail", &["`check.example.com`"]).await;
    api.delete(&object_path(&everywhere)).await;
    api.create(&configuration(json!({}), json!([{"name": "never", "expression": "false"}]))).await;
    comes_out(cluster, "pod-webhooks", "warn", &["`check.example.com`", "`matchConditions`"]).await;
    api.delete(&object_path(&everywhere)).await;
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    api.create(&configuration(selector, json!([]))).await;
    comes_out(cluster, "pod-webhooks", "warn", &["`check.example.com`"]).await;
    api.delete(&object_path(&on_the_pods_network)).await;
    api.create(&slice(cluster.nodes[0].address().to_string())).await;
    comes_out(cluster, "pod-webhooks", "pass", &[]).await;
}

/// A user with permission to read, and to change nothing.
async fn without_rights(cluster: &Cluster) {
    let group = "rbac.authorization.k8s.io";
    let subject = json!({"apiGroup": group, "kind": "User", "name": "nobody"});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "nobody"}, "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:aggregate-to-view"},
    });
    cluster.api.create(&binding).await;
    let words = "preflight cni --only drain-rights";
    wait_until("the binding is in force", DEADLINE, async || {
        let mut command = command(cluster, words);
        command.env("KUBECONFIG", cluster.kubeconfig_as(0, "nobody", None));
        let refused = run(words, command).expect(3);
        let expected = "get nodes, list nodes, patch nodes, delete pods, create pods/eviction";
        if has_line(&refused.out, &["drain-rights", "fail", expected]) { Ok(()) } else { Err(refused.out) }
    })
    .await;
}
