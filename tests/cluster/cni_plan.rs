//! `netsurgeon cni plan` on a real API server: a clean change, and the same cluster with obstacles. The program has the rights of the
//! role `netsurgeon-cni`, which only reads.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use super::rig::api::{Api, object_path};
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use super::rig::run::{Run, run, says};
use super::rig::workspace::Workspace;

/// The plug-in in place: Flannel, with the range 10.244.0.0/16.
const OLD_RANGE: &str = "10.244.0.0/16";
const NEW_RANGE: &str = "10.100.0.0/16";
const USER: &str = "planner";

struct Stage {
    cluster: Cluster,
    workspace: Workspace,
}

impl Stage {
    async fn start() -> Self {
        let options = ClusterOptions { controllers: false, ..ClusterOptions::new(Era::Objects) };
        let cluster = Cluster::start(options).await;
        let stage = Self { cluster, workspace: Workspace::create("cni-plan") };
        stage.grant().await;
        let api = stage.api();
        for (name, is_control_plane) in [("a", true), ("b", true), ("c", true), ("d", false), ("e", false)] {
            create_node(api, name, is_control_plane).await;
        }
        api.create_namespace("shop").await;
        api.create_namespace("kube-flannel").await;
        api.create(&object("v1", "ServiceAccount", "shop", "default", &json!({}))).await;
        let conf = json!({"Network": OLD_RANGE, "Backend": {"Type": "vxlan"}}).to_string();
        let config = json!({"data": {"net-conf.json": conf}});
        api.create(&object("v1", "ConfigMap", "kube-flannel", "kube-flannel-cfg", &config)).await;
        create_agent(api).await;
        stage.local_range("10.0.0.0/8").await;
        for (name, on) in [("web-1", "d"), ("web-2", "e")] {
            create_pod(api, name, on, &json!({}), &json!({})).await;
        }
        stage
    }

    fn api(&self) -> &Api {
        &self.cluster.api
    }

    /// Gives the user of the program the role in `deploy/`.
    async fn grant(&self) {
        let roles = include_str!("../../deploy/rbac.yaml");
        let mut roles =
            roles.split("\n---\n").map(|text| serde_saphyr::from_str::<Value>(text).expect("a role"));
        let role = roles.find(|role| role["metadata"]["name"] == "netsurgeon-cni").expect("the role");
        self.api().create(&role).await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": USER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "netsurgeon-cni"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        });
        self.api().create(&binding).await;
    }

    /// Sets the range by which kube-proxy detects local traffic.
    async fn local_range(&self, range: &str) {
        let conf = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: {range}\n"
        );
        let config =
            object("v1", "ConfigMap", "kube-system", "kube-proxy", &json!({"data": {"config.conf": conf}}));
        self.api().apply(&config).await;
    }

    /// Writes manifests of the new plug-in, and returns their folder.
    fn manifests(&self, name: &str, range: &str, change: impl FnOnce(&mut Value, &mut Value)) -> String {
        let (mut agent, mut config) = (new_agent(range), new_config());
        change(&mut agent, &mut config);
        let folder = self.workspace.join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let text = [&agent, &config].map(ToString::to_string).join("\n---\n");
        std::fs::write(folder.join("calico.yaml"), text).expect("a file");
        folder.display().to_string()
    }

    fn plan(&self, words: &str) -> Run {
        let words = format!("cni plan {words}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
        let kubeconfig = self.cluster.kubeconfig_as(0, USER, None);
        command.args(words.split_whitespace()).env("KUBECONFIG", kubeconfig).env_remove("ETCDCTL_ENDPOINTS");
        run(&words, command)
    }

    /// Returns what a plan could have changed.
    async fn stored(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for path in [
            "/api/v1/nodes",
            "/api/v1/pods",
            "/apis/apps/v1/daemonsets",
            "/api/v1/configmaps",
            "/api/v1/namespaces",
        ] {
            all.extend(self.api().list(path).await);
        }
        all
    }
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str, more: &Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}});
    for (key, value) in more.as_object().expect("fields") {
        object[key] = value.clone();
    }
    object
}

