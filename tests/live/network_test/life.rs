//! What a test leaves behind, with which rights it runs, and what it writes.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::{Pid, Signal, kill_process};
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
