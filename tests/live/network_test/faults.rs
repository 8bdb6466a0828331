//! Planted faults: each is found by the path that is named for it, with the node and the likely cause.

use rustix::process::Signal;
use serde_json::json;

use super::super::rig::namespace::Namespace;
use super::*;

/// All paths except policies, which take half a minute if nothing enforces them.
const QUICK: &str = "--skip policy-deny,policy-allow";

/// The rules of flannel 0.28 for a range and the range of the node (`masqRules`, pkg/trafficmngr/iptables/iptables.go).
fn flannel_rules(lease: &str) -> String {
    let (all, chain) = ("10.244.0.0/16", "FLANNEL-POSTRTG");
    format!(
        "*nat\n:{chain} - [0:0]\n\
         -A POSTROUTING -m comment --comment \"flanneld masq\" -j {chain}\n\
         -A {chain} -m mark --mark 0x4000/0x4000 -j RETURN\n\
         -A {chain} -s {lease} -d {all} -j RETURN\n\
         -A {chain} -s {all} -d {lease} -j RETURN\n\
         -A {chain} ! -s {all} -d {lease} -j RETURN\n\
         -A {chain} -s {all} ! -d 224.0.0.0/4 -j MASQUERADE --random-fully\n\
         -A {chain} ! -s {all} -d {all} -j MASQUERADE --random-fully\nCOMMIT\n"
    )
}

impl World {
    fn on_node(&self, node: usize, program: &str, arguments: &[&str]) {
        self.nodes[node].namespace().run(program, arguments);
    }

    /// Runs `nft` on a node with a script.
    fn nft(&self, node: usize, script: &str) {
        self.on_node(node, "nft", &[script]);
    }

    fn iptables(&self, node: usize, rules: &str) {
        let file = self.nodes[node].host().path("/tmp/rules");
        std::fs::write(&file, rules).unwrap();
        self.on_node(node, "iptables-restore", &["--noflush", &file.display().to_string()]);
    }

    async fn restart_proxy(&mut self, node: usize, cluster_cidr: &str) {
        let proxy = &mut self.nodes[node].proxy;
        proxy.stop();
        proxy.config["clusterCIDR"] = cluster_cidr.into();
        proxy.start_again().await;
    }
}

/// Asserts that only these paths failed, and returns the failures.
#[track_caller]
fn only(result: &Value, paths: &[&str]) -> Vec<String> {
    let all = failures(result);
    let mut found: Vec<&str> = all.iter().filter_map(|line| line.split(' ').next()).collect();
    found.dedup();
    assert_eq!(found, paths, "{all:#?}");
    all
}

/// Asserts that a failure has all these words.
#[track_caller]
fn has(failures: &[String], start: &str, words: &[&str]) {
    let found =
        failures.iter().any(|line| line.starts_with(start) && words.iter().all(|word| line.contains(word)));
    assert!(found, "{start} {words:?}: {failures:#?}");
}

/// Asserts that a cause of the result has all these words.
#[track_caller]
fn explains(result: &Value, path: &str, words: &[&str]) {
    let causes = result["causes"].as_array().expect("causes");
    let found = causes.iter().any(|cause| {
        let text = cause.to_string();
        cause["path"] == path && words.iter().all(|word| text.contains(word))
    });
    assert!(found, "{path} {words:?}: {causes:#?}");
}