async fn create_node(api: &Api, name: &str, is_control_plane: bool) {
    let mut labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
    if is_control_plane {
        labels["node-role.kubernetes.io/control-plane"] = json!("");
    }
    let number = name.as_bytes()[0] - b'a';
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": format!("10.244.{number}.0/24"), "podCIDRs": [format!("10.244.{number}.0/24")]},
    });
    api.create(&node).await;
    // The API server taints a new Node until it is ready, and no controller removes the taint here.
    api.merge(&format!("/api/v1/nodes/{name}"), &json!({"spec": {"taints": null}})).await;
    let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let status = json!({"status": {
        "capacity": amounts, "allocatable": amounts,
        "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", number + 1)}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": null, "lastTransitionTime": null}],
    }});
    api.merge(&format!("/api/v1/nodes/{name}/status"), &status).await;
}

fn daemon_set(namespace: &str, name: &str, spec: &Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": spec});
    let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template});
    object("apps/v1", "DaemonSet", namespace, name, &json!({"spec": spec}))
}

async fn create_agent(api: &Api) {
    let spec = json!({"hostNetwork": true, "containers": [{"name": "kube-flannel", "image": "example.com/flannel:1"}]});
    let agent = daemon_set("kube-flannel", "kube-flannel-ds", &spec);
    let path = object_path(&agent);
    api.create(&agent).await;
    let status = json!({"desiredNumberScheduled": 5, "currentNumberScheduled": 5, "numberMisscheduled": 0, "numberReady": 5});
    api.merge(&format!("{path}/status"), &json!({"status": status})).await;
}

/// Creates a running Pod of a ReplicaSet. `more`: other fields of its container.
async fn create_pod(api: &Api, name: &str, on: &str, more: &Value, annotations: &Value) {
    let mut container =
        json!({"name": "web", "image": "example.com/web:1", "resources": {"requests": {"cpu": "1"}}});
    for (key, value) in more.as_object().expect("fields") {
        container[key] = value.clone();
    }
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "5a9c6f3e-0000-4000-8000-000000000001", "controller": true}]);
    let mut pod = object(
        "v1",
        "Pod",
        "shop",
        name,
        &json!({"spec": {"nodeName": on, "containers": [container], "automountServiceAccountToken": false}}),
    );
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["metadata"]["annotations"] = annotations.clone();
    pod["metadata"]["ownerReferences"] = owner;
    let path = object_path(&pod);
    api.create(&pod).await;
    let address = format!("10.244.{}.{}", on.as_bytes()[0] - b'a', 10 + name.len());
    let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [{"type": "Ready", "status": "True"}]});
    api.merge(&format!("{path}/status"), &json!({"status": status})).await;
}

/// A minimal DaemonSet of an agent of Calico, which starts only on nodes with a label.
fn new_agent(range: &str) -> Value {
    let env = json!([{"name": "CALICO_IPV4POOL_CIDR", "value": range}, {"name": "CALICO_IPV4POOL_VXLAN", "value": "Always"}]);
    let install = json!({"name": "install-cni", "image": "example.com/cni:1", "env": [{"name": "CNI_CONF_NAME", "value": "10-calico.conflist"}]});
    let spec = json!({
        "hostNetwork": true, "nodeSelector": {"netsurgeon.io/cni": "calico"}, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "calico-node", "image": "example.com/node:1", "env": env}], "initContainers": [install],
    });
    daemon_set("kube-system", "calico-node", &spec)
}

fn new_config() -> Value {
    let conf = r#"{"name": "net", "plugins": [{"type": "calico", "mtu": __CNI_MTU__}, {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
    object(
        "v1",
        "ConfigMap",
        "kube-system",
        "calico-config",
        &json!({"data": {"veth_mtu": "0", "cni_network_config": conf}}),
    )
}

/// Returns the effect of each finding by its name.
fn effects(plan: &Value) -> BTreeMap<&str, &str> {
    let findings = plan["findings"].as_array().expect("findings").iter();
    findings
        .map(|one| (one["name"].as_str().expect("a name"), one["effect"].as_str().expect("an effect")))
        .collect()
}

fn observed<'p>(plan: &'p Value, name: &str) -> &'p str {
    let mut findings = plan["findings"].as_array().expect("findings").iter();
    let finding = findings.find(|one| one["name"] == name);
    finding.unwrap_or_else(|| panic!("no finding `{name}`: {plan:#}"))["observed"].as_str().expect("a text")
}

