//! What a test leaves behind, with which rights it runs, and what it writes.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::json;

use super::super::rig::process::wait_until;
use super::*;

#[tokio::test]
async fn killed_test_leaves_nothing_after_clean_or_the_next_test() {
    let world = World::start(2, PodNetwork::Bridge).await;
    for is_cleaned in [true, false] {
        let mut child = world.command("network test --for 5m").spawn().unwrap();
        wait_until("the test has started its last Pods", DEADLINE, async || {
            let pods = world.cluster.api.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await;
            if pods.len() == 6 { Ok(()) } else { Err(format!("{} Pods", pods.len())) }
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        if is_cleaned {
            let refused = world.netsurgeon("network clean").expect(1);
            assert!(refused.err.contains("--force"), "{}", refused.err);
            let cleaned = world.netsurgeon("network clean --force -o json").expect(0).json();
            assert_eq!(cleaned["removed"]["Pod"], 6);
            assert_eq!(cleaned["has_removed_namespace"], true);
            let again = world.netsurgeon("network clean").expect(0);
            assert!(again.out.contains("nothing is left behind"), "{}", again.out);
        } else {
            // It waits until the Lease of the killed test has expired.
            world.netsurgeon("network test --only pod-to-pod").expect(0);
        }
        assert_clean(&world).await;
    }

    let mut child = world.command("network test --for 5m").spawn().unwrap();
    wait_until("the test has started", DEADLINE, async || {
        let pods = world.cluster.api.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await;
        if pods.is_empty() { Err("no Pods".to_owned()) } else { Ok(()) }
    })
    .await;
    let busy = world.netsurgeon("network clean").expect(1);
    assert!(busy.err.contains("another process of netsurgeon uses the namespace"), "{}", busy.err);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = child.wait().unwrap();
    assert_eq!((ended.code(), ended.signal()), (Some(6), None), "a signal removes everything");
    assert_clean(&world).await;
}

/// Waits until the API has so many ready agents of a test; returns their Pods.
async fn agents(world: &World, namespace: &str, count: usize) -> Vec<Value> {
    wait_until("the agents are ready", DEADLINE, async || {
        let pods = world.cluster.api.list(&format!("/api/v1/namespaces/{namespace}/pods")).await;
        let is_ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        let ready = pods.iter().filter(is_ready).count();
        if ready == count { Ok(pods) } else { Err(format!("{ready} agents of {count}")) }
    })
    .await
}

#[tokio::test]
async fn signal_ends_a_long_test_with_the_result_of_its_rounds() {
    let world = World::start(2, PodNetwork::Bridge).await;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let [result, junit, page, metrics] = ["result.json", "junit.xml", "page.html", "metrics.txt"].map(at);
    let words = format!(
        "network test --for 10m --interval 1s --only pod-to-pod,loss --save {result} --junit {junit} --html {page} --metrics {metrics}"
    );
    let mut test = Background::start(&world, &words);
    test.says("round 2:");
    test.signal(Signal::TERM);
    let ended = test.end();
    assert_eq!(ended.code, 6, "{}{}", ended.out, ended.err);
    assert!(
        ended.out.contains("every tested path passed") && ended.out.contains("ended early by a signal"),
        "{}",
        ended.out
    );
    assert_clean(&world).await;
    let result: Value = serde_json::from_str(&std::fs::read_to_string(result).unwrap()).unwrap();
    let rounds = result["rounds"].as_u64().unwrap();
    assert!(rounds >= 2 && result["ended_early"] == true, "{result}");
    let paths = result["paths"].as_array().unwrap();
    let loss = paths.iter().find(|path| path["path"] == "loss").expect("the path was tested");
    assert_eq!(loss["passed"], rounds, "the round that did not end does not count");
    let [junit, page, metrics] = [junit, page, metrics].map(|file| std::fs::read_to_string(file).unwrap());
    assert!(junit.contains("name=\"ended-early\" value=\"true\""), "{junit}");
    assert!(page.contains("ended early by a signal") && metrics.contains("netsurgeon_network_ended_early 1"));
}

#[tokio::test]
async fn test_without_its_lease_ends_and_leaves_the_other_alone() {
    let world = World::start(2, PodNetwork::Bridge).await;
    let api = &world.cluster.api;
    let mut test =
        Background::start(&world, "network test --for 10m --interval 1s --only pod-to-pod --keep-going");
    test.says("round 1:");
    let other = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": NAMESPACE, "name": "nt-other-all", "labels": {
            "app.kubernetes.io/managed-by": "netsurgeon", "app.kubernetes.io/component": "network-test", "netsurgeon/run": "other",
        }},
        "spec": {"ports": [{"port": 80}]},
    });
    api.create(&other).await;
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/netsurgeon-network-test");
    let now = api.get(&lease).await["spec"]["renewTime"].clone();
    let taken = json!({"spec": {"holderIdentity": "other-process", "leaseTransitions": 1, "renewTime": now}});
    api.merge(&lease, &taken).await;
    let ended = test.end();
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("another process took its Lease: `other-process`"), "{}", ended.err);
    assert_eq!(api.get(&lease).await["spec"]["holderIdentity"], "other-process");
    assert!(api.find(&format!("/api/v1/namespaces/{NAMESPACE}/services/nt-other-all")).await.is_some());
    assert!(
        api.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await.is_empty(),
        "its own Pods are gone"
    );
    world.netsurgeon("network clean --force").expect(0);
    assert_clean(&world).await;

    // The forced removal ends a test, which does not create its Pods again.
    api.create_namespace("own").await;
    let words = "network test --namespace own --for 10m --interval 1s --only pod-to-pod --keep-going";
    let mut test = Background::start(&world, words);
    test.says("round 1:");
    let cleaned = world.netsurgeon("network clean --namespace own --force -o json").expect(0).json();
    assert_eq!(cleaned["removed"]["Pod"], 4, "it does not create them again");
    let ended = test.end();
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    let is_told = ["its Lease was removed", "another process took its Lease: `network clean`"];
    assert!(is_told.iter().any(|text| ended.err.contains(text)), "{}", ended.err);
    for kind in ["pods", "services"] {
        assert!(api.list(&format!("/api/v1/namespaces/own/{kind}")).await.is_empty());
    }
}