#[tokio::test]
async fn faults_of_packets_and_addresses_are_found() {
    let world = World::start(2, PodNetwork::Bridge).await;
    only(&world.test(QUICK), &[]);

    // Every tenth datagram from node-1 to node-2 is lost.
    world.nft(
        1,
        "add table inet planted; add chain inet planted forward { type filter hook forward priority 0; }; \
                  add rule inet planted forward iifname eth0 udp dport 17250 numgen inc mod 10 < 1 drop",
    );
    let found = world.test(QUICK);
    has(&only(&found, &["loss"]), "loss node-1 node-2 UDP lost-there", &["100 sent,"]);
    world.nft(1, "delete table inet planted");

    // On the way back.
    world.nft(
        1,
        "add table inet planted; add chain inet planted forward { type filter hook forward priority 0; }; \
                  add rule inet planted forward oifname eth0 udp sport 17250 numgen inc mod 10 < 1 drop",
    );
    let found = world.test(QUICK);
    has(&only(&found, &["loss"]), "loss node-1 node-2 UDP lost-back", &["100 sent, 100 arrived,"]);
    world.nft(1, "delete table inet planted");

    world.on_node(1, "ip", &["link", "set", "eth0", "mtu", "1400"]);
    let found = world.test(QUICK);
    // TCP that node-1 sends to node-2 survives only if the kernel never has to send one full segment alone, because a
    // veth accepts larger frames if segmentation is offloaded (`is_skb_forwardable`, include/linux/netdevice.h, Linux 6.x).
    let from_node_1 = ["transfer node-1 node-2 upload", "transfer node-2 node-1 download"];
    let (stuck, all): (Vec<_>, Vec<_>) = failures(&found)
        .into_iter()
        .partition(|failure| from_node_1.iter().any(|start| failure.starts_with(start)));
    assert!(all.iter().all(|failure| failure.starts_with("full-size")), "{all:#?} {stuck:#?}");
    has(&all, "full-size node-1 node-2", &["1500 bytes", "packets of 1400 bytes do"]);
    has(&all, "full-size node-2 node-1", &["1500 bytes", "the limit of 1400 bytes was reported"]);
    explains(&found, "full-size", &["MTU"]);
    world.on_node(1, "ip", &["link", "set", "eth0", "mtu", "1500"]);

    // node-1 had another range under flannel.
    world.iptables(0, &flannel_rules("10.244.7.0/24"));
    let found = world.test(QUICK);
    let all = only(&found, &["pod-to-pod-same-node", "pod-to-pod", "pod-to-service", "node-port-local"]);
    has(&all, "pod-to-pod node-1 node-2 TCP source-of-sender", &["192.0.2.101"]);
    has(&all, "pod-to-pod node-1 node-2 UDP source-of-sender", &["192.0.2.101"]);
    has(&all, "pod-to-pod node-2 node-1 TCP source-of-receiver", &["10.244.1.1"]);
    explains(&found, "pod-to-pod", &["FLANNEL-POSTRTG", "node-1"]);
    // With its present range, the same chain does no harm.
    world.on_node(0, "iptables", &["-t", "nat", "-F", "FLANNEL-POSTRTG"]);
    world.on_node(0, "iptables", &["-t", "nat", "-F", "POSTROUTING"]);
    world.iptables(0, &flannel_rules("10.244.1.0/24"));
    only(&world.test("--only pod-to-pod,pod-to-pod-same-node"), &[]);
}

