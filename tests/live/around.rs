//! What else of a cluster knows its Service range or the address of its DNS: kubeadm's ConfigMaps, kubelets, NodeLocal
//! DNSCache, Calico's routers. It follows, and comes back.

use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::kubelet::Kubelet;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::serving::{DEADLINE, Serving};

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
const COREFILE: &str = "cluster.local:53 {
    errors
    bind 169.254.20.10 10.96.0.10
    forward . __PILLAR__CLUSTER__DNS__ {
        force_tcp
    }
    health 169.254.20.10:8080
}
";

/// Makes the objects that kubeadm, NodeLocal DNSCache and Calico would.
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
    api.create(&map("node-local-dns", "Corefile", COREFILE)).await;
    let labels = json!({"k8s-app": "node-local-dns"});
    let arguments = ["-localip", "169.254.20.10,10.96.0.10", "-conf", "/etc/Corefile"];
    api.create(&json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "kube-system", "name": "node-local-dns"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "node-cache", "image": "x", "args": arguments}]},
        }},
    }))
    .await;
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
    wait_until("the new kind is served", DEADLINE, async || {
        api.try_create(&router).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// What they say: Corefile, arguments, announced ranges.
async fn around(serving: &Serving) -> (String, Value, Value) {
    let api = &serving.cluster.api;
    let corefile = api.get(&format!("{CONFIG_MAPS}/node-local-dns")).await["data"]["Corefile"].clone();
    let arguments = api.get(CACHE).await["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    let announced = api.get(ROUTER).await["spec"]["serviceClusterIPs"].clone();
    (corefile.as_str().unwrap().to_string(), arguments[1].clone(), announced)
}

async fn entry(serving: &Serving, map: &str, entry: &str) -> String {
    serving.cluster.api.get(&format!("{CONFIG_MAPS}/{map}")).await["data"][entry]
        .as_str()
        .unwrap()
        .to_string()
}

#[tokio::test]
async fn it_follows_and_comes_back() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    furnish(&serving).await;
    let kubelets = [0, 1].map(|node| serving.cluster.start_kubelet(node, "10.96.0.10"));
    let before = around(&serving).await;
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

    let operation = serving.apply("").await;
    assert_eq!(
        entry(&serving, "kubeadm-config", "ClusterConfiguration").await,
        CLUSTER.replace("10.96.", "10.200.")
    );
    assert_eq!(entry(&serving, "kubelet-config", "kubelet").await, KUBELET.replace("10.96.", "10.200."));
    let (corefile, local, announced) = around(&serving).await;
    assert_eq!(corefile, COREFILE.replace("10.96.0.10\n", "10.96.0.10 10.200.0.10\n"));
    assert_eq!(local, "169.254.20.10,10.96.0.10,10.200.0.10");
    assert_eq!(announced, json!([{"cidr": "10.96.0.0/16"}, {"cidr": "10.200.0.0/16"}]));

    // Someone has begun with the kubelets: that is what a way back must not forget.
    set_dns(&serving, &kubelets[0], "10.200.0.10");
    serving.restart_with("10.96.0.0/16").await;
    let back = serving
        .netsurgeon(&format!("operation rollback {operation} --yes --linger 1 --confirm flags"))
        .expect(0);
    assert!(back.err.contains("kubelets tell Pods `10.200.0.10`: `node-1`"), "{}", back.err);
    assert_eq!(around(&serving).await, before);
    assert_eq!(stored(&serving).await, bytes, "byte for byte");
    set_dns(&serving, &kubelets[0], "10.96.0.10");
    serving.wait_for_one_range().await;
    serving.assert_clean();

    let words = serving.apply_words().replace("before.db", "again.db");
    serving.apply_with(&words, "10.200.0.0/16").await;
    to_the_end(&serving, &kubelets).await;
    let (corefile, local, announced) = around(&serving).await;
    assert_eq!(corefile, COREFILE.replace("10.96.", "10.200."));
    assert_eq!(local, "169.254.20.10,10.200.0.10");
    assert_eq!(announced, json!([{"cidr": "10.200.0.0/16"}]));
    serving.assert_clean();
}

/// Does on a node what its operator does.
fn set_dns(serving: &Serving, kubelet: &Kubelet, to: &str) {
    let config = kubelet.config.display();
    serving.netsurgeon(&format!("controlplane set-dns --to {to} --yes --config {config}")).expect(0);
    kubelet.restart();
}

/// It is seen by itself what kubelets say, and that the caches on the nodes were made anew.
async fn to_the_end(serving: &Serving, kubelets: &[Kubelet]) {
    let words = "renumber retire --yes --confirm soak --confirm certificates-after";
    let paused = serving.netsurgeon(words).expect(6);
    assert!(paused.err.contains("kubelets tell Pods `10.96.0.10`: `node-1`, `node-2`"), "{}", paused.err);
    set_dns(serving, &kubelets[0], "10.200.0.10");
    let paused = serving.netsurgeon(words).expect(6);
    assert!(paused.err.contains("kubelets tell Pods `10.96.0.10`: `node-2`"), "{}", paused.err);
    set_dns(serving, &kubelets[1], "10.200.0.10");

    let mut retiring = serving.start_netsurgeon(words);
    let generation = serving.cluster.api.get(CACHE).await["metadata"]["generation"].clone();
    wait_until("the cache's arguments change", DEADLINE, async || {
        assert_eq!(retiring.ended(), None, "it waits for the caches");
        let now = serving.cluster.api.get(CACHE).await["metadata"]["generation"].clone();
        if now == generation { Err(now.to_string()) } else { Ok(()) }
    })
    .await;
    // As the controller of DaemonSets would say it.
    let count = json!({"observedGeneration": generation.as_u64().unwrap() + 1, "desiredNumberScheduled": 2,
        "currentNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2,
        "numberMisscheduled": 0});
    serving.cluster.api.merge(&format!("{CACHE}/status"), &json!({"status": count})).await;
    assert_eq!(retiring.end().await, 0);
}
