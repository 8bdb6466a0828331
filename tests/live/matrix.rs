//! A whole renumbering under traffic, in every storage era, with every mode of kube-proxy and every hold: no
//! connection fails, whatever address it was opened to, and the server sees the client's own address.
//!
//! `make test` runs half of the cells: each era with each mode, each era with each hold, each mode with each hold.

use netsurgeon::renumber::Hold;
use serde_json::{Value, json};

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::rig::report::Target;
use super::serving::{DEADLINE, NEW_RANGE, SERVICES, Serving};

macro_rules! cells {
    ($($name:ident: $era:ident $mode:ident $hold:ident $(#[$attribute:meta])?;)*) => {
        $(
            #[tokio::test]
            $(#[$attribute])?
            async fn $name() {
                cell(Era::$era, ProxyMode::$mode, Hold::$hold).await;
            }
        )*
    };
}

cells! {
    objects_nftables_external_ip: Objects Nftables ExternalIp;
    objects_iptables_shadow: Objects Iptables Shadow;
    dual_write_iptables_external_ip: DualWrite Iptables ExternalIp;
    dual_write_nftables_shadow: DualWrite Nftables Shadow;
    bitmap_iptables_shadow: Bitmap Iptables Shadow;
    bitmap_nftables_external_ip: Bitmap Nftables ExternalIp;
    objects_iptables_external_ip: Objects Iptables ExternalIp #[ignore = "in make soak"];
    objects_nftables_shadow: Objects Nftables Shadow #[ignore = "in make soak"];
    dual_write_nftables_external_ip: DualWrite Nftables ExternalIp #[ignore = "in make soak"];
    dual_write_iptables_shadow: DualWrite Iptables Shadow #[ignore = "in make soak"];
    bitmap_nftables_shadow: Bitmap Nftables Shadow #[ignore = "in make soak"];
    bitmap_iptables_external_ip: Bitmap Iptables ExternalIp #[ignore = "in make soak"];
}

async fn cell(era: Era, mode: ProxyMode, hold: Hold) {
    let mut serving = Serving::start(era, mode).await;
    let old = Serving::targets();
    let new = [Target::tcp("10.200.0.5", 80), Target::udp("10.200.0.5", 80), Target::tcp("10.200.1.7", 80)];
    let before = identities(&serving).await;
    let probe = serving.probe(&old).await;
    // kube-proxy 1.32 in mode nftables drops what nodes themselves send to a Service without a selector; what the
    // probe sends comes from a Pod.
    let gap = if (era, mode) == (Era::Bitmap, ProxyMode::Nftables) { "--accept-gap" } else { "" };
    serving.apply(&format!("--hold {hold} {gap}")).await;
    let trial = serving.client.probe(&new);
    for target in new {
        trial.wait_for_success(target, DEADLINE).await;
    }
    drop(trial);
    for target in new {
        probe.add(target);
        probe.wait_for_attempts(target, 200, DEADLINE).await;
    }
    assert_eq!(serving.cluster_ip("web").await, "10.200.0.5");
    assert_eq!(serving.cluster_ip("kubernetes").await, "10.200.0.1");
    let verified = serving.netsurgeon("renumber verify -o json").expect(0).json();
    assert_eq!(verified["held"].as_u64(), Some(SERVICES as u64 + 2), "{verified}");
    a_held_address_cannot_be_taken(&serving).await;
    every_service_accepts_an_update(&serving).await;
    serving.assert_unbroken(&probe.stop(), &old);

    let probe = serving.probe(&new).await;
    serving.retire();
    serving.assert_unbroken(&probe.stop(), &new);
    assert_eq!(identities(&serving).await, before, "the same Services, none made anew");
    nothing_is_left(&serving, era).await;
    let ports = json!({"ports": [{"port": 80}]});
    let created = serving.cluster.api.create_service("default", "after", ports).await;
    assert!(created["spec"]["clusterIP"].as_str().unwrap_or_default().starts_with("10.200."), "{created}");
}

async fn services(serving: &Serving) -> Vec<Value> {
    serving.cluster.api.list("/api/v1/services").await
}

/// Names and uids.
async fn identities(serving: &Serving) -> Vec<(Value, Value)> {
    let metadata =
        |service: &Value| (service["metadata"]["name"].clone(), service["metadata"]["uid"].clone());
    services(serving).await.iter().map(metadata).collect()
}

async fn a_held_address_cannot_be_taken(serving: &Serving) {
    let taken = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
    let name = json!({"name": "thief", "namespace": "default"});
    let thief = json!({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": taken});
    serving.cluster.api.try_create(&thief).await.expect_err("a held address is taken");
}

async fn every_service_accepts_an_update(serving: &Serving) {
    for service in services(serving).await {
        let (namespace, name) = (&service["metadata"]["namespace"], &service["metadata"]["name"]);
        let (namespace, name) = (namespace.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        serving.cluster.api.merge(&path, &json!({"metadata": {"labels": {"updated": "yes"}}})).await;
    }
}

async fn nothing_is_left(serving: &Serving, era: Era) {
    serving.assert_clean();
    assert!(serving.cluster.etcd.keys("/netsurgeon/").await.is_empty(), "nothing of ours is left");
    for service in services(serving).await {
        assert_eq!(service["spec"]["externalIPs"], Value::Null, "{service}");
        assert_eq!(service["spec"]["externalTrafficPolicy"], Value::Null, "{service}");
    }
    if era != Era::Bitmap {
        let ranges = serving.cluster.api.list("/apis/networking.k8s.io/v1/servicecidrs").await;
        let ranges: Vec<_> = ranges.iter().map(|range| range["spec"]["cidrs"].clone()).collect();
        assert_eq!(ranges, [json!([NEW_RANGE])]);
    }
}