#[tokio::test]
async fn faults_of_routes_and_services_are_found() {
    let mut world = World::start(2, PodNetwork::Bridge).await;

    // node-2 does not find the way back to the Pods of node-1.
    world.on_node(1, "ip", &["route", "replace", "blackhole", "10.244.1.0/24"]);
    let found = world.test("--only node-to-node,pod-to-pod,loss");
    let all = only(&found, &["pod-to-pod", "loss"]);
    has(&all, "loss node-1 node-2 UDP lost-back", &["100 sent, 100 arrived, 0 answered"]);
    has(&all, "loss node-2 node-1 UDP lost-there", &["100 sent, 0 arrived, 0 answered"]);
    explains(&found, "pod-to-pod", &["no route"]);
    world.on_node(1, "ip", &["route", "replace", "10.244.1.0/24", "via", "192.0.2.101"]);

    for node in 0..2 {
        world.nft(node, "add table inet planted; add chain inet planted first { type filter hook prerouting priority -300; }; \
                         add rule inet planted first tcp dport 53 drop");
    }
    let found = world.test(QUICK);
    only(&found, &["dns-tcp"]);
    explains(&found, "dns-tcp", &["TCP port 53"]);
    for node in 0..2 {
        world.nft(node, "delete table inet planted");
    }

    // Through the node port of node-2, only its own endpoint answers.
    world.nft(
        1,
        "add table inet planted; add chain inet planted forward { type filter hook forward priority 0; }; \
                  add rule inet planted forward iifname eth0 oifname eth0 drop",
    );
    let found = world.test("--only pod-to-pod,pod-to-service,node-port,node-port-local");
    has(&only(&found, &["node-port"]), "node-port node-1 node-2 TCP endpoints", &["connections failed"]);
    world.nft(1, "delete table inet planted");

    world.nodes[0].proxy.pause();
    let found = world.test(QUICK);
    let all = only(&found, &["pod-to-service", "node-to-service", "hairpin", "node-port", "node-port-local"]);
    assert!(all.iter().all(|line| line.contains("node-1")), "{all:#?}");
    has(&all, "pod-to-service node-1", &[]);
    has(&all, "node-port node-2 node-1", &[]);
    explains(&found, "pod-to-service", &["kube-proxy", "node-1"]);
    world.nodes[0].proxy.resume();

    // kube-proxy of node-1 does not count its Pods as local.
    world.restart_proxy(0, "10.99.0.0/16").await;
    let found = world.test(QUICK);
    has(&only(&found, &["pod-to-service"]), "pod-to-service node-1", &["source-of-sender", "192.0.2.101"]);
    explains(&found, "pod-to-service", &["clusterCIDR"]);
    world.restart_proxy(0, "10.244.0.0/16").await;

    let condition = json!({
        "type": "NetworkUnavailable", "status": "True", "reason": "CalicoIsDown", "message": "Calico is shutting down",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({"status": {"conditions": [condition]}});
    world.cluster.api.strategic("/api/v1/nodes/node-2/status", &status).await;
    let found = world.test(QUICK);
    has(&only(&found, &["node-object"]), "node-object node-2", &["CalicoIsDown"]);
    explains(&found, "node-object", &["kubectl patch node"]);
}

#[tokio::test]
async fn faults_of_the_cni_configuration_are_found() {
    let world = World::start(2, PodNetwork::Bridge).await;

    // An old rule for the host port comes first, and leads to an address that no Pod has.
    world.on_node(
        1,
        "iptables",
        &[
            "-t",
            "nat",
            "-I",
            "PREROUTING",
            "-p",
            "tcp",
            "--dport",
            "17251",
            "-j",
            "DNAT",
            "--to-destination",
            "10.244.2.250:17250",
        ],
    );
    let found = world.test(QUICK);
    has(&only(&found, &["host-port"]), "host-port node-1 node-2 TCP", &[]);
    world.on_node(1, "iptables", &["-t", "nat", "-D", "PREROUTING", "1"]);

    let conflist = world.nodes[1].host().path(CONFIGURATION);
    let sound = std::fs::read_to_string(&conflist).unwrap();
    let mut broken: Value = serde_json::from_str(&sound).unwrap();
    broken["plugins"].as_array_mut().unwrap().pop();
    std::fs::write(&conflist, broken.to_string()).unwrap();
    let found = world.test(QUICK);
    has(&only(&found, &["host-port"]), "host-port node-1 node-2 TCP refused", &[]);
    explains(&found, "host-port", &["portmap"]);
    std::fs::write(&conflist, sound).unwrap();

    let found = world.test("--only policy-deny,policy-allow");
    let all = only(&found, &["policy-deny"]);
    has(&all, "policy-deny node-1 node-2 ingress not-denied", &["answered"]);
    explains(&found, "policy-deny", &["no component enforces NetworkPolicies"]);

    // A half-written file that sorts first is worse than none.
    std::fs::write(world.nodes[1].host().path("/etc/cni/net.d/00-half.conflist"), "{").unwrap();
    let found = world.test(&format!("{QUICK} --patience 20s"));
    let all = failures(&found);
    has(&all, "agent node-2  pod not-started", &[]);
    has(&all, "new-pod node-2   not-started", &[]);
    assert!(
        all.iter().all(|line| !line.contains(" node-1 node-1") && !line.starts_with("pod-to-pod")),
        "{all:#?}"
    );
    explains(&found, "new-pod", &["/etc/cni/net.d"]);
}

/// Returns the first address of the agent with a role on a node.
async fn address_of(world: &World, role: &str, node: &str) -> String {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=netsurgeon%2Frole%3D{role}");
    let pods = world.cluster.api.list(&path).await;
    let pod = pods.iter().find(|pod| pod["spec"]["nodeName"] == node).expect("the agent runs");
    pod["status"]["podIP"].as_str().expect("it has an address").to_owned()
}

/// A fault that is planted while a test runs; returns the result of the rounds until the end of the next two.
fn after(mut test: Background, plant: impl FnOnce()) -> Value {
    plant();
    test.rounds(3);
    test.signal(Signal::TERM);
    let ended = test.end();
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.err))
}