#[tokio::test]
async fn plan_of_a_clean_cluster_has_every_node_in_order() {
    let stage = Stage::start().await;
    let folder = stage.manifests("clean", NEW_RANGE, |_, _| ());
    let before = stage.stored().await;
    let plan = stage.plan(&format!("--to {folder} --accept two-networks -o json")).expect(0).json();
    assert_eq!(stage.stored().await, before, "nothing was written");
    assert_eq!((&plan["version"], &plan["is_open"]), (&json!(1), &json!(false)));
    let expected = BTreeMap::from([("installer", "note"), ("two-networks", "accept")]);
    assert_eq!(effects(&plan), expected, "{plan:#}");
    assert_eq!(plan["from"]["plugins"], json!(["Flannel"]));
    assert_eq!(plan["from"]["ranges"][0]["range"], OLD_RANGE);
    assert_eq!(plan["to"]["plugin"], "Calico");
    assert_eq!(plan["to"]["ranges"][0], json!({"range": NEW_RANGE, "source": "`CALICO_IPV4POOL_CIDR`"}));
    assert_eq!((&plan["to"]["conf"], &plan["to"]["starts_on"]), (&json!("10-calico.conflist"), &json!([])));
    assert_eq!(
        (&plan["to"]["tunnel_ports"], &plan["from"]["tunnel_ports"]),
        (&json!([4789]), &json!([8472]))
    );
    assert_eq!(plan["strategy"]["name"], "in-place");
    assert_eq!(
        plan["quorum"],
        json!({"counted": "nodes", "members": 3, "ready": 3, "required": 2, "margin": 1})
    );
    let order: Vec<(&Value, &Value)> =
        plan["nodes"].as_array().expect("nodes").iter().map(|one| (&one["name"], &one["role"])).collect();
    let [canary, worker, control] = ["canary", "worker", "control-plane"].map(|role| json!(role));
    let names = ["d", "e", "a", "b", "c"].map(|name| json!(name));
    let expected: Vec<(&Value, &Value)> =
        names.iter().zip([&canary, &worker, &control, &control, &control]).collect();
    assert_eq!(order, expected);
    assert_eq!(plan["nodes"][0]["evicted"], json!(["`shop/web-1`"]));
    assert_eq!(plan["nodes"][0]["left_on_others"], "14 cores, 32 GiB, 438 Pods");
    let text = stage.plan(&format!("--to {folder} --accept two-networks")).expect(0);
    says(&text.out, &["strategy: in-place", "2 of 2 worker nodes"]);
    says(&text.out, &["kubectl drain d --ignore-daemonsets`"]);
    says(&text.err, &["0 findings block", "0 to accept", "1 accepted", "1 note"]);
    stage.plan(&format!("--to {folder}")).expect(3);
}

