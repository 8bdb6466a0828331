//! The rig's real nodes: Pods that kubelets and containerds run, on two kinds of Pod network, with DNS and NetworkPolicies.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::rig::cluster::{Cluster, ClusterOptions};
use super::rig::echo::{ONCE, PORT, serve};
use super::rig::image::{AGENT, PAUSE};
use super::rig::pod_network::{PodNetwork, start_policies};
use super::rig::probe::ask_once;
use super::rig::process::wait_until;
use super::rig::real_node::RealNodes;
use super::rig::report::Target;

const DEADLINE: Duration = Duration::from_mins(1);

/// A Pod on each node that sleeps, with a container `agent` that has the program.
async fn run_pods(cluster: &Cluster) -> [Value; 2] {
    let pod = async |number: u8| {
        let spec = json!({
            "nodeName": format!("node-{number}"), "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "agent", "image": AGENT, "command": ["/pause"]}],
        });
        cluster.run_pod("default", &format!("pod-{number}"), spec).await
    };
    [pod(1).await, pod(2).await]
}

fn address(pod: &Value) -> IpAddr {
    pod["status"]["podIP"].as_str().expect("an address").parse().expect("an address")
}

/// Each Pod answers the other, with its own address, over the nodes.
async fn pods_reach_each_other(nodes: &RealNodes, pods: &[Value; 2]) {
    for (client, server) in [(0, 1), (1, 0)] {
        let _server = serve(&nodes[server].namespace_of(&pods[server]), "server");
        let client = (nodes[client].namespace_of(&pods[client]), address(&pods[client]));
        let target = Target::tcp(&address(&pods[server]).to_string(), PORT);
        let answer = wait_until("the Pod answers", DEADLINE, async || ask_once(&client.0, target)).await;
        assert_eq!(answer, (client.1, "server".to_owned()));
    }
}

#[tokio::test]
async fn pods_run_on_real_nodes_with_a_bridge() {
    let cluster = Cluster::start(ClusterOptions::with_real_nodes(2)).await;
    let mut nodes = cluster.start_real_nodes(PodNetwork::Bridge).await;
    let pods = run_pods(&cluster).await;
    pods_reach_each_other(&nodes, &pods).await;
    let version = format!("netsurgeon {}", env!("CARGO_PKG_VERSION"));
    let print_version =
        async || cluster.exec("default", "pod-2", "agent", &["/netsurgeon", "--version"]).await;
    assert!(print_version().await.unwrap().starts_with(&version));
    let failed = cluster.exec("default", "pod-2", "agent", &["/netsurgeon", "unknown"]).await;
    assert!(failed.as_ref().is_err_and(|error| error.contains("exit code 2")), "{failed:?}");

    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "agent", "image": AGENT, "args": ["--version"]}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "once"}, "spec": spec});
    cluster.api.create(&pod).await;
    wait_until("the Pod has ended", DEADLINE, async || {
        let status = cluster.api.get("/api/v1/namespaces/default/pods/once").await["status"].take();
        if status["phase"] == "Succeeded" { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let (code, log) = cluster.ask("/api/v1/namespaces/default/pods/once/log").await.unwrap();
    assert!(code == 200 && log.starts_with(&version), "{code} {log}");

    forwarded_port_reaches_its_pod(&cluster, &nodes, &pods).await;
    host_port_reaches_its_pod(&cluster, &nodes).await;
    names_resolve_in_pods(&cluster, &nodes, &pods).await;

    nodes[1].stop_kubelet().await;
    nodes[1].stop_containerd().await;
    pods_reach_each_other(&nodes, &pods).await;
    nodes[1].start_containerd().await;
    nodes[1].start_kubelet().await;
    wait_until("the kubelet knows its Pods again", DEADLINE, print_version).await;
    cluster.delete_and_wait("/api/v1/namespaces/default/pods/pod-2").await;
}

async fn forwarded_port_reaches_its_pod(cluster: &Cluster, nodes: &RealNodes, pods: &[Value; 2]) {
    let _server = serve(&nodes[0].namespace_of(&pods[0]), "forwarded");
    let api: kube::Api<Pod> = kube::Api::namespaced(cluster.api.client(), "default");
    let mut forwarder = api.portforward("pod-1", &[PORT]).await.unwrap();
    let mut stream = forwarder.take_stream(PORT).unwrap();
    stream.write_all(&[ONCE]).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "127.0.0.1 forwarded\n");
}

async fn host_port_reaches_its_pod(cluster: &Cluster, nodes: &RealNodes) {
    let port = json!({"containerPort": PORT, "hostPort": 30_900});
    let spec =
        json!({"nodeName": "node-1", "containers": [{"name": "pause", "image": PAUSE, "ports": [port]}]});
    let pod = cluster.run_pod("default", "host-port", spec).await;
    let _server = serve(&nodes[0].namespace_of(&pod), "host-port");
    let target = Target::tcp(&cluster.nodes[0].address().to_string(), 30_900);
    let (_, name) =
        wait_until("the host port answers", DEADLINE, async || ask_once(nodes[1].namespace(), target)).await;
    assert_eq!(name, "host-port");
}

async fn names_resolve_in_pods(cluster: &Cluster, nodes: &RealNodes, pods: &[Value; 2]) {
    cluster.start_dns(1).await;
    for (node, pod) in nodes.iter().zip(pods) {
        let name = "kubernetes.default.svc.cluster.local";
        let namespace = node.namespace_of(pod);
        let address =
            wait_until("the name resolves", DEADLINE, async || cluster.resolve(&namespace, name)).await;
        assert_eq!(address, IpAddr::from([10, 96, 0, 1]));
    }
}

#[tokio::test]
async fn pods_reach_each_other_by_flannel_and_obey_policies() {
    let cluster = Cluster::start(ClusterOptions::with_real_nodes(2)).await;
    let mut nodes = cluster.start_real_nodes(PodNetwork::Flannel).await;
    let pods = run_pods(&cluster).await;
    pods_reach_each_other(&nodes, &pods).await;

    for node in nodes.iter_mut() {
        let policies = start_policies(&cluster, node.host()).await;
        node.programs.push(policies);
    }
    let _server = serve(&nodes[1].namespace_of(&pods[1]), "server");
    let client = nodes[0].namespace_of(&pods[0]);
    let target = Target::tcp(&address(&pods[1]).to_string(), PORT);
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"namespace": "default", "name": "deny"},
        "spec": {"podSelector": {"matchLabels": {"app": "pod-2"}}, "policyTypes": ["Ingress"]},
    });
    cluster.api.create(&policy).await;
    wait_until("the policy is enforced", DEADLINE, async || match ask_once(&client, target) {
        Ok(answer) => Err(format!("{answer:?}")),
        Err(_) => Ok(()),
    })
    .await;
    cluster.api.delete("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/deny").await;
    wait_until("the policy is lifted", DEADLINE, async || ask_once(&client, target)).await;

    nodes[1].kill();
    let answer = ask_once(&client, target);
    assert!(answer.is_err(), "{answer:?}");
}