/// A drain evicts the agents of node-2; they return when it takes Pods again. Then the node does not take them, and at last it leaves.
#[tokio::test]
#[ignore = "a minute and a half, in `make soak`: needs `make rig` and root"]
async fn agents_that_are_evicted_are_no_failure_and_return() {
    let mut world = World::start(2, PodNetwork::Bridge).await;
    // The Pod of CoreDNS may be on node-2.
    let words = "network test --for 10m --interval 1s --skip dns-udp,dns-tcp,policy-deny,policy-allow --keep-going -o json";
    let mut test = Background::start(&world, words);
    test.says("round 1:");
    let api = &world.cluster.api;
    api.merge("/api/v1/nodes/node-2", &json!({"spec": {"unschedulable": true}})).await;
    let before = agents(&world, NAMESPACE, 6).await;
    for pod in before.iter().filter(|pod| pod["spec"]["nodeName"] == "node-2") {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": NAMESPACE, "name": name},
        });
        api.request(http::Method::POST, &path, "application/json", Some(&eviction)).await.unwrap();
    }
    test.rounds(2);
    assert_eq!(
        api.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await.len(),
        3,
        "a cordoned node gets no agent"
    );
    api.merge("/api/v1/nodes/node-2", &json!({"spec": {"unschedulable": null}})).await;
    agents(&world, NAMESPACE, 6).await;
    test.rounds(3);
    api.delete("/api/v1/nodes/node-2").await;
    world.nodes[1].kill();
    test.rounds(2);
    test.signal(Signal::INT);
    let ended = test.end();
    let result: Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.err));
    let all = failures(&result);
    let paths = result["paths"].as_array().unwrap();
    let failed: Vec<_> = paths.iter().filter(|path| path["verdict"] == "failed").collect();
    assert!(all.is_empty(), "{all:#?} {failed:#?}");
    let pair = paths.iter().find(|path| path["path"] == "pod-to-pod" && path["from"] == "node-1").unwrap();
    assert!(pair["passed"].as_u64() >= Some(2) && pair["untested"].as_u64() >= Some(4), "{pair}");
    assert!(pair["not_tested"].as_str().unwrap().contains("left the cluster"), "{pair}");
    assert_clean(&world).await;
}

#[tokio::test]
async fn node_that_joins_is_tested() {
    let mut world = World::start(2, PodNetwork::Bridge).await;
    let path = "/api/v1/nodes/node-2";
    let former = world.cluster.api.get(path).await;
    // kube-proxy ends when its Node is deleted.
    world.nodes[1].proxy.stop();
    world.cluster.delete_and_wait(path).await;
    let words = "network test --for 10m --interval 1s --skip dns-udp,dns-tcp,policy-deny,policy-allow --keep-going -o json";
    let mut test = Background::start(&world, words);
    test.says("round 1:");
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "spec": former["spec"],
        "metadata": {"name": "node-2", "labels": former["metadata"]["labels"]},
    });
    world.cluster.api.create(&node).await;
    world.cluster.wait_for_node("node-2").await;
    world.nodes[1].proxy.start_again().await;
    agents(&world, NAMESPACE, 6).await;
    test.rounds(3);
    test.signal(Signal::INT);
    let ended = test.end();
    let result: Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.err));
    assert_eq!(ended.code, 6, "{:#?}", failures(&result));
    assert_eq!(result["nodes"], json!(["node-1", "node-2"]));
    let paths = result["paths"].as_array().unwrap();
    let find = |path: &str, from: &str| {
        let found = paths.iter().find(|one| one["path"] == path && one["from"] == from);
        found.unwrap_or_else(|| panic!("{path} from {from}: {paths:#?}"))
    };
    for (path, from) in [("pod-to-pod", "node-1"), ("node-port", "node-2"), ("new-pod", "node-2")] {
        assert!(find(path, from)["passed"].as_u64() >= Some(1), "{}", find(path, from));
    }
    let reason = find("node-object", "node-2")["not_tested"].as_str().unwrap();
    assert!(reason.contains("joined during the test"), "{reason}");
    assert_clean(&world).await;
}