/// Creates an object for each obstacle; returns the budget that permits no eviction.
async fn obstacles(stage: &Stage) -> Value {
    let api = stage.api();
    stage.local_range(OLD_RANGE).await;
    let port = json!({"ports": [{"containerPort": 80, "hostPort": 8080}]});
    create_pod(api, "mapped", "d", &port, &json!({"kubernetes.io/egress-bandwidth": "1M"})).await;
    let budget = object(
        "policy/v1",
        "PodDisruptionBudget",
        "shop",
        "web",
        &json!({"spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}}),
    );
    api.create(&budget).await;
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3});
    api.merge(&format!("{}/status", object_path(&budget)), &json!({"status": status})).await;
    let policy =
        json!({"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "192.0.2.4/32"}}]}]}});
    api.create(&object("networking.k8s.io/v1", "NetworkPolicy", "shop", "web", &policy)).await;
    api.merge(
        "/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel-ds",
        &json!({"metadata": {"labels": {"addon.kops.k8s.io/name": "networking.flannel"}}}),
    )
    .await;
    // Last, because the API server calls it for every new Pod.
    let webhook = json!({"webhooks": [{
        "name": "check.example.com", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "shop", "name": "hook"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }]});
    let mut configuration = object(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "x",
        "policies",
        &webhook,
    );
    configuration["metadata"] = json!({"name": "policies"});
    api.create(&configuration).await;
    budget
}

#[tokio::test]
async fn every_obstacle_is_a_finding() {
    let stage = Stage::start().await;
    let api = stage.api();
    let budget = obstacles(&stage).await;

    let lost = stage.manifests("lost", NEW_RANGE, |agent, config| {
        agent["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
        config["data"]["cni_network_config"] = json!(r#"{"plugins": [{"type": "calico"}]}"#);
    });
    let plan = stage.plan(&format!("--to {lost} -o json")).expect(3).json();
    let expected = [
        ("bandwidth", "accept"),
        ("budgets", "blocks"),
        ("host-ports", "accept"),
        ("installer", "accept"),
        ("kube-proxy-range", "accept"),
        ("network-policies", "accept"),
        ("node-selector", "blocks"),
        ("pod-webhooks", "accept"),
        ("policy-addresses", "accept"),
        ("two-networks", "accept"),
    ];
    assert_eq!(effects(&plan), BTreeMap::from(expected), "{plan:#}");
    for (name, facts) in [
        ("host-ports", &["no `portmap`", "`shop/mapped` (8080/TCP)"][..]),
        ("budgets", &["`shop/web` (3 healthy, 3 required)"]),
        ("pod-webhooks", &["`policies`, webhook `check.example.com`"]),
        ("kube-proxy-range", &[OLD_RANGE, NEW_RANGE]),
        ("node-selector", &["5 nodes of the old network", "`10-calico.conflist`", "`10-flannel.conflist`"]),
        ("policy-addresses", &["`shop/web`", "node `d`"]),
        ("installer", &["kOps addon `networking.flannel`", "`kube-flannel/kube-flannel-ds`"]),
    ] {
        says(observed(&plan, name), facts);
    }
    assert_eq!(plan["nodes"][0]["blocked_by"], json!(["`shop/web` (3 healthy, 3 required)"]));

    let same = stage.manifests("same", OLD_RANGE, |_, _| ());
    let plan = stage.plan(&format!("--to {same} -o json")).expect(3).json();
    assert_eq!(
        (&plan["strategy"]["name"], &plan["other_strategy"]["name"]),
        (&json!("roll"), &json!("in-place"))
    );
    says(observed(&plan, "shared-range"), &["equals", OLD_RANGE]);
    assert_eq!(effects(&plan)["shared-range"], "accept");
    let plan = stage.plan(&format!("--to {same} --strategy in-place -o json")).expect(3).json();
    assert_eq!(effects(&plan)["shared-range"], "blocks");

    // All that can be accepted is accepted, and the budget is repaired.
    api.delete(&object_path(&budget)).await;
    let accepted = "bandwidth,installer,network-policies,policy-addresses,pod-webhooks";
    let words = format!("--to {same} --accept {accepted}");
    says(&stage.plan(&words).expect(3).out, &["to accept", "shared-range"]);
    stage.plan(&format!("{words} --accept shared-range")).expect(0);
}

#[tokio::test]
async fn wrong_options_and_manifests_are_refused() {
    let stage = Stage::start().await;
    let folder = stage.manifests("clean", NEW_RANGE, |_, _| ());
    says(&stage.plan(&format!("--to {folder} --accept budget")).expect(2).err, &["no finding `budget`"]);
    says(&stage.plan("--to /dev/zero").expect(1).err, &["`/dev/zero` is not a regular file"]);
    let empty = stage.workspace.join("empty");
    std::fs::create_dir(&empty).expect("a folder");
    says(&stage.plan(&format!("--to {}", empty.display())).expect(1).err, &["contains no file"]);
    let file = stage.workspace.write("secret.yaml", "kind: Secret\nstringData: {password: hush: hush}\n");
    let refused = stage.plan(&format!("--to {}", file.display())).expect(1);
    says(&refused.err, &["is not valid YAML"]);
    assert!(!refused.err.contains("hush"), "{}", refused.err);
    let other = stage
        .workspace
        .write("other.yaml", daemon_set("a", "b", &json!({"containers": [{"name": "c"}]})).to_string());
    says(&stage.plan(&format!("--to {}", other.display())).expect(1).err, &["no DaemonSet"]);
}