#[tokio::test]
async fn address_that_is_used_twice_is_found() {
    let world = World::start(2, PodNetwork::Bridge).await;
    let words = "network test --for 10m --interval 1s --keep-going --only pod-to-pod,pod-to-pod-same-node,node-to-pod,loss -o json";

    // node-2 has the address of a Pod of node-1, too: its own agent answers.
    let mut test = Background::start(&world, words);
    test.says("round 1:");
    let address = address_of(&world, "pod", "node-1").await;
    let found =
        after(test, || world.nodes[1].namespace().ip(&[format!("address add {address}/32 dev cni0")]));
    let all = failures(&found);
    has(&all, "pod-to-pod node-2 node-1 TCP wrong-server", &["-host-1` answered instead"]);
    explains(&found, "pod-to-pod", &["two Pods or hosts have one address"]);
    world.nodes[1].namespace().ip(&[format!("address delete {address}/32 dev cni0")]);

    // A rule that was left behind on node-2 leads to another Pod.
    let mut test = Background::start(&world, words);
    test.says("round 1:");
    let (address, other) =
        (address_of(&world, "pod", "node-1").await, address_of(&world, "peer", "node-2").await);
    let rule = format!(
        "add table ip planted; add chain ip planted first {{ type nat hook prerouting priority -110; }}; \
         add rule ip planted first ip daddr {address} udp dport 17250 dnat to {other}; \
         add rule ip planted first ip daddr {address} tcp dport 17250 dnat to {other}"
    );
    let found = after(test, || world.nft(1, &rule));
    let all = failures(&found);
    assert!(all.iter().all(|line| line.contains(" node-2 node-1 ")), "{all:#?}");
    has(&all, "pod-to-pod node-2 node-1 TCP wrong-server", &["-peer-1` answered instead"]);
    has(&all, "loss node-2 node-1 UDP duplicate", &["-peer-1` answered for the same address"]);
    for path in ["pod-to-pod", "loss"] {
        explains(&found, path, &["two Pods or hosts have one address", "an old rule redirects the address"]);
    }
    world.nft(1, "delete table ip planted");

    // On the bridge of node-1, something without an agent announces the address of a Pod.
    let mut test = Background::start(&world, words);
    test.says("round 1:");
    let address = address_of(&world, "pod", "node-1").await;
    let second = Namespace::create("second");
    let found = after(test, || {
        let node = world.nodes[0].namespace();
        node.ip(&[
            format!("link add second type veth peer name eth0 netns {}", second.path()),
            "link set second master cni0 up".to_owned(),
        ]);
        second.sysctl("ipv4/conf/eth0/arp_notify", "1");
        second.ip(&[
            &*format!("address add {address}/24 dev eth0"),
            "link set eth0 up",
            "route add default via 10.244.1.1",
        ]);
        node.ip(&[format!("neighbor flush to {address} dev cni0")]);
        // For two seconds: a node ignores announcements within a second of the last one (`locktime`, arp(7)).
        let announced = "for try in 1 2 3 4 5 6; do ip link set eth0 down; ip link set eth0 up; sleep 0.3; done; \
                                 ip route replace default via 10.244.1.1";
        second.run("sh", &["-c", announced]);
    });
    let all = failures(&found);
    assert!(!all.is_empty() && all.iter().all(|line| line.contains("node-1")), "{all:#?}");
    has(&all, "pod-to-pod node-2 node-1 TCP refused", &[]);
    explains(&found, "pod-to-pod", &["two Pods or hosts have one address"]);
}

/// After a change of the range, the Node still has the old one, and kube-proxy takes its Pods for strangers.
#[tokio::test]
async fn local_detection_by_the_range_of_the_node_is_found() {
    let mut world = World::start(2, PodNetwork::Bridge).await;
    let proxy = &mut world.nodes[0].proxy;
    proxy.stop();
    proxy.config["detectLocalMode"] = "NodeCIDR".into();
    proxy.start_again().await;
    only(&world.test(QUICK), &[]);
    let conflist = world.nodes[0].host().path(CONFIGURATION);
    let text = std::fs::read_to_string(&conflist).unwrap();
    std::fs::write(&conflist, text.replace("10.244.1.0/24", "10.244.101.0/24").replace("cni0", "cni1"))
        .unwrap();
    for host in [world.cluster.network().hub(), world.nodes[1].namespace()] {
        host.ip(&["route replace 10.244.101.0/24 via 192.0.2.101"]);
    }
    let found = world.test(QUICK);
    has(&only(&found, &["pod-to-service"]), "pod-to-service node-1", &["source-of-sender", "192.0.2.101"]);
    explains(&found, "pod-to-service", &["detectLocalMode"]);
}

#[tokio::test]
async fn policies_of_others_are_named() {
    let world = World::with_policies(2, PodNetwork::Bridge).await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own", "labels": labels}});
    world.cluster.api.create(&namespace).await;
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "own", "name": "default-deny"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    });
    world.cluster.api.create(&policy).await;
    let found = world.test("--namespace own --only pod-to-pod,dns-udp,node-to-node");
    only(&found, &["pod-to-pod", "dns-udp"]);
    for path in ["pod-to-pod", "dns-udp"] {
        explains(&found, path, &["NetworkPolicy `default-deny`", "--namespace"]);
    }
}
