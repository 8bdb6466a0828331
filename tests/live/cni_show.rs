//! `cni show` on real nodes: what plug-ins left behind is listed by name, what others own is not, and nothing is changed.

use std::process::Command;

use serde_json::{Value, json};

use super::rig::cluster::{Cluster, ClusterOptions};
use super::rig::image::AGENT;
use super::rig::machine::Machine;
use super::rig::pod_network::PodNetwork;
use super::rig::real_node::RealNodes;
use super::rig::run::{Run, run};

fn show(cluster: &Cluster, words: &str) -> Run {
    let words = format!("cni show {words}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_netsurgeon"));
    command
        .args(words.split_whitespace())
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("NETSURGEON_IMAGE", AGENT);
    run(&words, command)
}

/// What the tools of the kernel show on a node, without counters and times.
fn state(nodes: &RealNodes, node: usize) -> String {
    let mut text = String::new();
    for words in [
        "ip -details link",
        "ip route show table all",
        "ip rule",
        "nft --stateless list ruleset",
        "iptables-save",
        "ipset save",
        "ls -lR --time-style=full-iso /etc/cni /var/lib/cni/networks /opt/cni /var/lib/weave /run/flannel",
    ] {
        let mut parts = words.split(' ');
        let mut command = nodes[node].host().command(parts.next().unwrap());
        let output = command.args(parts).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = shown.lines().filter(|line| !line.starts_with('#') && !line.contains("timer"));
        for line in lines {
            text += line.split(" [").next().unwrap();
            text.push('\n');
        }
    }
    text
}

fn names(shown: &Value, node: usize) -> Vec<String> {
    let left = shown["nodes"][node]["leftovers"].as_array().unwrap();
    left.iter()
        .map(|item| format!("{} {}", item["plugin"].as_str().unwrap(), item["name"].as_str().unwrap()))
        .collect()
}

/// What plug-ins left behind, beside what users own.
fn plant(host: &Machine) {
    for words in [
        "ip link add weave type bridge",
        "iptables -t nat -N FLANNEL-POSTRTG",
        "iptables -t nat -A POSTROUTING -m comment --comment flanneld_masq -j FLANNEL-POSTRTG",
        "ipset create weaver-no-masq-local hash:net",
        "iptables -N WEAVE-SHOP",
        "iptables -N CNI-ADMIN",
        "ip rule add priority 100 from 198.51.100.7 table main",
        "mkdir -p /var/lib/weave /run/flannel",
        "touch /var/lib/weave/weave-netdata.db /run/flannel/subnet.env /var/lib/weave-shop",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        host.run(words[0], &words[1..]);
    }
    std::fs::write(
        host.path("/etc/cni/net.d/10-weave.conflist"),
        json!({
            "cniVersion": "0.3.0", "name": "weave", "plugins": [{"name": "weave", "type": "weave-net"}],
        })
        .to_string(),
    )
    .unwrap();
}

#[tokio::test]
async fn leftovers_are_listed_by_name_and_nothing_is_changed() {
    let cluster = Cluster::start(ClusterOptions::with_real_nodes(2)).await;
    let nodes = cluster.start_real_nodes(PodNetwork::Bridge).await;
    let sound = show(&cluster, "").expect(0);
    assert!(sound.out.contains("nothing is left behind on 2 nodes"), "{}", sound.out);
    assert!(sound.out.contains("10-rig.conflist") && sound.out.contains("bridge, portmap"), "{}", sound.out);

    plant(nodes[0].host());
    let metadata = json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-type": "vxlan", "example.com/mine": "1"}}});
    cluster.api.merge("/api/v1/nodes/node-2", &metadata).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": "weave-net"}});
    cluster.api.create(&map).await;

    let before = [0, 1].map(|node| state(&nodes, node));
    let run = show(&cluster, "-o json").expect(3);
    assert_eq!([0, 1].map(|node| state(&nodes, node)), before);
    let shown = run.json();
    let left = names(&shown, 0);
    for wanted in [
        "weave weave",
        "flannel FLANNEL-POSTRTG",
        "weave weaver-no-masq-local",
        "weave /var/lib/weave",
        "flannel /run/flannel/subnet.env",
        "weave /etc/cni/net.d/10-weave.conflist",
    ] {
        assert!(left.iter().any(|name| name.starts_with(wanted)), "{wanted}: {left:#?}");
    }
    for decoy in ["WEAVE-SHOP", "CNI-ADMIN", "198.51.100.7", "weave-shop", "KUBE-", "cni0", "10-rig"] {
        assert!(!left.iter().any(|name| name.contains(decoy)), "{decoy}: {left:#?}");
    }
    assert!(names(&shown, 1).is_empty(), "{:#?}", names(&shown, 1));
    assert_eq!(shown["nodes"][0]["other_configurations"], json!(["10-weave.conflist"]));
    let objects = shown["objects"].to_string();
    assert!(
        objects.contains("flannel.alpha.coreos.com/backend-type") && objects.contains("ConfigMap weave-net"),
        "{objects}"
    );
    assert!(!objects.contains("example.com/mine"), "{objects}");

    let host = nodes[0].host();
    // The same file, but first: it wins, and its plug-in does not run.
    std::fs::rename(
        host.path("/etc/cni/net.d/10-weave.conflist"),
        host.path("/etc/cni/net.d/05-weave.conflist"),
    )
    .unwrap();
    let text = show(&cluster, "--node node-1").expect(3).out;
    assert!(text.contains("is a configuration of Weave Net, whose agents do not run"), "{text}");
    assert!(cluster.api.find("/api/v1/namespaces/netsurgeon-cni-show").await.is_none());
}
