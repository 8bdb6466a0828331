//! Other objects that contain the Service range or the DNS address: kubeadm's ConfigMaps, kubelets, Calico's routers, NodeLocal
//! DNSCache. netsurgeon changes them and restores them, also when other clients change them meanwhile; or it verifies that the
//! operator has completed a manual step.

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::kubelet::Kubelet;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::run::{has_line, says};
use super::roles;
use super::serving_cluster::{DEADLINE, Serving};

const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const CACHE: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/node-local-dns";
const ROUTER: &str = "/apis/crd.projectcalico.org/v1/bgpconfigurations/default";

const CLUSTER: &str = "# the storage team's
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {dnsDomain: cluster.local, podSubnet: 10.244.0.0/16, serviceSubnet: '10.96.0.0/16'}
";
const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
clusterDNS:
- 10.96.0.10
kind: KubeletConfiguration
";
/// Creates the objects of kubeadm and Calico.
async fn furnish(serving: &Serving) {
    let api = &serving.cluster.api;
    let map = |name: &str, entry: &str, text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "kube-system", "name": name}, "data": {entry: text},
        })
    };
    api.create(&map("kubeadm-config", "ClusterConfiguration", CLUSTER)).await;
    api.create(&map("kubelet-config", "kubelet", KUBELET)).await;
    api.create(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "kube-system", "name": "kube-dns", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": "10.96.0.10", "selector": {"k8s-app": "kube-dns"},
            "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]},
    }))
    .await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let names =
        json!({"plural": "bgpconfigurations", "singular": "bgpconfiguration", "kind": "BGPConfiguration"});
    api.create(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "bgpconfigurations.crd.projectcalico.org"},
        "spec": {"group": "crd.projectcalico.org", "scope": "Cluster", "names": names, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
        ]},
    }))
    .await;
    let router = json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "BGPConfiguration", "metadata": {"name": "default"},
        "spec": {"asNumber": 64512, "serviceClusterIPs": [{"cidr": "10.96.0.0/16"}]},
    });
    wait_until("the API serves the new kind", DEADLINE, async || {
        api.try_create(&router).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

async fn announced(serving: &Serving) -> Value {
    serving.cluster.api.get(ROUTER).await["spec"]["serviceClusterIPs"].clone()
}

async fn entry(serving: &Serving, map: &str, entry: &str) -> String {
    serving.cluster.api.get(&format!("{CONFIG_MAPS}/{map}")).await["data"][entry]
        .as_str()
        .unwrap()
        .to_string()
}

#[tokio::test]
async fn other_settings_follow_and_are_restored() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    furnish(&serving).await;
    let kubelets = [0, 1].map(|node| serving.cluster.start_kubelet(node, "10.96.0.10"));
    let before = announced(&serving).await;
    let records =
        ["kubeadm-config", "kubelet-config"].map(|name| format!("/registry/configmaps/kube-system/{name}"));
    let stored = async |serving: &Serving| {
        let mut found = Vec::new();
        for key in &records {
            found.push(serving.cluster.etcd.get(key).await.expect("a ConfigMap"));
        }
        found
    };
    let bytes = stored(&serving).await;

    create_cache(&serving).await;

    let operation = serving.apply("").await;
    assert_eq!(
        entry(&serving, "kubeadm-config", "ClusterConfiguration").await,
        CLUSTER.replace("10.96.", "10.200.")
    );
    assert_eq!(entry(&serving, "kubelet-config", "kubelet").await, KUBELET.replace("10.96.", "10.200."));
    let range = |cidr: &str| json!({"cidr": cidr});
    assert_eq!(announced(&serving).await, json!([range("10.96.0.0/16"), range("10.200.0.0/16")]));

    // One kubelet has the new DNS address already: a rollback must report it.
    set_dns(&serving, &kubelets[0], "10.200.0.10");
    serving.restart_with("10.96.0.0/16").await;
    let back = serving
        .netsurgeon(&format!("operation rollback {operation} --yes --linger 1 --confirm flags"))
        .expect(0);
    says(&back.err, &["`10.200.0.10`", "`node-1`", "`netsurgeon controlplane set-dns"]);
    assert!(!has_line(&back.err, &["`10.200.0.10`", "`node-2`"]), "{}", back.err);
    assert_eq!(announced(&serving).await, before);
    assert_eq!(stored(&serving).await, bytes, "restored byte for byte");
    set_dns(&serving, &kubelets[0], "10.96.0.10");
    serving.wait_for_one_range().await;
    serving.assert_clean();

    let words = serving.apply_words().replace("before.db", "again.db");
    serving.apply_with(&words, "10.200.0.0/16").await;
    // Entries that another client adds stay, and do not stop the operation.
    let more = json!([range("10.96.0.0/16"), range("192.0.2.0/24"), range("10.200.0.0/16")]);
    serving.cluster.api.merge(ROUTER, &json!({"spec": {"serviceClusterIPs": more}})).await;
    to_the_end(&serving, &kubelets).await;
    assert_eq!(announced(&serving).await, json!([range("192.0.2.0/24"), range("10.200.0.0/16")]));
    serving.assert_clean();
}

/// A ConfigMap that cannot be restored blocks nothing else: the rollback asks for the flag, and everything else is restored.
#[tokio::test]
async fn missing_config_map_blocks_nothing_else() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    furnish(&serving).await;
    let operation = serving.apply("").await;
    serving.cluster.api.delete(&format!("{CONFIG_MAPS}/kubelet-config")).await;
    serving.cluster.api.delete(ROUTER).await;
    let rollback = format!("operation rollback {operation} --yes --linger 1");
    let paused = serving.netsurgeon(&rollback).expect(6);
    assert!(paused.err.contains("--confirm flags"), "{}", paused.err);
    serving.restart_with("10.96.0.0/16").await;
    let stuck = serving.netsurgeon(&format!("{rollback} --confirm flags")).expect(5);
    says(&stuck.err, &["1 step ", "`record/kubelet-config-10.96.0.10`"]);
    assert_eq!(entry(&serving, "kubeadm-config", "ClusterConfiguration").await, CLUSTER);
    serving.wait_for_one_range().await;
    // The step can never be undone. The refusal of `forget` has the command that ends the rollback without it.
    let forget = serving.netsurgeon(&format!("operation forget {operation}")).expect(1);
    let end = format!("operation rollback {operation} --give-up record/kubelet-config-10.96.0.10");
    says(&forget.err, &[&format!("`netsurgeon {end}`")]);
    let unknown = serving.netsurgeon(&format!("{rollback} --give-up default/absent")).expect(2);
    says(&unknown.err, &["hint: ", "`record/kubelet-config-10.96.0.10`", "`manual/flags`"]);
    let ended = serving.netsurgeon(&format!("{end} --yes --linger 1 -o json")).expect(0);
    let given_up = ended.json()["given_up"][0].clone();
    assert_eq!((&ended.json()["status"], &given_up["back"]), (&json!("rolled-back"), &json!(true)));
    assert!(given_up["observed"].as_str().is_some_and(|text| text.contains("kubelet-config")), "{given_up}");
    serving.netsurgeon(&format!("operation forget {operation}")).expect(0);
    serving.assert_clean();
}

