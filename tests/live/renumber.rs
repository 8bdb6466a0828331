//! A renumbering under traffic that does not go straight to its end: rolled back, killed and resumed.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::process::wait_until;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::serving::{DEADLINE, NEW_RANGE, SERVICES, Serving, lines_of};

#[tokio::test]
async fn rolled_back_with_what_others_changed_meanwhile() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Iptables).await;
    let old = Serving::targets();
    let node_port = json!({"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]});
    serving.cluster.api.create_service("default", "doors", node_port).await;
    let probe = serving.probe(&old).await;
    serving.apply("").await;
    // One that its external IP holds, one that a shadow holds.
    for deleted in ["web-4", "doors"] {
        serving.cluster.api.delete(&format!("/api/v1/namespaces/default/services/{deleted}")).await;
    }
    let path = "/api/v1/namespaces/default/services/web-3";
    serving.cluster.api.merge(path, &json!({"metadata": {"labels": {"release": "2026.3"}}})).await;
    serving.restart_with("10.96.0.0/16").await;
    let rolled_back = serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    for deleted in ["web-4", "doors"] {
        assert!(rolled_back.err.contains(&format!("default/{deleted} is gone")), "{}", rolled_back.err);
    }
    let report = probe.stop();
    serving.assert_unbroken(&report, &old);
    assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
    assert_eq!(serving.cluster_ip("kubernetes").await, "10.96.0.1");
    let labelled = serving.cluster.api.get(path).await;
    assert_eq!(labelled["metadata"]["labels"]["release"], "2026.3");
    assert_eq!(labelled["spec"]["externalIPs"], Value::Null, "{labelled}");
    serving.wait_for_one_range().await;
    serving.assert_clean();
    let mut keys = serving.cluster.etcd.keys("/registry/services/specs/").await;
    keys.extend(serving.cluster.etcd.keys("/registry/ipaddresses/").await);
    assert!(!keys.iter().any(|key| key.contains("netsurgeon-") || key.contains("/10.200.")), "{keys:?}");
    let operation = serving.journals().remove(0);
    serving.netsurgeon(&format!("operation forget {operation}")).expect(0);
    assert_eq!(serving.cluster.etcd.keys("/netsurgeon/").await, Vec::<String>::new());
}

/// Whoever resolved a name just before its Service moved back gets through at the new address, too, of a Service that
/// its external IP holds and of one that a shadow does, in the first batch and in the last.
#[tokio::test]
async fn rolled_back_under_clients_that_remember_the_new_addresses() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let ports = json!({"type": "NodePort", "clusterIP": "10.96.1.200"});
    serving.cluster.create_echo_service("doors", &json!({"app": "web"}), &ports).await;
    serving.apply("").await;
    let addresses = ["0.5", "1.1", "1.7", "1.24", "1.200"];
    let new = addresses.map(|address| Target::tcp(&format!("10.200.{address}"), 80));
    let old = addresses.map(|address| Target::tcp(&format!("10.96.{address}"), 80));
    let (remembering, asking_anew) = (serving.probe(&new).await, serving.probe(&old).await);
    serving.restart_with("10.96.0.0/16").await;
    let mut running = serving.start_netsurgeon("renumber rollback --yes --linger 600 --confirm flags");
    serving.wait_for_undone(&mut running, SERVICES + 3).await;
    remembering.wait_for_attempts(new[0], 200, DEADLINE).await;
    let remembered = remembering.stop();
    serving.assert_unbroken(&remembered, &new);
    wait_until("it lingers", DEADLINE, async || {
        let said = lines_of(&running.err);
        let lingers = said.iter().any(|line| line.contains("for 600 s the new addresses go on answering"));
        if lingers { Ok(()) } else { Err(format!("{:?}", said.last())) }
    })
    .await;
    // Somebody knows better.
    running.signal(Signal::INT);
    assert_eq!(running.end().await, 6, "{:?}", lines_of(&running.err));
    serving.netsurgeon("renumber rollback --yes --linger 0 --confirm flags").expect(0);
    serving.assert_unbroken(&asking_anew.stop(), &old);
    let gone = serving.client.probe(&new);
    for target in new {
        gone.wait_for_failure(target, DEADLINE).await;
    }
}