#[tokio::test]
async fn node_that_takes_no_agent_is_not_tested() {
    let mut world = World::start(2, PodNetwork::Bridge).await;
    let free = world.cluster.api.get("/api/v1/nodes/node-2").await["status"]["allocatable"]["cpu"].clone();
    let cores: u64 = free.as_str().unwrap().parse().expect("whole processors");
    let cpu = format!("{}m", cores * 1000 - 15);
    let container = json!({"name": "large", "image": AGENT, "command": ["/pause"], "resources": {"requests": {"cpu": cpu}}});
    world.cluster.run_pod("default", "large", json!({"nodeName": "node-2", "containers": [container]})).await;
    // One agent has room, the others have not.
    let run = world.netsurgeon("network test --skip policy-deny,policy-allow");
    assert_eq!(run.code, 3, "no path between nodes could be tested");
    assert!(run.out.contains("pod-to-pod: not tested: fewer than two nodes have an agent"), "{}", run.out);
    assert!(run.out.contains("OutOfcpu") && run.out.contains("node-2: not tested in 1 round"), "{}", run.out);
    assert!(run.out.contains("every tested path passed"), "{}", run.out);

    // Such a Pod is no endpoint, and so no excuse for kube-proxy on another node.
    world.nodes[0].proxy.pause();
    let run = world.netsurgeon("network test --only pod-to-service").expect(3);
    assert!(run.out.contains("pod-to-service: 1 path failed"), "{}", run.out);
    world.nodes[0].proxy.resume();
    assert_clean(&world).await;
}

#[tokio::test]
async fn printed_roles_are_enough_and_files_are_written() {
    let world = World::start(2, PodNetwork::Bridge).await;
    let roles = world.netsurgeon("network test --print-rbac --namespace own").expect(0).out;
    for document in roles.split("---\n") {
        let role: Value = serde_saphyr::from_str(document).unwrap();
        world.cluster.api.create(&role).await;
        let kind = role["kind"].as_str().unwrap();
        if kind == "Namespace" {
            continue;
        }
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": role["metadata"],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role["metadata"]["name"]},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tester"}],
        });
        world.cluster.api.create(&binding).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let files = ["result.json", "matrix.svg", "junit.xml", "metrics.txt", "page.html"].map(at);
    let words = format!(
        "network test --namespace own --skip policy-deny,policy-allow --rounds 2 --interval 1s --save {} --svg {} --junit {} --metrics {} --html {}",
        files[0], files[1], files[2], files[3], files[4]
    );
    let mut command = world.command(&words);
    command.env("KUBECONFIG", world.cluster.kubeconfig_as(0, "tester", None));
    run(&words, command).expect(0);
    assert!(
        world.cluster.api.find("/api/v1/namespaces/own").await.is_some(),
        "a namespace of the user stays"
    );
    for kind in ["pods", "services"] {
        assert!(world.cluster.api.list(&format!("/api/v1/namespaces/own/{kind}")).await.is_empty());
    }
    let [result, picture, junit, metrics, page] =
        files.clone().map(|file| std::fs::read_to_string(file).unwrap());
    assert!(
        result.contains("\"rounds\":2") && picture.starts_with("<svg") && junit.contains("failures=\"0\"")
    );
    assert!(page.contains("<svg") && page.contains("Every tested path passed."));
    assert!(
        metrics.contains("netsurgeon_network_paths{path=\"pod-to-pod\",verdict=\"passed\"} 4"),
        "{metrics}"
    );

    // A fault of the baseline is shown, and does not count.
    let nodes = &world.nodes;
    nodes[0].namespace().run("ip", &["link", "set", "eth0", "mtu", "1400"]);
    let words = format!("network test --only full-size,loss --save {}", files[0]);
    let before = world.netsurgeon(&words).expect(3);
    assert!(before.out.contains("full-size: 2 paths failed, everywhere"), "{}", before.out);
    let after =
        world.netsurgeon(&format!("network test --only full-size,loss --baseline {}", files[0])).expect(0);
    assert!(after.out.contains("no new failure; 2 paths failed, as in the baseline"), "{}", after.out);

    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    world.cluster.api.merge("/api/v1/namespaces/own", &labels).await;
    let refused = world.netsurgeon("network test --namespace own").expect(1);
    assert!(
        refused.err.contains("the cluster would not accept") && refused.err.contains("privileged"),
        "{}",
        refused.err
    );
}

/// Each kill is at another moment: while Pods start, during rounds, and while they are removed.
#[tokio::test]
#[ignore = "3 minutes, in `make soak`: needs `make rig` and root"]
async fn killed_at_any_moment_it_leaves_nothing() {
    let world = World::start(2, PodNetwork::Bridge).await;
    for moment in 0..20 {
        let mut child = world.command("network test --skip policy-deny,policy-allow").spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(moment * 400)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        world.netsurgeon("network clean --force").expect(0);
        assert_clean(&world).await;
    }
}