/// Sets the DNS address on a node, as its operator does.
fn set_dns(serving: &Serving, kubelet: &Kubelet, to: &str) {
    let config = kubelet.config.display();
    serving.netsurgeon(&format!("controlplane set-dns --to {to} --yes --config {config}")).expect(0);
    kubelet.restart();
}

/// Verifies the DNS addresses of kubelets without a confirmation.
async fn to_the_end(serving: &Serving, kubelets: &[Kubelet]) {
    let words = "renumber retire --without-evidence --yes --confirm soak --confirm certificates-after";
    node_local_dns(serving, words).await;
    // Without the optional role no kubelet can be asked: the step reports that, and how to confirm it.
    roles::install(serving).await;
    let hidden = roles::by_operator(serving, words).expect(6);
    says(&hidden.err, &["cluster-dns: ", "`node-1`", "`get nodes/proxy`", "`netsurgeon-nodes`"]);
    says(&hidden.err, &["`--confirm cluster-dns`"]);
    let paused = serving.netsurgeon(words).expect(6);
    says(&paused.err, &["cluster-dns: ", "`10.96.0.10`", "`node-1`", "`node-2`"]);
    set_dns(serving, &kubelets[0], "10.200.0.10");
    let paused = serving.netsurgeon(words).expect(6);
    says(&paused.err, &["cluster-dns: ", "`10.96.0.10`", "`node-2`"]);
    assert!(!has_line(&paused.err, &["cluster-dns: ", "`node-1`"]), "{}", paused.err);
    set_dns(serving, &kubelets[1], "10.200.0.10");
    let done = serving.netsurgeon(words).expect(0);
    says(&done.err, &["cluster-dns: ", "verified", "2 kubelets"]);
}

fn cache(local: &str) -> Value {
    let labels = json!({"k8s-app": "node-local-dns"});
    let container =
        json!({"name": "node-cache", "image": "x", "args": ["-localip", local, "-conf", "/etc/Corefile"]});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "kube-system", "name": "node-local-dns"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}

fn corefile(local: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": "node-local-dns"},
        "data": {"Corefile": format!("cluster.local:53 {{\n    bind 169.254.20.10 {local}\n}}\n")},
    })
}

/// NodeLocal DNSCache, and a Pod of it as its controller creates it.
async fn create_cache(serving: &Serving) {
    let api = &serving.cluster.api;
    api.create(&cache("169.254.20.10,10.96.0.10")).await;
    api.create(&corefile("10.96.0.10")).await;
    let status = json!({"currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1});
    api.merge(&format!("{CACHE}/status"), &json!({"status": status})).await;
    create_cache_pod(serving).await;
}

async fn create_cache_pod(serving: &Serving) {
    let metadata = json!({"namespace": "kube-system", "name": "node-local-dns-1", "labels": {"k8s-app": "node-local-dns"}});
    let spec = json!({"nodeName": "node-1", "containers": [{"name": "node-cache", "image": "x"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    serving.cluster.api.create(&pod).await;
}

/// The operator completes one part after the other, and each pause names the missing part.
async fn node_local_dns(serving: &Serving, words: &str) {
    let api = &serving.cluster.api;
    let missing = |facts: &[&str]| {
        let paused = serving.netsurgeon(words).expect(6);
        says(&paused.err, &[&["node-local-dns: "], facts].concat());
    };
    missing(&["DaemonSet `kube-system/node-local-dns`", "`10.96.0.10`"]);
    let arguments = cache("169.254.20.10,10.200.0.10")["spec"].clone();
    api.merge(CACHE, &json!({"spec": arguments})).await;
    missing(&["ConfigMap `kube-system/node-local-dns`", "`10.96.0.10`"]);
    api.merge(&format!("{CONFIG_MAPS}/node-local-dns"), &json!({"data": corefile("10.200.0.10")["data"]}))
        .await;
    missing(&["1 of 1;", "`kube-system/node-local-dns`", "`node-local-dns-1`"]);
    let pod = "/api/v1/namespaces/kube-system/pods/node-local-dns-1";
    api.delete(&format!("{pod}?gracePeriodSeconds=0")).await;
    create_cache_pod(serving).await;
}