/// Deletes the IPAddress objects that are the allocator's and that their Services do not have, as a repair loop does
/// some minutes after somebody was killed who had handed them over. Returns how many there were.
async fn repair(serving: &Serving) -> usize {
    let api = &serving.cluster.api;
    let (path, mut count) = ("/apis/networking.k8s.io/v1/ipaddresses", 0);
    for object in api.list(path).await {
        let (name, parent) =
            (object["metadata"]["name"].as_str().expect("a name"), &object["spec"]["parentRef"]);
        let is_allocators =
            object["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"] == "ipallocator.k8s.io";
        let (namespace, service) = (parent["namespace"].as_str(), parent["name"].as_str());
        let service = format!(
            "/api/v1/namespaces/{}/services/{}",
            namespace.expect("a namespace"),
            service.expect("a name")
        );
        if is_allocators && api.get(&service).await["spec"]["clusterIP"] != name {
            api.delete(&format!("{path}/{name}")).await;
            count += 1;
        }
    }
    count
}

/// Killed between handing addresses over and the flips, and gone on with so late that they are gone; forward and back.
#[tokio::test]
async fn gone_on_with_after_a_repair_loop_has_been_there() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    let mut dying = serving.start_netsurgeon(&format!("{} --lock-ttl 2", serving.apply_words()));
    serving.wait_for_records(&mut dying, "hand-over", 10).await;
    drop(dying);
    assert!(repair(&serving).await > 0, "it was killed before the flips");
    let operation = serving.journals().remove(0);
    let words = format!("operation resume {operation} --take-over --confirm certificates");
    let resumed = serving.netsurgeon(&words).expect(6);
    assert!(resumed.err.contains("handed over again"), "{}", resumed.err);
    serving.restart_with(NEW_RANGE).await;
    serving.netsurgeon(&format!("operation resume {operation} --confirm flags")).expect(0);
    serving.netsurgeon("renumber verify").expect(0);

    serving.restart_with("10.96.0.0/16").await;
    let back = "renumber rollback --yes --linger 1 --confirm flags";
    let mut dying = serving.start_netsurgeon(&format!("{back} --lock-ttl 2"));
    serving.wait_for_records(&mut dying, "hand-back", 2).await;
    drop(dying);
    assert!(repair(&serving).await > 0, "it was killed before the flips back");
    let undone = serving.netsurgeon(&format!("{back} --take-over")).expect(0);
    assert!(undone.err.contains("handed over again"), "{}", undone.err);
    serving.assert_unbroken(&probe.stop(), &old);
    assert_eq!(serving.cluster_ip("web").await, "10.96.0.5");
    serving.wait_for_one_range().await;
    serving.assert_clean();
}

/// The lock on deploy pipelines is none on netsurgeon: the same user's writes through the API and those in etcd
/// go on.
#[tokio::test]
async fn a_lock_on_deploy_pipelines_does_not_hinder_it() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    serving.netsurgeon("lock --what all --operation renumbering").expect(0);
    let dev = serving.cluster.api_as(0, "dev", Some("system:masters")).await;
    let name = json!({"name": "new", "namespace": "default"});
    let new =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": {"ports": [{"port": 80}]}});
    let refused = dev.try_create(&new).await.expect_err("it is locked");
    assert!(refused.to_string().contains("locked by netsurgeon: user dev may not create"), "{refused}");

    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    serving.apply("").await;
    let report = probe.stop();
    serving.assert_unbroken(&report, &old);
    let confirmed = "--confirm soak --confirm certificates-after";
    serving.netsurgeon(&format!("renumber retire --without-evidence --yes {confirmed}")).expect(0);
    assert!(dev.try_create(&new).await.is_err(), "it is still locked");
    serving.netsurgeon("unlock").expect(0);
    dev.create(&new).await;
    serving.assert_clean();
}

/// Killed at random instants, gone on with from another folder, until it is through.
#[tokio::test]
async fn killed_and_resumed_until_it_is_through() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let old = Serving::targets();
    let probe = serving.probe(&old).await;
    // Not faster than somebody can look who counts its records.
    let slowly = "--lock-ttl 2 --rate 60";
    let mut words = format!("{} {slowly}", serving.apply_words());
    let mut kills = 0;
    // The first three keys are the lock, the plan and the record by which the operation exists.
    while serving.kill_after(&words, 3 + 4 * kills).await {
        kills += 1;
        let (journals, confirmed) = (serving.journals(), "--confirm snapshot --confirm certificates");
        words = format!("operation resume {} --take-over {slowly} {confirmed}", journals[0]);
    }
    println!("killed {kills} times");
    assert!(kills > 5, "{kills}");
    serving.restart_with(NEW_RANGE).await;
    serving.netsurgeon(&format!("{words} --confirm flags")).expect(0);
    let report = probe.stop();
    serving.assert_unbroken(&report, &old);
    serving.netsurgeon("renumber verify").expect(0);
}

/// With no API server to ask: refused while there is one, and a sign of life is told; then every Service has its old
/// address in etcd, which nobody who connects notices, neither before an API server starts nor after; and the rest of
/// the way back follows.
async fn rolled_back_without_an_api_server(era: Era, mode: ProxyMode) {
    let mut serving = Serving::start(era, mode).await;
    let ports = json!({"type": "NodePort", "clusterIP": "10.96.1.200"});
    serving.cluster.create_echo_service("doors", &json!({"app": "web"}), &ports).await;
    let operation = serving.apply("").await;
    let old = ["0.5", "1.1", "1.7", "1.200"].map(|address| Target::tcp(&format!("10.96.{address}"), 80));
    let probe = serving.probe(&old).await;
    let back = "renumber rollback --yes --without-api 1";
    let refused = serving.netsurgeon(back).expect(1);
    assert!(refused.err.contains("answers"), "{}", refused.err);
    serving.cluster.pause_api_server(0);
    let asks = serving.netsurgeon("renumber rollback --without-api 1").expect(1);
    assert!(asks.err.contains("1 API server has a lease of 15 s in etcd"), "{}", asks.err);
    serving.cluster.resume_api_server(0);
    serving.cluster.stop_api_servers();
    let paused = serving.netsurgeon(back).expect(6);
    let go_on = format!("`netsurgeon operation rollback {operation}`");
    assert!(paused.err.contains(&go_on) && !paused.err.contains("lease"), "{}", paused.err);
    let status = serving.netsurgeon("renumber status -o json").expect(0).json();
    assert_eq!(status["held"], 0, "every Service has its old address: {status}");
    if era != Era::Bitmap {
        serving.cluster.set_service_cidrs("10.96.0.0/16");
    }
    serving.cluster.start_api_servers().await;
    for (name, address) in [("web", "10.96.0.5"), ("doors", "10.96.1.200"), ("kubernetes", "10.96.0.1")] {
        assert_eq!(serving.cluster_ip(name).await, address, "{name}");
    }
    if era == Era::Bitmap {
        serving.netsurgeon("renumber rollback --yes --linger 1").expect(6);
        serving.restart_with("10.96.0.0/16").await;
    }
    serving.netsurgeon("renumber rollback --yes --linger 1 --confirm flags").expect(0);
    serving.assert_unbroken(&probe.stop(), &old);
    if era != Era::Bitmap {
        serving.wait_for_one_range().await;
    }
    serving.assert_clean();
}

#[tokio::test]
async fn without_an_api_server() {
    rolled_back_without_an_api_server(Era::Objects, ProxyMode::Nftables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn without_an_api_server_where_allocations_are_bits() {
    rolled_back_without_an_api_server(Era::Bitmap, ProxyMode::Iptables).await;
}

#[tokio::test]
#[ignore = "a minute, in `make soak`: needs `make rig` and root"]
async fn without_an_api_server_under_dual_write() {
    rolled_back_without_an_api_server(Era::DualWrite, ProxyMode::Iptables).await;
}
